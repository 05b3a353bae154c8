"""Times, sizes and shares as people read and type them."""

import math
import re
from decimal import Decimal

from traceanalyzer.model.errors import BadOption

_ROUNDS_UP = 0.9995  # of a unit: from there on three digits of the smaller one would be all of it
_SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "μs": 1_000, "ns": 1}
_OFFSET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|ms|us|µs|μs|ns)?\s*")
_REMEDY = "Write --window 12.5ms:80ms; units are s, ms, us and ns, and a side left empty is open."


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
    hundredths = share * 100
    if hundredths == 0:
        return "0 %"
    if hundredths < 0.01:
        return "< 0.01 %"
    return f"{hundredths:.2f} %" if hundredths < 0.995 else f"{hundredths:.1f} %"


def percent(share: float) -> str:
    """A share of 1 without decimals: `26 %`."""
    return f"{100 * share:.0f} %"


def format_offset(ns: int) -> str:
    """Milliseconds to the microsecond, whatever the size, so that all offsets of a report compare by eye."""
    return f"{ns / 1e6:.3f} ms"


def parse_window(text: str) -> tuple[int | None, int | None]:
    """`START:END` to nanoseconds; a start without a unit has that of the end, an empty side is open.

    Raises BadOption: it is not two offsets, has no unit, or ends before it starts.
    """
    start_text, colon, end_text = text.partition(":")
    if not colon or not (start_text.strip() or end_text.strip()):
        raise BadOption(f"--window {text}: not START:END", remedy=_REMEDY)
    end, unit = _parse(end_text, None, text)
    start, _ = _parse(start_text, unit, text)
    if start is not None and end is not None and start >= end:
        raise BadOption(f"--window {text}: ends before it starts", remedy=_REMEDY)
    return start, end


def _parse(side: str, unit: str | None, whole: str) -> tuple[int | None, str | None]:
    """One side in ns and its unit."""
    if not side.strip():
        return None, None
    match = _OFFSET.fullmatch(side)
    if match is None:
        raise BadOption(f"--window {whole}: {side.strip()!r} is not a time", remedy=_REMEDY)
    unit = match[2] or unit
    if unit is None and Decimal(match[1]) != 0:
        raise BadOption(f"--window {whole}: {side.strip()!r} has no unit", remedy=_REMEDY)
    return int((Decimal(match[1]) * _UNIT_NS[unit or "ns"]).to_integral_value()), unit
