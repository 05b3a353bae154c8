"""Overlay -> Chrome's trace events, to be put among those of the trace itself: one JSON file for viewers that open no
archive."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Ns
from traceanalyzer.model.overlay import Overlay, Slices
from traceanalyzer.render.data.encode import to_json
from traceanalyzer.render.perfetto.track_events import group_name, lanes_of, shown_name, shown_value

_PID = 1_900_000_000  # no process of Linux has such an id: they end at 4,194,304
_FIRST = -1_000  # process_sort_index: above the trace's own processes, where viewers heed it
_CATEGORY = "traceanalyzer"


def merged(head: bytes, events: Iterable[bytes], rest: Iterable[bytes]) -> Iterator[bytes]:
    """The file, part by part: the trace's own bytes up to where its first event may begin, `events`, and the rest."""
    yield head
    comma = b"\n"
    for event in events:
        yield comma + event
        comma = b",\n"
    following = iter(rest)
    blank = b""
    for block in following:
        blank += block
        if stripped := blank.lstrip():
            ends = stripped.startswith(b"]") or comma == b"\n"
            yield (b"" if ends else b",") + blank
            break
    yield from following


def to_chrome_events(overlay: Overlay) -> Iterator[bytes]:
    """JSON objects, one per event, without commas between them; nothing before time zero, as in Perfetto's format."""
    yield _meta("process_name", 0, name=group_name(overlay))
    yield _meta("process_sort_index", 0, sort_index=_FIRST)
    thread = 0
    for track, sends in zip(overlay.slices, _starts(overlay), strict=True):
        for chosen in lanes_of(track):
            thread += 1
            yield _meta("thread_name", thread, name=track.name)
            yield _meta("thread_sort_index", thread, sort_index=thread)
            yield from _slices(track, chosen, thread, sends)
    for counter in overlay.counters:
        for at, value in zip(counter.at_ns.tolist(), counter.value.tolist(), strict=True):
            if at >= 0 and math.isfinite(value):
                yield _event({"ph": "C", "name": counter.name, "pid": _PID, "args": {counter.unit: value}}, at)


def _starts(overlay: Overlay) -> list[set[tuple[int, int]]]:
    """Where arrows start, for each track: (arrow, position of the slice)."""
    first: dict[int, tuple[int, int, int]] = {}
    for number, track in enumerate(overlay.slices):
        for at, (start, arrows) in enumerate(zip(track.start_ns.tolist(), track.arrows, strict=False)):
            for arrow in arrows:
                first[arrow] = min(first.get(arrow, (start, number, at)), (start, number, at))
    starts: list[set[tuple[int, int]]] = [set() for _ in overlay.slices]
    for arrow, (_, number, at) in first.items():
        starts[number].add((arrow, at))
    return starts


def _apart(start_ns: Ns, end_ns: Ns) -> Ns:
    """Ends such that touching slices do not overlap in viewers, which round begin and duration apart."""
    slack = np.ceil(2 * np.maximum(np.spacing(np.abs(start_ns[1:]).astype(np.float64)), 1)).astype(np.int64)
    most = np.append(start_ns[1:] - slack, end_ns[-1:])
    ends: Ns = np.maximum(np.minimum(end_ns, most), start_ns)
    return ends


def _slices(track: Slices, chosen: Ns, thread: int, sends: set[tuple[int, int]]) -> Iterator[bytes]:
    ends = _apart(track.start_ns[chosen], track.end_ns[chosen])
    for at, shown_end in zip(chosen.tolist(), ends.tolist(), strict=True):
        start, kind = int(track.start_ns[at]), int(track.kind[at])
        args = {**track.args[kind], **(track.own[at] if track.own else {})}
        shown = {shown_name(k): shown_value(v) if isinstance(v, str) else v for k, v in args.items()}
        name, place = shown_name(track.names[kind]), {"pid": _PID, "tid": thread, "cat": _CATEGORY}
        yield _event({"ph": "X", "name": name, **place, "args": shown}, start, shown_end)
        for arrow in track.arrows[at] if track.arrows else ():
            side = "s" if (arrow, at) in sends else "f"
            yield _event({"ph": side, "bp": "e", "id": arrow, "name": "waits", **place}, start)


def _event(fields: Mapping[str, Any], start_ns: int, end_ns: int | None = None) -> bytes:
    """Times as decimals, exact to the nanosecond: a double of microseconds is not."""
    times = b'{"ts":' + us(start_ns)
    if end_ns is not None:
        times += b',"dur":' + us(end_ns - start_ns)
    return times + b"," + to_json(fields)[1:]


def us(ns: int) -> bytes:
    return f"{'-' * (ns < 0)}{abs(ns) // 1000}.{abs(ns) % 1000:03d}".encode()


def _meta(what: str, thread: int, **args: str | int) -> bytes:
    return to_json({"ph": "M", "name": what, "pid": _PID, "tid": thread, "args": args})
