"""The trace as a program: CPU segments in order, calls that launch work, work in order per stream, and waits."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, numbered, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.replay.cpu_timeline import CpuTimeline, program_threads
from traceanalyzer.replay.sample import JointSteps, Sample
from traceanalyzer.replay.segments import Segments
from traceanalyzer.replay.steady_work import SteadyWork
from traceanalyzer.replay.waits import Waits
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork, unrecorded_graphs
from traceanalyzer.timeline.names import DATA_LOADING
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

# Share of the steps that the CPU must be busy for its peers to be busy all of the time: 0.63 at least in 26 recordings
# of a rank that waits for one that launches, 0.43 at most in 10 of one that waits for another reason; H200.
_LAUNCHING = 0.5
# Of the steps that collectives take beyond the quickest: less is how they differ anyway. Of 30 recordings 28 that wait
# for launching peers have 0.11 or more; with 0.05 and 0.07 the step is as right without.
_MUCH = 0.1
_MOST_MISSING = 0.1  # graphs a step whose kernels were lost: more belong to the step; chosen


@dataclass(frozen=True)
class Program:
    """The sampled steps as one block that repeats.

    Attributes:
        timeline: CPU segments, and the row of `trace.cpu` of each.
        segments: what each of them is and costs.
        work: the device's side, and the entry of `DeviceWork` of each piece.
        launch: int64 (work,), segment in which the launch begins.
        waits: where the CPU waits for the device.
        row_start_ns, row_end_ns: int64 (rows of `trace.cpu`,).
        awaited: share of the CPU's time that is other ranks', for whose launches this one waits (0 to 1); only of one
            rank without its peers' traces.
        waited_ns: of a step, what its collectives waited for other ranks and the replay leaves out.
        late_ns: that a step waits at its begin for a late batch, which the recording does not show.
    """

    sample: Sample
    timeline: CpuTimeline
    segments: Segments
    work: SteadyWork
    launch: Rows
    waits: Waits
    row_start_ns: Rows
    row_end_ns: Rows
    awaited: float = 0.0
    waited_ns: float = 0.0
    late_ns: float = 0.0

    @cached_property
    def by_kind(self) -> tuple[Rows, Rows]:
        """(segments by kind, the quicker first; number of each one's kind), int64 (segments,)."""
        kind, _ = numbered(self.segments.kind)
        return np.lexsort((self.segments.cpu_ns, kind)), kind

    @property
    def least_gpu_ns(self) -> float:
        """Device time that no step can do without: of the busiest stream, communication apart, since that may wait."""
        own = np.where(self.work.communication, 0.0, self.work.dur_ns)
        steps = len(self.sample) * self.sample.part
        return float(np.bincount(self.work.stream, own).max(initial=0.0)) / steps

    @classmethod
    def build(
        cls,
        trace: Trace,
        work: DeviceWork,
        nesting: Nesting,
        steps: Steps,
        syncs: SyncCalls,
        waiting: CollectiveWaits | None = None,
        joint: JointSteps | None = None,
    ) -> Self:
        """Of the representative steps; the rest is left out, so that the cost is bounded.

        What other ranks made collectives wait is left out, too: each rank is replayed as if the others came in time. A
        rank without its peers' traces that launches most of the time is as slow as the slowest of them, who launches
        all of the time: what it waits for them is the profiler's doing as much as its own launches are.

        Raises:
            Unavailable: without CPU rows, or where no launch of the steps' work is in the trace.
        """
        linked = work.call >= 0
        if not linked.any():
            raise Unavailable("no work is linked to its launch: the program cannot be replayed")
        sample = Sample.of(steps, nesting, loading(trace, nesting, work), joint)
        begins, ends = sample.begin_ns, sample.end_ns
        step = np.where(linked, _step_of(work.call_start_ns, begins, ends), -1)
        if (step < 0).all():
            raise Unavailable("no launch lies within the steps: the program cannot be replayed")
        graphs = unrecorded_graphs(trace, nesting, work)
        missing = int((_step_of(nesting.start_ns[graphs], begins, ends) >= 0).sum())
        if missing > _MOST_MISSING * len(sample):
            raise Unavailable(
                f"{missing:,} launches of CUDA graphs in {len(sample):,} step{'s' * (len(sample) > 1)} have no kernel "
                "in the trace, so nobody can say when the GPU is idle"
            )
        is_op = matching(trace.lanes.cpu, "category", "cpu_op".__eq__)
        its_own = program_threads(nesting, steps, is_op, work.call[linked], int(begins[0]), int(ends[-1]))
        timeline = CpuTimeline.of(nesting, its_own, begins, ends)

        def parts(waiting: CollectiveWaits | None) -> tuple[SteadyWork, Waits, Segments]:
            device = SteadyWork.of(trace, nesting, work, step, steps.window_start_ns, waiting)
            waits = Waits.of(trace, nesting, syncs, work, device, timeline)
            return device, waits, Segments.of(trace, nesting, work, device, timeline, waits, waiting)

        met = None if waiting is None else waiting.met()
        device, waits, segments = parts(met)
        awaited, waited_ns = 0.0, 0.0
        if met is not None:
            waited_ns = float(met.of(device.entry[device.communication])[0].sum()) / (len(sample) * sample.part)
        if waiting is None and joint is None and device.communication.any():
            expected = CollectiveWaits.expected(trace, work)
            alone, waits_alone, own = parts(expected)
            on_device = (took[sample.steps].sum() for took in map(steps.durations_ns, steps.bounds_ns))
            whole = max(float((ends - begins).sum()), sample.part * float(max(on_device)))
            launching = float(own.cpu_ns.sum())
            waited = int(expected.of(alone.entry[alone.communication])[0].sum())
            if launching >= _LAUNCHING * whole and waited >= _MUCH * whole:
                awaited = max(min(whole - launching, waited), 0.0) / launching
                device, waits, segments = alone, waits_alone, own.slower(1 + awaited)
        launch = timeline.at(work.call_start_ns[device.entry])
        parts_of_step = sample, timeline, segments, device, launch, waits
        return cls(*parts_of_step, nesting.start_ns, nesting.end_ns, awaited / (1 + awaited), waited_ns)


def loading(trace: Trace, nesting: Nesting, work: DeviceWork) -> intervals.Set:
    """When threads that launch work waited for data."""
    rows = np.flatnonzero(matching(trace.lanes.cpu, "name", DATA_LOADING.search))
    launching = nesting.thread[work.call[work.call >= 0]]
    rows = rows[np.isin(nesting.thread[rows], launching)]
    return intervals.union(nesting.start_ns[rows], nesting.end_ns[rows])


def _step_of(at: Rows, begins: Rows, ends: Rows) -> Rows:
    """Position of the step [begins[i], ends[i]) in which each instant lies, -1 for none."""
    step = np.searchsorted(begins, at, side="right") - 1
    return np.where((step >= 0) & (at < pick(ends, step)), step, -1)
