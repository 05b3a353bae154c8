"""A batch of raw events: which of them go where, and the fields that all have, packed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.schema import CATEGORIES
from traceanalyzer.read.columns.packing import UNFIT, Args, Event, Rows, getter
from traceanalyzer.read.columns.times import MAX_TS_US, start_ns, starts_from_text, us_to_ns

Starts = NDArray[Any]
Positions = NDArray[np.intp]

LARGEST_EXACT_US = 2.0**43  # above it a double does not hold the nanosecond
_FLOWS = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu")
_get_category, _get_ts, _get_dur, _get_args = (getter(key) for key in ("cat", "ts", "dur", "args"))

# What becomes of a category: (frame, modern category), or ("counted", class); ("", "") is decided by event.
OTHERS = "of another rank"
FATES = [
    ("", ""),
    ("counted", OTHERS),
    *(("counted", f"flow:{name}") for name in _FLOWS),
    *sorted(set(CATEGORIES.values())),
]


class _FateOf(dict[Any, int]):
    """Category as exported -> index into FATES."""

    def __missing__(self, category: Any) -> int:
        return 0


_FATE_OF = _FateOf({name: FATES.index(fate) for name, fate in CATEGORIES.items()})
_FATE_OF |= {name: FATES.index(("counted", f"flow:{name}")) for name in _FLOWS}


class Events:
    """Some events of a batch.

    Attributes:
        all: the events.
        ids: their event ids.
        starts: as `starts_of` gives them.
    """

    def __init__(self, batch: Sequence[Any], first: int, at: Positions, starts: Starts) -> None:
        self._batch, self._first = batch, first
        every = len(at) == len(batch)
        self.all: Sequence[Any] = batch if every else list(map(batch.__getitem__, at.tolist()))
        self.ids = at + first
        self.starts = starts

    def take(self, positions: Positions) -> Events:
        """Some of them."""
        return Events(self._batch, self._first, self.ids[positions] - self._first, self.starts[positions])

    def of(self, rows: Rows) -> Events:
        """Those that became these rows."""
        return Events(self._batch, self._first, rows.ids - self._first, rows.starts)


def fates_of(batch: Sequence[Any]) -> bytes:
    """What becomes of each event: an index into FATES."""
    try:
        categories = list(map(_get_category, batch))
        if categories and categories[0] == categories[-1] and categories.count(categories[0]) == len(batch):
            return bytes([_FATE_OF[categories[0]]]) * len(batch)  # comparing takes half as long as looking up
        return bytes(map(_FATE_OF.__getitem__, categories))
    except UNFIT:
        return bytes(map(_fate, batch))


def _fate(event: Any) -> int:
    try:
        return _FATE_OF[_get_category(event)]
    except UNFIT:
        return 0


def _packed(values: Iterator[Any], size: int) -> NDArray[np.float64]:
    """Numbers as float64; unlike np.fromiter, struct refuses quoted ones and null."""
    return np.frombuffer(struct.pack(f"{size}d", *values), np.float64)


def starts_of(batch: Sequence[Any], text: Callable[[], bytes]) -> Starts:
    """Start of every event: µs where all are numbers from which a double tells the ns, which are float64 then; else
    int64 in ns, NULL_INT where there is none; shape (events,)."""
    try:
        us = _packed(map(_get_ts, batch), len(batch))
    except UNFIT:
        return np.array([start_ns(event) for event in batch], np.int64)
    largest = np.abs(us).max(initial=0.0)
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
