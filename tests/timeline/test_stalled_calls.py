"""Calls that were stalled, and calls that synchronise but found the device done."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.idle.one_gap import US, judged
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.idle.stalled_calls import LONG_NS, StalledCalls
from traceanalyzer.model.analysis import Analysis

_TENTH = LONG_NS // 10  # so that edges tie, touch and are just far enough from one another


_OTHERS = 100 * LONG_NS  # after all that is drawn


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=8)


@examples(200)
@given(spans)
def test_long_stretches_lie_between_neighbouring_edges(rows: list[tuple[int, int]]) -> None:
    trace = TraceBuilder()
    trace.launched((_OTHERS - 1_000, 1_000), (_OTHERS, 1_000), 1)
    calls = [(start * _TENTH, (start + dur) * _TENTH) for start, dur in rows]
    for number, (start, end) in enumerate(calls):
        trace.launch("cudaFuncGetAttributes", start, end - start, 2 + number)
    for number in range(2 * len(rows)):  # so quick it usually is: every long stretch within one stands out
        trace.launch("cudaFuncGetAttributes", _OTHERS + 2_000 * number, 1_000, 100 + number)
    still = Analysis(trace.load()).index(StalledCalls)
    edges = sorted({edge for call in calls for edge in call})
    expected = [
        (left, right)
        for left, right in pairwise(edges)
        if right - left >= LONG_NS and any(start <= left and right <= end for start, end in calls)
    ]
    assert list(zip(still.start_ns.tolist(), still.end_ns.tolist(), strict=True)) == expected


CALL, OP = "cudaFuncGetAttributes", "aten::compute"


def found(*rows: tuple[str, int]) -> tuple[list[tuple[str, int]], list[str]]:
    """(stretches as call or op and us, ops that work on the CPU) of rows one after the other, and a launch last.

    A name that begins with a dot lies in the row before it, from its start on.
    """
    trace, at, begun = TraceBuilder(), 0, 0
    for number, (name, dur_us) in enumerate(rows):
        inner = name.startswith(".")
        begun, at = (begun, at) if inner else (at, at + dur_us * US + 10 * US)
        if "cuda" in name:
            trace.launch(name.removeprefix("."), begun, dur_us * US, 100 + number)
        else:
            trace.op(name.removeprefix("."), begun, dur_us * US)
    trace.launched((at, 5 * US), (at + 10 * US, 5 * US), 1)
    analysis = Analysis(trace.load())
    still, names = analysis.index(StalledCalls), analysis.trace.cpu["name"]
    stretches = zip(names.iloc[still.row], (still.end_ns - still.start_ns) // US, strict=True)
    return [(str(name), int(us)) for name, us in stretches], [str(one) for one in names.iloc[still.host_work]]


@pytest.mark.parametrize(
    ("rows", "stands"),
    [
        ([(CALL, 50)] * 4 + [(CALL, 499), (CALL, 500)], [(CALL, 500)]),  # ten times the usual
        ([(CALL, 2)] * 4 + [(CALL, 99), (CALL, 100)], [(CALL, 100)]),  # a tenth of a millisecond at least
        ([(CALL, 50), (CALL, 600)], [(CALL, 600)]),  # of two the shorter is the usual
        ([(CALL, 999)], []),  # alone of its name
        ([(CALL, 1_000)], [(CALL, 1_000)]),
        ([("cudaDeviceSynchronize", 9_000)], []),  # waits for the device
        ([("cudaGraphLaunch", 9_000)], []),  # takes as long as the graph is large
        ([("cudaMalloc", 9_000)], []),
    ],
)
def test_a_call_stands_still_that_takes_ten_times_the_usual(
    rows: list[tuple[str, int]], stands: list[tuple[str, int]]
) -> None:
    assert found(*rows)[0] == stands


@pytest.mark.parametrize(
    ("rows", "stands", "works"),
    [
        ([(OP, 5_000)], [], [OP]),  # the only one
        ([(OP, 20)] * 4 + [(OP, 5_000)], [], [OP]),  # usually takes its time
        ([(OP, 19)] * 4 + [(OP, 5_000)], [(OP, 5_000)], [OP]),
        ([(OP, 200), (".aten::view", 99)], [], [OP]),
        ([(OP, 200), (".aten::view", 100)], [], []),  # views for half of it
        ([(OP, 200), (f".{CALL}", 5)], [], [OP]),  # which only asks
        ([(OP, 200), (".cudaMalloc", 5)], [], []),
        ([(OP, 190), ("aten::view", 99)], [], [OP]),  # which is another op
        ([("aten::empty", 5_000)], [("aten::empty", 5_000)], []),  # allocates: no data make it take so long
        ([("Torch-Compiled Region: 0/0", 5_000)], [], []),
        ([("mine_compile_fx_compile.x", 5_000)], [], []),
    ],
)
def test_an_op_without_a_call_works_on_the_cpu(
    rows: list[tuple[str, int]], stands: list[tuple[str, int]], works: list[str]
) -> None:
    assert found(*rows) == (stands, works)


def test_op_of_a_thread_without_launches_is_not_host_work() -> None:
    trace = TraceBuilder()
    trace.op(OP, 0, 150 * US)
    trace.op("aten::sort", 0, 900 * US, tid=TID + 1)
    trace.op("aten::view", 10 * US, 90 * US, tid=TID + 1)
    trace.launched((200 * US, 5 * US), (210 * US, 5 * US), 1)
    analysis = Analysis(trace.load())
    rows = analysis.index(StalledCalls).host_work
    assert analysis.trace.cpu["name"].iloc[rows].tolist() == [OP]


@pytest.mark.parametrize(("idle", "cause"), [(100, "synchronisation"), (3_000, "dispatching")])
def test_a_call_that_did_not_wait(idle: int, cause: str) -> None:
    """The device runs dry at 100 us; the call comes in the middle of the gap, the rest is dispatch."""
    start, end = 100 * US, (100 + idle) * US
    trace = TraceBuilder()
    trace.step(0, 0, 10_000 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launched((20 * US, 5 * US), (28 * US, start - 28 * US), 1)
    for at in range(
        1, idle // 2 - 1, 50
    ):  # short ops: a long one without a launch would be the CPU's own work
        trace.op("aten::flatten", start + at * US, min(50, idle // 2 - 1 - at) * US)
    trace.launch("cudaEventSynchronize", start + idle * US // 2, 2 * US, 9)
    for at in range(3, idle // 2, 50):
        trace.op("aten::add", start + (idle // 2 + at) * US, min(50, idle // 2 - at) * US)
    trace.launched((end - 8 * US, 5 * US), (end, 50 * US), 2)
    assert judged(trace)[0] == cause
