"""Loops on the host: the ops that are named, and what calls of a time measurement go with a wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.rules.launches import US
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.implicit_sync import most_frequent_ops
from traceanalyzer.rules.gpu_idle.long_device_sync import timing_calls


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


EVENTS = [
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaEventElapsedTime",
    "INVALID",
]
OTHERS = ["cudaMalloc", "cudaEventSynchronize", "cudaGetLastError"]


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
