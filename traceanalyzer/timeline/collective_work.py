"""Collectives of a trace: their names, how long each waits for other ranks, and how long it moves data."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.texts import Texts
from traceanalyzer.timeline.calls_and_work import Work
from traceanalyzer.timeline.collective_waits import CollectiveWaits, transfer_ns
from traceanalyzer.timeline.communication import collective_of


def collectives_of(work: Work) -> Work:
    """The pieces of work that communicate: those of the marked steps, where steps are marked.

    A device that is behind runs the warm-up's last step within the recording: without its ops, so
    that neither the size of its collectives is known nor how often a step has them.

    Raises Unavailable: there are none.
    """
    every = work.of_kind("communication")
    if len(every) == 0:
        raise Unavailable("no collectives in the trace")
    within = every.step >= 0
    return every[within] if within.any() else every


def collective_names(every: Work) -> Texts:
    """The collective of each, and its process group where it has a name of its own."""
    ops = _known(every)
    groups = every.op.text("group_desc").values()
    kernels = every.name.values()
    names = [
        collective_of(kernel, op) + (f" of {group}" if group and "default" not in group else "")
        for kernel, op, group in zip(kernels, ops, groups, strict=True)
    ]
    distinct, code = np.unique(np.array(names, object), return_inverse=True)
    return Texts(code.astype(np.int64), distinct)


def _known(every: Work) -> list[str | None]:
    """What the op of each is called; where the op is not in the trace, what that of the same kernel is called."""
    ops = every.op.text("collective").or_else(every.op.name).values()
    kernels = every.name.code.tolist()
    same = {kernel: op for kernel, op in zip(kernels, ops, strict=True) if op is not None}
    return [same.get(kernel) if op is None else op for kernel, op in zip(kernels, ops, strict=True)]


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
