"""Raw events -> typed columns. Every exporter quirk lives here, each with its reason.

A batch is grouped by category; for each group and column one pass in C (`map(itemgetter(...))` into
`struct.pack`) appends to a growing buffer of the final dtype, so nothing made in Python outlives its batch.
`struct.pack` rather than `np.fromiter`, because it refuses a float where an integer is declared instead of
truncating it in silence. Text and lists are interned to int32 codes: a trace has a few thousand distinct ones.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from traceanalyzer.schema import CATEGORIES, FRAMES, IGNORED, Column, Frame, Kind
from traceanalyzer.trace import NULL_INT
from traceanalyzer.units import us_text_to_ns, us_to_ns

Event = dict[str, Any]

_FLOWS = frozenset({"ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu"})
_MEMORY_NAMES = frozenset({"[memory]", "[OutOfMemory]"})
_MAX_TS_US = 9.2e15  # beyond it int64 nanoseconds overflow: year 2261
# A base period (baseTimeNanoseconds is a multiple of it) is longer than any recording; kineto writes unsigned
# differences that wrapped around as 1.8e16.
_MAX_DUR_US = 7_889_238 * 1e6
_FRACTION = re.compile(rb'"ts"\s*:\s*"?(\d{14,}\.\d+)')

_get_cat, _get_ts, _get_dur = itemgetter("cat"), itemgetter("ts"), itemgetter("dur")
_get_name, _get_args = itemgetter("name"), itemgetter("args")
_FORMATS = {Kind.INT: "q", Kind.FLOAT: "d", Kind.TEXT: "i", Kind.JSON: "i", Kind.ID: "q", Kind.TIME: "q"}
_NULLS: dict[str, int | float] = {"q": NULL_INT, "d": float("nan"), "i": -1}
_DTYPES = {"q": np.dtype(np.int64), "d": np.dtype(np.float64), "i": np.dtype(np.int32)}
_UNFIT = (KeyError, TypeError, AttributeError, struct.error, OverflowError, ValueError)


class Strings(dict[Any, int]):
    """Text -> code, given in order of first sight; None is -1."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, text: Any) -> int:
        if not isinstance(text, str | bytes):
            raise TypeError(f"not text: {text!r}")
        code = self[text] = len(self) - 1
        return code


class Table:
    """The rows of one category: a growing buffer per column, padded with nulls where a column is absent."""

    def __init__(self, frame: Frame, strings: defaultdict[tuple[str, str], Strings]) -> None:
        self.frame = frame
        self.rows = 0
        self.buffers: dict[str, bytearray] = {}
        self.columns = frame.by_raw_key
        self._strings = strings

    def interner(self, column: str) -> Strings:
        """Codes of a text column, shared by all categories of the frame."""
        return self._strings[self.frame.name, column]

    def append(self, rows: int, packed: dict[str, bytes]) -> None:
        """Add rows; columns not in `packed` are null in them."""
        for name, data in packed.items():
            buffer = self.buffers.setdefault(name, bytearray())
            self._pad(name, buffer)
            buffer += data
        self.rows += rows

    def array(self, name: str) -> NDArray[Any]:
        """A whole column in its stored dtype, shape (rows,)."""
        code = column_format(self.frame, name)
        buffer = self.buffers.setdefault(name, bytearray())
        self._pad(name, buffer)
        return np.frombuffer(buffer, _DTYPES[code])

    def _pad(self, name: str, buffer: bytearray) -> None:
        code = column_format(self.frame, name)
        missing = self.rows - len(buffer) // _DTYPES[code].itemsize
        if missing:
            buffer += struct.pack(code, _NULLS[code]) * missing


def column_format(frame: Frame, name: str) -> str:
    """struct format of a column's buffer; durations stay in float64 microseconds until all are read."""
    return "d" if name == "dur_ns" else _FORMATS[frame[name].kind]


class Collector:
    """Takes batches of raw events and keeps their columns.

    Attributes:
        tables: category -> Table.
        counted: class -> number of events that have no frame.
        metadata: the M events (process and thread names), and the profiler's own marks.
    """

    def __init__(self) -> None:
        self.strings: defaultdict[tuple[str, str], Strings] = defaultdict(Strings)
        self.tables: dict[tuple[str, str], Table] = {}
        self.counted: Counter[str] = Counter()
        self.anomalies: Counter[str] = Counter()
        self.unknown_categories: Counter[str] = Counter()
        self.other_args: Counter[str] = Counter()
        self.metadata: list[Event] = []
        self.exact_text: bool | None = None
        self.integer_times = True
        self._base = 0

    # -- one batch ---------------------------------------------------------------------------------------

    def add(self, batch: list[Any], text: bytes = b"") -> None:
        """Keep a batch; `text` is the JSON that it came from, needed only where a double cannot hold a time."""
        try:
            categories = list(map(_get_cat, batch))
        except (KeyError, TypeError):
            categories = [_category_of(event) for event in batch]
        starts = self._starts(batch, text)
        groups: defaultdict[Any, list[int]] = defaultdict(list)
        for position, category in enumerate(categories):
            groups[category].append(position)
        for category, positions in groups.items():
            self._add_category(category, [batch[p] for p in positions], np.array(positions), starts)
        self._base += len(batch)

    def _add_category(self, category: Any, events: list[Event], at: NDArray[np.int64], starts: Any) -> None:
        known = CATEGORIES.get(category) if isinstance(category, str) else None
        if known is not None:
            self._add_rows(*known, events, at + self._base, starts[at])
        elif category in _FLOWS:
            self.counted[f"flow:{category}"] += len(events)
        else:
            self._add_unusual(category, events, at + self._base, starts[at])

    def _add_unusual(self, category: Any, events: list[Event], ids: NDArray[Any], starts: Any) -> None:
        """Events without a category, and of categories that nobody told us of: sorted by phase."""
        kinds: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            kinds[self._destination(category, event)].append(position)
        for kind, positions in kinds.items():
            chosen = [events[p] for p in positions]
            if kind[0] == "counted":
                self.counted[kind[1]] += len(chosen)
                if kind[1] in ("metadata", "window mark"):
                    self.metadata += chosen
            else:
                self._add_rows(kind[0], kind[1], chosen, ids[positions], starts[positions])

    def _destination(self, category: Any, event: Any) -> tuple[str, str]:
        """(frame, category), or ("counted", class)."""
        if not isinstance(event, dict):
            return "counted", "unreadable"
        phase, name = event.get("ph"), event.get("name")
        if name in _MEMORY_NAMES:
            return "memory", "cpu_instant_event"  # torch 1.9 to 1.11: no category
        if phase == "M":
            return "counted", "metadata"
        if category == "Trace" or (phase in ("i", "I") and category is None):
            return "counted", "window mark"
        if phase in ("s", "t", "f"):
            return "counted", f"flow:{category}"
        if phase != "X":
            return "counted", f"phase {phase}" if phase else "no phase"
        self.unknown_categories[str(category)] += 1
        args = event.get("args")
        on_gpu = isinstance(args, dict) and "device" in args and "stream" in args
        return ("gpu" if on_gpu else "cpu"), str(category)

    # -- times -------------------------------------------------------------------------------------------

    def _starts(self, batch: list[Any], text: bytes) -> NDArray[np.int64]:
        """Start of every event in ns, NULL_INT where there is none; shape (events,)."""
        try:
            us = np.frombuffer(struct.pack(f"{len(batch)}d", *map(_get_ts, batch)), np.float64)
        except _UNFIT:
            return np.array([_start_ns(event) for event in batch], np.int64)
        if len(us) and not (us.min() > -_MAX_TS_US and us.max() < _MAX_TS_US):
            return np.array([_start_ns(event) for event in batch], np.int64)
        self._see_precision(us)
        if self.exact_text:
            repaired = _starts_from_text(text, len(batch))
            if repaired is not None:
                return repaired
        return us_to_ns(us)

    def _see_precision(self, us: NDArray[np.float64]) -> None:
        """Builds of March to May 2024 wrote nanoseconds after absolute microseconds: 19 digits, a double has 16."""
        if self.integer_times and not np.array_equal(us, np.floor(us)):
            self.integer_times = False
            self.exact_text = bool(us.max() > 2.0**43)

    # -- rows --------------------------------------------------------------------------------------------

    def _add_rows(self, frame: str, category: str, events: list[Event], ids: Any, starts: Any) -> None:
        table = self.tables.get((frame, category))
        if table is None:
            table = self.tables[frame, category] = Table(FRAMES[frame], self.strings)
        try:
            packed = self._pack(table, category, events)
        except _UNFIT:
            events, keep = self._fit(frame, category, events, starts)
            if not events:
                return
            ids, starts = ids[keep], starts[keep]
            packed = self._pack(table, category, events)
        packed["event_id"] = ids.astype(np.int64).tobytes()
        packed["start_ns"] = starts.tobytes()
        table.append(len(events), packed)

    def _pack(self, table: Table, category: str, events: list[Event]) -> dict[str, bytes]:
        """All columns of a group but event_id and start_ns; raises one of _UNFIT where an event is unusual."""
        n = len(events)
        names = table.interner("name")
        packed = {"name": struct.pack(f"{n}i", *map(names.__getitem__, map(_get_name, events)))}
        if table.frame.name == "memory":  # the Python exporter of torch 2.13 gives these instants a duration
            packed["dur_ns"] = bytes(8 * n)
        else:
            packed["dur_ns"] = struct.pack(f"{n}d", *map(_get_dur, events))
        if table.frame.name != "gpu":
            for key in ("pid", "tid"):
                packed[key] = _pack_ints(map(itemgetter(key), events), n)
        elif category == "gpu_user_annotation":  # the only rows whose args name neither device nor stream
            packed["device"] = _pack_ints((_lane_number(e["pid"]) for e in events), n)
            packed["stream"] = _pack_ints((_lane_number(e["tid"]) for e in events), n)
        try:
            args = list(map(_get_args, events))
        except KeyError:
            args = [event.get("args") or {} for event in events]
        self._pack_args(table, category, args, packed)
        return packed

    def _pack_args(self, table: Table, category: str, args: list[Event], packed: dict[str, bytes]) -> None:
        unknown = []
        for key in set().union(*args):
            column = table.columns.get(key)
            if column is not None:
                data = self._pack_column(table, column, key, args)
                packed[column.name] = _overlaid(packed.get(column.name), data, column)
            elif key not in IGNORED:
                unknown.append(key)
        if unknown:
            packed["other_args"] = self._pack_other(table, category, args, sorted(unknown))

    def _pack_column(self, table: Table, column: Column, key: str, args: list[Event]) -> bytes:
        code = _FORMATS[column.kind]
        convert = _converter(table, column)
        try:
            return struct.pack(f"{len(args)}{code}", *convert(map(itemgetter(key), args)))
        except KeyError:
            pass
        except _UNFIT:
            return self._pack_unusual(table, column, key, args)
        null = _NULLS[code]
        try:
            if not column.kind.interned:
                return struct.pack(f"{len(args)}{code}", *[a.get(key, null) for a in args])
            present = [a[key] for a in args if key in a]
            codes = iter(
                struct.unpack(f"{len(present)}i", struct.pack(f"{len(present)}i", *convert(present)))
            )
            return struct.pack(f"{len(args)}i", *[next(codes) if key in a else -1 for a in args])
        except _UNFIT:
            return self._pack_unusual(table, column, key, args)

    def _pack_unusual(self, table: Table, column: Column, key: str, args: list[Event]) -> bytes:
        """Value by value: what does not fit becomes null and is counted."""
        code = _FORMATS[column.kind]
        values = []
        for arg in args:
            value = _coerced(column.kind, arg.get(key))
            if value is None and arg.get(key) not in (None, "", "None"):
                self.anomalies[f"unreadable {key}"] += 1
            if column.kind.interned:
                value = table.interner(column.name)[value]
            values.append(_NULLS[code] if value is None else value)
        return struct.pack(f"{len(values)}{code}", *values)

    def _pack_other(self, table: Table, category: str, args: list[Event], keys: list[str]) -> bytes:
        """Args without a column, as JSON text with sorted keys."""
        interner = table.interner("other_args")
        codes = []
        for arg in args:
            found = {key: arg[key] for key in keys if key in arg}
            for key in found:
                self.other_args[f"{category}.{key}"] += 1
            codes.append(interner[orjson.dumps(found)] if found else -1)
        return struct.pack(f"{len(codes)}i", *codes)

    def _fit(
        self, frame: str, category: str, events: list[Event], starts: Any
    ) -> tuple[list[Event], list[int]]:
        """The events that can be rows, mended where the field's meaning is clear, and their positions."""
        fitting, keep = [], []
        for position, event in enumerate(events):
            problem = _problem_of(event, frame, int(starts[position]))
            if problem:
                self.counted[problem] += 1
            else:
                fitting.append(self._mended(event, frame))
                keep.append(position)
        return fitting, keep

    def _mended(self, event: Event, frame: str) -> Event:
        mended = dict(event)
        if frame != "memory":
            mended["dur"] = float(event["dur"])
        if not isinstance(event.get("name"), str):
            mended["name"] = "" if event.get("name") is None else str(event["name"])
        if not isinstance(event.get("args"), dict):
            mended["args"] = {} if event.get("args") is None else {"args": event["args"]}
        for key in ("pid", "tid") if frame != "gpu" else ():
            mended[key] = self._lane(event.get(key))
        return mended

    def _lane(self, value: Any) -> int:
        """pid or tid as a number: torch 1.9 quotes some, other exporters name them; names count down from -1000."""
        number = _lane_number(value)
        if number != NULL_INT:
            return number
        return -1000 - self.strings["lanes", "name"][str(value)]


def _converter(table: Table, column: Column) -> Callable[[Iterable[Any]], Iterable[Any]]:
    if column.kind is Kind.TEXT:
        codes = table.interner(column.name).__getitem__
        return lambda values: map(codes, values)
    if column.kind is Kind.JSON:
        codes = table.interner(column.name).__getitem__
        return lambda values: map(codes, map(orjson.dumps, values))
    return iter


def _pack_ints(values: Iterable[Any], n: int) -> bytes:
    return struct.pack(f"{n}q", *values)


def _overlaid(before: bytes | None, after: bytes, column: Column) -> bytes:
    """Two raw keys of one column ("External id", "external id") or two sources: the later one where it is set."""
    if before is None:
        return after
    code = _FORMATS[column.kind]
    old, new = np.frombuffer(before, _DTYPES[code]), np.frombuffer(after, _DTYPES[code])
    missing = np.isnan(new) if code == "d" else new == _NULLS[code]
    return np.where(missing, old, new).tobytes()


def _category_of(event: Any) -> Any:
    return event.get("cat") if isinstance(event, dict) else None


def _start_ns(event: Any) -> int:
    """One event's start where the fast way failed: quoted, missing, or no time at all."""
    value = event.get("ts") if isinstance(event, dict) else None
    if isinstance(value, str):
        try:
            return us_text_to_ns(value)
        except ValueError:
            return NULL_INT
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_TS_US:
        return int(us_to_ns(np.array([float(value)]))[0])
    return NULL_INT


def _starts_from_text(text: bytes, events: int) -> NDArray[np.int64] | None:
    """Starts read from the digits, where a double lost the last ones; None where they cannot be told apart."""
    found = _FRACTION.findall(text)
    if len(found) != events:
        return None
    return np.array([us_text_to_ns(value.decode()) for value in found], np.int64)


def _lane_number(value: Any) -> int:
    """A pid or tid, also as "25738" or "stream 7"; NULL_INT for a name."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if isinstance(value, str):
        digits = value.removeprefix("stream ").strip()
        if digits.removeprefix("-").isdecimal():
            return int(digits)
    return NULL_INT


def _problem_of(event: Any, frame: str, start_ns: int) -> str | None:
    """Why an event cannot be a row, as the class that it is counted in."""
    if not isinstance(event, dict):
        return "unreadable"
    if start_ns == NULL_INT:
        return "no timestamp"
    if frame == "memory":
        return None
    if event.get("ph", "X") != "X":
        return f"phase {event.get('ph')}"
    try:
        float(event["dur"])
    except (KeyError, TypeError, ValueError):
        return "no duration"
    return None


def _coerced(kind: Kind, value: Any) -> Any:
    """A value in the column's kind, or None."""
    if value is None:
        return None
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    if kind is Kind.JSON:
        return orjson.dumps(value, default=str)
    try:
        number = float(value) if kind is Kind.FLOAT or isinstance(value, float) else int(value)
    except (TypeError, ValueError):
        return None
    if kind is Kind.FLOAT:
        return number
    if number != int(number) or not -(2**63) < number < 2**63:
        return None
    return int(number)


def durations_ns(us: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Durations in ns, and how many were impossible (negative, not a number, longer than any recording) and became 0."""
    possible = (us >= 0) & (us <= _MAX_DUR_US)
    return us_to_ns(np.where(possible, us, 0.0)), int(len(us) - possible.sum())
