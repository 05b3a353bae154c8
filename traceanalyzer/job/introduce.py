"""Gives the analysis of each rank what only the traces of several ranks show."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.joint_ends import RankKernels, waiting_together, with_waiting
from traceanalyzer.job.links import NO_LINKS, RankLinks, between_two, of_groups, without_links
from traceanalyzer.job.loads import Load, RankLoads, comparable
from traceanalyzer.job.pairing import told_apart
from traceanalyzer.job.programs import Hashes, OtherProgram, program_of, rare_in
from traceanalyzer.job.ranks import Ranks
from traceanalyzer.job.rates import PEERS, Moved, rates
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.view import JobView
from traceanalyzer.job.waits import measured
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps


def introduce(ranks: Ranks) -> JobView | None:
    """Give `CollectiveWaits` and `RankLoads` to all ranks that have a collective in common with another.

    Returns:
        what they have in common; None where no two of them have a collective in common.
    """
    every = [rank for rank in ranks.all if rank is not None]
    # Kernels that wait for other ranks are communication, before anything else is made of them.
    names = waiting_together(ranks.each(kernels, dict.fromkeys(every)))
    found = ranks.each(runs, dict.fromkeys(every), tuple(sorted(names)))
    own = told_apart({rank: one for rank, (one, _) in found.items()})
    waits = measured(own) if len(own) > 1 else {}
    if not waits:
        return None
    base_ns = {rank: found[rank][1] for rank in waits}
    view = JobView(own, waits, clocks_of(own, waits, base_ns), base_ns)
    links = _links(ranks, view)
    view = replace(
        view,
        waits={rank: without_links(one, links.get(rank, NO_LINKS)) for rank, one in waits.items()},
    )
    held = view.held_up_ns()
    loads = ranks.each(load, {rank: (one, held[rank], links.get(rank)) for rank, one in view.waits.items()})
    shared = {rank: one for rank, one in loads.items() if one is not None}
    if len(shared) > 1 and comparable(shared):
        ranks.each(know, {rank: rank for rank in shared}, shared)
    if not view.pipelined:
        ranks.each(know_program, rare_in(ranks.each(program, dict.fromkeys(waits))), len(waits) - 1)
    return view


def _links(ranks: Ranks, view: JobView) -> dict[int, RankLinks]:
    """Rank -> its slow links; without the ranks of which no link can be compared."""
    found = between_two(view)
    groups = {group for one in view.runs.values() for group in one.group}
    if len(groups) >= PEERS:
        ranks.each(give_waits, view.waits)
        told = rates(view.runs, view.waits, ranks.each(moved, dict.fromkeys(view.waits)))
        for rank, own in of_groups(view, told).items():
            found[rank] = RankLinks((*found.get(rank, NO_LINKS).slow, *own.slow))
    return found


# -- what each rank is asked -----------------------------------------------------------------------------


def kernels(analysis: Analysis, _: None, __: None) -> RankKernels:
    """What of the rank others are compared with."""
    return RankKernels.of(analysis.trace, analysis.index(DeviceWork))


def runs(analysis: Analysis, _: None, names: tuple[str, ...]) -> tuple[CollectiveRuns, int]:
    """(the rank's collectives, base time of its file); kernels of these names are communication."""
    if names:
        with suppress(Unavailable):
            work = analysis.index(DeviceWork)
            analysis.provide(with_waiting(analysis.trace, work, frozenset(names)))
    return analysis.index(CollectiveRuns), analysis.trace.meta.base_time_ns


def give_waits(analysis: Analysis, waits: CollectiveWaits, _: None) -> None:
    """Let the rank know how long it waits."""
    analysis.provide(waits)


def moved(analysis: Analysis, _: None, __: None) -> Moved:
    """What the rank's collectives move."""
    trace, work = analysis.trace, analysis.index(DeviceWork)
    known = analysis.index(CollectiveRuns), analysis.index(CollectiveWaits), analysis.index(Nesting)
    return Moved.of(trace, work, *known)


def load(analysis: Analysis, given: tuple[CollectiveWaits, Floats, RankLinks | None], _: None) -> Load | None:
    """What the rank computes in a step, once it knows how long it waits, and others for it; None without steps."""
    waits, held_ns, links = given
    analysis.provide(waits)
    if links is not None:
        analysis.provide(links)
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
