"""How long collectives wait for other ranks and move data: measured where peers are known, else estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.rule.hits import LostTime
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.transfers import transfer_ns


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


def parted(found: Work, lost: LostTime, arrivals: Arrivals) -> tuple[LostTime, LostTime]:
    """(what of the lost time is waiting, what is transfer): a collective first waits, then moves data."""
    moves_ns = (found.end_ns - arrivals.transfer_ns)[lost.owner]
    waiting = replace(lost, end_ns=np.clip(moves_ns, lost.start_ns, lost.end_ns))
    moving = replace(lost, start_ns=np.clip(moves_ns, lost.start_ns, lost.end_ns))
    return tuple(part[part.end_ns > part.start_ns] for part in (waiting, moving))  # type: ignore[return-value]
