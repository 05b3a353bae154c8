"""Which calls wait for the device, values that travel to the host and back, and what threads did."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.idle.generated import traces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.containment import depths
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.activity import Activity, ProfilerRows
from traceanalyzer.timeline.host_round_trips import AwaitedValues, HostRoundTrips
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls


def looping() -> TraceBuilder:
    """Two steps of an op each, with a launch in it."""
    trace = TraceBuilder()
    for number in (0, 1):
        start = 1_000 + number * 1_000
        trace.step(number, start, 900)
        trace.op("aten::mm", start + 100, 200)
        trace.launched((start + 150, 50), (start + 210, 100), number + 1)
    return trace


def test_the_profilers_own_waits_are_before_and_after_everything() -> None:
    trace = looping()
    first = trace.launch("cudaDeviceSynchronize", 500, 100, 90)
    users = trace.launch("cudaDeviceSynchronize", 1_500, 100, 91)
    stream = trace.launch("cudaStreamSynchronize", 2_950, 10, 92)
    in_mark = trace.launch("cudaDeviceSynchronize", 2_800, 50, 94)  # behind the last op, but in its step
    last = trace.launch("cudaDeviceSynchronize", 3_000, 100, 93)
    loaded = trace.load()
    syncs = Analysis(loaded).index(SyncCalls)
    events = loaded.cpu["event_id"].to_numpy()[syncs.row].tolist()
    found = dict(zip(events, syncs.profiler.tolist(), strict=True))
    assert found == {first: True, users: False, stream: False, in_mark: False, last: True}
    assert syncs.end_ns.tolist() == sorted(syncs.end_ns.tolist())


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "hipMemcpyWithStream", "cudaMemcpy"])
@pytest.mark.parametrize(("call_ends", "blocking"), [(300, True), (250, True), (249, False)])
def test_a_copy_call_that_ends_after_its_copy_blocks(name: str, call_ends: int, blocking: bool) -> None:
    trace = TraceBuilder()
    trace.launch(name, 100, call_ends - 100, 1)
    trace.memcpy(150, 100, 1, name="Memcpy HtoD (Pinned -> Device)")
    assert Analysis(trace.load()).index(SyncCalls).copy.tolist() == ([True] if blocking else [])


@pytest.mark.parametrize(
    ("call", "blocking"), [("cudaMemcpyAsync", []), ("cudaMemcpy", [True]), ("hipMemcpyWithStream", [True])]
)
def test_a_slow_asynchronous_copy_on_the_device_never_blocks(call: str, blocking: list[bool]) -> None:
    trace = TraceBuilder()
    trace.launch(call, 100, 200, 1)
    trace.memcpy(150, 10, 1, name="Memcpy DtoD (Device -> Device)")
    assert Analysis(trace.load()).index(SyncCalls).copy.tolist() == blocking


def test_which_calls_wait() -> None:
    """One after the other, the last two do not."""
    trace = looping()
    waiting = ["cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize", "cudaStreamSynchronize"]
    waiting.append("cudaEventSynchronize")
    for number, name in enumerate([*waiting, "cudaEventQuery", "cudaStreamWaitEvent"]):
        trace.launch(name, 1_500 + 10 * number, 10, 90 + number)
    analysis = Analysis(trace.load())
    assert analysis.trace.cpu["name"].iloc[analysis.index(SyncCalls).row].tolist() == waiting


def test_a_wait_inside_another_call_is_not_the_profilers() -> None:
    trace = TraceBuilder()
    trace.launch("cudaOuterCall", 0, 5_000, 1)
    trace.launch("cudaDeviceSynchronize", 1_000, 2_000, 2)
    trace.launch("cudaDeviceSynchronize", 6_000, 2_000, 3)
    trace.op("aten::mm", 10_000, 1_000)
    assert Analysis(trace.load()).index(SyncCalls).profiler.tolist() == [False, True]


def test_a_row_stalls_the_call_in_which_nothing_moves() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 5_000)
    call = trace.launch("cudaLaunchKernel", 1_000, 3_000, 1)
    trace.op("aten::add", 100, 4_000, tid=2)
    for i in range(20):  # the other thread goes on
        trace.op("aten::view", 200 + i * 150, 100, tid=2)
    trace.overhead("Activity Buffer Request", 1_200, 2_500)
    overheads = Analysis(trace.load()).index(ProfilerRows)
    assert overheads.stalled.tolist() == [call]
    assert (overheads.stall_start_ns.tolist(), overheads.stall_end_ns.tolist()) == ([1_200], [3_700])
    assert overheads.buffer.tolist() == [True]


def test_a_row_beside_a_busy_thread_stalls_nobody() -> None:
    trace = TraceBuilder()
    for i in range(20):
        trace.op("aten::view", i * 150, 100)
    trace.overhead("Buffer Flush", 50, 2_500)
    trace.overhead("Lazy Function Loading", 50, 50)  # not the profiler's
    overheads = Analysis(trace.load()).index(ProfilerRows)
    assert overheads.stalled.tolist() == [-1]
    assert (overheads.stall_end_ns - overheads.stall_start_ns).max() == 0


@examples(120)
@given(traces())
def test_stalls_are_the_longest_quiet_stretches(trace: TraceBuilder) -> None:
    loaded = trace.load()
    nesting, overheads = Analysis(loaded).index(Nesting), Analysis(loaded).index(ProfilerRows)
    for i, row in enumerate(overheads.row.tolist()):
        start, end = int(nesting.start_ns[row]), int(nesting.end_ns[row])
        best = 0
        for lane in range(int(nesting.thread.max(initial=-1)) + 1):
            best = max(best, quiet(loaded, lane, start, end))
        stalled = int(overheads.stall_end_ns[i] - overheads.stall_start_ns[i])
        assert stalled == (best if best and 2 * best >= end - start else 0)
        assert (overheads.stalled[i] >= 0) == (stalled > 0)


def quiet(loaded: Trace, lane: int, start: int, end: int) -> int:
    """The longest stretch within [start, end] without an edge on the lane, in an op or call that does not wait."""
    nesting = Analysis(loaded).index(Nesting)
    depth = depths(nesting.parent)
    rows = np.flatnonzero(nesting.thread == lane)
    edges = {int(edge) for edge in (*nesting.start_ns[rows], *nesting.end_ns[rows])}
    points = sorted({start, end, *(edge for edge in edges if start < edge < end)})
    found = 0
    for a, b in pairwise(points):
        around = [row for row in rows if nesting.start_ns[row] <= a and nesting.end_ns[row] >= b]
        innermost = max(around, key=lambda row: (nesting.start_ns[row], depth[row]), default=-1)
        if innermost >= 0 and may_stall(loaded.cpu.iloc[innermost]):
            found = max(found, b - a)
    return found


def may_stall(row: Any) -> bool:
    """Neither an annotation nor a call that waits for the device anyway."""
    return row["category"] != "user_annotation" and "Synchronize" not in row["name"]


def test_mark_written_as_an_op_is_not_stalled() -> None:
    trace = TraceBuilder()
    trace.op("ProfilerStep#1", 0, 5_000)
    trace.overhead("Activity Buffer Request", 1_000, 2_000)
    assert Analysis(trace.load()).index(ProfilerRows).stalled.tolist() == [-1]


US = 1_000
DOWN, UP, ACROSS = "DtoH (Device -> Pageable)", "HtoD (Pageable -> Device)", "DtoD (Device -> Device)"


def copies(
    *kinds: tuple[str, int], threads: tuple[int, ...] = (), pinned: bool = False, step_us: int = 100_000
) -> HostRoundTrips:
    """Copies one after the other, 1 ms apart, in one step of 0.1 s; those of pageable memory block."""
    trace = TraceBuilder()
    for step in range(100_000 // step_us):
        trace.step(step, step * step_us * US, step_us * US)
    for number, (way, size) in enumerate(kinds):
        at, thread = number * 1_000 * US + 100 * US, threads[number] if threads else 1000
        trace.op("aten::to", at, 200 * US, tid=thread)
        trace.launch("cudaMemcpyAsync", at + 10 * US, (5 if pinned else 150) * US, number + 1, tid=thread)
        host = "Pinned" if pinned else "Pageable"
        memory = f"Device -> {host}" if way == "DtoH" else f"{host} -> Device"
        trace.memcpy(at + 30 * US, 100 * US, number + 1, name=f"Memcpy {way} ({memory})", size=size)
    return Analysis(trace.load()).index(HostRoundTrips)


def test_a_trip_spans_both_ops() -> None:
    trips = copies(("DtoH", 4096), ("HtoD", 4096))
    assert (trips.end_ns - trips.start_ns).tolist() == [1_200 * US]
    assert (trips.sent_ns - trips.fetched_ns).tolist() == [800 * US]
    assert trips.next_ns.tolist() == trips.end_ns.tolist()


@pytest.mark.parametrize(
    "kinds",
    [
        (("DtoH", 4096),),
        (("HtoD", 4096), ("DtoH", 4096)),
        (("DtoH", 4096), ("HtoD", 4100)),
        (("DtoH", 4), ("HtoD", 4)),
        (("DtoH", 1_023), ("HtoD", 1_023)),
        (("DtoH", 4096), ("HtoD", 16 * 4096)),
        (("DtoH", 3 * 4096), ("HtoD", 4096)),
        (("DtoH", 4096), ("DtoH", 8), ("HtoD", 4096), ("HtoD", 4096)),
    ],
)
def test_no_trip(kinds: tuple[tuple[str, int], ...]) -> None:
    assert len(copies(*kinds).down) == 0


def test_a_copy_back_by_another_thread_is_no_trip() -> None:
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), threads=(1000, 1001)).down) == 0


@pytest.mark.parametrize(("down", "up"), [(1_024, 1_024), (4_096, 8 * 4_096), (4 * 4_096, 4_096), (4_096, 8_192)])
def test_what_comes_back_has_as_many_elements_of_another_width(down: int, up: int) -> None:
    assert len(copies(("DtoH", down), ("HtoD", up)).down) == 1


@pytest.mark.parametrize(("first_ends_us", "trips"), [(1_000, 1), (1_001, 0), (1_300, 0)])
def test_copies_of_ops_that_overlap_are_no_round_trip(first_ends_us: int, trips: int) -> None:
    """The op around the copy up begins after 1 ms; that around the copy down ends then, later, or around both."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.op("aten::to", 0, first_ends_us * US)
    trace.op("aten::to", 1_000 * US, 200 * US)
    for at, way in ((10, DOWN), (1_010, UP)):
        trace.copied((at * US, 150 * US), ((at + 20) * US, 100 * US), name=f"Memcpy {way}", size=4_096)
    assert len(Analysis(trace.load()).index(HostRoundTrips).down) == trips


def test_round_trips_stay_in_one_step_and_the_host_waits() -> None:
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), step_us=2_000).down) == 1
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), step_us=1_000).down) == 0
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), pinned=True).down) == 0


@pytest.mark.parametrize("single", ["HtoD", "DtoH"])
def test_step_with_an_unpaired_copy_has_no_round_trips(single: str) -> None:
    kinds = (("DtoH", 4096), ("HtoD", 4096), ("DtoH", 8192), ("HtoD", 8192), (single, 4096))
    trips = copies(*kinds)
    assert (trips.end_ns - trips.start_ns).tolist() == [1_200 * US]
    assert trips.start_ns.tolist() == copies(*kinds[:4]).start_ns[1:].tolist()


def test_short_gap_after_a_trip_frees_its_tensors() -> None:
    """Of two trips of 1.2 ms, 0.8 ms apart; after the second comes nothing."""
    trips = copies(*[("DtoH", 4096), ("HtoD", 4096)] * 2)
    assert (trips.next_ns - trips.end_ns).tolist() == [800 * US, 0]
    assert (trips.freed_ns(2 / 3) - trips.end_ns).tolist() == [800 * US, 0]
    assert (trips.freed_ns(0.66) - trips.end_ns).tolist() == [0, 0]


@pytest.mark.parametrize("gap_us", [0, 1, 50])
def test_what_follows_a_trip_begins_when_it_ends_or_later(gap_us: int) -> None:
    """An op behind the trip, and another one 10 us behind that begin; another thread's row is none."""
    trace = TraceBuilder()
    trace.step(0, 0, 5_000 * US)
    for at, way in ((100, DOWN), (1_100, UP)):
        trace.op("aten::to", at * US, 200 * US)
        call, copy = ((at + 10) * US, 150 * US), ((at + 30) * US, 100 * US)
        trace.copied(call, copy, name=f"Memcpy {way}", size=4_096)
    trace.op("aten::other", 1_300 * US, US, tid=77)
    trace.op("aten::add", (1_300 + gap_us) * US, 5 * US)
    trace.op("aten::mul", (1_310 + gap_us) * US, 5 * US)
    trips = Analysis(trace.load()).index(HostRoundTrips)
    assert (trips.end_ns.tolist(), trips.next_ns.tolist()) == ([1_300 * US], [(1_300 + gap_us) * US])


def awaited(*ops: tuple[str, str, int], waits: bool = True) -> tuple[list[str], list[bool], list[bool]]:
    """(op, upwards, scaler) of ops of a name that copy one way so many bytes, and wait for it; no way: no copy."""
    trace, at = TraceBuilder(), 0
    for number, (name, way, size) in enumerate(ops):
        trace.op(name, at, 90 * US)
        if way:
            trace.launch("cudaMemcpyAsync", at + 5 * US, 5 * US, number + 1)
            trace.memcpy(at + 20 * US, 10 * US, number + 1, name=f"Memcpy {way}", size=size)
        if waits:
            trace.launch("cudaStreamSynchronize", at + 15 * US, 20 * US, 100 + number)
        at += 100 * US
    trace.op("aten::mm", at, 20 * US)
    trace.launched((at + 5 * US, 5 * US), (at + 12 * US, 5 * US), 99)
    analysis = Analysis(trace.load())
    found = analysis.index(AwaitedValues)
    names = analysis.trace.cpu["name"].iloc[found.op].tolist()
    assert (len(found.copy), len(found.wait)) == (len(names), len(names))
    return names, found.upwards.tolist(), found.scaler.tolist()


@pytest.mark.parametrize(
    ("way", "size", "names", "upwards"),
    [
        (DOWN, 4, ["aten::item"], [False]),
        (DOWN, 65_536, ["aten::item"], [False]),
        (DOWN, 65_537, [], []),  # data
        (DOWN, 0, ["aten::item"], [False]),  # old ROCm records no size
        (UP, 4, ["aten::item"], [True]),
        (UP, 0, [], []),  # may be a batch
        (ACROSS, 4, [], []),
        ("", 0, [], []),
    ],
)
def test_values_are_small_copies(way: str, size: int, names: list[str], upwards: list[bool]) -> None:
    assert awaited(("aten::item", way, size)) == (names, upwards, [False] * len(names))
    assert awaited(("aten::item", way.replace("Pageable", "Pinned"), size), waits=False)[0] == []


CHECK, UPDATE = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"


@pytest.mark.parametrize(
    ("ops", "scaler"),
    [
        (["item", CHECK, "item", "item", UPDATE, "item"], [False, False, True, False]),
        ([CHECK, "item", UPDATE, CHECK, "item", UPDATE], [True, True]),
        (["item", UPDATE], [False]),  # nothing was checked
        ([CHECK, "item"], [False]),
        ([CHECK, "nonzero", UPDATE], [False]),
    ],
)
def test_the_scaler_asks_last_between_its_check_and_its_update(ops: list[str], scaler: list[bool]) -> None:
    reads = [("", 0) if "amp" in op else (DOWN, 4) for op in ops]
    named = [op if "amp" in op else f"aten::{op}" for op in ops]
    assert awaited(*((op, *read) for op, read in zip(named, reads, strict=True)))[2] == scaler


def test_round_trips_are_not_awaited_values() -> None:
    assert awaited(("aten::to", DOWN, 4_096), ("aten::to", UP, 4_096)) == (["aten::to"], [True], [False])
    assert awaited(("aten::to", DOWN, 1_023), ("aten::to", UP, 1_023))[1] == [False, True]


LOADER = "enumerate(DataLoader)#_Iter.__next__"
LOADING = "Lazy Function Loading"


def activity(trace: TraceBuilder) -> Activity:
    return Analysis(trace.load()).index(Activity)


def spans(found: Activity, kind: str) -> list[tuple[int, int]]:
    """In us."""
    start, end = found.sets[kind]
    return list(zip((start // US).tolist(), (end // US).tolist(), strict=True))


def launching(trace: TraceBuilder, at: int, number: int = 1, tid: int = TID) -> None:
    trace.launched((at * US, 10 * US), ((at + 500) * US, 10 * US), number, tid=tid)


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
        trace.launched((90 * US, 60 * US), (500 * US, 10 * US), 1, tid=short)
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
