"""Calls of events that only measure time."""

import pytest

from tests.rules.programs import US
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.long_device_sync import timing_calls

RECORDS = ["cudaEventRecord", "cudaEventRecordWithFlags"]
EVENTS = ["cudaEventCreateWithFlags", *RECORDS, "cudaEventElapsedTime", "INVALID"]
OTHERS = ["cudaMalloc", "cudaEventSynchronize", "cudaGetLastError"]


@pytest.mark.parametrize(
    ("orders", "inside", "gone"), [("", False, EVENTS), ("cudaStreamWaitEvent", False, []), ("", True, EVENTS)]
)
def test_events_measure_time_where_no_stream_waits_for_them(orders: str, inside: bool, gone: list[str]) -> None:
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
