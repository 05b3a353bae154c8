"""What `python -m tests.fuzz` found once, and that a case is the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import run
from tests.fuzz.cases import case
from tests.fuzz.checks import check

CASES = sorted(Path(__file__).with_name("fuzz_cases").glob("*.case"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("batch_bytes", [1_000, 1 << 18])
def test_what_was_found_is_found_no_more(path: Path, batch_bytes: int) -> None:
    check(path, batch_bytes=batch_bytes, diagnosed=True)


def test_a_seed_is_a_case() -> None:
    assert case(7) == case(7)
    assert case(7) != case(8)


def test_a_second_of_it_finds_nothing(tmp_path: Path) -> None:
    assert run(1.0, 1, tmp_path) == 0
