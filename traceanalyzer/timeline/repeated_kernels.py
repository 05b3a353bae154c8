"""Executions of kernels that can be compared across steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.lazy import pd
from traceanalyzer.model.trace import Trace, codes_at
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class RepeatedKernels:
    """Compute kernels within steps; communication is left out, since it waits for peers.

    Attributes:
        table: one row per execution, in order of launch: `entry` of `DeviceWork`, `step` (position in `Steps`),
            `group` (kernels of one device, name, grid and block), `place` (numbers what should be the same work
            in every step: the order within the group and step, where each step runs the group equally often,
            and the recorded shapes), `shaped` (whether shapes were recorded), `dur` in ns. RepeatedKernels that
            cannot be compared are not in it: different shapes under one name are not the same work.
    """

    table: pd.DataFrame

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, steps: Steps) -> Self:
        rows = np.flatnonzero((work.kind == KINDS.index("compute")) & (steps.of_work >= 0))
        rows = rows[np.lexsort((work.start_ns[rows], work.call_start_ns[rows]))]
        step = steps.of_work[rows]
        kernel = [codes_at(trace.gpu, column, work.row[rows]) for column in ("name", "grid", "block")]
        group, _ = grouped([work.device[rows], *kernel])
        shape = codes_at(trace.cpu, "input_dims", work.op[rows])
        regular, order = _regular_order(group, step, len(steps))
        place, _ = grouped([group, np.where(regular, order, -1), shape])
        table = pd.DataFrame(
            {
                "entry": rows,
                "step": step,
                "group": group,
                "place": place,
                "shaped": shape >= 0,
                "dur": work.end_ns[rows] - work.start_ns[rows],
            }
        )
        return cls(table[regular | (shape >= 0)].reset_index(drop=True))


def _regular_order(group: Rows, step: Rows, steps: int) -> tuple[NDArray[np.bool_], Rows]:
    """Whether each row's group runs equally often in every step that has it, and most steps have it; and how many
    of the group came before in the step. Rows are in order of launch."""
    pair, first = grouped([group, step])
    times = np.bincount(pair)
    by_pair = np.argsort(pair, kind="stable")
    order = np.empty(len(pair), np.int64)
    order[by_pair] = np.arange(len(pair)) - np.repeat(np.cumsum(times) - times, times)
    of_pair, groups = group[first], int(group.max(initial=-1)) + 1
    found_in = np.bincount(of_pair, minlength=groups)
    usual = np.zeros(groups, np.int64)
    usual[of_pair] = times
    uneven = np.bincount(of_pair, weights=times != usual[of_pair], minlength=groups) > 0
    return (~uneven & (found_in * 2 >= steps))[group], order


def losing(table: pd.DataFrame, least_ns: float) -> pd.DataFrame:
    """The rows of groups whose executions take so much more together than the quickest at the place of each."""
    place, dur = table["place"].to_numpy(), table["dur"].to_numpy()
    group = table["group"].to_numpy()
    quickest = np.full(int(place.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(quickest, place, dur)
    above = np.bincount(group, weights=dur - quickest[place])
    return table[(above >= least_ns)[group]] if len(table) else table


def spread(slow: pd.DataFrame, group: pd.DataFrame) -> dict[str, float]:
    """How long the executions of a group take, and the slow ones among them; rows of `RepeatedKernels.table`."""
    durations, step, usual = group["dur"].to_numpy(), group["step"].to_numpy(), ~group.index.isin(slow.index)
    p10, p90 = np.quantile(durations, [0.1, 0.9])
    return {
        "executions": len(group),
        "slow": len(slow),
        "slowdown": round(float(np.median(slow["dur"]) / max(np.median(durations[usual]), 1)), 2)
        if usual.any()
        else 1.0,
        "median_dur_ns": int(np.median(durations)),
        "mean_ns": int(durations.mean()),
        "p10_ns": int(p10),
        "p90_ns": int(p90),
        "worst_dur_ns": int(durations.max()),
        "first_step_ns": int(np.median(durations[step == step.min()])),
        "last_step_ns": int(np.median(durations[step == step.max()])),
    }


def steps_of_place(table: pd.DataFrame) -> Rows:
    """In how many steps there is an execution at the same place, for each; a place is of one group."""
    place, _ = grouped([table["place"].to_numpy()])
    _, first = grouped([place, table["step"].to_numpy()])
    return np.bincount(place[first])[place].astype(np.int64)


def usual_at_place(table: pd.DataFrame, quantile: float) -> NDArray[np.float64]:
    """That quantile of the durations at each execution's place."""
    place, _ = grouped([table["place"].to_numpy()])
    dur = table["dur"].to_numpy()
    count = np.bincount(place)
    first = np.cumsum(count) - count
    ordered = dur[np.lexsort((dur, place))]
    whole, part = np.divmod(quantile * (count - 1), 1)
    low = first + whole.astype(np.int64)
    high = np.minimum(low + 1, first + count - 1)
    usual: NDArray[np.float64] = ordered[low] + (ordered[high] - ordered[low]) * part
    return usual[place]
