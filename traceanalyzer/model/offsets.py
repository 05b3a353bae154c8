"""Times as users type and read them: offsets from `Meta.origin_ns`, `12.346 ms`."""

from __future__ import annotations

import re
from decimal import Decimal

from traceanalyzer.model.errors import BadOption

_SCALES = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "μs": 1_000, "ns": 1}
_OFFSET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|ms|us|µs|μs|ns)?\s*")
_REMEDY = "Write --window 12.5ms:80ms; units are s, ms, us and ns, and a side left empty is open."


def format_offset(ns: int) -> str:
    """Milliseconds to the microsecond, whatever the size, so that all offsets of a report compare by eye."""
    return f"{ns / 1e6:.3f} ms"


def parse_window(text: str) -> tuple[int | None, int | None]:
    """`START:END` to nanoseconds; a start without a unit has that of the end, an empty side is open.

    Raises:
        BadOption: it is not two offsets, has no unit, or ends before it starts.
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
    return int((Decimal(match[1]) * _SCALES[unit or "ns"]).to_integral_value()), unit
