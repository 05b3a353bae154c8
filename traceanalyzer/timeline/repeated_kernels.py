"""Executions of kernels that can be compared across steps, and whether steps launch the same work."""

from collections import Counter
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, grouped, median, rank_within, starts_of_runs
from traceanalyzer.model.trace import Trace, codes_at
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedKernels:
    """Compute kernels within steps, in order of launch; communication is left out, since it waits for peers.

    Executions that cannot be compared are not in it: different shapes under one name are not the same work.

    Attributes:
        entry: int64 (executions,), entry of `DeviceWork`.
        step: int64, position in `Steps`.
        group: int64, kernels of one device, name, grid and block.
        place: int64, numbers what should be the same work in every step: the order within the group and step, where
            each step runs the group equally often, and the recorded shapes.
        shaped: bool, whether shapes were recorded.
        dur_ns: int64.
        entry: entry of `DeviceWork`.
        step: position in `Steps`.
        group: kernels of one device, name, grid and block.
        place: numbers what should be the same work in every step: the order within the group and step, where each step
            runs the group equally often, and the recorded shapes.
        shaped: whether shapes were recorded.
        dur_ns: how long it took.
    """

    entry: Rows
    step: Rows
    group: Rows
    place: Rows
    shaped: Mask
    dur_ns: Rows

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, steps: Steps) -> Self:
        rows = np.flatnonzero((work.kind == KINDS.index("compute")) & (steps.of_work >= 0))
        rows = rows[np.lexsort((work.start_ns[rows], work.call_start_ns[rows]))]
        step = steps.of_work[rows]
        kernel = [codes_at(trace.lanes.gpu, column, work.row[rows]) for column in ("name", "grid", "block")]
        group, _ = grouped([work.device[rows], *kernel])
        shape = codes_at(trace.lanes.cpu, "input_dims", work.op[rows])
        regular, order = _regular_order(group, step, len(steps))
        place, _ = grouped([group, np.where(regular, order, -1), shape])
        every = cls(rows, step, group, place, shape >= 0, work.end_ns[rows] - work.start_ns[rows])
        return every[regular | (shape >= 0)]

    def __len__(self) -> int:
        return len(self.entry)

    def __getitem__(self, chosen: Mask) -> Self:
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))


def _regular_order(group: Rows, step: Rows, steps: int) -> tuple[Mask, Rows]:
    """(whether each row's group runs equally often in all steps that have it, and in most; its place in the step)."""
    pair, first = grouped([group, step])
    times = np.bincount(pair)
    of_pair, groups = group[first], int(group.max(initial=-1)) + 1
    found_in = np.bincount(of_pair, minlength=groups)
    usual = np.zeros(groups, np.int64)
    usual[of_pair] = times
    uneven = np.bincount(of_pair, weights=times != usual[of_pair], minlength=groups) > 0
    return (~uneven & (found_in * 2 >= steps))[group], rank_within(pair)


def losing(executions: RepeatedKernels, least_ns: float) -> RepeatedKernels:
    """Those of groups whose executions take so much more together than the quickest at the place of each."""
    place, dur, group = executions.place, executions.dur_ns, executions.group
    quickest = np.full(int(place.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(quickest, place, dur)
    above = np.bincount(group, weights=dur - quickest[place])
    return executions[(above >= least_ns)[group]] if len(executions) else executions


def spread(slow: RepeatedKernels, group: RepeatedKernels) -> dict[str, float]:
    """How long the executions of a group take, and the slow ones among them."""
    durations, usual = group.dur_ns, ~np.isin(group.entry, slow.entry)
    p10, p90 = np.quantile(durations, [0.1, 0.9])
    slowdown = float(median(slow.dur_ns) / max(median(durations[usual]), 1)) if usual.any() else 1.0
    return {
        "executions": len(group),
        "slow": len(slow),
        "slowdown": round(slowdown, 2),
        "median_dur_ns": int(median(durations)),
        "mean_ns": int(durations.mean()),
        "p10_ns": int(p10),
        "p90_ns": int(p90),
        "worst_dur_ns": int(durations.max()),
    }


def steps_of_place(executions: RepeatedKernels) -> Rows:
    """In how many steps there is an execution at the same place, for each; a place is of one group."""
    place, _ = grouped([executions.place])
    _, first = grouped([place, executions.step])
    return np.bincount(place[first])[place].astype(np.int64)


def usual_at_place(executions: RepeatedKernels, quantile: float) -> Floats:
    """That quantile of the durations at each execution's place."""
    place, _ = grouped([executions.place])
    dur = executions.dur_ns
    count = np.bincount(place)
    first = np.cumsum(count) - count
    ordered = dur[np.lexsort((dur, place))]
    whole, part = np.divmod(quantile * (count - 1), 1)
    low = first + whole.astype(np.int64)
    high = np.minimum(low + 1, first + count - 1)
    usual: Floats = ordered[low] + (ordered[high] - ordered[low]) * part
    return usual[place]


def same_steps(trace: Trace, work: DeviceWork | None, steps: Steps) -> float:
    """Share of the steps that launch the most common sequence of kernels on the same grids; 0 to 1.

    Copies and memsets count by name. One step alone is like itself; without any it is 0.
    """
    if work is None or not (steps.of_work >= 0).any():
        return 0.0
    in_steps = np.flatnonzero(steps.of_work >= 0)
    order = (work.start_ns, work.call_start_ns, steps.of_work)
    in_steps = in_steps[np.lexsort([column[in_steps] for column in order])]
    step = steps.of_work[in_steps]
    kind, _ = grouped([codes_at(trace.lanes.gpu, name, work.row[in_steps]) for name in ("name", "grid")])
    sequences = np.split(kind, np.flatnonzero(starts_of_runs(step))[1:])
    return max(Counter(sequence.tobytes() for sequence in sequences).values()) / len(sequences)
