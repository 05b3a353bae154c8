"""Several captures of one program as one snapshot: means per step, and the values of each capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traceanalyzer.comparison.region_changes import mean_times
from traceanalyzer.comparison.snapshot import TABLES, Snapshot, StepTime
from traceanalyzer.model.arrays import median
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.records import dataclass

_MEANS = ("count", "ns", "exposed_ns", "bytes")


@dataclass(frozen=True, slots=True)
class Captures:
    """One rank of one side.

    Attributes:
        each: the captures.
        together: their means; its work has one more column, `medians`, with the median execution of each capture.
    """

    each: tuple[Snapshot, ...]
    together: Snapshot

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot]) -> Captures:
        """The captures of one rank, one at least."""
        first = snapshots[0]
        tables = {
            name: merged_table(name, [snapshot.tables[name] for snapshot in snapshots]) for name in TABLES
        }
        step = mean_step([snapshot.step for snapshot in snapshots if snapshot.step is not None])
        regions = mean_times([snapshot.regions for snapshot in snapshots])
        return cls(tuple(snapshots), replace(first, tables=tables, step=step, regions=regions))

    def __len__(self) -> int:
        return len(self.each)


def mean_step(steps: Sequence[StepTime]) -> StepTime | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    return replace(
        steps[0],
        ns=_mean([step.ns for step in steps]),
        low_ns=_mean([step.low_ns for step in steps]),
        high_ns=_mean([step.high_ns for step in steps]),
        recorded_ns=_mean([step.recorded_ns for step in steps]),
        each_ns=tuple(ns for step in steps for ns in step.each_ns),
    )


def _mean(values: Sequence[int]) -> int:
    return round(float(np.mean(values)))


def _with_medians(work: pd.DataFrame) -> pd.DataFrame:
    medians: Any = [[median(row)] if len(row) else [] for row in work["samples"]]
    return work.assign(medians=medians)


def merged_table(name: str, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows with the same texts as one: what is missing in a capture counts as 0 there."""
    if name == "work":
        tables = [_with_medians(table) for table in tables]
    if len(tables) == 1:
        return tables[0]
    columns = TABLES[name]
    texts = [column for column, kind in columns.items() if kind == "str" and column != "name"]
    texts += [column for column in ("blocks", "part") if column in columns]
    texts += ["name"] if name in ("calls", "host") else []
    how: dict[str, Any] = {column: "sum" for column in (*_MEANS, "mean_ns") if column in columns}
    how |= {column: rule for column, rule in (("least", "min"), ("most", "max")) if column in columns}
    how |= {
        column: "sum" for column in ("samples", "medians") if name == "work"
    }  # lists, one after the other
    how |= {"name": "first"} if name == "work" else {}
    every = pd.concat(tables, ignore_index=True)
    groups = every.groupby(texts, sort=True, dropna=False)
    merged = groups.agg(how)
    seen = groups.size()
    if "least" in columns:
        merged.loc[seen < len(tables), "least"] = 0
    for column in _MEANS:
        if column in columns:
            merged[column] /= len(tables)
    if name == "host":
        merged["mean_ns"] /= seen
    return merged.reset_index()
