"""Steps as tracks: one per device, or the marks on the CPU where nothing ran on a device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.overlay import Args, Slices
from traceanalyzer.timeline.steps import Steps


def step_tracks(analysis: Analysis) -> Iterator[Slices]:
    """One track per device; none where nothing marks steps.

    Raises:
        Unavailable: there is nothing that could be a step.
    """
    steps = analysis.index(Steps)
    if not steps.marked:
        return
    for device, bounds in steps.bounds_ns.items():
        yield _track(steps, f"Steps: device {device}", bounds[:-1], bounds[1:])
    if not steps.bounds_ns:
        yield _track(steps, "Steps: CPU", steps.cpu_start_ns, steps.cpu_end_ns)


def _track(steps: Steps, name: str, start: Rows, end: Rows) -> Slices:
    return Slices(
        name=name,
        start_ns=start,
        end_ns=end,
        kind=np.arange(len(steps)),
        names=[f"Step {number}" for number in steps.number.tolist()],
        args=[_args(steps, at) for at in range(len(steps))],
        about=steps.source,
    )


def _args(steps: Steps, at: int) -> Args:
    phase = steps.phase[at]
    said: dict[str, str | bool] = {"mark": steps.kind, "steady": bool(steps.steady[at])}
    return said | ({"phase": phase} if phase else {})
