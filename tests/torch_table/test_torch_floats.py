"""Times of the table in torch's floats: counted from where the recording began, and added up as Python adds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.function_events import all_events
from traceanalyzer.torch_table.key_averages import KeyAverages, key_averages
from traceanalyzer.torch_table.printed import torch_times

TIMES = ("self_cpu", "cpu", "self_device", "device")


def floats_of(trace: TraceBuilder) -> dict[Any, Any]:
    """The columns of each row by its name."""
    return by_name(key_averages(trace.load()))


def by_name(averages: KeyAverages) -> dict[Any, Any]:
    return torch_times(averages).set_index(averages.rows["name"]).to_dict("index")


def window(trace: TraceBuilder, start_us: float) -> None:
    """The profiler's own mark of the recording."""
    lane = {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"}
    trace.event(ph="X", cat="Trace", ts=start_us, dur=500.0, **lane)


def test_times_are_counted_from_the_mark_of_the_recording() -> None:
    """100.1 - 100 is no 0.1 in floats, as 0.1 - 0 is."""
    durations = []
    for start_us in (100.0, 0.0):
        trace = TraceBuilder()
        window(trace, start_us)
        trace.op("aten::mm", 100_000, 100)
        durations.append(floats_of(trace)["aten::mm"]["cpu_us"])
    assert durations == [0.1, 100.1 - 100.0]
    assert durations[0] != durations[1]


def test_work_of_an_op_adds_up_as_pythons_sum_does() -> None:
    """0.7 + 0.2 + 0.1 is 0.9999999999999999 where rounding errors are kept."""
    trace = TraceBuilder()
    window(trace, 0.0)
    trace.op("aten::mm", 0, 50)
    for number, dur in enumerate((700, 200, 100)):
        trace.kernel(0, dur, number + 1, stream=number, external_id=1)
    times = floats_of(trace)["aten::mm"]
    assert (times["self_device_us"], times["device_us"]) == (1.0, 1.0)


def test_floats_are_the_exact_times_in_microseconds() -> None:
    """An only child of its own name lends its kernel; what is asynchronous has nothing of its own."""
    trace = TraceBuilder()
    trace.annotation("forward", 0, 1_000)
    trace.op("aten::to", 0, 100)
    trace.op("aten::to", 10, 80)
    trace.op("aten::copy_", 20, 30)
    trace.annotation("nccl:all_reduce", 200, 300)
    trace.op("aten::inner", 210, 50)
    for number, dur in enumerate((1, 2, 4, 8, 16, 32)):
        trace.kernel(2_000 + 100 * number, dur, number + 1, external_id=number + 1)
    averages = key_averages(trace.load())
    times = by_name(averages)
    exact: dict[Any, Any] = averages.rows.set_index("name").to_dict("index")
    for name, ns in {
        "forward": [1_000 - 100 - 50, 1_000, 1, 1 + 4 + 8 + 32],
        "aten::to": [100 - 30, 100, 4, 4 + 8],
        "aten::copy_": [30, 30, 8, 8],
        "nccl:all_reduce": [0, 300, 0, 0],
        "aten::inner": [50, 50, 32, 32],
    }.items():
        assert [exact[name][f"{time}_ns"] for time in TIMES] == ns
        us = [times[name][f"{time}_us"] for time in TIMES]
        assert us == pytest.approx([value / 1_000 for value in ns]), name


def test_origin_is_the_first_event_without_a_mark() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 7_000, 100)
    unmarked = all_events(trace.load(), python=False)
    assert (unmarked.origin_ns, unmarked.start_ns.tolist()) == (7_000, [7_000])
    window(trace, 5.0)
    marked = all_events(trace.load(), python=False)
    assert (marked.origin_ns, marked.start_ns.tolist()) == (5_000, [7_000])
