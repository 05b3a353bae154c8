"""Launches and work that do not find their other half."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.lost_records import LostRecords


def lost(trace: TraceBuilder) -> LostRecords:
    return Analysis(trace.load()).index(LostRecords)


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("cudaLaunchKernel", 1),
        ("cudaLaunchKernelExC", 1),
        ("cudaLaunchCooperativeKernel", 1),
        ("cuLaunchKernelEx", 1),
        ("hipModuleLaunchKernel", 1),
        ("hipExtModuleLaunchKernel", 1),
        ("cudaLaunchHostFunc", 0),
        ("cudaGraphLaunch", 0),  # one starts many
        ("cudaMemcpyAsync", 0),
    ],
)
def test_kernel_launches_are_counted_even_without_a_record(name: str, launches: int) -> None:
    trace = TraceBuilder()
    first = trace.launch(name, 0, 10, 1)
    trace.launch(name, 20, 10, 2)
    trace.kernel(40, 10, 2)
    found = lost(trace)
    assert (found.launches, found.launch.tolist()) == (2 * launches, [first] * launches)


def test_what_a_capture_launches_starts_nothing() -> None:
    """From a begin to the next end; what has no end is no capture."""
    trace = TraceBuilder()
    names = ("Launch", "BeginCapture", "Launch", "EndCapture", "Launch", "BeginCapture", "Launch")
    for number, name in enumerate(names):
        call = "cudaLaunchKernel" if name == "Launch" else f"cudaStream{name}"
        trace.launch(call, 100 * number, 10, number + 1)
    found = lost(trace)
    assert (found.launches, found.launch.tolist(), found.tail_ns) == (3, [0, 4, 6], 0)


@pytest.mark.parametrize(("work_ends", "tail_ns"), [(50, 60), (109, 1), (110, 0), (500, 0)])
def test_tail_is_from_last_work_to_last_launch(work_ends: int, tail_ns: int) -> None:
    trace = TraceBuilder()
    trace.launched((0, 10), (15, 5), 1)
    trace.kernel(20, work_ends - 20, 1)
    trace.launch("cudaLaunchKernel", 100, 10, 2)
    trace.launch("cudaDeviceSynchronize", 800, 10, 3)
    assert lost(trace).tail_ns == tail_ns


def test_work_without_launch_is_lost_behind_work_that_has_one() -> None:
    """What runs before that on its stream was queued before the recording; of a stream that has none, before that on
    all streams that have one."""
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 5, 1)
    trace.launch("cudaLaunchKernel", 10, 5, 2)
    for start, correlation, stream in (
        (20, 91, 7),
        (30, 1, 7),
        (40, 92, 7),  # lost
        (50, 93, 20),
        (60, 2, 20),
        (70, 94, 20),  # lost
        (55, 95, 30),
        (80, 96, 30),  # lost
    ):
        trace.kernel(start, 1, correlation, stream=stream)
    analysis = Analysis(trace.load())
    found = analysis.index(LostRecords)
    rows = sorted(found.entry.tolist())  # by start
    starts = sorted([20, 30, 40, 50, 60, 70, 55, 80])
    assert [starts[row] for row in rows] == [40, 70, 80]
