"""The ranks of a job replayed together, and what one of them does that its peers do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from traceanalyzer.job.view import JobView
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.replay.behind import Hours, behind
from traceanalyzer.replay.job_saving import JobForecast
from traceanalyzer.replay.program import Program, loading
from traceanalyzer.replay.sample import JointSteps, Sample
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.together import same_steps
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

Ranks = Mapping[int, Analysis]


def ranks_of(analysed: Sequence[tuple[int | None, Analysis]]) -> dict[int, Analysis]:
    """Those that have a collective in common with another; none of a single trace."""
    found = {}
    for rank, one in analysed:
        with suppress(Unavailable):
            if rank is not None and rank in one.index(JobView).waits:
                found[rank] = one
    return found if len(found) > 1 else {}


def sample_alike(ranks: Ranks) -> None:
    """Let all ranks be replayed by the same steps, where all count their steps alike."""
    chosen = []
    for one in ranks.values():
        with suppress(Unavailable):
            steps = one.index(Steps)
            nesting = one.index(Nesting)
            own = Sample.of(steps, nesting, loading(one.trace, nesting, one.index(DeviceWork)))
            chosen.append(frozenset(steps.number[own.steps].tolist()) if own.part == 1.0 else frozenset())
    both = same_steps(chosen) if len(chosen) == len(ranks) else frozenset()
    for one in ranks.values() if both else ():
        one.give(JointSteps(np.array(sorted(both), np.int64)))


def job_forecast(ranks: Ranks, step_ms: float | None) -> JobForecast:
    """
    Raises:
        Unavailable: the job cannot be replayed as one.
    """
    forecasts = {rank: one.index(Forecast) for rank, one in ranks.items()}
    if step_ms is not None:
        forecasts = {rank: one.pinned(step_ms) for rank, one in forecasts.items()}
    return JobForecast.of(forecasts)


def compare(ranks: Ranks) -> None:
    """Give `Behind` to every rank that takes more than its peers; stages of a pipeline may compute more."""
    hours = {}
    for rank, one in ranks.items():
        with suppress(Unavailable):
            hours[rank] = Hours.of(one.trace, one.index(DeviceWork), one.index(Program))
    if len(hours) < 2:
        return
    view = next(iter(ranks.values())).index(JobView)
    held = view.held_up_ns()
    for rank in hours:
        steps = max(ranks[rank].index(Steps).working, 1)
        found = behind(hours, rank, float(held[rank].sum()) / steps)
        if found is not None and not (found.computes_more and view.pipelined):
            ranks[rank].give(found)
