"""Collectives: their names, how long each waits for other ranks, as a job measures it, and how long it moves data."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Mask, Rows, grouped, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes_at, ints_at
from traceanalyzer.timeline.calls_and_work import Work
from traceanalyzer.timeline.communication import collective_of
from traceanalyzer.timeline.device_work import KINDS, DeviceWork, find


@dataclass(frozen=True, slots=True)
class CollectiveWaits(GivenByJob):
    """Measured waiting of one rank; arrays of shape (collectives,), those that another rank's trace has, too.

    Attributes:
        entry: int64, entry of `DeviceWork`, ascending.
        waiting_ns: int64, own duration less the shortest of all ranks.
        last: int64, the rank that came last.
        number: int64, which collective of the job it is: the same on all ranks that take part.
        meets: bool, whether the ranks are in it at once: what receives what was sent before ends by itself.
    """

    entry: Rows
    waiting_ns: Rows
    last: Rows
    number: Rows
    meets: Mask

    @classmethod
    def expected(cls, trace: Trace, work: DeviceWork) -> Self:
        """Of a rank without its peers' traces: what collectives take beyond the quickest of their size."""
        entry = np.flatnonzero((work.kind == KINDS.index("communication")) & (work.call >= 0))
        waiting_ns = (work.end_ns - work.start_ns)[entry] - transfer_ns(trace, work, entry)
        unknown = np.full(len(entry), -1, np.int64)
        return cls(entry, waiting_ns, unknown, unknown, np.ones(len(entry), np.bool_))

    def of(self, entries: Rows) -> tuple[Rows, Rows]:
        """(waiting in ns, the rank that came last) of entries of `DeviceWork`; -1 both where it was not measured."""
        position = find(self.entry, entries)
        return pick(self.waiting_ns, position), pick(self.last, position)

    def met(self) -> Self:
        """Without the collectives in which the ranks are not at once."""
        return type(self)(*(getattr(self, field.name)[self.meets] for field in fields(self)))

    def numbers(self, entries: Rows) -> Rows:
        """Which collective of the job entries of `DeviceWork` are; -1 for none that another rank's trace has."""
        return pick(self.number, find(self.entry, entries))


_LATENCY_NS = 100_000  # of a collective, however little it moves: 5 us on NVLink, tens of us between hosts


def transfer_ns(trace: Trace, work: DeviceWork, entries: Rows) -> Rows:
    """What moving the data takes at most, of collectives; int64 (entries,). The rest of each is waiting.

    The quickest execution of the same kernel with as many elements; and no longer than at the best rate that the kernel
    reaches with any number of elements: where few take as long as many, all of them waited.
    """
    name, grid = (codes_at(trace.lanes.gpu, column, work.row[entries]) for column in ("name", "grid"))
    took, device = (work.end_ns - work.start_ns)[entries], work.device[entries]
    counts = ("in_elements", "out_elements")
    sent, received = (ints_at(trace.lanes.cpu, column, work.op[entries]) for column in counts)
    return at_most(name, grid, device, np.maximum(np.maximum(sent, received), -1), took)


def at_most(name: Rows, grid: Rows, device: Rows, elements: Rows, took: Rows) -> Rows:
    """The same of collectives of those kernels, grids, devices, numbers of elements (-1: unknown) and durations."""
    number, first = grouped([name, grid, elements, device])
    least = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(least, number, took)
    kernel, _ = grouped([name[first], device[first]])
    rate = elements[first] / np.maximum(least, 1)
    best = np.zeros(len(first))
    np.maximum.at(best, kernel, rate)
    at_best = _LATENCY_NS + elements[first] / np.maximum(best[kernel], 1e-9)
    counted = elements[first] > 0
    shortest: Rows = np.where(counted, np.minimum(least, at_best), least).astype(np.int64)
    return shortest[number]


def collectives_of(work: Work) -> Work:
    """The pieces of work that communicate, of marked steps if there are some. Raises Unavailable: there are none."""
    every = work.of_kind("communication")
    if len(every) == 0:
        raise Unavailable("no collectives in the trace")
    # A device that is behind runs the warm-up's last step within the recording, but its ops are not recorded.
    within = every.step >= 0
    return every[within] if within.any() else every


def collective_names(every: Work) -> Texts:
    """The collective of each, and its process group where it has a name of its own."""
    ops, groups = every.op.text("collective").or_else(every.op.name).values(), every.op.text("group_desc").values()
    codes = every.name.code.tolist()
    # An op that is not in the trace is called as that of the same kernel.
    same = {code: op for code, op in zip(codes, ops, strict=True) if op is not None}
    names = [
        collective_of(kernel, same.get(code) if op is None else op)
        + (f" of {group}" if group and "default" not in group else "")
        for kernel, code, op, group in zip(every.name.values(), codes, ops, groups, strict=True)
    ]
    distinct, code = np.unique(np.array(names, object), return_inverse=True)
    return Texts(code.astype(np.int64), distinct)


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Of some collectives, int64 (collectives,) each.

    Attributes:
        transfer_ns: what moving the data takes; the rest of each is waiting.
        last: the rank that came last, -1 where that was not measured.
    """

    transfer_ns: Rows
    last: Rows

    @classmethod
    def of(cls, every: Work, waits: CollectiveWaits | None) -> Self:
        """Those of all collectives of a trace: an estimate is made by comparing them."""
        events = every.events
        assert events.work is not None
        estimate = transfer_ns(events.trace, events.work, every.entries)
        if waits is None:
            return cls(estimate, np.full(len(every), -1, np.int64))
        waiting_ns, last = waits.of(every.entries)
        return cls(np.where(last >= 0, every.dur_ns - waiting_ns, estimate), last)

    def __getitem__(self, chosen: Rows) -> Self:
        return type(self)(self.transfer_ns[chosen], self.last[chosen])

    @property
    def measured(self) -> Mask:
        """Where peers are known; bool (collectives,)."""
        return np.asarray(self.last >= 0)


def without_waiting(work: Work, waits: CollectiveWaits | None) -> Rows:
    """Duration of each piece of work, of collectives less the waiting that was measured; int64 (work,)."""
    if waits is None:
        return work.dur_ns
    waiting_ns, _ = waits.of(work.entries)
    return work.dur_ns - np.maximum(waiting_ns, 0)
