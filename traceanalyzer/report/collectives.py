"""The collectives of a job by kind, group and size, from the traces of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traceanalyzer.job.cross_rank_indexes import moved
from traceanalyzer.job.ranks import JobView, Ranks
from traceanalyzer.job.rates import Rate, rates
from traceanalyzer.job.slowdown import of_job
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.report import Clock, Slowdown


@dataclass(frozen=True, slots=True)
class CollectivesReport:
    """What a job's ranks exchange.

    Attributes:
        collectives: by kind, group and size, the longest in all first.
        clocks: rank -> its clock.
        slowdown: how much slower the job is than one of even ranks, as recorded.
        alone: ranks that have no collective in common with another.
    """

    collectives: tuple[Rate, ...]
    clocks: Mapping[int, Clock]
    slowdown: Slowdown | None
    alone: tuple[int, ...]


def collectives_of_job(ranks: Ranks, view: JobView | None) -> CollectivesReport:
    """
    Args:
        view: what `introduce` returned.

    Raises:
        Unavailable: the traces have no collective in common.
    """
    if view is None:
        raise Unavailable(
            "the traces have no collective in common: rates need those of several ranks of one job"
        )
    told = rates(view.runs, view.waits, ranks.each(moved, dict.fromkeys(view.waits)))
    alone = tuple(rank for rank in ranks.all if rank is not None and rank not in view.waits)
    return CollectivesReport(tuple(rate for rate, _ in told), view.clocks, of_job(view), alone)
