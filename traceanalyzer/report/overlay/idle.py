"""Idle time as tracks: one per device, a slice for every stretch, named by its cause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import distinct, grouped, starts_of_runs
from traceanalyzer.model.overlay import Args, Slices
from traceanalyzer.report.words import in_words
from traceanalyzer.rule.views import IdleTime

_ABOUT = "Nothing ran on the device; a slice is named after the cause."


def idle_tracks(analysis: Analysis) -> Iterator[Slices]:
    """One track per device.

    Raises:
        Unavailable: nothing ran on a device.
    """
    idle = analysis.index(IdleTime)
    for device in distinct(idle.device).tolist():
        own = idle[idle.device == device]
        yield _track(own[np.argsort(own.start_ns, kind="stable")], device)


def _track(idle: IdleTime, device: int) -> Slices:
    """Stretches that touch and have one cause and op are one: they are cut at steps only."""
    cause, op = idle.cause, idle.op.name
    start, end = idle.start_ns, idle.end_ns
    kind, first = grouped([cause.code, op.code])
    apart = starts_of_runs(kind) | np.append(True, start[1:] != end[:-1])
    last = np.append(apart[1:], True)
    return Slices(
        name=f"Idle: device {device}",
        start_ns=start[apart],
        end_ns=end[last],
        kind=kind[apart],
        names=[in_words(str(cause[row])) for row in first.tolist()],
        args=[_args(cause[row], op[row]) for row in first.tolist()],
        about=_ABOUT,
    )


def _args(cause: str | None, op: str | None) -> Args:
    return {"cause": str(cause)} | ({"op": op} if op else {})
