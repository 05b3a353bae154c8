"""Rows whose args have the same keys: how they are packed, and the growing buffers that hold them.

For every column one pass in C (`map(itemgetter(...))` into `struct.pack`) makes the bytes of its final dtype, so
nothing made in Python outlives its batch. `struct.pack` rather than `np.fromiter`, because it refuses a float
where an integer is declared instead of truncating it in silence. What recurs from row to row (grid, shapes,
stream) is one code per row into a table of distinct JSON texts: a trace has a few thousand of them.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from traceanalyzer.model.schema import IGNORED, Frame, Storage
from traceanalyzer.read.columns.quirks import BLANK, coerced
from traceanalyzer.read.columns.times import durations_ns, us_to_ns

Event = dict[str, Any]
Args = dict[str, Any]

# What packing raises where an event is not as the exporter writes it.
UNFIT = (KeyError, TypeError, AttributeError, struct.error, OverflowError, ValueError)
_FORMAT_OF = {Storage.INT: "q", Storage.FLOAT: "d"}
_FORMATS = {"id": "I", "start": "d", "dur": "d", "head": "i", "known": "i", "other": "i"}
_ROWS_AT_ONCE = 1 << 16  # half a megabyte of a column, which stays in the cache


def getter(*keys: str) -> itemgetter[Any]:
    """An itemgetter for parsed events. orjson hands out the same string for the same key again and again: what
    is looked up by that very string is found without comparing text."""
    return itemgetter(*orjson.loads(orjson.dumps(dict.fromkeys(keys))))


class Codes(dict[Any, int]):
    """Value -> code, given in order of first sight."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


class Texts(Codes):
    """Codes of JSON texts, which orjson leaves in buffers ten times their size: those kept are copies."""

    def __missing__(self, value: bytes) -> int:
        code = self[bytes(memoryview(value))] = len(self)
        return code


class Rows(NamedTuple):
    """Events of one category within a batch; one entry per event in each field."""

    args: Sequence[Args]
    ids: NDArray[np.int64]
    heads: NDArray[np.int32]
    starts: NDArray[Any]  # float64 in µs, or int64 in ns
    durations: NDArray[np.float64]  # µs

    def take(self, positions: NDArray[np.intp]) -> Rows:
        args = list(map(self.args.__getitem__, positions.tolist()))
        columns: Iterator[Any] = (column[positions] for column in self[1:])
        return Rows(args, *columns)

    def by_size(self) -> Iterator[Rows]:
        """Parts that have the same number of args, which usually are those with the same keys.

        Raises TypeError: not all args have a size.
        """
        sizes: bytes | list[int]
        try:
            sizes = bytes(map(len, self.args))
        except ValueError:  # one has 256 or more
            sizes = list(map(len, self.args))
        if sizes.count(sizes[0]) == len(sizes):
            yield self
            return
        size_of = np.frombuffer(sizes, np.uint8) if isinstance(sizes, bytes) else np.array(sizes)
        for size in sorted(set(sizes)):
            yield self.take((size_of == size).nonzero()[0])

    def by_keys(self) -> Iterator[Rows]:
        """Parts whose args have the same keys. Raises TypeError: not all args are objects."""
        if set(map(type, self.args)) != {dict}:
            raise TypeError("args that are no object")
        positions: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for position, keys in enumerate(map(frozenset, self.args)):
            positions[keys].append(position)
        for chosen in positions.values():
            yield self.take(np.array(chosen))


class Shared:
    """Args whose values recur: one code per row into the distinct combinations, kept as JSON."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self.codes = Texts()
        self._get = getter(*keys)

    def pack(self, args: Sequence[Args]) -> bytes:
        texts = map(orjson.dumps, map(self._get, args))
        return struct.pack(f"{len(args)}i", *map(self.codes.__getitem__, texts))

    def values(self) -> Iterator[Sequence[Any]]:
        """The distinct combinations in order of their codes, each with one value per key.

        Decoded one by one: as objects of Python they take fifteen times the memory of their text.
        """
        decoded = map(orjson.loads, self.codes)
        return ((value,) for value in decoded) if len(self.keys) == 1 else decoded


class RowGroup:
    """All rows of one category whose args have these keys.

    Attributes:
        buffers: "id" (uint32: no file holds more events), "start" and "dur" (float64 µs until all are read; starts
            only for as long as a double holds them), "head" (code of category, name, pid and tid), "known" and "other"
            (codes of `shared`), and one for each numeric column by its name.
        shared: the args that recur, those that have a column ("known") and those that have none ("other").
    """

    def __init__(self, frame: Frame, category: str, keys: frozenset[str]) -> None:
        self.frame = frame
        self.category = category
        self.keys = keys
        columns = frame.by_raw_key
        recurring = sorted(key for key in keys if key in columns and columns[key].recurs)
        other = sorted(key for key in keys if key not in columns and key not in IGNORED)
        numbers = sorted((key for key in keys if key in columns and key not in recurring), reverse=True)
        numeric = sorted({columns[key].name: key for key in numbers}.values())  # one spelling of each
        described = [(columns[key], getter(key)) for key in numeric]
        self._numbers = [(column.name, _FORMAT_OF[column.storage], get) for column, get in described]
        ignored = sorted(key for key in keys if key in IGNORED or (key in numbers and key not in numeric))
        self._get_ignored = getter(*ignored) if ignored else None
        shared = (("known", recurring), ("other", other))
        self.shared = {name: Shared(raw_keys) for name, raw_keys in shared if raw_keys}
        names = ["id", "start", "dur", "head", *self.shared, *(name for name, *_ in self._numbers)]
        self.buffers = {name: bytearray() for name in names}
        formats = _FORMATS | {name: form for name, form, _ in self._numbers}
        self._dtypes = {name: np.dtype(formats[name]) for name in names}
        self.rows = 0

    def add(self, rows: Rows) -> None:
        """Keep rows. Raises UNFIT: an event is not as the exporter writes it; none of the rows is kept then."""
        n, args = len(rows.args), rows.args
        # All args have as many entries as there are keys: if none of the keys is missing, there are no others.
        # Those with a column are looked up anyway, so this looks up the rest.
        if self._get_ignored:
            deque(map(self._get_ignored, args), 0)
        elif not self.keys and set(map(type, args)) != {dict}:
            raise TypeError("args that are no object")
        packed = [(name, struct.pack(f"{n}{form}", *map(get, args))) for name, form, get in self._numbers]
        packed += [(name, shared.pack(rows.args)) for name, shared in self.shared.items()]
        for name, data in packed:
            self.buffers[name] += data
        self.buffers["id"].extend(rows.ids.astype(np.uint32))
        self.buffers["head"].extend(rows.heads)
        if rows.starts.dtype == np.int64:
            self.settle_starts()
        starts = rows.starts if self._dtypes["start"] == rows.starts.dtype else us_to_ns(rows.starts)
        self.buffers["start"].extend(starts)
        self.buffers["dur"].extend(rows.durations)
        self.rows += n

    def absorb(self, rows: int, buffers: dict[str, bytes | bytearray]) -> None:
        """Keep rows of another part, whose starts are settled; this empties `buffers`, so that a part is never in
        memory twice."""
        self.settle_starts()
        while buffers:
            name, data = buffers.popitem()
            self.buffers[name] += data
        self.rows += rows

    def array(self, name: str) -> NDArray[Any]:
        """One buffer as an array of shape (rows,)."""
        return np.frombuffer(self.buffers[name], self._dtypes[name])

    def settle_starts(self) -> None:
        """Starts from float64 µs to int64 ns, in the same memory; also those that are added later."""
        us = self.array("start")
        if us.dtype == np.int64:
            return
        self._dtypes["start"] = np.dtype("q")
        ns = self.array("start")
        for start in range(0, self.rows, _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            ns[some] = us_to_ns(us[some])

    def finish(self) -> int:
        """Starts, and durations from float64 µs, to int64 ns, once all are read; how many of these were impossible and
        became 0."""
        self.settle_starts()
        us, impossible = self.array("dur"), 0
        self._dtypes["dur"] = np.dtype("q")
        ns = self.array("dur")  # the same memory: a copy of the longest columns would be the peak of reading
        for start in range(0, self.rows, _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            ns[some], count = durations_ns(us[some])
            impossible += count
        return impossible

    def unreadable(self) -> Iterator[tuple[str, int]]:
        """Keys whose recurring values do not fit their columns, and in how many rows."""
        shared = self.shared.get("known")
        if shared is None:
            return
        columns = [(i, key, self.frame.by_raw_key[key].storage) for i, key in enumerate(shared.keys)]
        numeric = [column for column in columns if not column[2].interned]  # all else fits a text
        if not numeric:
            return
        counts = np.bincount(self.array("known"), minlength=len(shared.codes))
        for values, count in zip(shared.values(), counts.tolist(), strict=True):
            for i, key, storage in numeric:
                if values[i] not in BLANK and coerced(storage, values[i]) is None and count:
                    yield key, count

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        self.buffers = {name: bytearray(self.array(name)[chosen].tobytes()) for name in self.buffers}
        self.rows = int(chosen.sum())
