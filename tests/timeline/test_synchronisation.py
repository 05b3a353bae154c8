"""Which calls wait for the device, which of them are the profiler's, and whom its overhead stalled."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.idle.generated import traces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.containment import depths
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.profiler_rows import ProfilerRows
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
    found = dict(
        zip(loaded.cpu["event_id"].to_numpy()[syncs.row].tolist(), syncs.profiler.tolist(), strict=True)
    )
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


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize", True),
        ("hipDeviceSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaStreamSynchronize", True),
        ("cudaEventSynchronize", True),
        ("cudaEventQuery", False),
        ("cudaStreamWaitEvent", False),
    ],
)
def test_which_calls_wait(name: str, waits: bool) -> None:
    trace = looping()
    trace.launch(name, 1_500, 100, 90)
    syncs = Analysis(trace.load()).index(SyncCalls)
    assert len(syncs.row) == waits


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
    assert [edge.tolist() for edge in overheads.stalls] == [[], []]


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
