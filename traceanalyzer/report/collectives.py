"""The collectives of a job by kind, group and size, from the traces of its ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.job.ranks import Ranks
from traceanalyzer.job.rates import Rate, data_bytes, rates
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.view import JobView
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import DeviceWork


def collectives_of_job(ranks: Ranks, view: JobView | None) -> tuple[JobView, list[Rate]]:
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
    return view, rates(view.runs, view.waits, ranks.each(_sizes, dict.fromkeys(view.waits)))


def _sizes(analysis: Analysis, _: None, __: None) -> NDArray[np.int64]:
    return data_bytes(analysis.trace, analysis.index(DeviceWork), analysis.index(CollectiveRuns))
