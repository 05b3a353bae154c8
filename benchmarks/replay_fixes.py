"""Two edits of a whole program, chosen by names: what neither would save of a program that has nothing to save."""

from __future__ import annotations

import numpy as np

from benchmarks.replay_case import Case
from traceanalyzer.replay.edits import Drop, Edit
from traceanalyzer.replay.rewrites import GraphLaunch


def item(case: Case) -> list[Edit]:
    """Ops that read back a value: with their copy and wait."""
    waits = case.syncs.row
    top = case.nesting.top_op(waits)
    reads = np.unique(top[np.isin(case.cpu_name[top], ["aten::item", "aten::is_nonzero", "aten::_local_scalar_dense"])])
    return [Drop(reads)]


def graph(_: Case) -> list[Edit]:
    """The step as one CUDA graph."""
    return [GraphLaunch()]
