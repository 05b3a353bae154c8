"""Where something happened, as findings say it: device, stream, thread and step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer import intervals
from traceanalyzer.finding import Span
from traceanalyzer.indexes.accounting import KINDS, kinds_of_work
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.nesting import Nesting
from traceanalyzer.indexes.steps import Steps
from traceanalyzer.trace import Trace, ints

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Where:
    """Makes spans of findings; steps are numbered as their marks are, and null where nothing marks them.

    `kind` is the position in `KINDS` of every piece of work, int64 of shape (work,).
    """

    work: Launches
    steps: Steps
    nesting: Nesting
    tid: Rows
    kind: Rows

    @classmethod
    def build(cls, trace: Trace) -> Self:
        indexes = trace.index(Launches), trace.index(Steps), trace.index(Nesting)
        return cls(*indexes, ints(trace.cpu, "tid"), kinds_of_work(trace, indexes[0]))

    @property
    def communicates(self) -> bool:
        """Whether the trace has communication: without it no work waits for another rank."""
        return bool((self.kind == KINDS.index("communication")).any())

    def computing(self) -> dict[int, intervals.Set]:
        """Device -> when kernels ran there, communication apart."""
        kernels = self.kind == KINDS.index("compute")
        chosen = {device: kernels & (self.work.device == device) for device in self.steps.bounds_ns}
        return {d: intervals.union(self.work.start_ns[of], self.work.end_ns[of]) for d, of in chosen.items()}

    def step(self, position: int) -> int | None:
        """Number of the step at this position of `Steps`."""
        if not self.steps.marked or not 0 <= position < len(self.steps):
            return None
        return int(self.steps.number[position])

    def of_work(self, entry: int, start_ns: int | None = None, end_ns: int | None = None) -> Span:
        """A piece of work, or a stretch that it stands for; the thread is the one that launched it."""
        call = int(self.work.call[entry])
        return Span(
            start_ns=int(self.work.start_ns[entry]) if start_ns is None else start_ns,
            end_ns=int(self.work.end_ns[entry]) if end_ns is None else end_ns,
            device=int(self.work.device[entry]),
            stream=int(self.work.stream[entry]),
            thread=int(self.tid[call]) if call >= 0 else None,
            step=self.step(int(self.steps.of_work[entry])),
        )

    def of_row(self, row: int, device: int | None = None) -> Span:
        """A row of the CPU lane, and the device that it concerns; overhead rows have no thread."""
        start = int(self.nesting.start_ns[row])
        return Span(
            start_ns=start,
            end_ns=int(self.nesting.end_ns[row]),
            device=device,
            thread=int(self.tid[row]) if self.nesting.lane[row] >= 0 else None,
            step=self.step(int(self.steps.at_cpu(np.array([start]))[0])),
        )
