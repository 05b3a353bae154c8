"""Which of the CPU's and the device's time is the program's own: shares of segments, steps and threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.program import Program, _step_of, loading
from traceanalyzer.replay.sample import _pace
from traceanalyzer.replay.segments import _less_waiting, _python_calls, _stalled, rank_within
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting

US = 1_000


def timeline(*edges_us: float) -> CpuTimeline:
    """Segments from each edge to the next, of one step."""
    edges = np.array([round(edge * US) for edge in edges_us])
    none = np.full(len(edges) - 1, -1)
    return CpuTimeline(edges[:-1], edges[1:], none, none * 0, np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("start", "end", "waited", "left"),
    [
        (1_500, 4_950, 3_000, 1_000),  # waits in it from 1.5 to 4.5 ms
        (500, 4_950, 3_000, 1_500),  # in it from 1 to 3.5 ms: what it waited before is no part of the segment
        (500, 4_900, 3_000, 1_500),  # the CPU goes on within 0.1 ms of its end
        (500, 4_899.999, 3_000, 4_000),
        (1_500, 4_950, 1_000, 3_000),
        (1_500, 4_950, 999.999, 4_000),  # the CPU may be busy so long by chance
        (0, 4_950, 1_000, 4_000),  # all of the waiting was before
        (1_000, 4_950, 9_000, 0),
    ],
)
def test_the_cpu_waited_in_a_segment_that_ends_with_a_collective(
    start: float, end: float, waited: float, left: float
) -> None:
    """From 1 to 5 ms, between two others."""
    waiting: Any = SimpleNamespace(waiting_ns=np.array([round(waited * US)]), entry=np.zeros(1, np.int64))
    work: Any = SimpleNamespace(start_ns=np.array([round(start * US)]), end_ns=np.array([round(end * US)]))
    took = np.array([1_000.0, 4_000.0, 1_000.0]) * US
    found = _less_waiting(took, work, timeline(0, 1_000, 5_000, 6_000), waiting)
    assert found.tolist() == [1_000 * US, left * US, 1_000 * US]


@pytest.mark.parametrize(("until_us", "stalled_us"), [(191, 91), (190, 0), (400, 100)])
def test_buffer_request_stalls_the_segment_that_contains_it(until_us: int, stalled_us: int) -> None:
    """From 100 to 200 us; a row of another kind stalls none."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 10 * US)
    trace.overhead("Activity Buffer Request", 100 * US, 100 * US)
    trace.overhead("Resource", 20 * US, 50 * US)
    analysis = Analysis(trace.load())
    found = _stalled(analysis.trace, analysis.index(Nesting), timeline(0, 80, until_us, 500))
    assert found.tolist() == [0, stalled_us * US, 0]


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (["f.py(1): f"] * 4, [2.5, 1.5]),  # the third lies half in either
        (
            ["<built-in function perf_counter>"] * 4,
            [0, 0],
        ),  # a loop that looks at the clock lasts as long as ever
        (["<built-in function perf_counter>", "f.py(1): f"] * 2, [0, 1.5]),  # where most do
    ],
)
def test_python_calls_are_counted_where_they_are_recorded(names: list[str], counted: list[float]) -> None:
    trace = TraceBuilder(with_stack=1)
    for number, (name, start, end) in enumerate(
        zip(names, (10, 80, 90, 200), (20, 90, 110, 300), strict=True)
    ):
        trace.python(name, start * US, (end - start) * US, python_id=number)
    trace.python("f.py(9): g", 900 * US, 10 * US, python_id=9)
    found = _python_calls(trace.load(), timeline(5, 100, 400))
    assert found.tolist() == counted


def test_instants_within_the_steps() -> None:
    at = np.array([9, 10, 19, 20, 25, 30, 39, 40])
    step = _step_of(at, np.array([10, 30]), np.array([20, 40]))
    assert (at[step >= 0].tolist(), step[step >= 0].tolist()) == ([10, 19, 30, 39], [0, 0, 1, 1])
    segments = timeline(10, 20, 40)
    assert segments.at(np.array([5, 10, 19, 20, 90]) * US).tolist() == [0, 0, 0, 1, 1]


def test_waiting_for_data_is_that_of_threads_that_launch() -> None:
    trace = TraceBuilder()
    for tid, at in ((TID, 100), (TID + 1, 300)):
        trace.annotation("enumerate(DataLoader)#_Iter.__next__", at, 50, tid=tid)
    trace.launch("cudaLaunchKernel", 0, 5, 1)
    trace.kernel(10, 5, 1)
    analysis = Analysis(trace.load())
    found = loading(analysis.trace, analysis.index(Nesting), analysis.index(DeviceWork))
    assert [side.tolist() for side in found] == [[100], [150]]


def test_step_is_at_least_the_busiest_streams_compute() -> None:
    """Two halves of a step, which have 300 and 250 ns on two streams; communication may wait."""
    work = SimpleNamespace(
        communication=np.array([False, False, True, False]), dur_ns=np.array([100.0, 200.0, 900.0, 250.0]),
        stream=np.array([0, 0, 0, 1]),
    )  # fmt: skip

    class Sample:
        part = 0.5

        def __len__(self) -> int:
            return 2

    program: Any = SimpleNamespace(work=work, sample=Sample())
    assert Program.least_gpu_ns.fget(program) == 300  # type: ignore[attr-defined]


@pytest.mark.parametrize(("rows", "pace"), [(100, 1.0), (99, 0.0)])
def test_the_pace_of_a_step_is_its_mean_without_stalls(rows: int, pace: float) -> None:
    """However many they are up to a tenth, and wherever; of a few rows it tells nothing."""
    apart = np.ones(rows, np.int64)
    apart[::10] = 10_000
    assert _pace(apart) == pace


def test_places_within_groups_that_come_in_runs_or_not() -> None:
    assert rank_within(np.array([3, 3, 1, 3, 1, 0])).tolist() == [0, 1, 0, 2, 1, 0]
