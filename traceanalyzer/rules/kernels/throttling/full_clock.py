"""What kernels take at the device's full clock, by samples of it."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.clock_samples import Values


def median_known(values: Values) -> float:
    """Median of the known ones; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def after_ramp(kernels: Work, full: Mask) -> Mask:
    """Which ran after the clock had been full for the first time: before that it rises, and nothing lowers it."""
    first = kernels.start_ns[full].min(initial=np.iinfo(np.int64).max)
    return np.asarray(kernels.start_ns > first)


def usual_at_full_clock(kernels: Work, full: Mask, min_runs: int) -> Values:
    """Median duration at full clock of each kernel's name, grid and block; NaN where fewer ran then."""
    number, first = grouped([kernels.text(column).code for column in ("name", "grid", "block")])
    order: Rows = np.lexsort((kernels.dur_ns, ~full, number))
    count = np.bincount(number, weights=full, minlength=len(first)).astype(np.int64)
    begins = np.searchsorted(number[order], np.arange(len(first)))
    median = kernels.dur_ns[order][np.minimum(begins + count // 2, len(order) - 1)].astype(np.float64)
    return np.where(count >= min_runs, median, np.nan)[number]
