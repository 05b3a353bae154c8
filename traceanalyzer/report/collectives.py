"""The collectives of a job by kind, group and size, from the traces of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from traceanalyzer.job.rates import Rate, data_bytes, rates
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.view import JobView
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import DeviceWork


def collectives_of_job(analysed: Sequence[tuple[int | None, Analysis]]) -> tuple[JobView, list[Rate]]:
    """
    Raises:
        Unavailable: the traces have no collective in common.
    """
    view, sizes = None, {}
    for rank, one in analysed:
        with suppress(Unavailable):
            view = one.index(JobView)
            if rank is not None:
                sizes[rank] = data_bytes(one.trace, one.index(DeviceWork), one.index(CollectiveRuns))
    if view is None:
        raise Unavailable(
            "the traces have no collective in common: rates need those of several ranks of one job"
        )
    return view, rates(view.runs, view.waits, sizes)
