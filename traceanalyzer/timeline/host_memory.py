"""Which copies touch host memory that is not pinned."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.model.trace import Trace, matching


def pageable(trace: Trace) -> Mask:
    """Rows of `trace.gpu` that copy from or to pageable memory, by name or by the kinds of memory beside it."""
    named = matching(trace.lanes.gpu, "name", lambda name: "Pageable" in name)
    told = [matching(trace.lanes.gpu, column, "pageable".__eq__) for column in ("src_kind", "dst_kind")]
    return np.asarray(named | told[0] | told[1])
