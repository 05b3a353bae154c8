"""Snapshot of a recording, and of several captures: all that a comparison needs per step, small enough to be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traceanalyzer.comparison.region_changes import RegionTimes, mean_times
from traceanalyzer.model.arrays import median
from traceanalyzer.model.interpreter import pd

SNAPSHOT_SCHEMA = 2
"""Of snapshots and baselines. Raised when a table's columns change, or what they mean."""

WORK = {
    "annotation": "str",  # innermost annotation around the launch, step marks apart, and module
    "outer": "str",  # outermost op
    "op": "str",  # innermost op
    "dims": "str",  # shapes of its inputs
    "types": "str",
    "kernel": "str",  # canonical name
    "name": "str",  # one of the names that it stands for
    "kind": "str",
    "blocks": "int64",  # of the grid, 0 for none
    "count": "float64",  # per step
    "least": "int64",  # count in the step that has fewest
    "most": "int64",
    "ns": "float64",  # per step
    "exposed_ns": "float64",  # per step, beside no work of a kind that goes before
    "bytes": "float64",  # per step
    "samples": "object",  # up to `SAMPLES` durations in ns, spread over the steps
}
CALLS = dict.fromkeys(("counter", "outer", "op", "name"), "str")
CALLS |= {"count": "float64", "least": "int64", "most": "int64"}
TOTALS = {"counter": "str", "count": "float64", "least": "float64", "most": "float64"}
IDLE = {"cause": "str", "outer": "str", "op": "str", "ns": "float64"}  # ns per recorded step
HOST = {"name": "str", "part": "int64", "count": "float64", "mean_ns": "float64"}  # without the profiler
TABLES = {"work": WORK, "calls": CALLS, "totals": TOTALS, "idle": IDLE, "host": HOST}
SAMPLES = 16


def rows_of(table: pd.DataFrame) -> list[Any]:
    """The rows, each with the columns as attributes."""
    return list(table.itertuples(index=False))


@dataclass(frozen=True, slots=True)
class Source:
    """Which recordings a side is made of."""

    names: tuple[str, ...]
    captures: int
    ranks: tuple[int | None, ...]
    rank: int | None
    gpus: tuple[str, ...]
    versions: Mapping[str, str]
    recorded: tuple[str, ...]
    steps: int
    step_kind: str


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step.

    Attributes:
        ns, low_ns, high_ns: without the profiler; where it could not be replayed as recorded, and `predicted` is False.
        recorded_ns: mean of the chosen steps, on the device or on the CPU, whichever is longer.
        cpu_ns: time of the CPU in it, without waiting; None where it could not be replayed.
        bound: gpu, cpu, wait or communication; None where it could not be replayed.
        paces: (factor, ns): the step if the CPU were so many times as quick as it was.
        each_ns: the recorded steps.
        measured: whether `ns` is what the user timed without the profiler.
    """

    ns: int
    low_ns: int
    high_ns: int
    recorded_ns: int
    predicted: bool
    cpu_ns: int | None = None
    bound: str | None = None
    paces: tuple[tuple[float, float], ...] = ()
    each_ns: tuple[int, ...] = ()
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work in a step: ns from the step's start on the device, and the number of its stream."""

    stream: int
    start_ns: int
    dur_ns: int
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class StepStrip:
    """The recorded step of median length among the chosen: what its main device ran, of many pieces the longest."""

    length_ns: int
    pieces: tuple[Piece, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A fault as the report told it.

    Attributes:
        key: what tells it from others: rule, cause and name of the finding that saves most of it.
        rules: of all its findings, that one's first.
        share, low_share, high_share: what it would save of the step (0 to 1); None where that is unknown.
    """

    key: str
    rules: tuple[str, ...]
    title: str
    severity: str
    share: float | None = None
    low_share: float | None = None
    high_share: float | None = None
    step_ns: int | None = None

    @property
    def rule(self) -> str:
        return self.rules[0]


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """One recording of one process.

    Attributes:
        rank: None for a process alone.
        recorded: what the profiler was asked to record, such as "shapes".
        step_kind: what marks steps; "window" where nothing does, and the recording is one step.
        phase, batch: of the chosen steps, where the marks say so.
        waiting_ns: waiting for other ranks in a recorded step; None where that is unknown.
        faults: above `info`, and choices and what does not pay, as the report ranks them.
        strip: one of the steps, to be drawn; None where there is no work, and in baselines.
        culprit: whether the others of its job wait for it, as the report says.
        regions: names of regions from the outermost -> time per step; none in baselines.
    """

    source: str
    rank: int | None
    gpus: tuple[str, ...]
    versions: Mapping[str, str]
    recorded: tuple[str, ...]
    step_kind: str
    phase: str | None
    batch: int | None
    steps: int
    step: StepTime | None
    waiting_ns: int | None
    tables: Mapping[str, pd.DataFrame]
    faults: tuple[KnownFault, ...] = ()
    strip: StepStrip | None = None
    culprit: bool = False
    regions: RegionTimes = field(default_factory=dict)

    @property
    def marked(self) -> bool:
        """Whether steps are marked."""
        return self.step_kind != "window"


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


Side = Sequence[Mapping[int | None, Snapshot]]
"""Captures of one program, each the snapshots of its ranks."""


def mean_step(steps: Sequence[StepTime]) -> StepTime | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    averaged = "ns", "low_ns", "high_ns", "recorded_ns"
    means = {name: round(np.mean([getattr(step, name) for step in steps])) for name in averaged}
    return replace(steps[0], **means, each_ns=tuple(ns for step in steps for ns in step.each_ns))


def merged_table(name: str, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows with the same texts as one: what is missing in a capture counts as 0 there."""
    columns, rules = TABLES[name], dict(_RULES)
    if name == "work":
        medians: list[Any] = [[[median(row)] if len(row) else [] for row in table["samples"]] for table in tables]
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
