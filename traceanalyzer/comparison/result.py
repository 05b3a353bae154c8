"""Result of a comparison: verdict, axes, waterfall, rows and faults, for renderers and users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from traceanalyzer.model.interpreter import pd

if TYPE_CHECKING:
    from traceanalyzer.comparison.snapshot import Source, StepStrip

_SIDES = ("count", "ns", "exposed_ns", "median_ns")


def rows_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The columns that `Comparison.to_frame` names; missing numbers are null."""
    plain = [field.name for field in fields(Row) if field.name not in ("base", "new")]
    records: list[dict[str, Any]] = []
    for row in rows:
        record: dict[str, Any] = {name: getattr(row, name) for name in plain}
        record["word"] = str(row.word)
        for side, work in (("base", row.base), ("new", row.new)):
            record |= {f"{side}_{name}": work and getattr(work, name) for name in _SIDES}
        records.append(record)
    columns = [*plain, *(f"{side}_{name}" for side in ("base", "new") for name in _SIDES)]
    frame = pd.DataFrame(records, columns=columns)
    numbers = [name for name in columns if name.startswith(("base_", "new_"))] + ["ratio", "p"]
    return frame.astype({**dict.fromkeys(numbers, "float64"), "delta_ns": "int64"})


class Word(StrEnum):
    """A verdict, of a row or of all."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    IDENTICAL = "identical"
    UNKNOWN = "unknown"
    NEW = "new"
    GONE = "gone"
    MORE = "more"
    FEWER = "fewer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of the step.

    Attributes:
        word: slower, faster, same, identical or unknown.
        within: of `same`, the share that could not be told apart from none (0 to 1).
        why: what it rests on, or why nothing can be said, in one sentence.
        settle: what would settle it; empty where nothing is open.
        because: what made the difference, the largest first, each one phrase.
        headline: all that in one sentence.
    """

    word: Word
    within: float | None
    why: str
    settle: str
    because: tuple[str, ...]
    headline: str


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter of the exact axis: per step, with the least and the most of the steps."""

    counter: str
    base: float
    new: float
    base_range: tuple[float, float]
    new_range: tuple[float, float]
    word: Word
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceAxis:
    """GPU time per step, of all work.

    Attributes:
        base_ns, new_ns: sums of durations.
        real_ns: of the difference, what rows make that are more than noise.
        floor: share (0 to 1) that single rows must pass, products and others.
    """

    base_ns: int
    new_ns: int
    real_ns: int
    word: Word
    floor: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StepAxis:
    """One step, predicted without the profiler, both on a host of the same pace.

    Attributes:
        base_ns, new_ns: the steps that are compared.
        difference: new / base - 1.
        low, high: interval of the difference; None with fewer than three captures a side.
        needed: the difference that is more than noise (0 to 1).
        pace: how long the calls that both have took in NEW, as a multiple of BASE; 1 where that was not told apart.
        predicted: whether the steps could be replayed; else they are as recorded, or as the user timed them.
        measured: whether the user timed both without the profiler.
        base_recorded_ns, new_recorded_ns, base_raw_ns, new_raw_ns: recorded, and predicted at each recording's pace.
        base_cpu_ns, new_cpu_ns: of that, what the CPU works, each at its own pace; None where it is not replayed.
        base_bound, new_bound: what sets the pace.
    """

    word: Word
    base_ns: int
    new_ns: int
    difference: float
    low: float | None
    high: float | None
    needed: float
    pace: float
    predicted: bool
    measured: bool
    base_recorded_ns: int
    new_recorded_ns: int
    base_raw_ns: int
    new_raw_ns: int
    base_cpu_ns: int | None
    new_cpu_ns: int | None
    base_bound: str | None
    new_bound: str | None
    captures: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Axes:
    """The three ways to compare."""

    exact: tuple[Counted, ...]
    device: DeviceAxis | None
    step: StepAxis | None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the step on its way from BASE to NEW.

    Attributes:
        group: compute, communication, copies, memsets, idle, or unexplained.
        name: of the work, or cause and op of the idle time.
        base_ns, new_ns: of the compared step, whole ns.
        by_count_ns, by_duration_ns, by_overlap_ns: what of it more executions, longer ones, and less hidden ones make;
            None for idle time.
    """

    group: str
    name: str
    base_ns: int
    new_ns: int
    delta_ns: int
    by_count_ns: int | None = None
    by_duration_ns: int | None = None
    by_overlap_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """From the step of BASE to that of NEW: base_ns + sum of all delta_ns = new_ns, to the nanosecond."""

    base_ns: int
    new_ns: int
    parts: tuple[Part, ...]
    groups: Mapping[str, tuple[int, int, int]]  # group -> base, new, difference


@dataclass(frozen=True, slots=True)
class RegionChange:
    """A region of the code that takes more or less time.

    Attributes:
        name: without line numbers; of a block its ops.
        kind: phase, annotation, module, function, wrapper or block.
        of: whose time it is: "CPU", without the profiler and without waits, or "GPU".
        base_ns, new_ns: of a step, wherever regions of that name are in it; None on a side that has none.
    """

    name: str
    kind: str
    of: str
    base_ns: int | None
    new_ns: int | None
    delta_ns: int


@dataclass(frozen=True, slots=True)
class WorkSide:
    """One side of a row, per step: executions, their time, what nothing hides of it, and the median of one."""

    count: float
    ns: float
    exposed_ns: float
    median_ns: float | None
    kernels: tuple[str, ...]
    shapes: str
    types: str


_NO_WORK = WorkSide(0.0, 0.0, 0.0, None, (), "", "")


@dataclass(frozen=True, slots=True)
class Row:
    """Work that counts as the same on both sides.

    Attributes:
        op: innermost op, or the kernel where no op launched it; `outer` the outermost one.
        word: its verdict; `axis` by which it was reached.
        ratio: time of one execution, new / base; None where one side is empty or the work differs.
        p: of the permutation test; None where none was made.
        delta_ns: of the step's waterfall.
        note: what else differs: kernel, shapes, types.
    """

    op: str
    outer: str
    region: str
    kind: str
    rung: str
    word: Word
    axis: str
    base: WorkSide | None
    new: WorkSide | None
    ratio: float | None
    p: float | None
    delta_ns: int
    note: str

    @property
    def label(self) -> str:
        """What the user called: the outermost op, else the annotation, else the kernel."""
        return self.outer or self.region or self.op

    @property
    def sides(self) -> tuple[WorkSide, WorkSide]:
        """BASE and NEW; of a side without this work all is 0."""
        return self.base or _NO_WORK, self.new or _NO_WORK

    @property
    def total_ns(self) -> float:
        """GPU time of both sides."""
        return sum(side.ns for side in self.sides)


@dataclass(frozen=True, slots=True)
class CallRow:
    """Calls of one counter at one op, per step."""

    counter: str
    op: str
    outer: str
    call: str
    base: float
    new: float
    word: Word


@dataclass(frozen=True, slots=True)
class FaultChange:
    """A fault on its way from BASE to NEW.

    Attributes:
        status: new, gone, worse, better or unchanged.
        said_share: what BASE's report said that fixing it saves; of a new one NEW's.
        got_share: what the step really lost, where this is the only one that is gone, and none is new or worse.
    """

    status: str
    rules: tuple[str, ...]
    title: str
    severity: str
    said_share: float | None
    low_share: float | None
    high_share: float | None
    got_share: float | None
    base_ns: int | None
    new_ns: int | None


@dataclass(frozen=True, slots=True)
class RankChange:
    """One rank of a job on both sides; a side is None where that rank is missing.

    With `other_work` it does in NEW what another rank did in BASE.
    """

    rank: int | None
    other_work: bool
    base_ns: int | None
    new_ns: int | None
    base_waiting_ns: int | None
    new_waiting_ns: int | None
    word: Word


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is said of two recordings, jobs, or sets of captures.

    Of jobs the step, the waterfall and the rows are those of the rank that sets the pace, on each side.

    Attributes:
        waterfall: None where a side has no step.
        rows: matched work; what is real comes first, the largest part of the step's difference before.
        calls: launches, synchronisations and others that changed, by op.
        faults: what the reports say, before and after.
        rungs: rung -> share of GPU time of both sides that was matched so.
        notes: what makes the two hard to compare.
        strips: a recorded step of each side, to be drawn; in no output but the page.
        regions: of the code, which take more or less time, the largest change first; empty without regions.
    """

    base: Source
    new: Source
    verdict: Verdict
    axes: Axes
    waterfall: Waterfall | None
    rows: tuple[Row, ...]
    calls: tuple[CallRow, ...]
    faults: tuple[FaultChange, ...]
    rungs: Mapping[str, float]
    ranks: tuple[RankChange, ...]
    notes: tuple[str, ...]
    strips: tuple[StepStrip | None, StepStrip | None] = (None, None)
    regions: tuple[RegionChange, ...] = ()

    def __repr__(self) -> str:
        return f"Comparison({self.verdict.headline})"

    def to_frame(self) -> pd.DataFrame:
        """One row per matched work: op, outer, region, kind, rung, word, axis, ratio, p, delta_ns, note, and of both
        sides `base_` and `new_` count, ns, exposed_ns and median_ns."""
        return rows_frame(self.rows)
