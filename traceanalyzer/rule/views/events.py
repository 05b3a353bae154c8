"""The indexes that all views look into."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct_pairs
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.user_code import UserCode

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """One trace's events as views read them.

    Attributes:
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
    def build(
        cls, trace: Trace, nesting: Nesting, steps: Steps, user_code: UserCode, work: DeviceWork | None
    ) -> Self:
        calls = np.flatnonzero(nesting.thread >= 0)
        entries = np.arange(0 if work is None else len(work.row))
        calls.flags.writeable = entries.flags.writeable = False  # views have these very arrays
        return cls(trace, nesting, steps, user_code, work, calls, entries)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes, once: most rules begin with the same views, whose properties are kept."""
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]  # type: ignore[no-any-return]


def bounds_of(events: Events) -> tuple[int, int]:
    """When the first event of a trace begins and the last ends."""

    def made() -> tuple[int, int]:
        starts, ends = [events.nesting.start_ns], [events.nesting.end_ns]
        if events.work is not None:
            starts.append(events.work.start_ns)
            ends.append(events.work.end_ns)
        return int(np.concatenate(starts).min(initial=2**62)), int(np.concatenate(ends).max(initial=0))

    return events.once(bounds_of, made)


def lanes_of(events: Events) -> int:
    """How many threads and streams a trace has."""

    def made() -> int:
        threads = int(events.nesting.thread.max(initial=-1)) + 1
        work = events.work
        return threads + (0 if work is None else len(distinct_pairs(work.device, work.stream)[0]))

    return events.once(lanes_of, made)
