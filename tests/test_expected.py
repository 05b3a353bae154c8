"""Findings of every fixture and of the shared traces are those in tests/expected."""

from __future__ import annotations

import pytest

from tests.support.expected import FOLDER, Program, differences, expected_sections, programs, selected_programs
from tests.support.paths import SHARED

SELECTED = set(selected_programs())


def _parameter(program: Program) -> object:
    marks = [] if program in SELECTED else [pytest.mark.slow]
    if program.shared:
        marks.append(pytest.mark.xdist_group(program.name))
    return pytest.param(program, id=program.name, marks=marks)


@pytest.mark.parametrize("program", [_parameter(program) for program in programs()])
def test_findings_are_as_expected(program: Program) -> None:
    changes = differences(program, program.section())
    command = f"python -m tests.support.expected --write {program.name}"
    assert not changes, "\n".join([*changes, f"If this is intended: {command}"])


def test_no_expected_program_is_missing() -> None:
    files = [file for file in FOLDER.rglob("*.txt") if SHARED.exists() or file.parent.name != "shared"]
    names = [name for file in files for name in expected_sections(file)]
    assert set(names) == {program.name for program in programs()}
