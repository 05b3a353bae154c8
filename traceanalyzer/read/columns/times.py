"""Times as exporters write them, in microseconds, to int64 nanoseconds: the only conversion of units."""

import json
import math
from decimal import Decimal, InvalidOperation, Overflow
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats, Ns
from traceanalyzer.model.trace import NULL_INT

MAX_TS_US = 4.6e15  # within it the distance of any two times fits int64 nanoseconds: until year 2115
# A base period (baseTimeNanoseconds is a multiple of it) is longer than any recording; kineto writes unsigned
# differences that wrapped around as 1.8e16.
_MAX_DUR_US = 7_889_238 * 1e6


def us_to_ns(us: Floats) -> Ns:
    """Microseconds (float64) to nanoseconds (int64), exact wherever the double still holds the nanosecond.

    Whole and fractional microseconds are scaled apart: `round(us * 1000)` is wrong for 0.7 % of the
    timestamps in the second half of a base period, because the product no longer fits 53 bits.
    """
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000.0).astype(np.int64)


def start_ns(event: Any) -> int:
    """One event's start where the fast way failed: quoted, missing, or no time at all; NULL_INT for none."""
    value = event.get("ts") if isinstance(event, dict) else None
    if isinstance(value, str | Decimal):
        try:  # a number of a billion digits would take minutes as an int
            exact = (Decimal(str(value).strip()) * 1000).to_integral_value()
            return int(exact) if abs(exact) < MAX_TS_US * 1000 else NULL_INT
        except (InvalidOperation, Overflow):
            return NULL_INT
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_TS_US:
        whole = math.floor(value)
        return whole * 1000 + round((value - whole) * 1000.0)  # as `us_to_ns`
    return NULL_INT


def starts_from_text(text: bytes) -> list[int] | None:
    """Starts read from the digits; None where the text does not parse.

    Builds of March to May 2024 wrote nanoseconds after absolute microseconds: 19 digits, a double has 16.
    """
    try:
        return [start_ns(event) for event in json.loads(b"[%b]" % text, parse_float=Decimal)]
    except (ValueError, RecursionError):
        return None


def durations_ns(us: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Durations in ns, and how many were impossible and became 0: negative, no number, longer than any recording."""
    possible = (us >= 0) & (us <= _MAX_DUR_US)
    return us_to_ns(np.where(possible, us, 0.0)), int(len(us) - possible.sum())
