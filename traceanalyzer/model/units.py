"""The only conversions between the exporter's units and ours: time is int64 nanoseconds everywhere else."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation, Overflow

import numpy as np

from traceanalyzer.model.arrays import Floats, Ns

_MAX_DIGITS = 30  # int64 has 19; a number of a billion digits would take minutes to write out
_ROUNDS_UP = 0.9995  # of a unit: from there on three digits of the smaller one would be all of it
_SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def us_to_ns(us: Floats) -> Ns:
    """Microseconds (float64) to nanoseconds (int64), exact wherever the double still holds the nanosecond.

    Whole and fractional microseconds are scaled apart: `round(us * 1000)` is wrong for 0.7 % of the
    timestamps in the second half of a base period, because the product no longer fits 53 bits.
    """
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000.0).astype(np.int64)


def us_text_to_ns(text: str) -> int:
    """One microsecond value written as text (some exporters quote it) to nanoseconds, exact.

    Raises:
        ValueError: the text is not a finite decimal number.
    """
    try:
        value = Decimal(text.strip()) * 1000
    except (InvalidOperation, Overflow):
        raise ValueError(f"not a number: {text[:40]!r}") from None
    if not value.is_finite() or value.adjusted() > _MAX_DIGITS:
        raise ValueError(f"not a time: {text[:40]!r}")
    return int(value.to_integral_value())


def format_ns(ns: float) -> str:
    """Nanoseconds as people read them: three significant digits and a unit, `1.24 ms`, `850 ns`."""
    size = abs(ns)
    for scale, unit in _SCALES:
        if size >= scale * _ROUNDS_UP:
            return f"{_three_digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def _three_digits(value: float) -> str:
    size = max(abs(float(f"{value:.3g}")), 1.0)  # 99.97 has no decimals: it is 100
    return f"{value:.{max(0, 2 - math.floor(math.log10(size)))}f}"


def format_bytes(count: float) -> str:
    """Bytes in binary units, `33.5 MiB`."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(count) >= scale * _ROUNDS_UP:
            return f"{_three_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def format_share(share: float) -> str:
    """A share of 1 as percent: `12.3 %`, `0.04 %`, `< 0.01 %`."""
    percent = share * 100
    if percent == 0:
        return "0 %"
    if percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.2f} %" if percent < 0.995 else f"{percent:.1f} %"
