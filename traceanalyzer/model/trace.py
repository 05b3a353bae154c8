"""What reading gives: the frames of one process and its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, pick
from traceanalyzer.model.execution_trace import ExecutionTrace
from traceanalyzer.model.lanes import NULL_INT as NULL_INT
from traceanalyzer.model.lanes import Coded, Codes, Columns, Lanes
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.model.text_queries import cached_predicate, rows_with_codes

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the trace's deviceProperties tells; `ordinal` is what rows call it."""

    ordinal: int
    name: str | None = None
    sms: int | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


_UNDERSTOOD = ("flow:", "metadata", "window mark", "of another rank")


@dataclass(frozen=True, slots=True)
class Damage:
    """One place where the file could not be read as it stands, and what was lost there."""

    kind: str
    message: str
    byte_offset: int | None = None
    events_lost: int | None = None


@dataclass(frozen=True, slots=True)
class Meta:
    """What the file says of itself, and the account of what was read.

    `rows` (rows per frame and category) and `counted` (classes of events that have no frame: flows, metadata,
    window marks, unreadable ones) sum to `events`, the number of entries in traceEvents.
    """

    source: str
    events: int
    rows: Mapping[str, Mapping[str, int]]
    counted: Mapping[str, int]
    dialect: str
    envelope: str = "object"
    base_time_ns: int = 0
    origin_ns: int = 0
    window_ns: tuple[int, int] | None = None
    devices: tuple[Device, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    anomalies: Mapping[str, int] = field(default_factory=dict)
    unknown_categories: Mapping[str, int] = field(default_factory=dict)
    other_args: Mapping[str, int] = field(default_factory=dict)
    damage: tuple[Damage, ...] = ()
    thread_names: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def not_understood(self) -> dict[str, int]:
        """What of `counted` is no flow, metadata, window mark or event of another rank, which nobody misses."""
        return {name: count for name, count in self.counted.items() if not name.startswith(_UNDERSTOOD)}

    def __repr__(self) -> str:
        return f"Meta({self.source!r}, {self.events:,} events, rank={self.rank})"


@dataclass(frozen=True, eq=False)
class Trace:
    """One process's trace.

    Attributes:
        lanes: its rows, as analyses read them.
        meta: what the file says of itself and the account of what was read.
        tensors: which tensors ops read and write, from an execution trace; None without one.

    The frames `cpu`, `gpu`, `python`, `memory` and `counters` (`schema.CPU` ...) are made when first asked for, once
    for all copies of the trace. Columns may share memory and be read-only: to change a frame, change its copy.
    """

    lanes: Lanes
    meta: Meta
    tensors: ExecutionTrace | None = None

    FRAMES: ClassVar[tuple[str, ...]] = tuple(FRAMES)
    tables: ClassVar[Mapping[str, Callable[[Trace], pd.DataFrame]]] = {}
    """Tables of a trace by name: set by the package, since the model knows no analysis."""

    def __repr__(self) -> str:
        rows = f"{len(self.lanes.cpu):,} rows of the CPU, {len(self.lanes.gpu):,} of the GPU"
        return f"Trace({self.meta.source!r}, {rows})"

    def with_frames(self, **frames: pd.DataFrame) -> Trace:
        """The same trace with other frames in place of some, `trace.with_frames(cpu=changed)`."""
        return replace(self, lanes=self.lanes.but(frames))

    @property
    def cpu(self) -> pd.DataFrame:
        """Rows of the CPU lane, columns as `schema.CPU` declares them, in order of event_id."""
        return self.lanes.frame("cpu")

    @property
    def gpu(self) -> pd.DataFrame:
        """Rows of the GPU lane, columns as `schema.GPU`."""
        return self.lanes.frame("gpu")

    @property
    def python(self) -> pd.DataFrame:
        """The CPU lane's python_function rows, columns as `schema.PYTHON`."""
        return self.lanes.frame("python")

    @property
    def memory(self) -> pd.DataFrame:
        """The allocator's instants, columns as `schema.MEMORY`."""
        return self.lanes.frame("memory")

    @property
    def counters(self) -> pd.DataFrame:
        """Samples of counters, such as the SM clock, columns as `schema.COUNTERS`; empty in most traces."""
        return self.lanes.frame("counters")

    @property
    def kernels(self) -> pd.DataFrame:
        """One row per kernel, copy and memset: `traceanalyzer.kernels` of the whole trace."""
        return Trace.tables["kernels"](self)

    def queue_depth(self) -> pd.DataFrame:
        """How much work waits for each device: `traceanalyzer.queue_depth` of the whole trace."""
        return Trace.tables["queue_depth"](self)

    def idle_gaps(self) -> pd.DataFrame:
        """Every stretch of idle time with its cause: `traceanalyzer.idle_gaps` of the whole trace."""
        return Trace.tables["idle_gaps"](self)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a job that is not among its traces, and why."""

    path: str
    problem: str


class Job(dict[int, Trace]):
    """Traces of one job by rank.

    Attributes:
        skipped: files that were passed over because they could not be read, are no traces, or copies.
        iterations: name -> files of each iteration, of which one is read; empty where there is but one.
    """

    def __init__(
        self,
        traces: Mapping[int, Trace] | None = None,
        skipped: Sequence[Skipped] = (),
        iterations: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(traces or {})
        self.skipped = tuple(skipped)
        self.iterations = dict(iterations or {})


def ints(rows: Columns | pd.DataFrame, column: str) -> NDArray[np.int64]:
    """A whole column as int64 of shape (rows,), null as NULL_INT; perhaps read-only."""
    values = _columns(rows).column(column)
    assert not isinstance(values, Coded)
    return values.astype(np.int64, copy=False)


def ints_at(rows: Columns | pd.DataFrame, column: str, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """`ints` of some rows, -1 where the row is -1; int64 of the rows' shape."""
    columns = _columns(rows)
    return columns.at(column, at).astype(np.int64, copy=False) if len(columns) else np.full(len(at), -1)


def floats(rows: Columns | pd.DataFrame, column: str) -> NDArray[np.float64]:
    """A whole column as float64 of shape (rows,), null as NaN; perhaps read-only."""
    values = _columns(rows).column(column)
    assert not isinstance(values, Coded)
    return values.astype(np.float64, copy=False)


def _columns(rows: Columns | pd.DataFrame) -> Columns:
    return rows if isinstance(rows, Columns) else Columns.of_frame(rows)


def codes(frame: Columns | pd.DataFrame, column: str) -> NDArray[np.int64]:
    """Category codes of a text column as int64 of shape (rows,), null as -1."""
    return narrow_codes(frame, column).astype(np.int64)


def narrow_codes(frame: Columns | pd.DataFrame, column: str) -> Codes:
    """As `codes`, in the column's own width and memory: read-only, and too narrow to calculate with."""
    return _text_column(frame, column)[0]


def codes_at(frame: Columns | pd.DataFrame, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """`codes` of some rows, -1 where the row is -1; int64 of the rows' shape."""
    return pick(narrow_codes(frame, column), rows).astype(np.int64)


def texts_of(frame: Columns | pd.DataFrame, column: str) -> NDArray[np.object_]:
    """The distinct texts of a text column by their codes, as str; some may not occur. Read-only."""
    return _text_column(frame, column)[1]


def matching(frame: Columns | pd.DataFrame, column: str, wanted: Callable[[str], object]) -> Mask:
    """Which rows of a text column satisfy a predicate, asked once per distinct text; bool of shape (rows,)."""
    texts = texts_of(frame, column).tolist()
    matches = np.fromiter(map(bool, map(cached_predicate(wanted), texts)), bool, len(texts))
    return rows_with_codes(matches, narrow_codes(frame, column))


def _text_column(rows: Columns | pd.DataFrame, column: str) -> Coded:
    values = _columns(rows).column(column)
    assert isinstance(values, Coded)
    return values
