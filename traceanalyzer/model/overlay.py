"""What is drawn beside a trace: tracks of slices and counters, in ns as in the trace.

A slice says what it is by position: many share a name and a few texts, so these are kept once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.arrays import Floats, Ns

Arg = str | int | float | bool | Sequence[int]
Args = Mapping[str, Arg]


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """One track of slices [start_ns, end_ns); they come by start and may overlap or last no time.

    Attributes:
        start_ns, end_ns: int64 (slices,).
        kind: int64 (slices,), position in `names` and `args`.
        names, args: text of a slice, and what all slices of that kind say when they are selected.
        own: what each slice says beside that, one entry per slice; none says more where it is empty.
        arrows: per slice the ids of the arrows that touch its begin; likewise. An arrow joins two slices, from the
            earlier begin to the later, or from the track that is drawn first.
        about: one sentence for people who point at the track.
    """

    name: str
    start_ns: Ns
    end_ns: Ns
    kind: Ns
    names: Sequence[str]
    args: Sequence[Args]
    own: Sequence[Args] = ()
    arrows: Sequence[Sequence[int]] = ()
    about: str = ""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """A number over time: float64 (samples,), each valid until the next; `unit` stands at the axis, such as "%"."""

    name: str
    at_ns: Ns
    value: Floats
    unit: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Drift:
    """What a trace's clock gains against the reference's of its job, in microseconds a second; 0 for none.

    At `at_ns` of the trace's times it is as far ahead as its `base_time_ns` says.
    """

    ppm: float = 0.0
    at_ns: int = 0

    def evened(self, ns: int) -> int:
        """An instant of the trace as a clock without the drift tells it."""
        return ns - round((ns - self.at_ns) * (self.ppm * 1e-6))

    def all_evened(self, instants: Ns) -> Ns:
        """The same of many."""
        return np.asarray(instants - np.rint((instants - self.at_ns) * (self.ppm * 1e-6)).astype(np.int64))


NO_DRIFT = Drift()


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """What is drawn beside one trace, in the order of drawing.

    Attributes:
        rank: as the report calls it; None for a trace alone that declares none.
        base_time_ns: what is added to the times to get times since 1970, of a job's on one rank's clock.
        drift: what the slices' and counters' times are without, and the trace's file with.
    """

    rank: int | None
    source: str
    base_time_ns: int
    slices: tuple[Slices, ...]
    counters: tuple[Counter, ...]
    drift: Drift = NO_DRIFT

    def evened(self, drift: Drift) -> Overlay:
        even = drift.all_evened
        slices = [replace(one, start_ns=even(one.start_ns), end_ns=even(one.end_ns)) for one in self.slices]
        counters = [replace(one, at_ns=even(one.at_ns)) for one in self.counters]
        return replace(self, slices=tuple(slices), counters=tuple(counters), drift=drift)
