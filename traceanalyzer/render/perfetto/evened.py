"""A trace's JSON with the times of a clock that does not drift: Perfetto takes one offset for a file, and no drift."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal

from traceanalyzer.model.overlay import Drift
from traceanalyzer.render.perfetto.chrome import us

_NUMBER = rb'"?(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"?'
# A quote within a text has a backslash before it: no text holds these. Begin and duration mostly stand together.
_TIMES = re.compile(
    rb'(?<!\\)"ts"\s*:\s*%b(\s*,\s*"dur"\s*:\s*)?(?(2)%b)|(?<!\\)"dur"\s*:\s*%b' % ((_NUMBER,) * 3)
)
_FAR_NS = 86_400_000_000_000  # a day from where the drift was measured: no time of an event, as 0 of a process' name


def evened(blocks: Callable[[], Iterable[bytes]], drift: Drift) -> Iterator[bytes]:
    """The JSON, block by block; byte for byte where the clock does not drift.

    What ended together still does: begins and ends are moved, and durations are what lies between. A duration that
    does not follow its begin shrinks or grows by the drift.
    """
    if not drift.ppm:
        yield from blocks()
        return
    left = b""
    for block in blocks():
        whole, brace, left = (left + block).rpartition(b"}")  # no event's times hold one
        yield _TIMES.sub(lambda found: _moved(found, drift), whole) + brace
    yield left


def _moved(found: re.Match[bytes], drift: Drift) -> bytes:
    begin, comma, took, alone = found.groups()
    if begin is None:
        ns = _ns(alone)
        return b'"dur":' + us(ns - round(ns * drift.ppm * 1e-6))
    start = _ns(begin)
    if abs(start - drift.at_ns) > _FAR_NS:
        return found[0]
    shown = drift.evened(start)
    if comma is None:
        return b'"ts":' + us(shown)
    return b'"ts":' + us(shown) + comma + us(drift.evened(start + _ns(took)) - shown)


def _ns(us: bytes) -> int:
    return round(Decimal(us.decode()) * 1_000)
