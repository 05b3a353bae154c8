"""Causes that are cut out of a gap, because events show from when to when they held up the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.idle.evidence import Evidence
from traceanalyzer.idle.pieces import Proof
from traceanalyzer.idle.recurrence import recurring_calls
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, distinct, pick
from traceanalyzer.model.trace import matching
from traceanalyzer.timeline.names import LAUNCH


def before_recording(evidence: Evidence) -> Iterator[Proof]:
    """Before the recording tells anything of a device, while it tells of another."""
    gaps, known = evidence.gaps, evidence.marks.known_ns
    for device, begin in known.items():
        head = (gaps.device == device) & (gaps.previous_work < 0)
        if begin > evidence.marks.whole_ns[0] and head.any():
            span = np.array([evidence.marks.whole_ns[0]]), np.array([begin])
            yield Proof(span, np.empty(0, np.int64), head, whole=True)


def graph_capture(evidence: Evidence) -> Iterator[Proof]:
    """While a graph is captured; the first row in each stretch decides it."""
    spans, rows = evidence.activity.sets["capture"], evidence.activity.rows["capture"]
    rows = rows[np.argsort(evidence.nesting.start_ns[rows], kind="stable")]
    first = rows[np.searchsorted(evidence.nesting.start_ns[rows], spans[0])]
    yield Proof(spans, first, ~evidence.in_graph, whole=True, times=spans)


def profiler(evidence: Evidence) -> Iterator[Proof]:
    """Stalls by the profiler."""
    yield _activity(evidence, "profiler")


def data_loading(evidence: Evidence) -> Iterator[Proof]:
    """Waiting for data."""
    yield _activity(evidence, "data_loading")


def compilation(evidence: Evidence) -> Iterator[Proof]:
    """Compiling."""
    yield _activity(evidence, "compilation")


def module_loading(evidence: Evidence) -> Iterator[Proof]:
    """Rows of kernels being loaded."""
    yield _activity(evidence, "module_loading")


def first_use(evidence: Evidence) -> Iterator[Proof]:
    """What a library does before it loads a kernel, allocator calls that do not recur, first calls that take long."""
    yield _activity(evidence, "library_start")
    yield _calls(evidence, _allocator(evidence, recurring=False))
    yield from _stalled_calls(evidence, first=True)


def allocator(evidence: Evidence) -> Iterator[Proof]:
    """Allocator calls that recur."""
    yield _calls(evidence, _allocator(evidence, recurring=True))


def long_call(evidence: Evidence) -> Iterator[Proof]:
    """Calls and ops that stand still far longer than their kind does."""
    yield from _stalled_calls(evidence, first=False)


def host_work(evidence: Evidence) -> Iterator[Proof]:
    """Ops that work on the CPU and launch nothing."""
    rows = evidence.stalled_calls.host_work
    for thread in distinct(pick(evidence.nesting.thread, rows)).tolist():
        yield _calls(evidence, rows[evidence.nesting.thread[rows] == thread], thread)


def host_collective(evidence: Evidence) -> Iterator[Proof]:
    """Collectives that threads of the CPU carry out, while no other thread runs an op."""
    yield _activity(evidence, "host_collective")


def head_wait(evidence: Evidence) -> Iterator[Proof]:
    """A synchronising call or blocking copy before the first work that the trace shows has begun."""
    syncs = evidence.syncs
    usable = ~syncs.profiler & evidence.activity.launching[syncs.thread]
    proof = _calls(evidence, syncs.row[usable])
    yield Proof(proof.spans, proof.rows, evidence.gaps.previous_work < 0)


def not_recorded(evidence: Evidence) -> Iterator[Proof]:
    """From the first launch at the tail whose work is not in the trace; all of it where the file was cut."""
    gaps, cpu = evidence.gaps, evidence.trace.lanes.cpu
    launch = matching(cpu, "name", LAUNCH.search) & (evidence.nesting.thread >= 0)
    launch[evidence.work.call[evidence.work.call >= 0]] = False
    rows = np.flatnonzero(launch)
    captured = intervals.covered(
        evidence.activity.sets["capture"], evidence.nesting.start_ns[rows], evidence.nesting.end_ns[rows]
    )
    rows = rows[captured == 0]
    tail = np.flatnonzero(gaps.next_work < 0)
    cut = any(one.kind == "truncated" for one in evidence.trace.meta.damage)
    starts = np.sort(evidence.nesting.start_ns[rows])
    for gap in tail.tolist():
        at = int(np.searchsorted(starts, gaps.start_ns[gap]))
        begin = gaps.start_ns[gap : gap + 1] if cut else starts[at : at + 1]
        if (begin < gaps.end_ns[gap]).any():
            only = np.zeros(len(gaps), bool)
            only[gap] = True
            yield Proof((begin, gaps.end_ns[gap : gap + 1]), rows, only, whole=True)


def _activity(evidence: Evidence, name: str, *, whole: bool = False) -> Proof:
    return Proof(evidence.activity.sets[name], evidence.activity.rows[name], ~evidence.in_graph, whole)


def _calls(evidence: Evidence, rows: Rows, thread: int | None = None) -> Proof:
    """Rows as they stand; those of one thread explain only what that thread launched."""
    spans = intervals.union(evidence.nesting.start_ns[rows], evidence.nesting.end_ns[rows])
    gaps = ~evidence.in_graph
    return Proof(spans, rows, gaps if thread is None else gaps & (evidence.thread == thread))


def _allocator(evidence: Evidence, *, recurring: bool) -> Rows:
    rows = evidence.activity.rows["allocator"]
    recurs = recurring_calls(evidence.trace, evidence.nesting, evidence.marks, evidence.work, rows)
    chosen: Rows = rows[recurs == recurring]
    return chosen


def _stalled_calls(evidence: Evidence, *, first: bool) -> Iterator[Proof]:
    still = evidence.stalled_calls
    chosen = still.first == first
    for thread in distinct(still.thread[chosen]).tolist():
        own = chosen & (still.thread == thread)
        times = still.start_ns[own], still.end_ns[own]
        gaps = ~evidence.in_graph & (evidence.thread == thread)
        yield Proof(intervals.union(*times), still.row[own], gaps, times=times)
