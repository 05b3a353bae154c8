"""A trace as the selectors of fixes ask it: names of calls and work, spans, the program that is replayed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.trace import Trace, ints
from traceanalyzer.replay.program import Program
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls


@dataclass(frozen=True)
class Case:
    """What the selectors ask."""

    trace: Trace
    work: DeviceWork
    nesting: Nesting
    steps: Steps
    syncs: SyncCalls
    program: Program
    cpu_name: NDArray[np.object_]
    gpu_name: NDArray[np.object_]  # by entry of `work`

    @classmethod
    def of(cls, trace: Trace) -> Self:
        analysis = Analysis(trace)
        work, nesting, steps, syncs = (analysis.index(kind) for kind in (DeviceWork, Nesting, Steps, SyncCalls))
        program = Program.build(trace, work, nesting, steps, syncs)
        cpu = trace.cpu["name"].astype(str).to_numpy()
        return cls(trace, work, nesting, steps, syncs, program, cpu, trace.gpu["name"].astype(str).to_numpy()[work.row])

    @property
    def dur_ns(self) -> Rows:
        return self.work.end_ns - self.work.start_ns

    def gpu(self, pattern: str | re.Pattern[str]) -> Mask:
        """Entries of `work` by name."""
        return matches(self.gpu_name, pattern)

    def cpu(self, pattern: str | re.Pattern[str]) -> Rows:
        """Rows of `trace.cpu` by name."""
        return np.flatnonzero(matches(self.cpu_name, pattern))

    def op(self, pattern: str | re.Pattern[str]) -> Mask:
        """Entries of `work` by the name of the op that launched them."""
        return np.append(matches(self.cpu_name, pattern), False)[self.work.op]

    def inside(self, rows: Rows, outer: Rows) -> Mask:
        """Which of `rows` lie in one of the spans of `outer`, which are disjoint."""
        order = outer[np.argsort(self.nesting.start_ns[outer])]
        position = np.searchsorted(self.nesting.start_ns[order], self.nesting.start_ns[rows], side="right") - 1
        return (position >= 0) & (self.nesting.end_ns[rows] <= pick(self.nesting.end_ns[order], position, 0))

    def bytes(self, entries: Rows) -> NDArray[np.float64]:
        return ints(self.trace.gpu, "bytes")[self.work.row[entries]].astype(np.float64)


def matches(names: NDArray[np.object_], pattern: str | re.Pattern[str]) -> Mask:
    """Which names hold the pattern."""
    found = re.compile(pattern)
    known: dict[str, bool] = {}
    return np.array([known.setdefault(n, bool(found.search(n))) if n not in known else known[n] for n in names], bool)
