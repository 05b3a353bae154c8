"""Answers to agents: how many events there are, how names are shown, and which trace is compared with which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import written
from tests.comparison.programs import ADDED, MM, built
from tests.rules.kernel_programs import Op
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.integrations import answers
from traceanalyzer.integrations.answers import Roots


@pytest.mark.parametrize("count", [59, 61])
def test_all_events_of_a_window_count_though_few_are_listed(count: int, tmp_path: Path) -> None:
    made = TraceBuilder()
    for at in range(count):
        made.op("aten::mm", at * 10_000, 1_000 + at)
    made.write(tmp_path / "trace.json")
    lines = answers.events(Roots((tmp_path,)), "trace.json", "0ms:50ms").splitlines()
    assert lines[0].startswith(f"{count} events overlap the window")
    assert len(lines) == 2 + min(count, 60)


def test_a_name_of_an_event_is_one_line_of_printable_characters(tmp_path: Path) -> None:
    made = TraceBuilder()
    made.op("bell\x07 and\nline", 0, 9_000)
    made.op("x" * 500, 10_000, 9_000)
    made.write(tmp_path / "trace.json")
    said = answers.events(Roots((tmp_path,)), "trace.json", "0ms:50ms")
    assert len(said.splitlines()) == 4
    assert "\x07" not in said
    assert "x" * 160 + "  " in said
    assert "x" * 161 not in said


def test_the_second_trace_is_what_the_first_became(tmp_path: Path) -> None:
    slow = Op(MM.name, MM.kernel, 700, MM.dims, MM.types)
    built([MM, ADDED], steps=3).write(tmp_path / "base.json")
    built([slow, ADDED], steps=3).write(tmp_path / "new.json")
    said = answers.compared(Roots((tmp_path,)), "base.json", "new.json")
    assert said.splitlines()[0].endswith(" slower")


def test_the_whole_report_is_longer(tmp_path: Path) -> None:
    written(tmp_path / "trace.json")
    short, whole = (answers.diagnosed(Roots((tmp_path,)), "trace.json", verbose) for verbose in (False, True))
    assert len(whole.splitlines()) > len(short.splitlines())
    assert short == answers.diagnosed(Roots((tmp_path,)), "trace.json")
