"""Gives the analysis of each rank what only the traces of several ranks show."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.joint_ends import RankKernels, waiting_together, with_waiting
from traceanalyzer.job.loads import Load, RankLoads
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.view import JobView
from traceanalyzer.job.waits import measured
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps


def introduce(analyses: Mapping[int, Analysis]) -> None:
    """Give `CollectiveWaits` and `RankLoads` to all of these ranks that have a collective in common with another."""
    _name_communication(analyses)
    runs: dict[int, CollectiveRuns] = {}
    for rank, analysis in analyses.items():
        with suppress(Unavailable):
            runs[rank] = analysis.index(CollectiveRuns)
    waits = measured(runs) if len(runs) > 1 else {}
    if waits:
        bases = {rank: analyses[rank].trace.meta.base_time_ns for rank in waits}
        view = JobView(runs, waits, clocks_of(runs, waits, bases))
        for rank in waits:
            analyses[rank].give(view)
    loads: dict[int, Load] = {}
    for rank, waiting in waits.items():
        analyses[rank].give(waiting)
        with suppress(Unavailable):
            own = analyses[rank]
            loads[rank] = Load.of(own.index(DeviceWork), own.index(Steps), waiting)
    if len(loads) > 1:
        for rank in loads:
            analyses[rank].give(RankLoads(rank, loads))


def _name_communication(analyses: Mapping[int, Analysis]) -> None:
    """Give `DeviceWork` in which kernels that wait for other ranks are communication, before anything is made of it."""
    work: dict[int, DeviceWork] = {}
    for rank, analysis in analyses.items():
        with suppress(Unavailable):
            work[rank] = analysis.index(DeviceWork)
    names = waiting_together({rank: RankKernels.of(analyses[rank].trace, one) for rank, one in work.items()})
    for rank, one in work.items() if names else ():
        analyses[rank].give(with_waiting(analyses[rank].trace, one, names))
