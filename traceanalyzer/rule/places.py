"""Places something happened, as findings say it: device, stream, thread and step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.finding import Span
from traceanalyzer.model.trace import Trace, ints
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Places:
    """Makes spans of findings; steps are numbered as their marks are, and null where nothing marks them."""

    work: DeviceWork
    steps: Steps
    nesting: Nesting
    tid: Rows

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, steps: Steps, nesting: Nesting) -> Self:
        return cls(work, steps, nesting, ints(trace.cpu, "tid"))

    @property
    def communicates(self) -> bool:
        """Whether the trace has communication: without it no work waits for another rank."""
        return bool((self.work.kind == KINDS.index("communication")).any())

    def computing(self) -> dict[int, intervals.Set]:
        """Device -> when kernels ran there, communication apart."""
        kernels = self.work.kind == KINDS.index("compute")
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
            thread=int(self.tid[row]) if self.nesting.thread[row] >= 0 else None,
            step=self.step(int(self.steps.at_cpu(np.array([start]))[0])),
        )
