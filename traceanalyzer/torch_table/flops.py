"""The FLOPs that the profiler's table counts with with_flops=True, from the shapes that come with it."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.trace import Trace
from traceanalyzer.roofline.op_model import torch_flops
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.torch_table.function_events import CPU, FunctionEvents


def event_flops(trace: Trace, events: FunctionEvents) -> Rows | None:
    """FLOPs of each event, int64 of shape (events,); None for a recording without with_flops."""
    if not trace.meta.capabilities.get("flops", False):
        return None
    number, signatures = signatures_of(trace, np.arange(len(trace.cpu)))
    counts = [torch_flops(signature) for signature in signatures]
    flops = np.zeros(len(events), np.int64)
    on_cpu = events.frame == CPU
    flops[on_cpu] = np.array(counts, np.int64)[number[events.row[on_cpu]]]
    return flops
