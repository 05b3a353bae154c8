"""Raw events -> rows. A batch is grouped by category, each category by the keys of its args, each group packed.

What nearly all events share with many others (name, pid, tid) is one code per event, its head; what a head means
is looked up once per distinct head. Events that are not as the exporter writes them leave the fast way for `quirks`.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask
from traceanalyzer.model.schema import CATEGORIES, FRAMES, MTIA_WORK, OTHER_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.columns import quirks
from traceanalyzer.read.columns.corrections import drop_misplaced
from traceanalyzer.read.columns.packing import UNFIT, Args, Codes, Event, RowGroup, Rows, getter
from traceanalyzer.read.columns.quirks import as_text, lane_number
from traceanalyzer.read.columns.times import MAX_TS_US, durations_ns, start_ns, starts_from_text, us_to_ns

Starts = NDArray[Any]
Positions = NDArray[np.intp]

LARGEST_EXACT_US = 2.0**43  # above it a double does not hold the nanosecond
_FLOWS = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu")
_get_category, _get_ts, _get_dur, _get_args = (getter(key) for key in ("cat", "ts", "dur", "args"))

# What becomes of a category: (frame, modern category), or ("counted", class); ("", "") is decided by event.
OTHERS = "of another rank"
_FATE_OF_FLOW = {name: ("counted", f"flow:{name}") for name in _FLOWS}
FATES = [("", ""), ("counted", OTHERS), *_FATE_OF_FLOW.values(), *sorted(set(CATEGORIES.values()))]
# Category as exported -> index into FATES; a Counter has 0 for others.
_FATE_OF = Counter[Any]({name: FATES.index(fate) for name, fate in (CATEGORIES | _FATE_OF_FLOW).items()})


class Events:
    """Some events of a batch, their ids, and starts as `starts_of` gives them."""

    def __init__(self, batch: Sequence[Any], first: int, positions: Positions, starts: Starts) -> None:
        self._batch, self._first = batch, first
        every = len(positions) == len(batch)
        self.all: Sequence[Any] = batch if every else list(map(batch.__getitem__, positions.tolist()))
        self.ids = positions + first
        self.starts = starts

    def take(self, positions: Positions) -> Events:
        return Events(self._batch, self._first, self.ids[positions] - self._first, self.starts[positions])

    def of(self, rows: Rows) -> Events:
        """Those that became these rows."""
        return Events(self._batch, self._first, rows.ids - self._first, rows.starts)


def fates_of(batch: Sequence[Any]) -> bytes:
    """What becomes of each event: an index into FATES."""
    try:
        categories = list(map(_get_category, batch))
        first = categories[0] if categories else None
        if isinstance(first, str) and first == categories[-1] and categories.count(first) == len(batch):
            return bytes([_FATE_OF[first]]) * len(batch)  # comparing takes half as long as looking up
        return bytes(map(_FATE_OF.__getitem__, categories))
    except UNFIT:
        categories = [event.get("cat") if isinstance(event, dict) else None for event in batch]
        return bytes(_FATE_OF[name] if isinstance(name, str) else 0 for name in categories)


def _packed(values: Iterator[Any], size: int) -> NDArray[np.float64]:
    """Numbers as float64; unlike np.fromiter, struct refuses quoted ones and null."""
    return np.frombuffer(struct.pack(f"{size}d", *values), np.float64)


def starts_of(batch: Sequence[Any], text: Callable[[], bytes]) -> Starts:
    """Start of every event: µs where all are numbers from which a double tells the ns, which are float64 then; else
    int64 in ns, NULL_INT where there is none; shape (events,)."""
    try:
        us = _packed(map(_get_ts, batch), len(batch))
        largest = np.abs(us).max(initial=0.0)
    except UNFIT:
        largest = np.inf
    if not largest < MAX_TS_US:
        return np.array([start_ns(event) for event in batch], np.int64)
    if largest > LARGEST_EXACT_US and not np.array_equal(us, np.floor(us)):
        exact = starts_from_text(text())
        if exact is not None and len(exact) == len(batch):
            return np.array(exact, np.int64)
    return us if largest <= LARGEST_EXACT_US else us_to_ns(us)


def starts_ns(starts: Starts) -> NDArray[np.int64]:
    """What `starts_of` gave, in ns."""
    return starts if starts.dtype == np.int64 else us_to_ns(starts)


def args_of(events: Sequence[Event]) -> list[Args]:
    try:
        return list(map(_get_args, events))
    except KeyError:
        return [event.get("args") or {} for event in events]


def durations_of(frame: str, events: Sequence[Event]) -> NDArray[np.float64]:
    """In µs. The Python exporter of torch 2.13 gives the allocator's instants one, which means nothing."""
    instant = frame in ("memory", "counters")
    return np.zeros(len(events)) if instant else _packed(map(_get_dur, events), len(events))


_GPU = regex(r"GPU (\d{1,4})\b")
MAX_DEVICE = 1023  # of what a row calls its device; kineto numbers GPUs from 0, ROCm by agent
_MAX_PID = 63  # that is a device's ordinal rather than a process
_KNOWN = {category for _, category in CATEGORIES.values()} | {MTIA_WORK}
_FIRST_NAMED_LANE = -1000
_NEVER = np.iinfo(np.int64).max
# Kinds of rows by category and keys, after which args without a column are one; traces have 100.
_MAX_GROUPS = 2_000
_MENDED_TOGETHER = 8  # rows: mending one takes as long as packing a hundred
_MAX_CATEGORIES = 200  # foreign ones that keep their names
_OTHERS = FATES.index(("counted", OTHERS))
_get_head = getter("name", "pid", "tid")


@dataclass(slots=True)
class Declared:
    """What the metadata events (ph M) and the profiler's own marks say, kept as what is used of it.

    Attributes:
        threads: "pid/tid" -> name, as declared last.
        processes: pid as text -> name and labels, as declared last.
        window_ns: the span that the profiler says it recorded, as declared first.
    """

    threads: dict[str, str] = field(default_factory=dict)
    processes: dict[str, dict[str, str]] = field(default_factory=dict)
    window_ns: tuple[int, int] | None = None

    def add(self, event: dict[str, Any], start: int) -> None:
        name, args = event.get("name"), event.get("args")
        if event.get("cat") == "Trace":
            self.window_ns = self.window_ns or _window(event, start)
        elif name == "thread_name" and isinstance(args, dict):
            lane = f"{as_text(event.get('pid'))}/{as_text(event.get('tid'))}"
            self.threads[lane] = as_text(args.get("name", "")).strip()
        elif name in ("process_name", "process_labels") and isinstance(args, dict):
            label = as_text(args.get("name") or args.get("labels") or "")
            self.processes.setdefault(as_text(event.get("pid")), {})[name] = label

    def update(self, later: Declared) -> None:
        self.threads |= later.threads
        for pid, labels in later.processes.items():
            self.processes.setdefault(pid, {}).update(labels)
        self.window_ns = self.window_ns or later.window_ns

    def device_of(self, pid: Any) -> int | None:
        """The GPU whose rows have this pid: as its process is called, else the pid itself where that is an ordinal."""
        labels = self.processes.get(as_text(pid), {})
        texts = [labels.get("process_labels", ""), labels.get("process_name", "")]
        for text in [*texts, pid if isinstance(pid, str) else ""]:
            if match := _GPU.match(text):
                return int(match.group(1))
        number = lane_number(pid)
        return number if 0 <= number <= _MAX_PID and texts[0] != "CPU" else None


def _window(event: dict[str, Any], start: int) -> tuple[int, int] | None:
    if not as_text(event.get("name")).startswith("PyTorch Profiler"):
        return None
    try:
        length, impossible = durations_ns(np.array([float(event["dur"])]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None if impossible or start == NULL_INT else (start, start + int(length[0]))


class Collector:
    """Takes batches of raw events and keeps their columns.

    Attributes:
        groups: (frame, category, keys of args) -> RowGroup.
        lanes: pid or tid that is a name, as other exporters write them -> the number that stands for it.
        foreign: categories that torch.profiler does not write -> number of events, whatever became of them.
        declared: what the M events (process and thread names) and the profiler's own marks say.
        whole_microseconds: no time has a fraction of a microsecond.
        absolute_times: times count from 1970, not from a base time.
    """

    def __init__(self, passed_over: int = 0) -> None:
        """`passed_over` events of other ranks came before the first."""
        self.groups: dict[tuple[str, str, frozenset[str]], RowGroup] = {}
        self.heads = Codes()
        self.lanes: dict[str, int] = {}
        self.counted: Counter[str] = Counter({OTHERS: passed_over} if passed_over else {})
        self.anomalies: Counter[str] = Counter()
        self.impossible_durations = 0
        self.unknown_categories: Counter[str] = Counter()
        self.foreign: Counter[str] = Counter()
        self.declared = Declared()
        self.events = passed_over
        self.whole_microseconds = True
        self.absolute_times = False

    def add(self, batch: Sequence[Any], text: Callable[[], bytes], others: Mask | None = None) -> None:
        """Keep a batch, but of the `others`, which are of another rank, only the number; bool (events,).

        Its JSON is asked for only where a double cannot hold a time.
        """
        starts = starts_of(batch, text)
        codes = fates_of(batch)
        if others is not None:
            codes = np.where(others, _OTHERS, np.frombuffer(codes, np.uint8)).astype(np.uint8).tobytes()
        fates = np.frombuffer(codes, np.uint8)
        for fate, (frame, category) in enumerate(FATES):
            if fate not in codes:
                continue
            positions = (fates == fate).nonzero()[0]
            if frame == "counted":
                self.counted[category] += len(positions)
                continue
            events = Events(batch, self.events, positions, starts[positions])
            if frame:
                self._add_rows(frame, category, events)
            else:
                self._add_unusual(events)
        self.events += len(batch)

    def _add_unusual(self, events: Events) -> None:
        """Events without a category, and of categories that nobody told us of."""
        fates: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for position, event in enumerate(events.all):
            category = event.get("cat") if isinstance(event, dict) else None
            if isinstance(category, str) and category not in OTHER_CATEGORIES:
                category = self._bounded(category, event)
            fates[quirks.destination(category, event)].append(position)
        for (frame, category), positions in fates.items():
            chosen = events.take(np.array(positions))
            if frame == "counters":
                self._add_mended(frame, category, chosen)
            elif frame == "counted":
                self._count(category, chosen)
            else:
                if category not in _KNOWN:
                    self.unknown_categories[category] += len(positions)
                self._add_rows(frame, category, chosen)

    def _bounded(self, category: str, event: Event) -> str:
        """A foreign category; of very many, those after the first have one name, and keep theirs as an arg."""
        if category not in self.foreign and len(self.foreign) >= _MAX_CATEGORIES:
            args = event.get("args")
            known_args = args if isinstance(args, dict) else {} if args is None else {"args": args}
            event["args"] = {**known_args, "cat": category}
            category = "another category"
        self.foreign[category] += 1
        return category

    def _count(self, what: str, events: Events) -> None:
        self.counted[what] += len(events.all)
        if what in ("metadata", "window mark"):
            for event, start in zip(events.all, starts_ns(events.starts).tolist(), strict=True):
                self.declared.add(event, start)

    def _add_rows(self, frame: str, category: str, events: Events) -> None:
        try:
            parts = list(self._rows(frame, events.all, events.ids, events.starts).by_size())
        except UNFIT:
            self._add_malformed(frame, category, events)
            return
        for unlike in self._refused(frame, category, parts):
            alike: list[Rows] = []
            if len(self.groups) < _MAX_GROUPS:
                with suppress(*UNFIT):
                    alike = list(unlike.by_keys())
            if not alike:
                self._add_mended(frame, category, events.of(unlike))
            for unfit in self._refused(frame, category, alike):
                self._add_malformed(frame, category, events.of(unfit))

    def _add_malformed(self, frame: str, category: str, events: Events) -> None:
        """Events of which one at least does not fit: by halves until few are left, which are mended."""
        size = len(events.all)
        if size <= _MENDED_TOGETHER:
            self._add_mended(frame, category, events)
            return
        for half in (np.arange(size // 2), np.arange(size // 2, size)):
            self._add_rows(frame, category, events.take(half))

    def _refused(self, frame: str, category: str, parts: Iterable[Rows]) -> Iterator[Rows]:
        """Keep the parts, except for those whose rows have different keys or one that does not fit: they come back."""
        for part in parts:
            try:
                keys = frozenset(part.args[0])
                if len(self.groups) >= _MAX_GROUPS and (frame, category, keys) not in self.groups:
                    raise KeyError("too many groups")
                self.group(frame, category, keys).add(part)
            except UNFIT:
                yield part

    def _add_mended(self, frame: str, category: str, events: Events) -> None:
        """Events among which some are unusual: those that can be rows, mended, and the others counted."""
        starts = events.starts
        fitting, keep, sampled = [], [], list[int]()
        for position, event in enumerate(events.all):
            problem = quirks.problem_of(event, frame, int(starts[position]))
            if problem == "phase C":
                sampled.append(position)
            elif problem:
                self.counted[problem] += 1
            else:
                fitting.append(quirks.mended(event, FRAMES[frame], self.anomalies))
                keep.append(position)
        if sampled:
            self._add_mended("counters", category, events.take(np.array(sampled)))
        if keep:
            if len(self.groups) >= _MAX_GROUPS:
                fitting = [quirks.folded(event, FRAMES[frame]) for event in fitting]
            for part in self._rows(frame, fitting, events.ids[keep], starts[keep]).by_keys():
                self.group(frame, category, frozenset(part.args[0])).add(part)

    def _rows(self, frame: str, events: Sequence[Event], ids: Starts, starts: Starts) -> Rows:
        """Events of a category as rows. Raises UNFIT: one of them is not as the exporter writes it."""
        if starts.dtype == np.int64 and starts.min() == NULL_INT:
            raise ValueError("no timestamp")
        return Rows(args_of(events), ids, self._heads(events), starts, durations_of(frame, events))

    def _heads(self, events: Sequence[Event]) -> NDArray[np.int32]:
        try:
            return np.fromiter(map(self.heads.__getitem__, map(_get_head, events)), np.int32, len(events))
        except (KeyError, TypeError):
            return np.array([self.heads[quirks.head_of(event)] for event in events], np.int32)

    def group(self, frame: str, category: str, keys: frozenset[str]) -> RowGroup:
        if (frame, category, keys) not in self.groups:
            self.groups[frame, category, keys] = RowGroup(FRAMES[frame], category, keys)
        return self.groups[frame, category, keys]

    def finish(self) -> None:
        """Times, lanes and counts that need all events of the trace."""
        for (_, category, _), group in self.groups.items():
            impossible = group.finish()
            if impossible:
                self.anomalies[f"impossible duration of {category}, taken as 0"] += impossible
                self.impossible_durations += impossible
        self.counted += drop_misplaced(self.groups, self.declared.window_ns)
        self._number_lanes()
        for group in self.groups.values():
            for key, count in group.unreadable():
                self.anomalies[f"unreadable {key}"] += count
        filled = [group for group in self.groups.values() if group.rows]
        self.absolute_times = any(group.array("start").max() > LARGEST_EXACT_US * 1000 for group in filled)
        times = (group.array(name) for group in filled for name in ("start", "dur"))
        self.whole_microseconds = not any((ns % 1000).any() for ns in times)

    def counts(self) -> tuple[Counter[str], ...]:
        """The counters, which those of another part are added to."""
        return self.counted, self.anomalies, self.unknown_categories, self.foreign

    def _number_lanes(self) -> None:
        """Names of pids, then of tids, count down in order of their first rows, however the file was cut."""
        heads = list(self.heads)
        if all(lane_number(value) != NULL_INT for head in heads for value in head[1:]):
            return
        first = np.full(len(heads), _NEVER)
        for group in self.groups.values():
            np.minimum.at(first, group.array("head"), group.array("id").astype(np.int64))
        order = [code for code in np.argsort(first, kind="stable").tolist() if first[code] != _NEVER]
        for value in (heads[code][position] for position in (1, 2) for code in order):
            if lane_number(value) == NULL_INT:
                self.lanes.setdefault(as_text(value), _FIRST_NAMED_LANE - len(self.lanes))
