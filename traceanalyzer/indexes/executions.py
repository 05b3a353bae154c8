"""Executions of kernels that can be compared across steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from traceanalyzer.indexes.accounting import KINDS, kinds_of_work
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.trace import Trace, codes


@dataclass(frozen=True, slots=True)
class Executions:
    """Compute kernels within steps; communication is left out, since it waits for peers.

    Attributes:
        table: one row per execution, in order of launch: `entry` of `Launches`, `step` (position in `Steps`),
            `group` (kernels of one device, name, grid and block), `place` (numbers what should be the same work
            in every step: the order within the group and step, where each step runs the group equally often,
            and the recorded shapes), `shaped` (whether shapes were recorded), `dur` in ns. Executions that
            cannot be compared are not in it: different shapes under one name are not the same work.
    """

    table: pd.DataFrame

    @classmethod
    def build(cls, trace: Trace) -> Self:
        work, steps = trace.index(Launches), trace.index(Steps)
        rows = np.flatnonzero((kinds_of_work(trace, work) == KINDS.index("compute")) & (steps.of_work >= 0))
        rows = rows[np.lexsort((work.start_ns[rows], work.call_start_ns[rows]))]
        table = pd.DataFrame({"entry": rows, "step": steps.of_work[rows], "device": work.device[rows]})
        kernel = ["device", "name", "grid", "block"]
        for name in kernel[1:]:
            table[name] = codes(trace.gpu, name)[work.row[rows]]
        shape = np.append(codes(trace.cpu, "input_dims"), -1)[work.op[rows]]
        table["dur"] = work.end_ns[rows] - work.start_ns[rows]
        table["group"] = table.groupby(kernel).ngroup()
        table["place"] = table.groupby(["group", "step"]).cumcount()
        regular = _regular(table, len(steps))
        table["shape"] = shape
        table.loc[~regular, "place"] = -1
        table["place"] = table.groupby(["place", "shape"]).ngroup()
        comparable = regular | (shape >= 0)
        table["shaped"] = shape >= 0
        return cls(
            table.loc[comparable, ["entry", "step", "group", "place", "shaped", "dur"]].reset_index(drop=True)
        )


def _regular(table: pd.DataFrame, steps: int) -> pd.Series[bool]:
    """Whether a group runs equally often in every step that has it, and most steps have it."""
    counts = table.groupby(["group", "step"]).size()
    spread = counts.groupby("group").agg(["min", "max", "size"])
    return table["group"].map((spread["min"] == spread["max"]) & (spread["size"] * 2 >= steps)).astype(bool)
