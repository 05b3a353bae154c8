"""Gives the analysis of each rank what only the traces of several ranks show."""

from __future__ import annotations

from contextlib import suppress

from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.joint_ends import RankKernels, waiting_together, with_waiting
from traceanalyzer.job.loads import Load, RankLoads, comparable
from traceanalyzer.job.programs import Hashes, OtherProgram, program_of, rare_in
from traceanalyzer.job.ranks import Ranks
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.view import JobView
from traceanalyzer.job.waits import CollectiveWaits, measured
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps


def introduce(ranks: Ranks) -> JobView | None:
    """Give `CollectiveWaits` and `RankLoads` to all ranks that have a collective in common with another.

    Returns:
        what they have in common; None where no two of them have a collective in common.
    """
    every = [rank for rank in ranks.all if rank is not None]
    # Kernels that wait for other ranks are communication, before anything else is made of them.
    names = waiting_together(ranks.each(kernels, dict.fromkeys(every)))
    found = ranks.each(runs, dict.fromkeys(every), names)
    own = {rank: one for rank, (one, _) in found.items()}
    waits = measured(own) if len(own) > 1 else {}
    if not waits:
        return None
    view = JobView(own, waits, clocks_of(own, waits, {rank: found[rank][1] for rank in waits}))
    held = view.held_up_ns()
    loads = ranks.each(load, {rank: (one, held[rank]) for rank, one in waits.items()})
    shared = {rank: one for rank, one in loads.items() if one is not None}
    if len(shared) > 1 and comparable(shared):
        ranks.each(know, {rank: rank for rank in shared}, shared)
    if not view.pipelined:
        ranks.each(know_program, rare_in(ranks.each(program, dict.fromkeys(waits))), len(waits) - 1)
    return view


# -- what each rank is asked -----------------------------------------------------------------------------


def kernels(analysis: Analysis, _: None, __: None) -> RankKernels:
    """What of the rank others are compared with."""
    return RankKernels.of(analysis.trace, analysis.index(DeviceWork))


def runs(analysis: Analysis, _: None, names: frozenset[str]) -> tuple[CollectiveRuns, int]:
    """(the rank's collectives, base time of its file); kernels of these names are communication."""
    if names:
        with suppress(Unavailable):
            work = analysis.index(DeviceWork)
            analysis.provide(with_waiting(analysis.trace, work, names))
    return analysis.index(CollectiveRuns), analysis.trace.meta.base_time_ns


def load(analysis: Analysis, given: tuple[CollectiveWaits, Floats], _: None) -> Load | None:
    """What the rank computes in a step, once it knows how long it waits, and others for it; None without steps."""
    waits, held_ns = given
    analysis.provide(waits)
    with suppress(Unavailable):
        return Load.of(analysis.index(DeviceWork), analysis.index(Steps), waits, held_ns)
    return None


def know(analysis: Analysis, rank: int, loads: dict[int, Load]) -> None:
    """Give the loads of all ranks."""
    analysis.provide(RankLoads(rank, loads))


def program(analysis: Analysis, _: None, __: None) -> Hashes:
    """What the rank runs."""
    return program_of(analysis.trace)


def know_program(analysis: Analysis, rare: Hashes, others: int) -> None:
    """Give what the rank runs that the others do not."""
    analysis.provide(OtherProgram.of(analysis.trace, rare, others))
