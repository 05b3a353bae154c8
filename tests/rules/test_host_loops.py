"""Loops on the host after a copy, and explicit waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.rules.programs import PINNED_TO_HOST, US, Program, found
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.implicit_sync import most_frequent_ops
from traceanalyzer.rules.gpu_idle.long_device_sync import timing_calls

EVENTS = [
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaEventElapsedTime",
    "INVALID",
]
OTHERS = ["cudaMalloc", "cudaEventSynchronize", "cudaGetLastError"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["b", "a", "a"], "a, b"),
        (["d", "c", "b", "a"], "a, b, c"),  # equally often
        (["d", "c", "b", "a", "d"], "d, a, b"),
        (["a"], "a"),
    ],
)
def test_three_ops_are_named_that_run_most_often(names: list[str], words: str) -> None:
    """However long each takes."""
    trace = TraceBuilder()
    for place, name in enumerate(names):
        trace.op(name, 100 * place * US, (51 - 10 * place) * US)
    calls = Analysis(trace.load()).index(Calls)
    loops: Any = SimpleNamespace(ops=lambda: (calls[calls.is_op], None))
    assert most_frequent_ops(loops) == words


@pytest.mark.parametrize(
    ("orders", "inside", "gone"),
    [("", False, EVENTS), ("cudaStreamWaitEvent", False, []), ("", True, EVENTS)],
)
def test_events_measure_time_where_no_stream_waits_for_them(
    orders: str, inside: bool, gone: list[str]
) -> None:
    """A wait of a stream within an op orders that op's own work."""
    trace = TraceBuilder()
    calls = [*EVENTS, *OTHERS, *[orders] * bool(orders)]
    for place, name in enumerate(calls):
        trace.launch(name, 10 * place * US, 5 * US, place + 1)
    if inside:
        trace.op("aten::convolution", 500 * US, 50 * US)
        for place, name in enumerate(("cudaEventRecord", "cudaStreamWaitEvent")):
            trace.launch(name, (510 + 10 * place) * US, 5 * US, 900 + place)
    every = Analysis(trace.load()).index(Calls)
    found = every[[row in timing_calls(every) for row in every.rows]]
    assert sorted(map(str, found.name.values())) == sorted(gone)


def copied(ops: int = 100, *, thread: int = TID, launches: bool = False) -> TraceBuilder:
    """Ids are copied to the host; there a tensor is made of each row, for 2 us; then kernels run again."""
    program = Program()
    for number in range(5):
        program.step(number)
        for _ in range(3):
            program.kernel()
        program.copy(PINNED_TO_HOST, 8_192, 2 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
        if launches:
            program.kernel("aten::add", 2 * US)
        at = program.now
        for place in range(ops):
            name = "aten::lift_fresh" if place % 3 else "aten::empty"
            program.trace.op(name, at + 5 * place * US, 2 * US, tid=thread)
        program.now = at + 5 * ops * US
        for _ in range(3):
            program.kernel()
    return program.trace


def test_a_loop_on_what_was_copied_belongs_to_the_copy() -> None:
    (one,) = found(copied(), "implicit-sync")
    assert (one.cause, one.count) == ("copy-to-host", 5)
    assert "a loop of short ops, mostly aten::lift_fresh, aten::empty" in one.message
    assert one.evidence["host_ns"] == pytest.approx(5 * 500 * US, rel=0.05)
    assert one.advice.startswith("Do on the device what the loop does")
    (short,) = found(copied(99), "implicit-sync")
    assert "a loop of short ops" not in short.message
    assert one.saving is not None
    assert short.saving is not None
    assert one.saving.step_ns > short.saving.step_ns + 80 * US


@pytest.mark.parametrize(
    "trace",
    [copied(thread=TID + 1), copied(launches=True)],
    ids=["another-thread", "after-a-launch"],
)
def test_other_loops_are_not_the_copys(trace: TraceBuilder) -> None:
    assert all("host_ns" not in one.evidence for one in found(trace, "implicit-sync"))
