"""Device work, what is outstanding, and when devices are busy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given

from tests.idle.generated import has_work, traces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.timeline.device_work import Busy, DeviceWork, find


def test_find_gives_the_first_position_and_matches_no_null() -> None:
    keys = np.array([5, NULL_INT, 3, 5])
    assert find(keys, np.array([5, 3, 4, NULL_INT])).tolist() == [0, 2, -1, -1]
    assert find(np.empty(0, np.int64), np.array([1])).tolist() == [-1]


def test_work_is_joined_to_its_call_and_op() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 50)
    call = trace.launch("cudaLaunchKernel", 10, 5, 1)
    trace.kernel(12, 30, 1)
    work = Analysis(trace.load()).index(DeviceWork)
    assert (work.call[0], work.op[0]) == (call, op)
    assert (work.call_start_ns[0], work.call_end_ns[0], work.delay_ns[0]) == (10, 15, 2)
    assert not work.shared[0]


def test_a_graph_launch_is_shared_and_a_lost_one_is_null() -> None:
    trace = TraceBuilder()
    call = trace.launch("cudaGraphLaunch", 0, 5, 1)
    trace.kernel(10, 5, 1)
    trace.kernel(20, 5, 1)
    trace.kernel(30, 5, 2)
    work = Analysis(trace.load()).index(DeviceWork)
    assert work.call.tolist() == [call, call, -1]
    assert work.shared.tolist() == [True, True, False]
    assert work.delay_ns.tolist() == [10, 20, NULL_INT]


def test_unlinked_work_belongs_to_the_op_of_its_external_id() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 50, external_id=77)
    trace.kernel(12, 30, 1, external_id=77)
    assert Analysis(trace.load()).index(DeviceWork).op.tolist() == [op]


def test_work_of_no_device_counts_as_the_first_ones() -> None:
    """Neither its args nor its process say which; the work is not lost, and no second device appears."""
    trace = TraceBuilder()
    trace.kernel(0, 50, 1)
    trace.span("kernel", "nowhere", 60, 30, "somewhere", 7, {"correlation": 2})
    work = Analysis(trace.load()).index(DeviceWork)
    assert work.device.tolist() == [0, 0]


@examples(80)
@given(traces())
def test_outstanding_work_is_launched_and_not_finished(trace: TraceBuilder) -> None:
    assume(has_work(trace))
    work = Analysis(trace.load()).index(DeviceWork)
    for i in range(len(work.row)):
        if work.call[i] < 0:
            assert work.outstanding[i] == -1
            continue
        own = work.device == work.device[i]
        mine = own & (work.call >= 0)
        earlier = own & (work.call < 0) & (work.start_ns < work.start_ns[mine].min())
        before = sum(mine & (work.call_start_ns < work.call_start_ns[i])) + sum(earlier)
        finished = sum((mine | earlier) & (work.end_ns <= work.call_start_ns[i]))
        assert work.outstanding[i] == max(before - finished, 0)


@pytest.mark.parametrize(("launched", "outstanding"), [(99, 1), (100, 0)])
def test_work_that_ends_as_the_next_is_launched_is_finished(launched: int, outstanding: int) -> None:
    trace = TraceBuilder()
    trace.launched((0, 5), (10, 90), 1)
    trace.launched((launched, 5), (200, 10), 2)
    assert Analysis(trace.load()).index(DeviceWork).outstanding.tolist() == [0, outstanding]


def test_prerecorded_launches_are_outstanding_until_they_end() -> None:
    """It fills the launch queue, though the trace has no launch of it."""
    trace = TraceBuilder()
    trace.kernel(0, 90, 1)
    trace.kernel(90, 100, 2)
    trace.launched((100, 5), (200, 10), 3)
    trace.kernel(210, 10, 4)  # its launch was lost: nobody knows when it was
    trace.launched((205, 5), (220, 10), 5)
    assert Analysis(trace.load()).index(DeviceWork).outstanding.tolist() == [-1, -1, 1, -1, 1]


def test_a_trace_without_work_says_so() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50)
    with pytest.raises(Unavailable, match="no kernels"):
        Analysis(trace.load()).index(DeviceWork)


def test_idle_time_is_the_devices_and_not_the_sum_of_its_streams() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 100, 1, stream=7)
    trace.kernel(50, 100, 2, stream=13)
    trace.gpu_annotation("ProfilerStep#1", 0, 1_000, external_id=5)
    busy = Analysis(trace.load()).index(Busy)
    assert [(a.tolist(), b.tolist()) for a, b in (busy.devices[0], busy.gaps(0, -10, 200))] == [
        ([0], [150]),
        ([-10, 150], [0, 200]),
    ]


def test_ties_are_broken_by_what_the_work_is() -> None:
    """Same instant, device and stream: by launch, duration and name, in whatever order the file has them."""
    trace = TraceBuilder()
    for name, dur, correlation in (("b", 0, 1), ("a", 0, 2), ("a", 10, 3)):
        trace.kernel(100, dur, correlation, name=name)
    for seed in range(6):
        loaded = trace.shuffled(seed).load()
        work = Analysis(loaded).index(DeviceWork)
        names = loaded.gpu["name"].astype(str).to_numpy()[work.row]
        assert list(zip(names, (work.end_ns - work.start_ns).tolist(), strict=True)) == [
            ("a", 0),
            ("b", 0),
            ("a", 10),
        ]
