"""Every stretch in which a device did nothing, each with one cause and the events that decided it.

Causes are tried in the order of `PRECEDENCE`; the first that holds takes the whole gap. "Most" is at least half
of the gap. Launched late means that the launch of the next work began after the device ran dry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.idle.gaps import Gaps, longest_row
from traceanalyzer.idle.long_calls import long_calls
from traceanalyzer.idle.round_trips import MOST, round_trips
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct, pick
from traceanalyzer.model.trace import NULL_INT, Trace, matching
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.boundaries import Boundaries
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.names import STREAM_WAIT
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.step_marks import StepMarks
from traceanalyzer.timeline.synchronisation import SyncCalls

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Shares = NDArray[np.float64]

# (cause, what must hold, why it stands at this place). The first that holds takes the gap.
PRECEDENCE: tuple[tuple[str, str, str], ...] = (
    ("tail", "nothing runs on the device any more", "no next work, so no launch to ask about"),
    ("in_graph", "the next work's graph launch had begun its work", "no launch lies between a graph's nodes"),
    ("unlinked", "the next work has no launch in the trace", "nothing on the CPU can be asked"),
    (
        "synchronisation_round_trip",
        "launched in time, but the queue has been empty since a synchronising call, or this is the copy that "
        "such a call waits for",
        "the gap is short and looks like latency, but the call emptied the queue",
    ),
    (
        "launch_latency",
        "launched in time, started after the device's usual delay",
        "the CPU is not the cause",
    ),
    (
        "profiler_overhead",
        "a stall by the profiler covers most of it",
        "it swells whatever op or call contains it",
    ),
    ("late_launch:data_loading", "launched late; data loading covers most of it", "contains ops and waits"),
    (
        "late_launch:compilation",
        "launched late; compiling covers most of it",
        "contains ops, loading and copies",
    ),
    (
        "late_launch:module_loading",
        "loading of kernels covers most of it, with the stretch without events right before it in the same op",
        "hides in a launch call, and in what a library prepares before its first launch",
    ),
    (
        "late_launch:long_call",
        "launched late; one call or op stands still for most of it, many times longer than its kind usually does",
        "the first use of a library or of the allocator looks like their everyday calls",
    ),
    (
        "late_launch:allocator",
        "launched late; allocator calls cover most of it",
        "cudaFree waits for the device",
    ),
    (
        "synchronisation_round_trip",
        "launched late; a synchronising call or blocking copy of the launching threads reaches into it, in which "
        "the CPU was when the device ran dry (or the gap is shorter than 0.2 ms, or it waited for most of it), and no "
        "stretch without ops that is longer than the CPU waited there covers most of it. Or the launch itself is a "
        "blocking copy whose call covers most of it",
        "the CPU could not launch while it waited, whatever it did after",
    ),
    (
        "launch_latency",
        "launched in time, and started when the launch call returned",
        "the call itself took long",
    ),
    (
        "waiting",
        "launched, but the start took longer than usual and most of the gap: behind a wait for an event, or at "
        "the head of the trace behind work that it does not show",
        "the launch was there: what the CPU did before it is not the cause",
    ),
    ("unknown", "as above, without a wait that explains it", "as above"),
    (
        "late_launch:python",
        "launched late; most of it between ops of a thread that runs python, as stacks show",
        "no op is open",
    ),
    (
        "late_launch:host_code",
        "launched late; most of it between ops, without stacks or on the autograd engine's thread",
        "python or other host code",
    ),
    ("late_launch:dispatching", "launched late; most of it inside ops and calls", "what is left"),
)
CAUSES = tuple(dict.fromkeys(cause for cause, _, _ in PRECEDENCE))
_BETWEEN_OPS = (CAUSES.index("late_launch:python"), CAUSES.index("late_launch:host_code"))
_DISPATCHING = CAUSES.index("late_launch:dispatching")
_USUAL_QUANTILE = 0.9  # of the delays onto an idle device: what is usual there
_DEFAULT_DELAY_NS = (
    10_000  # where nothing was launched onto an idle device: V100 to MI300 show minima of 2 to 26 us
)
_MAX_DELAY_NS = 100_000  # a usual delay above this would mean that the clocks of CPU and GPU disagree


@dataclass(frozen=True, slots=True)
class Idle:
    """Arrays of shape (gaps,), ordered by device and start.

    Attributes:
        device, start_ns, end_ns: int64; gaps of the whole window, also where the user analyses a part.
        cause: int64, position in `CAUSES`.
        work: int64, entry of `DeviceWork` that ends the gap, -1 at the tail.
        before: int64, entry of `DeviceWork` that ran last before it, -1 at the head.
        row: int64, row of `trace.cpu` that decided: the synchronising call, the loader, the stalled call, an op
            before the launch that took most of the gap, else the launch; -1 for none.
        op: int64, row of `trace.cpu` of the op to name: around `row`, else the one that launched, else the
            launch; -1 for none, as where the time went by between ops.
        sure: float64, share of the gap that the deciding activity covers, 1 where no share decides.
    """

    device: Rows
    start_ns: Rows
    end_ns: Rows
    cause: Rows
    work: Rows
    before: Rows
    row: Rows
    op: Rows
    sure: Shares

    @property
    def dur_ns(self) -> Rows:
        """Length of each gap."""
        return self.end_ns - self.start_ns

    def is_cause(self, *causes: str) -> Mask:
        """Which gaps have one of these causes."""
        return np.isin(self.cause, [CAUSES.index(cause) for cause in causes])

    @classmethod
    def build(
        cls,
        trace: Trace,
        work: DeviceWork,
        marks: StepMarks,
        nesting: Nesting,
        activity: Activity,
        syncs: SyncCalls,
        boundaries: Boundaries,
    ) -> Self:
        gaps = Gaps.of(work, marks.whole_ns)
        judge = _Judge(trace, gaps, work, nesting, activity, syncs, boundaries)
        cause, row, sure = judge.decide()
        op = judge.op_of(cause, row)
        return cls(gaps.device, gaps.start_ns, gaps.end_ns, cause, gaps.work, gaps.before, row, op, sure)


class _Judge:
    """Holds the gaps while their cause is decided."""

    def __init__(
        self,
        trace: Trace,
        gaps: Gaps,
        work: DeviceWork,
        nesting: Nesting,
        activity: Activity,
        syncs: SyncCalls,
        boundaries: Boundaries,
    ) -> None:
        self.trace, self.gaps, self.work, self.nesting = trace, gaps, work, nesting
        self.activity, self.syncs, self.boundaries = activity, syncs, boundaries
        self.dispatching = self.share("dispatching")

    def decide(self) -> tuple[Rows, Rows, Shares]:
        """(cause, deciding row, sureness) of every gap."""
        cause = np.full(len(self.gaps), _DISPATCHING)
        row, sure = self.gaps.call.copy(), self.dispatching.copy()
        free = np.ones(len(self.gaps), bool)
        for name, holds, deciding, certainty in self._tests():
            taken = free & holds
            cause[taken] = CAUSES.index(name)
            row[taken] = deciding[taken]
            sure[taken] = certainty[taken]
            free &= ~holds
        row[free] = self._op_before_launch(np.flatnonzero(free))
        return cause, row, sure

    def _tests(self) -> Iterator[tuple[str, Mask, Rows, Shares]]:
        """(cause, does it hold, deciding row, certainty) in the order of PRECEDENCE."""
        gaps, call = self.gaps, self.gaps.call
        one, none, always = np.ones(len(gaps)), np.full(len(gaps), -1), np.ones(len(gaps), bool)
        in_time, usual = gaps.in_time, self._usual_delay()
        held = gaps.end_ns - np.maximum(np.maximum(gaps.launched_ns, gaps.returned_ns), gaps.start_ns)
        stuck = (held > usual) & (held > MOST * gaps.dur_ns)
        late = ~in_time & ~stuck
        direct, refill = round_trips(gaps, late, self.work, self.nesting, self.activity, self.syncs)
        between = 1 - self.dispatching
        python = late & self._in_python()
        yield "tail", gaps.work < 0, none, one
        yield "in_graph", self._in_graph(), call, one
        yield "unlinked", call < 0, none, one
        yield "synchronisation_round_trip", refill >= 0, refill, one
        yield "launch_latency", in_time & (gaps.dur_ns <= usual), call, one
        yield self._covering("profiler_overhead", "profiler", always)
        for kind in ("data_loading", "compilation"):
            yield self._covering(f"late_launch:{kind}", kind, late)
        yield self._covering("late_launch:module_loading", "module_loading", always)
        long = long_calls(self.trace, gaps, late, self.nesting, self.boundaries, self.syncs)
        yield "late_launch:long_call", long >= 0, long, one
        yield self._covering("late_launch:allocator", "allocator", late)
        yield "synchronisation_round_trip", direct >= 0, direct, one
        yield "launch_latency", in_time & (held <= usual), call, one
        yield "waiting", stuck & self._waits(), call, one * 0.5
        yield "unknown", ~late, call, one
        yield "late_launch:python", (between >= MOST) & python, call, between
        yield "late_launch:host_code", between >= MOST, call, between

    def share(self, kind: str) -> Shares:
        """Share of each gap that a kind of activity covers."""
        covered = intervals.covered(self.activity.sets[kind], self.gaps.start_ns, self.gaps.end_ns)
        return np.asarray(covered / np.maximum(self.gaps.dur_ns, 1), np.float64)

    def _covering(self, cause: str, kind: str, among: Mask) -> tuple[str, Mask, Rows, Shares]:
        """Places a kind covers most of the gap; the deciding row is the longest of the kind that overlaps it."""
        share = self.share(kind)
        holds = among & (share >= MOST)
        rows = np.full(len(self.gaps), -1)
        kinds = self.activity.rows[kind]
        rows[holds] = longest_row(self.nesting, kinds, self.gaps.start_ns[holds], self.gaps.end_ns[holds])
        return cause, holds, rows, share

    def _in_graph(self) -> Mask:
        """The launch that ends the gap had already started other work."""
        first = np.full(len(self.nesting.thread) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, self.work.call, self.work.start_ns)
        shared = (self.gaps.work >= 0) & self.work.shared[self.gaps.work]
        return shared & (first[self.gaps.call] < self.gaps.start_ns)

    def _usual_delay(self) -> Rows:
        """Per gap, the device's usual delay from launch to start where it was idle."""
        gaps = self.gaps
        usual = np.full(len(gaps), _DEFAULT_DELAY_NS)
        for device in distinct(gaps.device):
            here = gaps.device == device
            fresh = here & (gaps.launched_ns > gaps.start_ns)
            if fresh.any():
                delay = int(np.quantile((gaps.end_ns - gaps.launched_ns)[fresh], _USUAL_QUANTILE))
                usual[here] = delay if delay <= _MAX_DELAY_NS else _DEFAULT_DELAY_NS
        return usual

    def _waits(self) -> Mask:
        """A wait for an event was issued since the work before was launched, or nothing ran before."""
        before = self.gaps.before
        waits = matching(self.trace.cpu, "name", lambda name: bool(STREAM_WAIT.search(name)))
        at = np.sort(self.nesting.start_ns[waits])
        since = np.where(before >= 0, self.work.call_start_ns[before], NULL_INT)
        between = np.searchsorted(at, self.gaps.launched_ns) > np.searchsorted(at, since)
        return np.asarray((before < 0) | between & (since != NULL_INT))

    def _in_python(self) -> Mask:
        """Stacks were recorded, and the launching thread is not the autograd engine's, which runs no python."""
        nesting = self.nesting
        engine = matching(self.trace.cpu, "name", lambda name: name.startswith("autograd::engine::"))
        user = (self.trace.cpu["category"] == "user_annotation").to_numpy()
        threads = np.zeros(int(nesting.thread.max(initial=-1)) + 2, bool)
        threads[nesting.thread[engine & (nesting.thread >= 0)]] = True
        threads[nesting.thread[user & (nesting.thread >= 0)]] = False
        engine_thread = threads[pick(nesting.thread, self.gaps.call)]
        return np.asarray(~engine_thread & bool(self.trace.meta.rows.get("python")))

    def _op_before_launch(self, which: Rows) -> Rows:
        """Of gaps that went by in dispatching: the innermost op that took most of it and ended before the launch.

        Places there is none, the launch: then the op that launched took the time.
        """
        nesting, call = self.nesting, self.gaps.call[which]
        start, end = self.gaps.start_ns[which], self.gaps.end_ns[which]
        found = np.full(len(which), -1)
        for thread in distinct(
            nesting.thread[call]
        ):  # a row that covers half of a gap lies around its middle
            here = nesting.thread[call] == thread
            middle = (start[here] + end[here]) // 2
            found[here] = nesting.around(int(thread), middle, middle)
        while True:
            overlap = np.minimum(nesting.end_ns[found], end) - np.maximum(nesting.start_ns[found], start)
            fits = (nesting.op[found] == found) & (overlap >= MOST * (end - start))
            open_ = (found >= 0) & ~fits
            if not open_.any():
                break
            found[open_] = nesting.parent[found[open_]]
        ended = (found >= 0) & (nesting.end_ns[found] <= nesting.start_ns[call])
        return np.where(ended, found, call)

    def op_of(self, cause: Rows, row: Rows) -> Rows:
        """The op around the deciding row, else the op that launched the next work, else its launch; none where the
        time went by between ops."""
        around = pick(self.nesting.op, row)
        work = self.gaps.work
        launched = pick(self.work.op, work)
        launched = np.where(launched >= 0, launched, self.gaps.call)
        loading = (cause == CAUSES.index("late_launch:module_loading")) & (pick(self.nesting.thread, row) < 0)
        decided = (row != self.gaps.call) & ~(loading & (launched >= 0))
        op = np.where(decided, np.where(around >= 0, around, row), launched)
        return np.where(np.isin(cause, _BETWEEN_OPS), -1, op)
