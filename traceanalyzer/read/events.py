"""Raw events -> rows. A batch is grouped by category, each category by the keys of its args, each group packed.

What all events have (category, name, pid, tid) is one code per event, its head; what a head means is looked
up once per distinct head. Events that are not as the exporter writes them leave the fast way for `quirks`.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.read.layouts import UNFIT, Codes, Event, Layout, Rows
from traceanalyzer.read.quirks import (
    MAX_TS_US,
    destination,
    head_of,
    mended,
    problem_of,
    start_ns,
    starts_from_text,
)
from traceanalyzer.schema import CATEGORIES, FRAMES
from traceanalyzer.trace import NULL_INT
from traceanalyzer.units import us_to_ns

_FLOWS = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu")
_LONGEST_RECORDING_NS = 3600 * 10**9
_NEVER = np.iinfo(np.int64).max
_LARGEST_EXACT_US = 2.0**43  # above it a double does not hold the nanosecond
_get_head, _get_ts, _get_args = itemgetter("cat", "name", "pid", "tid"), itemgetter("ts"), itemgetter("args")

# What becomes of a category: (frame, modern category), or ("counted", class); ("", "") is decided by event.
_FATES = [("", ""), *(("counted", f"flow:{name}") for name in _FLOWS), *sorted(set(CATEGORIES.values()))]
_FATE_OF = {name: _FATES.index(fate) for name, fate in CATEGORIES.items()}
_FATE_OF |= {name: _FATES.index(("counted", f"flow:{name}")) for name in _FLOWS}


class Collector:
    """Takes batches of raw events and keeps their columns.

    Attributes:
        layouts: (frame, category, keys of args) -> Layout.
        heads: (category as exported, name, pid, tid) -> code.
        counted: class -> number of events that have no frame.
        metadata: the M events (process and thread names) and the profiler's own marks, with their start in ns.
        whole_microseconds: no time has a fraction of a microsecond.
        absolute_times: times count from 1970, not from a base time.
    """

    def __init__(self) -> None:
        self.layouts: dict[tuple[str, str, frozenset[str]], Layout] = {}
        self.heads = Codes()
        self.counted: Counter[str] = Counter()
        self.anomalies: Counter[str] = Counter()
        self.unknown_categories: Counter[str] = Counter()
        self.metadata: list[tuple[Event, int]] = []
        self.events = 0
        self.whole_microseconds = True
        self.absolute_times = False
        self._fates = bytearray()

    def add(self, batch: Sequence[Any], text: Callable[[], bytes]) -> None:
        """Keep a batch; `text` gives its JSON, needed only where a double cannot hold a time."""
        heads = self._heads(batch)
        starts = _starts(batch, text)
        fates = np.frombuffer(self._fates, np.uint8)[heads]
        for fate in np.flatnonzero(np.bincount(fates)).tolist():
            frame, category = _FATES[fate]
            at = np.flatnonzero(fates == fate)
            if frame == "counted":
                self.counted[category] += len(at)
                continue
            events = list(map(batch.__getitem__, at.tolist()))
            rows = Rows(events, (), at + self.events, heads[at], starts[at])
            if frame:
                self._add_rows(frame, category, rows)
            else:
                self._add_unusual(rows)
        self.events += len(batch)

    def _heads(self, batch: Sequence[Any]) -> NDArray[np.int32]:
        try:
            heads = np.fromiter(map(self.heads.__getitem__, map(_get_head, batch)), np.int32, len(batch))
        except UNFIT:
            heads = np.array([self._head(event) for event in batch], np.int32)
        if len(self.heads) > len(self._fates):
            fresh = islice(self.heads, len(self._fates), None)
            self._fates += bytes(_FATE_OF.get(category, 0) for category, *_ in fresh)
        return heads

    def _head(self, event: Any) -> int:
        try:
            return self.heads[_get_head(event)]
        except UNFIT:
            return self.heads[head_of(event)]

    def _add_unusual(self, rows: Rows) -> None:
        """Events without a category, and of categories that nobody told us of."""
        fates: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for position, event in enumerate(rows.events):
            category = event.get("cat") if isinstance(event, dict) else None
            fates[destination(category, event)].append(position)
        for (frame, category), positions in fates.items():
            if frame != "counted":
                if category != "cpu_instant_event":
                    self.unknown_categories[category] += len(positions)
                self._add_rows(frame, category, rows._replace(args=rows.events).take(np.array(positions)))
                continue
            self.counted[category] += len(positions)
            if category in ("metadata", "window mark"):
                self.metadata += [(rows.events[p], int(rows.starts[p])) for p in positions]

    def _add_rows(self, frame: str, category: str, rows: Rows) -> None:
        try:
            rows = rows._replace(args=list(map(_get_args, rows.events)))
        except KeyError:
            rows = rows._replace(args=[event.get("args") or {} for event in rows.events])
        try:
            parts = list(rows.by_keys()) if rows.starts.min() != NULL_INT else []
        except UNFIT:
            parts = []
        for part in parts:
            try:
                self.layout(frame, category, frozenset(part.args[0])).add(part)
            except UNFIT:
                self._add_mended(frame, category, part)
        if not parts:
            self._add_mended(frame, category, rows)

    def _add_mended(self, frame: str, category: str, rows: Rows) -> None:
        """Rows among which some are unusual: those that can be rows, mended, and the others counted."""
        fitting, keep = [], []
        for position, event in enumerate(rows.events):
            problem = problem_of(event, frame, int(rows.starts[position]))
            if problem:
                self.counted[problem] += 1
            else:
                fitting.append(mended(event, FRAMES[frame], self.anomalies))
                keep.append(position)
        if keep:
            kept = rows.take(np.array(keep))._replace(events=fitting, args=list(map(_get_args, fitting)))
            for part in kept.by_keys():
                self.layout(frame, category, frozenset(part.args[0])).add(part)

    def layout(self, frame: str, category: str, keys: frozenset[str]) -> Layout:
        """The layout of these rows, made when first asked for."""
        try:
            return self.layouts[frame, category, keys]
        except KeyError:
            layout = self.layouts[frame, category, keys] = Layout(FRAMES[frame], category, keys)
            return layout

    def finish(self) -> None:
        """Settle what only the whole trace tells."""
        self._drop_untimed()
        for (_, category, _), layout in self.layouts.items():
            impossible = layout.finish()
            if impossible:
                self.anomalies[f"impossible duration of {category}, taken as 0"] += impossible
            for key, count in layout.unreadable():
                self.anomalies[f"unreadable {key}"] += count
        filled = [layout for layout in self.layouts.values() if layout.rows]
        self.absolute_times = any(layout.array("start").max() > _LARGEST_EXACT_US * 1000 for layout in filled)
        self.whole_microseconds = not any(
            (layout.array(name) % 1000).any() for layout in filled for name in ("start", "dur")
        )

    def _drop_untimed(self) -> None:
        """GPU rows at time 0 of a recording that starts later: CUPTI had no timing for them (kineto#109)."""
        timed = [layout.array("start") for layout in self.layouts.values() if layout.rows]
        first = min((int(starts[starts > 0].min(initial=_NEVER)) for starts in timed), default=_NEVER)
        if first < _LONGEST_RECORDING_NS or first == _NEVER:
            return
        for (frame, *_), layout in self.layouts.items():
            untimed = layout.array("start") == 0
            if frame == "gpu" and untimed.any():
                self.counted["no device time"] += int(untimed.sum())
                layout.keep(~untimed)


def _starts(batch: Sequence[Any], text: Callable[[], bytes]) -> NDArray[np.int64]:
    """Start of every event in ns, NULL_INT where there is none; shape (events,)."""
    try:
        us = np.frombuffer(struct.pack(f"{len(batch)}d", *map(_get_ts, batch)), np.float64)
    except UNFIT:
        return np.array([start_ns(event) for event in batch], np.int64)
    largest = np.abs(us).max(initial=0.0)
    if not largest < MAX_TS_US:
        return np.array([start_ns(event) for event in batch], np.int64)
    if largest > _LARGEST_EXACT_US and not np.array_equal(us, np.floor(us)):
        exact = starts_from_text(text())
        if exact is not None and len(exact) == len(batch):
            return np.array(exact, np.int64)
    return us_to_ns(us)
