"""Overlay -> Perfetto's own format: a sequence of TracePackets with tracks, slices, counters and arrows.

Field numbers are those of perfetto/protos/trace/perfetto_trace.proto, v59. Texts are kept once, as interned data. All
of a slice is in two packets, its begin and its end; where one ends as the next begins, the end comes first in the file.
"""

import heapq
import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Ns, distinct
from traceanalyzer.model.overlay import Arg, Args, Counter, Overlay, Slices
from traceanalyzer.render.data.encode import json_text
from traceanalyzer.render.perfetto import wire
from traceanalyzer.render.perfetto.wire import double, fixed64, number, sized, text
from traceanalyzer.render.words.escape import printable, shortened

NAME_LENGTH = 200  # characters of a slice's name that tell it from others
VALUE_LENGTH = 10_000  # of a text in its details; names of 100 kB are no use to anybody
_NAMES, _KEYS, _VALUES = 2, 3, 29  # fields of InternedData


def shown_name(name: str) -> str:
    """A name as it is drawn: no control characters, no marks that turn the direction of writing, not too long."""
    return printable(shortened(name, NAME_LENGTH))


def shown_value(value: str) -> str:
    """A text of the details as it is shown."""
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
        """InternedData with what was not written yet."""
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


GROUP = "traceanalyzer"
_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
_CLEARED, _NEEDS_STATE = 1, 2  # TracePacket.sequence_flags
_EXPLICIT = 3  # TrackDescriptor.child_ordering: by sibling_order_rank
_NAMESPACE = 1 << 40  # ids of tracks and arrows of one overlay; those of a job's overlays do not meet
_INT64 = 1 << 63


def to_track_events(overlay: Overlay, position: int = 0) -> Iterator[bytes]:
    """The file, part by part; `position` is that of the overlay among those that are opened together.

    Slices and samples before time zero, which the format cannot hold, are left out, as Perfetto leaves out the
    trace's events from there.
    """
    yield from _Writer(position).parts(overlay)


def group_name(overlay: Overlay) -> str:
    """What the group of the overlay's tracks is called."""
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
        """(uuid, packet)."""
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
        yield self._rows(at, [event, wire.varint(44 << 3 | 1), wire.doubles(value)]).tobytes()

    def _slices(self, track: Slices, rank: int) -> Iterator[bytes]:
        order = in_time(track)
        lane = lanes(track.start_ns[order], track.end_ns[order])
        for one in range(int(lane.max(initial=-1)) + 1):
            uuid, described = self._track(track, rank)
            yield described
            yield from self._each(track, order[lane == one], uuid)

    def _each(self, track: Slices, chosen: Ns, uuid: int) -> Iterator[bytes]:
        begins = {code: self._begin(track, code, uuid) for code in distinct(track.kind[chosen]).tolist()}
        lead, rest = wire.varint(8 << 3), self._sequence + self._flags
        starts = (lead + instant.tobytes() + rest for instant in wire.padded(track.start_ns[chosen]))
        ends = self._rows(track.end_ns[chosen], [number(9, _END) + number(11, uuid)])
        columns = (chosen.tolist(), track.kind[chosen].tolist(), starts, ends)
        for at, kind, start, end in zip(*columns, strict=True):
            own = self._args(track.own[at]) if track.own else b""
            arrows = (fixed64(47, self._base + arrow) for arrow in (track.arrows[at] if track.arrows else ()))
            yield _packet(start + sized(11, begins[kind] + own + b"".join(arrows)))
            yield end.tobytes()

    def _begin(self, track: Slices, kind: int, uuid: int) -> bytes:
        name = number(10, self._interned.name(track.names[kind]))
        return number(9, _BEGIN) + number(11, uuid) + name + self._args(track.args[kind])

    def _rows(self, at_ns: Ns, event: list[bytes | wire.Bytes]) -> wire.Bytes:
        """A packet per row, all of one size; uint8 (rows, size)."""
        size = sum(len(part) if isinstance(part, bytes) else part.shape[1] for part in event)
        lead, opening = wire.varint(8 << 3), wire.varint(11 << 3 | 2) + wire.varint(size)
        constant = self._sequence + self._flags + opening
        whole = len(lead) + wire.PADDED + len(constant) + size
        head = wire.varint(1 << 3 | 2) + wire.varint(whole) + lead
        return wire.rows([head, wire.padded(at_ns), constant, *event], len(at_ns))

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
