"""Selections of the rows of one trace: chosen by masks, grouped by a key, parallel columns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, distinct_pairs, grouped
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.device_work import NO_WORK, DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.user_code import UserCode

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """One trace with the indexes that its selections read.

    Attributes:
        trace, nesting, steps, user_code: the trace and its indexes.
        work: None where no device was recorded.
        calls: int64, rows of `trace.cpu` on a thread: all that `Calls` has.
        entries: int64, all of `DeviceWork`: what `Work` has.
    """

    trace: Trace
    nesting: Nesting
    steps: Steps
    user_code: UserCode
    work: DeviceWork | None
    calls: Rows
    entries: Rows
    _cached: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, steps: Steps, user_code: UserCode, work: DeviceWork | None) -> Self:
        calls = np.flatnonzero(nesting.thread >= 0)
        entries = np.arange(0 if work is None else len(work.row))
        calls.flags.writeable = entries.flags.writeable = False  # views have these very arrays
        return cls(trace, nesting, steps, user_code, work, calls, entries)

    @property
    def device_work(self) -> DeviceWork:
        """As `work`; empty where no device was recorded."""
        return NO_WORK if self.work is None else self.work

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes, once: most rules begin with the same views, whose properties are kept."""
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]  # type: ignore[no-any-return]


def once_per_trace(make: Callable[[Events], Made]) -> Callable[[Events], Made]:
    """A function whose answer is kept with the trace that it is of."""

    @wraps(make)
    def kept(events: Events) -> Made:
        return events.once(kept, partial(make, events))

    return kept


@once_per_trace
def bounds_of(events: Events) -> tuple[int, int]:
    """When the first event of a trace begins and the last ends."""
    lanes = (events.nesting, events.device_work)
    first = min(int(lane.start_ns.min(initial=2**62)) for lane in lanes)
    return first, max(int(lane.end_ns.max(initial=-(2**62))) for lane in lanes)


@once_per_trace
def lanes_of(events: Events) -> int:
    """How many threads and streams a trace has."""
    threads = int(events.nesting.thread.max(initial=-1)) + 1
    return threads + len(distinct_pairs(events.device_work.device, events.device_work.stream)[0])


Chosen = Mask | Rows | Sequence[int] | slice | int
Key = Texts | Rows

if TYPE_CHECKING:
    cached_readonly = property
else:

    class cached_readonly(property):
        """A property of a view that is made once per view; its arrays are read-only, since others see the same."""

        def __get__(self, view: Any, kind: Any = None) -> Any:
            if view is None:
                return self
            name = self.fget.__name__
            if name not in view._cached:
                made = self.fget(view)
                if isinstance(made, np.ndarray):  # texts and views are read-only by themselves
                    made.flags.writeable = False
                view._cached[name] = made
            return view._cached[name]


class Selection(ABC):
    """Some rows; every property is an array parallel to them. `selection[mask]` is a smaller one.

    Subclasses give `start_ns`, `end_ns` and `step` (position in `Steps`, -1 for none), int64 (rows,).
    """

    __slots__ = ("_cached", "_rows", "events")

    def __init__(self, events: Events, rows: Rows) -> None:
        self.events = events
        if rows.flags.writeable:  # what is written to a view's rows would change the view; to its array, not
            rows = rows.view()
            rows.flags.writeable = False
        self._rows = rows
        self._cached: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def repeated(self) -> int:
        """How many rows are there already."""
        return repeats(self._rows)

    def __getitem__(self, chosen: Chosen) -> Self:
        return type(self)(self.events, self._rows.take(positions(chosen, len(self))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows)"

    @property
    @abstractmethod
    def start_ns(self) -> Rows: ...

    @property
    @abstractmethod
    def end_ns(self) -> Rows: ...

    @cached_readonly
    def dur_ns(self) -> Rows:
        """Duration of each row."""
        return self.end_ns - self.start_ns

    @property
    def total_ns(self) -> int:
        """Sum of the durations of the rows; what is there several times counts once."""
        if not self.repeated():
            return int(self.dur_ns.sum())
        return int(self.dur_ns[np.unique(self._rows, return_index=True)[1]].sum())

    def next_start_ns(self, at_ns: Rows) -> Rows:
        """When the next of the rows begins after each instant; the largest int64 where there is none."""
        starts = np.append(np.sort(self.start_ns), np.iinfo(np.int64).max)
        following: Rows = starts[np.searchsorted(starts[:-1], at_ns)]
        return following

    def by(self, *keys: Key) -> Iterator[tuple[Any, Self]]:
        """(key, the rows that have it), most time first; ties by key. Several keys give tuples.

        Keys are `Texts`, int64 arrays or masks, parallel to the rows; of a mask the key is 0 or 1.
        """
        codes = [key.code if isinstance(key, Texts) else key for key in keys]
        number, first = grouped([code.astype(np.int64) if code.dtype == np.bool_ else code for code in codes])
        order = np.argsort(number, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(number))[:-1])
        time = np.bincount(number, weights=self.dur_ns)
        at_first = [key[first].values() if isinstance(key, Texts) else key[first].astype(int) for key in keys]
        values = list(zip(*(column.tolist() for column in at_first), strict=True))
        for group in sorted(range(len(first)), key=lambda g: (-time[g], tuple(map(_sortable, values[g])))):
            value = values[group]
            yield value if len(keys) > 1 else value[0], self[parts[group]]

    @property
    @abstractmethod
    def step(self) -> Rows: ...


def positions(chosen: Chosen, rows: int) -> Rows:
    """Positions of what is chosen of so many rows. Raises IndexError: the mask or a position does not fit."""
    if isinstance(chosen, slice):
        return np.arange(rows)[chosen]
    array = np.atleast_1d(np.asarray(chosen))
    if array.dtype == np.bool_:
        if len(array) != rows:
            raise IndexError(f"a mask of {len(array):,} rows cannot choose of {rows:,}")
        return array.nonzero()[0]  # numpy takes four times longer by a mask than by positions
    # `view[-1]` is the last row; -1 in an array means that there is none.
    least = -rows if np.ndim(chosen) == 0 else 0
    if len(array) and not least <= array.min() <= array.max() < rows:
        hint = ": -1 stands for none, leave it out" if array.min() == -1 else ""
        span = f"{array.min()} to {array.max()}"
        raise IndexError(f"positions from {span} cannot choose of {rows:,} rows{hint}")
    return array.astype(np.int64, copy=False)


def check_same_trace(view: Selection, other: Any) -> None:
    """Raises ValueError where two views are of two traces, whose rows have nothing to do with each other."""
    if other.events is not view.events:
        kind = type(other).__name__
        raise ValueError(f"{kind} of another trace, or of another window: views are of this one")


def repeats(rows: Rows) -> int:
    """How many of them are there already; rows mostly ascend, and are not sorted for that."""
    return 0 if (rows[1:] > rows[:-1]).all() else len(rows) - len(distinct(rows))


def _sortable(value: Any) -> tuple[bool, Any]:
    return value is None, value if value is not None else ""
