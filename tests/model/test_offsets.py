"""Times as users type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.units import format_offset, parse_window


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("12.5ms:80ms", (12_500_000, 80_000_000)),
        ("12.5:80 ms", (12_500_000, 80_000_000)),
        ("0:1s", (0, 1_000_000_000)),
        ("1us:2µs", (1_000, 2_000)),
        ("7ns:", (7, None)),
        ("1\u03bcs:2\u00b5s", (1_000, 2_000)),
        ("0:", (0, None)),
        ("0:80ms", (0, 80_000_000)),
        ("79999us:80ms", (79_999_000, 80_000_000)),
        (":80ms", (None, 80_000_000)),
        ("12.346 ms : 1.5 s", (12_346_000, 1_500_000_000)),
    ],
)
def test_windows(text: str, window: tuple[int | None, int | None]) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("80ms", "not START:END"),
        (":", "not START:END"),
        ("a:80ms", "'a' is not a time"),
        ("-5ms:80ms", "'-5ms' is not a time"),
        ("10:20", "'20' has no unit"),
        ("10:", "'10' has no unit"),
        ("80ms:10ms", "ends before it starts"),
        ("10ms:10ms", "ends before it starts"),
    ],
)
def test_what_is_no_window_says_how_to_write_one(text: str, problem: str) -> None:
    with pytest.raises(BadOption, match=r"12\.5ms:80ms") as error:
        parse_window(text)
    assert problem in error.value.problem


@given(st.integers(0, 10**15))
def test_a_printed_offset_can_be_typed(ns: int) -> None:
    start, _ = parse_window(f"{format_offset(ns)}:")
    assert start is not None
    assert abs(start - ns) <= 500
