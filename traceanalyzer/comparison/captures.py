"""Several captures of one program as one snapshot: means per step, and the values of each capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traceanalyzer.comparison.region_changes import mean_times
from traceanalyzer.comparison.snapshot import TABLES, Snapshot, StepTime
from traceanalyzer.model.arrays import median
from traceanalyzer.model.interpreter import pd

_MEANS = ("count", "ns", "exposed_ns", "bytes")
# Column -> how rows are put together; lists one after the other. Rows that are alike in all others are one.
_RULES = dict.fromkeys((*_MEANS, "mean_ns", "samples", "medians"), "sum") | {"least": "min", "most": "max"}


@dataclass(frozen=True, slots=True)
class Captures:
    """One rank of one side: each capture, and their means, whose work also has the median of each capture."""

    each: tuple[Snapshot, ...]
    together: Snapshot

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot]) -> Captures:
        """The captures of one rank, one at least."""
        first = snapshots[0]
        tables = {name: merged_table(name, [one.tables[name] for one in snapshots]) for name in TABLES}
        step = mean_step([snapshot.step for snapshot in snapshots if snapshot.step is not None])
        regions = mean_times([snapshot.regions for snapshot in snapshots])
        return cls(tuple(snapshots), replace(first, tables=tables, step=step, regions=regions))

    def __len__(self) -> int:
        return len(self.each)


def mean_step(steps: Sequence[StepTime]) -> StepTime | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    times = [(step.ns, step.low_ns, step.high_ns, step.recorded_ns) for step in steps]
    ns, low_ns, high_ns, recorded_ns = map(round, np.mean(times, axis=0).tolist())
    each_ns = tuple(ns for step in steps for ns in step.each_ns)
    return replace(steps[0], ns=ns, low_ns=low_ns, high_ns=high_ns, recorded_ns=recorded_ns, each_ns=each_ns)


def merged_table(name: str, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows with the same texts as one: what is missing in a capture counts as 0 there."""
    columns = TABLES[name]
    rules: dict[str, Any] = dict(_RULES)
    if name == "work":
        samples = [table["samples"] for table in tables]
        medians: list[Any] = [[[median(row)] if len(row) else [] for row in each] for each in samples]
        tables = [table.assign(medians=each) for table, each in zip(tables, medians, strict=True)]
        rules["name"] = "first"  # one of those that the canonical name stands for
    if len(tables) == 1:
        return tables[0]
    every = pd.concat(tables, ignore_index=True)
    groups = every.groupby([column for column in columns if column not in rules], sort=True, dropna=False)
    merged, seen = groups.agg({column: rules[column] for column in every if column in rules}), groups.size()
    if "least" in columns:
        merged.loc[seen < len(tables), "least"] = 0
    means = [column for column in _MEANS if column in columns]
    merged[means] /= len(tables)
    if name == "host":
        merged["mean_ns"] /= seen
    return merged.reset_index()
