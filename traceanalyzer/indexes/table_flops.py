"""The FLOPs that the profiler's table counts with with_flops=True, from the shapes that come with it."""

from __future__ import annotations

import numpy as np

from traceanalyzer.indexes.containment import Rows
from traceanalyzer.indexes.function_events import CPU, FunctionEvents
from traceanalyzer.indexes.op_model import Signature, torch_flops
from traceanalyzer.trace import Trace, codes

_COLUMNS = ("name", "input_dims", "input_type", "concrete_inputs")


def event_flops(trace: Trace, events: FunctionEvents) -> Rows | None:
    """FLOPs of each event, int64 of shape (events,); None for a recording without with_flops."""
    if not trace.meta.capabilities.get("flops", False):
        return None
    keys = np.stack([codes(trace.cpu, column) for column in _COLUMNS], axis=1)
    distinct, number = np.unique(keys, axis=0, return_inverse=True)
    tables = [trace.cpu[column].cat.categories for column in _COLUMNS]
    texts = [
        [None if code < 0 else str(table[code]) for code, table in zip(row, tables, strict=True)]
        for row in distinct.tolist()
    ]
    counts = [torch_flops(Signature.parsed(str(name), *inputs)) for name, *inputs in texts]
    flops = np.zeros(len(events), np.int64)
    on_cpu = events.frame == CPU
    flops[on_cpu] = np.array([*counts, 0], np.int64)[number.reshape(-1)[events.row[on_cpu]]]
    return flops
