"""Overlay -> Perfetto's own format: a sequence of TracePackets with tracks, slices, counters and arrows.

Field numbers are those of perfetto/protos/trace/perfetto_trace.proto, v59. Texts are kept once, as interned data. All
of a slice is in two packets, its begin and its end; where one ends as the next begins, the end comes first in the file.

Numbers that differ from slice to slice are written as varints of a fixed size, with continuation bits that a shorter
one would not need: every reader accepts these (Perfetto's own writer uses them for sizes), and packets that differ in
such numbers alone are the rows of one matrix.
"""

import heapq
import math
import struct
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Ns, distinct
from traceanalyzer.model.overlay import Arg, Args, Counter, Overlay, Slices
from traceanalyzer.render.data.encode import json_text
from traceanalyzer.render.words.escape import printable, shortened

NAME_LENGTH = 200  # characters of a slice's name that tell it from others
VALUE_LENGTH = 10_000  # of a text in its details; names of 100 kB are no use to anybody
_NAMES, _KEYS, _VALUES = 2, 3, 29  # fields of InternedData
GROUP = "traceanalyzer"
_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
_CLEARED, _NEEDS_STATE = 1, 2  # TracePacket.sequence_flags
_EXPLICIT = 3  # TrackDescriptor.child_ordering: by sibling_order_rank
_NAMESPACE = 1 << 40  # ids of tracks and arrows of one overlay; those of a job's overlays do not meet
_INT64 = 1 << 63
Bytes = NDArray[np.uint8]
PADDED = 9  # bytes of a padded varint: 63 bits
_VARINT, _FIXED64, _SIZED = 0, 1, 2  # types of the wire format


@lru_cache(1 << 12)  # most are sizes and fields
def varint(value: int) -> bytes:
    """An unsigned number up to 64 bits, 7 bits a byte; a negative one as its two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def sized(field: int, content: bytes) -> bytes:
    return varint(field << 3 | _SIZED) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field that holds a string: halves of surrogate pairs as escapes."""
    return sized(field, value.encode("utf-8", "backslashreplace"))


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def fixed64(field: int, value: int) -> bytes:
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value)


def padded(values: NDArray[np.int64]) -> Bytes:
    """Varints of numbers from 0 to MOST, PADDED bytes each; uint8 (numbers, PADDED)."""
    shifts = np.arange(PADDED, dtype=np.uint64) * np.uint64(7)
    out = ((values.astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    out[:, :-1] |= np.uint8(0x80)
    return out


def doubles(values: NDArray[np.float64]) -> Bytes:
    return np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)


def rows(parts: list[bytes | Bytes], count: int) -> Bytes:
    columns = (np.frombuffer(part, np.uint8)[None] if isinstance(part, bytes) else part for part in parts)
    return np.concatenate([np.broadcast_to(one, (count, one.shape[1])) for one in columns], axis=1)


def shown_name(name: str) -> str:
    """A name as it is drawn: no control characters, no marks that turn the direction of writing, not too long."""
    return printable(shortened(name, NAME_LENGTH))


def shown_value(value: str) -> str:
    return printable(shortened(value, VALUE_LENGTH))


class Interned:
    """Numbers of texts from 1, and what of them has not been written yet."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}
        self._news: list[bytes] = []

    def name(self, value: str) -> int:
        return self._number(_NAMES, shown_name(value))

    def key(self, value: str) -> int:
        return self._number(_KEYS, shown_name(value))

    def value(self, value: str) -> int:
        return self._number(_VALUES, shown_value(value))

    def news(self) -> bytes:
        content = b"".join(self._news)
        self._news.clear()
        return content

    def _number(self, field: int, value: str) -> int:
        ident = self._known.get((field, value))
        if ident is None:
            ident = self._known[field, value] = len(self._known) + 1
            self._news.append(sized(field, number(1, ident) + text(2, value)))
        return ident


def in_time(track: Slices) -> Ns:
    """Positions of its slices by start, then by end, int64; without those before time zero, where Perfetto begins."""
    order = np.lexsort((track.end_ns, track.start_ns))
    return order[track.start_ns[order] >= 0]


def lanes(start_ns: Ns, end_ns: Ns) -> Ns:
    """A lane for each slice, int64 (slices,), so that those of one lane do not overlap: the lowest that is free."""
    found = np.zeros(len(start_ns), np.int64)
    if np.all(start_ns[1:] >= end_ns[:-1]):
        return found
    free: list[int] = []
    taken: list[tuple[int, int]] = []
    for at, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        while taken and taken[0][0] <= start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken)
        found[at] = lane
        heapq.heappush(taken, (end, lane))
    return found


def lanes_of(track: Slices) -> list[Ns]:
    """Positions of its slices in time, lane by lane."""
    order = in_time(track)
    lane = lanes(track.start_ns[order], track.end_ns[order])
    return [order[lane == one] for one in range(int(lane.max(initial=-1)) + 1)]


def to_track_events(overlay: Overlay, position: int = 0) -> Iterator[bytes]:
    """The file, part by part; `position` is that of the overlay among those that are opened together.

    Slices and samples before time zero, which the format cannot hold, are left out, as Perfetto leaves out the
    trace's events from there.
    """
    yield from _Writer(position).parts(overlay)


def group_name(overlay: Overlay) -> str:
    return GROUP if overlay.rank is None else f"{GROUP}: rank {overlay.rank}"


class _Writer:
    def __init__(self, position: int) -> None:
        self._base = (position + 1) * _NAMESPACE
        self._sequence = number(10, 7_001 + position)
        self._tracks = 0
        self._flags = number(13, _NEEDS_STATE)
        self._interned = Interned()
        self._keys: dict[str, bytes] = {}

    def parts(self, overlay: Overlay) -> Iterator[bytes]:
        root = self._base
        cleared = self._sequence + number(13, _CLEARED) + number(87, 1)
        described = number(1, root) + text(2, group_name(overlay)) + number(11, _EXPLICIT)
        yield _packet(cleared + sized(60, described))
        tracks: tuple[Slices | Counter, ...] = (*overlay.slices, *overlay.counters)
        for rank, track in enumerate(tracks):
            made = self._slices(track, rank) if isinstance(track, Slices) else self._counter(track, rank)
            content = [*made]  # before the texts that it uses
            if news := self._interned.news():
                yield _packet(self._sequence + self._flags + sized(12, news))
            yield from content

    def _track(self, track: Slices | Counter, rank: int, more: bytes = b"") -> tuple[int, bytes]:
        self._tracks += 1
        uuid = self._base + self._tracks
        named = number(1, uuid) + number(5, self._base) + text(2, track.name) + number(12, rank)
        about = text(14, track.about) if track.about else b""
        return uuid, _packet(self._sequence + sized(60, named + about + more))

    def _counter(self, counter: Counter, rank: int) -> Iterator[bytes]:
        uuid, described = self._track(counter, rank, sized(8, text(6, counter.unit)))
        yield described
        keep = (counter.at_ns >= 0) & np.isfinite(counter.value)
        at, value = counter.at_ns[keep], counter.value[keep]
        event = number(9, _COUNTER) + number(11, uuid)
        yield self._rows(at, [event, varint(44 << 3 | 1), doubles(value)]).tobytes()

    def _slices(self, track: Slices, rank: int) -> Iterator[bytes]:
        for chosen in lanes_of(track):
            uuid, described = self._track(track, rank)
            yield described
            yield from self._each(track, chosen, uuid)

    def _each(self, track: Slices, chosen: Ns, uuid: int) -> Iterator[bytes]:
        begins = {}
        for code in distinct(track.kind[chosen]).tolist():
            name = number(10, self._interned.name(track.names[code]))
            begins[code] = number(9, _BEGIN) + number(11, uuid) + name + self._args(track.args[code])
        lead, rest = varint(8 << 3), self._sequence + self._flags
        starts = (lead + instant.tobytes() + rest for instant in padded(track.start_ns[chosen]))
        ends = self._rows(track.end_ns[chosen], [number(9, _END) + number(11, uuid)])
        columns = (chosen.tolist(), track.kind[chosen].tolist(), starts, ends)
        for at, kind, start, end in zip(*columns, strict=True):
            own = self._args(track.own[at]) if track.own else b""
            arrows = (fixed64(47, self._base + arrow) for arrow in (track.arrows[at] if track.arrows else ()))
            yield _packet(start + sized(11, begins[kind] + own + b"".join(arrows)))
            yield end.tobytes()

    def _rows(self, at_ns: Ns, event: list[bytes | Bytes]) -> Bytes:
        size = sum(len(part) if isinstance(part, bytes) else part.shape[1] for part in event)
        lead, opening = varint(8 << 3), varint(11 << 3 | 2) + varint(size)
        constant = self._sequence + self._flags + opening
        whole = len(lead) + PADDED + len(constant) + size
        head = varint(1 << 3 | 2) + varint(whole) + lead
        return rows([head, padded(at_ns), constant, *event], len(at_ns))

    def _args(self, args: Args) -> bytes:
        return b"".join(sized(4, self._key(key) + self._value(value)) for key, value in args.items())

    def _key(self, key: str) -> bytes:
        if key not in self._keys:
            self._keys[key] = number(1, self._interned.key(key))
        return self._keys[key]

    def _value(self, value: Arg) -> bytes:
        if isinstance(value, bool):
            return number(2, value)
        if isinstance(value, int):
            return number(4, value) if -_INT64 <= value < _INT64 else self._string(str(value))
        if isinstance(value, float):
            return double(5, value) if math.isfinite(value) else self._string(str(value))
        if isinstance(value, str):
            return self._string(value)
        if all(isinstance(one, int) for one in value):
            return b"".join(sized(12, self._value(one)) for one in value)
        return self._string(json_text(value))

    def _string(self, value: str) -> bytes:
        return number(17, self._interned.value(value))


def _packet(content: bytes) -> bytes:
    return sized(1, content)
