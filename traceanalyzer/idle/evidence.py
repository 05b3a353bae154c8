"""What the tests of causes look at: the gaps, the indexes, and what several tests ask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceanalyzer.idle.gaps import Gaps
from traceanalyzer.idle.pieces import MOST
from traceanalyzer.idle.round_trips import round_trips
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, pick, sums_of
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.stalled_calls import StalledCalls
from traceanalyzer.timeline.step_marks import StepMarks
from traceanalyzer.timeline.synchronisation import SyncCalls

Pieces = tuple[Rows, Rows, Rows]  # gap, start and end of each

_USUAL_QUANTILE = 0.9  # of the delays onto an idle device: what is usual there
_DEFAULT_DELAY_NS = (
    10_000  # where nothing was launched onto an idle device: V100 to MI300 show minima of 2 to 26 us
)
_MAX_DELAY_NS = 100_000  # a usual delay above this would mean that the clocks of CPU and GPU disagree


@dataclass(frozen=True)
class Evidence:
    """The indexes, the gaps, and what of the gaps remains to be judged.

    All arrays below are of shape (gaps,). The rest is what proven causes left of a gap; before they are cut out it
    is all of it.
    """

    trace: Trace
    gaps: Gaps
    work: DeviceWork
    marks: StepMarks
    nesting: Nesting
    activity: Activity
    syncs: SyncCalls
    stalled_calls: StalledCalls
    remainder: Pieces

    def every_gap(self) -> Mask:
        """All of them."""
        return np.ones(len(self.gaps), bool)

    @cached_property
    def remainder_ns(self) -> Rows:
        """Length of the rest, int64."""
        gap, start, end = self.remainder
        return sums_of(gap, end - start, len(self.gaps))

    @cached_property
    def in_ops(self) -> Floats:
        """Share of the rest that ops and calls of launching threads cover."""
        gap, start, end = self.remainder
        covered = intervals.covered(self.activity.sets["dispatching"], start, end)
        return sums_of(gap, covered, len(self.gaps)) / np.maximum(self.remainder_ns, 1)

    @cached_property
    def usual_delay_ns(self) -> Rows:
        """The device's usual delay from launch to start where it was idle, int64."""
        gaps = self.gaps
        usual = np.full(len(gaps), _DEFAULT_DELAY_NS)
        for device in distinct(gaps.device):
            on_device = gaps.device == device
            fresh = on_device & (gaps.launched_ns > gaps.start_ns)
            if fresh.any():
                delay = int(np.quantile((gaps.end_ns - gaps.launched_ns)[fresh], _USUAL_QUANTILE))
                usual[on_device] = delay if delay <= _MAX_DELAY_NS else _DEFAULT_DELAY_NS
        return usual

    @cached_property
    def held_ns(self) -> Rows:
        """How long the work that ends the gap was held up after its launch call had returned, int64."""
        gaps = self.gaps
        return gaps.end_ns - np.maximum(np.maximum(gaps.launched_ns, gaps.returned_ns), gaps.start_ns)

    @cached_property
    def late(self) -> Mask:
        """Launched late: the launch began after the device ran dry, and the work was not held up after it."""
        stuck = (self.held_ns > self.usual_delay_ns) & (self.held_ns > MOST * self.remainder_ns)
        return np.asarray(~self.gaps.in_time & ~stuck)

    @cached_property
    def waits(self) -> tuple[Rows, Rows]:
        """Rows of the synchronising calls to blame, late launch and refill; see `round_trips`."""
        return round_trips(self.gaps, self.late, self.work, self.nesting, self.activity, self.syncs)

    @cached_property
    def in_graph(self) -> Mask:
        """It lies between the nodes of a graph: no launch was late."""
        return self.gaps.in_graph(self.work)

    @cached_property
    def thread(self) -> Rows:
        """Thread of the launch that ends the gap, -1 for none."""
        return pick(self.nesting.thread, self.gaps.call)

    @cached_property
    def on_engine(self) -> Mask:
        """The launching thread is the autograd engine's, which runs no python of the user."""
        nesting, cpu = self.nesting, self.trace.lanes.cpu
        engine = matching(cpu, "name", lambda name: name.startswith("autograd::engine::"))
        user = matching(cpu, "category", "user_annotation".__eq__)
        threads = np.zeros(int(nesting.thread.max(initial=-1)) + 2, bool)
        threads[nesting.thread[engine & (nesting.thread >= 0)]] = True
        threads[nesting.thread[user & (nesting.thread >= 0)]] = False
        return threads[self.thread]
