"""Times are exact to the nanosecond, and printed and typed as people read them."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.model.units import format_bytes, format_ns, format_offset, format_share, parse_window
from traceanalyzer.read.columns.times import start_ns, us_to_ns

BASE_PERIOD_NS = 7_889_238 * 10**9


@given(st.integers(0, BASE_PERIOD_NS))
def test_microseconds_of_a_base_period_are_exact(ns: int) -> None:
    text = f"{ns // 1000}.{ns % 1000:03d}"
    assert us_to_ns(np.array([float(text)])).tolist() == [ns]
    assert start_ns({"ts": text}) == ns


@given(st.integers(0, 2**53 - 1))
def test_whole_microseconds_since_1970_are_exact(us: int) -> None:
    assert us_to_ns(np.array([float(us)])).tolist() == [us * 1000]


@given(st.decimals(-(10**15), 10**15, places=3, allow_nan=False))
def test_text_is_exact(us: Decimal) -> None:
    assert start_ns({"ts": f" {us} "}) == int(us * 1000)


@pytest.mark.parametrize("text", ["", "soon", "nan", "-inf", "1,5", "0x10", "1e28", "1e400", "9e999999999"])
def test_text_that_is_no_number(text: str) -> None:
    assert start_ns({"ts": text}) == NULL_INT


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        *((0, "0 ns"), (1, "1 ns"), (-850, "-850 ns"), (999, "999 ns")),
        *((1_000, "1.00 µs"), (12_345, "12.3 µs"), (999_499, "999 µs"), (999_600, "1.00 ms")),
        *((1_240_000, "1.24 ms"), (123_456_789, "123 ms"), (-61_000_000_000, "-61.0 s")),
    ],
)
def test_format_ns(ns: int, text: str) -> None:
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (-2048, "-2.00 KiB"), (99.97 * 1024, "100 KiB")),
        *((1 << 20, "1.00 MiB"), (33.5 * (1 << 20), "33.5 MiB"), (1 << 30, "1.00 GiB"), (150 << 30, "150 GiB")),
    ],
)
def test_format_bytes(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0, "0 %"), (0.00001, "< 0.01 %"), (0.0001, "0.01 %"), (0.0004, "0.04 %"), (0.0099, "0.99 %")),
        *((0.00995, "1.0 %"), (0.123, "12.3 %"), (1, "100.0 %")),
    ],
)
def test_format_share(share: float, text: str) -> None:
    assert format_share(share) == text


def test_times_of_as_many_digits_as_there_may_be_are_read() -> None:
    assert start_ns({"ts": "4.5e15"}) == 45 * 10**17
    assert start_ns({"ts": "4.6e15"}) == start_ns({"ts": "sNaN"}) == NULL_INT
    assert start_ns({"ts": "-0.0005"}) == 0


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
