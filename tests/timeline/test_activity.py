"""What launching threads did, as sets of time: whose rows count, and how far loading and the profiler reach."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.profiler_rows import ProfilerRows

US = 1_000
LOADER = "enumerate(DataLoader)#_Iter.__next__"
LOADING = "Lazy Function Loading"


def activity(trace: TraceBuilder) -> Activity:
    return Analysis(trace.load()).index(Activity)


def spans(found: Activity, kind: str) -> list[tuple[int, int]]:
    """In us."""
    start, end = found.sets[kind]
    return list(zip((start // US).tolist(), (end // US).tolist(), strict=True))


def launching(trace: TraceBuilder, at: int, number: int = 1, tid: int = TID) -> None:
    trace.launch("cudaLaunchKernel", at * US, 10 * US, number, tid=tid)
    trace.kernel((at + 500) * US, 10 * US, number)


def test_launching_and_marking_threads_are_the_program() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 400 * US)
    launching(trace, 50, tid=TID + 1)
    for tid, at in ((TID, 100), (TID + 1, 150), (TID + 2, 200)):
        trace.annotation(LOADER, at * US, 10 * US, tid=tid)
    assert spans(activity(trace), "data_loading") == [(100, 110), (150, 160)]


def test_ops_and_calls_that_lie_in_no_other_op_dispatch() -> None:
    trace = TraceBuilder()
    trace.op("aten::linear", 0, 100 * US)
    trace.op("aten::mm", 10 * US, 80 * US)
    launching(trace, 20)
    trace.annotation("mine", 200 * US, 100 * US)
    trace.launch("cudaDeviceSynchronize", 210 * US, 10 * US, 2)
    assert spans(activity(trace), "dispatching") == [(0, 100), (210, 220)]
    assert len(activity(trace).rows["dispatching"]) == 2


def test_profiler_works_between_marks_and_in_stalling_rows() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 300 * US)
    trace.step(1, 340 * US, 300 * US)
    launching(trace, 10)
    trace.op("aten::mm", 50 * US, 100 * US)
    trace.overhead("Activity Buffer Request", 60 * US, 20 * US)
    trace.overhead("Activity Buffer Request", 200 * US, 20 * US)  # no op is open
    found = activity(trace)
    assert len(found.rows["profiler"]) == 1
    assert spans(found, "profiler") == [(60, 80), (300, 340)]


def test_thread_that_stalled_longest_is_blamed() -> None:
    """Both have an op open for all of the row; on one of them a call ends in it."""
    for first, second in ((TID, TID + 1), (TID + 1, TID)):
        trace = TraceBuilder()
        whole = trace.op("aten::mm", 0, 300 * US, tid=first)
        trace.op("aten::add", 0, 300 * US, tid=second)
        trace.launch("cudaFuncGetAttributes", 110 * US, 10 * US, 1, tid=second)
        trace.overhead("Activity Buffer Request", 100 * US, 100 * US)
        rows = Analysis(trace.load()).index(ProfilerRows)
        assert rows.stalled.tolist() == [whole]
        assert (rows.stall_start_ns.tolist(), rows.stall_end_ns.tolist()) == ([100 * US], [200 * US])


def test_host_collective_is_a_wait_unless_another_thread_works() -> None:
    """Its own thread's ops are the collective itself."""
    trace = TraceBuilder()
    launching(trace, 0)
    trace.annotation("gloo:all_reduce", 100 * US, 100 * US, tid=TID + 1)
    launching(trace, 600, 2, tid=TID + 1)
    trace.op("aten::copy_", 180 * US, 10 * US, tid=TID + 1)
    trace.op("aten::mm", 120 * US, 30 * US)
    assert spans(activity(trace), "host_collective") == [(100, 120), (150, 200)]


def test_library_loading_begins_after_the_threads_last_event() -> None:
    """After a launch that ended at 30 us, a query aside; in the call at 60 the loading shows from 100 to 150."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 400 * US)
    launching(trace, 20)
    trace.launch("cudaFuncGetAttributes", 40 * US, 10 * US, 2)
    trace.launch("cudaLaunchKernel", 60 * US, 100 * US, 3)
    trace.overhead(LOADING, 100 * US, 50 * US)
    found = activity(trace)
    assert spans(found, "module_loading") == [(100, 150)]
    assert spans(found, "library_start") == [(30, 100)]


def test_a_call_that_loads_says_itself_when_it_began() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 400 * US)
    launching(trace, 20)
    trace.launch("cuModuleLoadData", 60 * US, 30 * US, 2)
    found = activity(trace)
    assert (spans(found, "module_loading"), spans(found, "library_start")) == ([(60, 90)], [])


def test_loading_without_thread_belongs_to_the_shorter_row() -> None:
    """One thread is in a launch of 60 us, which it began at 90; another, in whatever order, in an op since 0."""
    for short, long in ((TID, TID + 1), (TID + 1, TID)):
        trace = TraceBuilder()
        trace.op("aten::mm", 50 * US, 200 * US, tid=short)
        trace.launch("cudaLaunchKernel", 90 * US, 60 * US, 1, tid=short)
        trace.kernel(500 * US, 10 * US, 1)
        trace.op("aten::sort", 0, 300 * US, tid=long)
        launching(trace, 310, 2, tid=long)
        trace.overhead(LOADING, 100 * US, 40 * US)
        assert spans(activity(trace), "library_start") == [(50, 100)]


@pytest.mark.parametrize(
    ("around", "edge_us", "stalls"),
    [
        ("op", 150.0, True),  # nothing begins or ends for half of the row
        ("op", 149.999, False),
        ("annotation", 150.0, False),
        ("cudaDeviceSynchronize", 150.0, False),  # which waits anyway
    ],
)
def test_profiler_stalls_a_thread_for_half_of_its_row(around: str, edge_us: float, stalls: bool) -> None:
    """A row from 100 to 200 us, and a call that begins in its middle."""
    trace = TraceBuilder()
    if around == "op":
        trace.op("aten::mm", 0, 300 * US)
    elif around == "annotation":
        trace.annotation("mine", 0, 300 * US)
    else:
        trace.launch(around, 0, 300 * US, 1)
    trace.launch("cudaFuncGetAttributes", round(edge_us * US), 10 * US, 2)
    trace.overhead("Activity Buffer Request", 100 * US, 100 * US)
    rows = Analysis(trace.load()).index(ProfilerRows)
    assert (rows.stalled >= 0).tolist() == [stalls]
    assert (rows.stall_end_ns - rows.stall_start_ns).tolist() == [50 * US * stalls]
