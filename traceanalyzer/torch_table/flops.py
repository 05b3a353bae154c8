"""The FLOPs that the profiler's table counts with with_flops=True, from the shapes that come with it."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.trace import Trace
from traceanalyzer.roofline.convolutions import conv_flops
from traceanalyzer.roofline.op_model import flops_of
from traceanalyzer.tensors.signatures import Signature, signatures_of
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


def torch_flops(signature: Signature) -> int:
    """What the table's FLOPs column counts for one call: seven ops, 0 for all others and where inputs are missing."""
    name = signature.name.removeprefix("aten::")
    try:
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            return flops_of(signature)
        if name == "conv2d":
            image, weight = signature.shape(0), signature.shape(1)
            padding, stride, dilation = (signature.scalar(i) for i in (4, 3, 5))
            return conv_flops(image, weight, padding, stride, dilation)[0]
        return math.prod(signature.shape(0)) if name in ("mul", "add") else 0
    except (LookupError, TypeError, ValueError):
        return 0
