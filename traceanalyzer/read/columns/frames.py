"""Groups -> the columns of frames in order of event_id, with sorted categories: the same for any chunking.

What is kept as codes becomes columns by looking every distinct value up once. Buffers are released as they are
used, so that no column is in memory twice; columns that are null throughout are one value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import places_of
from traceanalyzer.model.lanes import NULL_INT32, Coded, Columns, Narrow, Table
from traceanalyzer.model.schema import FRAMES, Column, Storage
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.columns.collector import MAX_DEVICE, Collector
from traceanalyzer.read.columns.demangle import demangled
from traceanalyzer.read.columns.packing import RowGroup
from traceanalyzer.read.columns.quirks import FOLDED, as_json, as_text, coerced, lane_number

Codes = NDArray[np.int32]
_MAX_INT32 = np.iinfo(np.int32).max
Head = tuple[Any, Any, Any]

_NULLS = {Storage.INT: (np.int64, NULL_INT), Storage.FLOAT: (np.float64, np.nan), Storage.ID: (np.int64, 0)}


def build_columns(collector: Collector, name: str) -> Columns:
    """Every column that `schema` declares for one frame. It takes the collector's buffers: build it once."""
    frame = FRAMES[name]
    gather = _Gather([group for (lane, *_), group in collector.groups.items() if lane == name and group.rows])
    columns: dict[str, Any] = {"event_id": Narrow(gather.buffer("id", np.zeros(gather.rows, np.uint32)))}
    columns |= {f"{name}_ns": gather.buffer(name, np.zeros(gather.rows, np.int64)) for name in ("start", "dur")}
    columns |= _from_args(frame.columns, gather)
    columns |= _from_heads(name, gather, collector, columns)
    finished = {
        column.name: columns.pop(column.name) if column.name in columns else _null(column, gather.rows)
        for column in frame.columns
    }
    return Columns.of(finished, gather.rows)


class _Gather:
    """Brings the buffers of several groups together, each row at its place in the frame."""

    def __init__(self, groups: list[RowGroup]) -> None:
        self.groups = groups
        self.rows = sum(group.rows for group in groups)
        ids = [group.array("id") for group in groups] or [np.empty(0, np.uint32)]
        places = places_of(np.argsort(np.concatenate(ids), kind="stable"), self.rows)[:-1]
        ends = np.cumsum([group.rows for group in groups], dtype=np.int64).tolist()
        self._places = [places[end - group.rows : end] for group, end in zip(groups, ends, strict=True)]

    def whole_numbers(self, name: str) -> NDArray[np.int64] | Narrow:
        """A buffer of whole numbers, in 32 bits where all fit; null where a group has none."""
        parts = [group.array(name) for group in self.groups if name in group.buffers]
        if all(len(part) == 0 or (part.min() > NULL_INT32 and part.max() <= _MAX_INT32) for part in parts):
            return Narrow(self.buffer(name, np.full(self.rows, NULL_INT32, np.int32)))
        return self.buffer(name, np.full(self.rows, NULL_INT))

    def codes(self, name: str, offsets: Sequence[int] = ()) -> Codes:
        """A buffer of codes, those of each group moved by its offset; -1 where a group has none."""
        return self.buffer(name, np.full(self.rows, -1, np.int32), offsets)

    def group_of(self) -> Codes:
        out = np.empty(self.rows, np.int32)
        for number, places in enumerate(self._places):
            out[places] = number
        return out

    def buffer(self, name: str, out: NDArray[Any], offsets: Sequence[int] = ()) -> NDArray[Any]:
        """A buffer of all groups, whose own are released; `out` stays as it is where a group has none."""
        offsets = offsets or [0] * len(self.groups)
        for group, places, offset in zip(self.groups, self._places, offsets, strict=True):
            if name in group.buffers:
                out[places] = group.array(name) + offset if offset else group.array(name)
                del group.buffers[name]
        return out


def _from_heads(name: str, gather: _Gather, collector: Collector, columns: dict[str, Any]) -> dict[str, Any]:
    """category, names, pid and tid; GPU rows may carry device and stream there instead of in args."""
    heads: list[Head] = list(collector.heads)
    categories = [group.category for group in gather.groups]
    groups = gather.group_of()
    codes = gather.codes("head")
    narrow = narrowed(codes, len(heads))
    table: dict[str, Any] = {"category": categorical(groups, categories)}
    names = ["" if head[0] is None else as_text(head[0]) for head in heads]
    readable = list(map(demangled, names)) if name == "gpu" else names
    table["name"] = categorical(codes, readable)
    if readable != names:
        pairs = zip(names, readable, strict=True)
        table["mangled_name"] = categorical(codes, [text if text != plain else None for text, plain in pairs])
    if name == "counters":
        table["device"] = _devices(narrow, heads, collector)
    elif name == "gpu":
        devices = first_of(columns.get("device"), _devices(narrow, heads, collector))
        impossible = (devices != NULL_INT) & ((devices < 0) | (devices > MAX_DEVICE))  # no machine has them
        if impossible.any():
            collector.anomalies["unreadable device"] += int(impossible.sum())
        table["device"] = stored(np.where(impossible, NULL_INT, devices))
        streams = looked_up(narrow, [lane_number(head[2]) for head in heads], Storage.INT)
        table["stream"] = stored(first_of(columns.get("stream"), streams))
    else:
        for column, position in (("pid", 1), ("tid", 2)):
            lanes = (head[position] for head in heads)
            numbers = [collector.lanes.get(as_text(lane), lane_number(lane)) for lane in lanes]
            table[column] = looked_up(narrow, numbers, Storage.INT)
    return table


def first_of(preferred: Table | None, other: Table) -> NDArray[np.int64]:
    """What is known, and the other where it is null."""
    numbers: Any = other.wide()
    return numbers if preferred is None else np.where(preferred.wide() == NULL_INT, numbers, preferred.wide())


def _devices(codes: NDArray[Any], heads: list[Head], collector: Collector) -> Table:
    """The GPU of each row as its pid tells."""
    return looked_up(codes, [collector.declared.device_of(head[1]) for head in heads], Storage.INT)


def _from_args(columns: Sequence[Column], gather: _Gather) -> dict[str, Any]:
    """The columns that have raw keys, and `other_args`; those that no row has are left out."""
    recurring, other = _Distinct(gather, "known"), _Distinct(gather, "other")
    table: dict[str, Any] = {"other_args": categorical(other.codes, other.texts())}
    decoded = recurring.values([column for column in columns if column.recurs])
    narrow = narrowed(recurring.codes, max(map(len, decoded.values()), default=0))
    for column in columns:
        if column.name in decoded:
            values = decoded.pop(column.name)
            if column.storage.interned:
                table[column.name] = categorical(recurring.codes, values)
            else:
                table[column.name] = looked_up(narrow, values, column.storage)
        elif any(column.name in group.buffers for group in gather.groups if column.raw):
            if column.storage is Storage.INT:
                table[column.name] = gather.whole_numbers(column.name)
            else:
                table[column.name] = gather.buffer(column.name, np.full(gather.rows, np.nan))
    return table


class _Distinct:
    """The distinct combinations of one kind of recurring args over all groups, and each row's code into them.

    Either `values` or `texts` is asked for, and once: the reader's own table of texts is emptied on the way.
    """

    def __init__(self, gather: _Gather, name: str) -> None:
        self._parts = [group.shared[name] for group in gather.groups if name in group.shared]
        counts = [len(group.shared[name].codes) if name in group.shared else 0 for group in gather.groups]
        self.codes = gather.codes(name, np.concatenate(([0], np.cumsum(counts)))[:-1].tolist())

    def values(self, columns: Sequence[Column]) -> dict[str, list[Any]]:
        """Column -> its value in every combination as the column stores it, None where there is none.

        Columns whose keys no row has are left out. Equal texts are one object.
        """
        keys = {key for part in self._parts for key in part.keys}
        decoded: dict[str, list[Any]] = {column.name: [] for column in columns if keys & set(column.raw)}
        seen: dict[Any, Any] = {}
        for part in self._parts:
            positions = {
                column: [i for i, key in enumerate(part.keys) if key in column.raw]
                for column in columns
                if column.name in decoded
            }
            for values in part.values():
                for column, places in positions.items():
                    first = next((values[i] for i in places if values[i] is not None), None)
                    value = coerced(column.storage, first)
                    value = seen.setdefault(value, value) if column.storage.interned else value
                    decoded[column.name].append(value)
            part.codes.clear()
        return decoded

    def texts(self) -> list[str]:
        """Every combination as a JSON object."""
        documents = []
        for part in self._parts:
            for values in part.values():
                args = dict(zip(part.keys, values, strict=True))
                documents.append(as_json(args.get(FOLDED) or args))
            part.codes.clear()
        return documents


def narrowed(codes: Codes, size: int) -> NDArray[Any]:
    """Codes below a size, as narrow as that allows."""
    return codes.astype(np.min_scalar_type(-size - 1), copy=False)


def looked_up(codes: NDArray[Any], values: Sequence[Any], storage: Storage) -> Table:
    """values[codes], null for None and for code -1."""
    dtype, null = _NULLS[storage]
    table: Any = np.array([null if value is None else value for value in values] + [null], dtype)
    return Table(codes, table)


def stored(numbers: NDArray[np.int64]) -> NDArray[np.int64] | Narrow:
    """The numbers in 32 bits where all fit."""
    null = numbers == NULL_INT
    present = numbers[~null]
    if len(present) and not NULL_INT32 < present.min() <= present.max() <= _MAX_INT32:
        return numbers
    narrow = numbers.astype(np.int32)
    narrow[null] = NULL_INT32
    return Narrow(narrow)


def categorical(codes: Codes, texts: Sequence[str | None]) -> Coded:
    """texts[codes], null for code -1; only texts that occur are kept, sorted."""
    used = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:]).tolist()
    names = sorted({text for text in map(texts.__getitem__, used) if text is not None})
    code_of: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    table = np.full(len(texts) + 1, -1, np.min_scalar_type(-len(names) - 1))
    table[used] = [code_of.get(texts[code], -1) for code in used]
    return Coded(table.take(codes), np.array(names, object))


def _null(column: Column, rows: int) -> Any:
    """A column that is null throughout: one read-only value repeated."""
    if column.storage.interned:
        return Coded(np.broadcast_to(np.int8(-1), rows), np.empty(0, object))
    dtype, null = _NULLS[column.storage]
    return np.broadcast_to(np.array(null, dtype), rows)
