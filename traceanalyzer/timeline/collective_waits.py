"""What one rank's collectives wait for the other ranks: only the job measures it, one rank alone can guess."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.transfers import transfer_ns


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
        at = np.minimum(np.searchsorted(self.entry, entries), max(len(self.entry) - 1, 0))
        known = self.entry[at] == entries if len(self.entry) else np.zeros(len(entries), np.bool_)
        waiting_ns, last = (np.where(known, pick(column, at), -1) for column in (self.waiting_ns, self.last))
        return waiting_ns, last

    def met(self) -> Self:
        """Without the collectives in which the ranks are not at once."""
        return type(self)(*(getattr(self, one.name)[self.meets] for one in fields(self)))

    def numbers(self, entries: Rows) -> Rows:
        """Which collective of the job entries of `DeviceWork` are; -1 for none that another rank's trace has."""
        if len(self.entry) == 0:
            return np.full(len(entries), -1, np.int64)
        at = np.minimum(np.searchsorted(self.entry, entries), len(self.entry) - 1)
        return np.where(self.entry[at] == entries, self.number[at], -1)
