"""A gap is told in pieces: what events prove is cut out and costs what they cover, the rest has another cause."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given

from tests.idle.generated import has_work, traces
from tests.idle.one_gap import FIRST, LATE, LOADER, US, gap, judged, pieces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.idle.gaps import Gaps
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import StepMarks


@examples(150)
@given(traces())
def test_pieces_tile_their_gaps(trace: TraceBuilder) -> None:
    assume(has_work(trace))
    analysis = Analysis(trace.load())
    idle, work = analysis.index(Idle), analysis.index(DeviceWork)
    gaps = Gaps.of(work, analysis.index(StepMarks).whole_ns)
    assert np.unique(idle.gap).tolist() == list(range(len(gaps)))
    assert (idle.dur_ns > 0).all()
    for number in range(len(gaps)):
        own = np.flatnonzero(idle.gap == number)
        assert idle.start_ns[own[0]] == gaps.start_ns[number]
        assert idle.end_ns[own[-1]] == gaps.end_ns[number]
        assert all(idle.end_ns[a] == idle.start_ns[b] for a, b in pairwise(own))
        assert (idle.device[own] == gaps.device[number]).all()
    assert idle.gap_dur_ns.tolist() == gaps.dur_ns[idle.gap].tolist()


def test_a_buffer_request_costs_what_it_took() -> None:
    trace = gap(launched=FIRST + 300 * US, dur=LATE - FIRST - 302 * US)
    trace.overhead("Activity Buffer Request", FIRST + 310 * US, 400 * US)
    assert pieces(trace) == {
        "profiler-overhead": 400 * US,
        "host-code": 302 * US,  # before the op
        "long-call": 198 * US,  # what else the launch took
    }


def test_a_part_below_a_tenth_and_20_us_stays_with_the_rest() -> None:
    trace = gap()
    trace.launch("cuModuleLoadData", FIRST + 20 * US, 19 * US, 9)
    assert pieces(trace) == {"host-code": 900 * US}
    trace.launch("cuModuleGetFunction", FIRST + 60 * US, 1 * US, 10)
    assert pieces(trace) == {"module-loading": 20 * US, "host-code": 880 * US}


def test_half_of_a_short_gap_is_a_real_part() -> None:
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 5 * US, 1)
    trace.kernel(8 * US, 100 * US, 1)
    trace.launch("cuModuleLoadData", 110 * US, 6 * US, 9)
    trace.launch("cudaLaunchKernel", 117 * US, 5 * US, 2)
    trace.kernel(120 * US, 10 * US, 2)
    assert pieces(trace)["module-loading"] == 6 * US


def test_what_one_cause_has_taken_the_next_cannot_take() -> None:
    """In the order of the table: the profiler inside a loader, a compiler inside it, an allocator call inside that."""
    trace = gap()
    trace.annotation(LOADER, FIRST + 10 * US, 600 * US)
    trace.op("dynamo", FIRST + 300 * US, 500 * US)
    trace.launch("cudaMalloc", FIRST + 700 * US, 150 * US, 9)
    trace.op("aten::view", FIRST + 100 * US, 60 * US)
    trace.overhead("Activity Buffer Request", FIRST + 105 * US, 50 * US)
    assert pieces(trace) == {
        "profiler-overhead": 50 * US,
        "data-loading": 550 * US,
        "compilation": 190 * US,
        "first-use": 50 * US,
        "host-code": 60 * US,
    }


@pytest.mark.parametrize(
    ("category", "name", "cause"),
    [
        ("overhead", "Activity Buffer Request", "profiler-overhead"),
        ("user_annotation", LOADER, "data-loading"),
        ("cpu_op", "dynamo", "compilation"),
        ("cuda_runtime", "cuModuleLoadData", "module-loading"),
    ],
)
def test_allocator_calls_in_every_step_belong_to_their_caller(category: str, name: str, cause: str) -> None:
    """The allocator has what lies outside of it only: whoever loads or compiles is asked to, not to allocate less."""
    trace = TraceBuilder()
    for number in range(4):
        start = number * 2_000 * US
        trace.step(number, start, 2_000 * US)
        trace.span(category, name, start + 100 * US, 700 * US, 1000, 1000, {})
        trace.launch("cudaMalloc", start + 120 * US, 600 * US, 80 + number)
        trace.launch("cudaMalloc", start + 810 * US, 100 * US, 90 + number)
        trace.launch("cudaLaunchKernel", start + 950 * US, 5 * US, number + 1)
        trace.kernel(start + 960 * US, 900 * US, number + 1)
    found = pieces(trace, work=2)
    assert found["allocator"] == 100 * US
    assert found[cause] >= 600 * US


def test_cpu_after_the_launch_returned_is_ignored() -> None:
    trace = gap(launched=FIRST + 10 * US, dur=5 * US)
    trace.launch("cudaMalloc", FIRST + 100 * US, 600 * US, 9)
    assert set(pieces(trace)) == {"unknown"}


@pytest.mark.parametrize(
    ("begin", "end"),
    [("cudaStreamBeginCapture", "cudaStreamEndCapture"), ("hipStreamBeginCapture", "hipStreamEndCapture")],
)
def test_a_graph_capture_is_a_phase_of_its_own(begin: str, end: str) -> None:
    trace = gap()
    trace.launch(begin, FIRST + 100 * US, 5 * US, 90)
    for i in range(50):
        trace.op("aten::mul", FIRST + (110 + 10 * i) * US, 9 * US)
        trace.launch("cudaLaunchKernel", FIRST + (112 + 10 * i) * US, 5 * US, 100 + i)
    trace.launch(end, FIRST + 650 * US, 50 * US, 91)
    trace.launch("cudaGraphInstantiate", FIRST + 710 * US, 80 * US, 92)
    assert pieces(trace) == {"graph-capture": (600 + 80) * US, "host-code": 220 * US}


def test_a_capture_at_the_tail_is_no_tail() -> None:
    trace = gap()
    trace.launch("cudaStreamBeginCapture", LATE + 100 * US, 5 * US, 90)
    trace.launch("cudaLaunchKernel", LATE + 200 * US, 5 * US, 100)
    trace.launch("cudaStreamEndCapture", LATE + 600 * US, 50 * US, 91)
    assert pieces(trace, work=-1) == {"tail": 400 * US, "graph-capture": 550 * US}


def test_launches_without_work_at_the_tail_are_not_recorded() -> None:
    trace = gap()
    trace.launch("cudaLaunchKernel", LATE + 150 * US, 5 * US, 100)
    trace.launch("cudaLaunchKernel", LATE + 350 * US, 5 * US, 101)
    assert pieces(trace, work=-1) == {"tail": 100 * US, "not-recorded": 850 * US}


def test_a_wait_at_the_head_is_the_recordings_edge() -> None:
    """What it waited for is not in the file: the device is known to be idle from its return on."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launch("cudaStreamSynchronize", 50 * US, 700 * US, 9)
    for i in range(5):
        trace.op("aten::mm", (760 + 30 * i) * US, 29 * US)
    trace.launch("cudaLaunchKernel", 900 * US, 5 * US, 1)
    trace.kernel(910 * US, 10 * US, 1)
    assert sum(pieces(trace, work=0).values()) == 160 * US
    assert not {"unknown", "synchronisation"} & set(pieces(trace, work=0))


@pytest.mark.parametrize("names", [["aten::normal_"], ["aten::randn", "aten::clamp"]])
def test_an_op_that_computes_on_the_cpu_is_host_work(names: list[str]) -> None:
    trace = gap()
    for i, name in enumerate(names):
        trace.op(name, FIRST + (50 + 400 * i) * US, 390 * US)
    assert pieces(trace)["host-work"] == 390 * US * len(names)
    idle = Analysis(trace.load()).index(Idle)
    proven = idle.cause == CAUSES.index("host-work")
    assert idle.row[proven].tolist() == idle.op[proven].tolist() == [4 + 1 + i for i in range(len(names))]


def test_an_op_that_launches_is_not() -> None:
    trace = gap()
    for i in range(2):  # twice, so that its standing still is usual
        trace.op("aten::normal_", FIRST + (50 + 350 * i) * US, 300 * US)
        trace.launch("cudaLaunchKernel", FIRST + (60 + 350 * i) * US, 5 * US, 50 + i)
        trace.launch("cudaFuncGetAttributes", FIRST + (70 + 350 * i) * US, 1 * US, 60 + i)
    assert pieces(trace) == {"dispatching": 900 * US}


@pytest.mark.parametrize("name", ["Torch-Compiled Region: 0/0", "TorchDynamo Cache Lookup", "aten::empty"])
def test_running_compiled_code_and_allocating_is_no_host_work(name: str) -> None:
    trace = gap()
    trace.op(name, 1_100 * US, 700 * US)
    trace.op(name, FIRST + 50 * US, 700 * US)
    assert pieces(trace) == {"dispatching": 900 * US}


@pytest.mark.parametrize(
    ("inner", "cause"),
    [("aten::narrow", "dispatching"), ("aten::view", "dispatching"), ("aten::add_", "host-work")],
)
def test_an_op_that_only_makes_views_does_not_compute(inner: str, cause: str) -> None:
    trace = gap()
    trace.op("aten::unflatten_list", FIRST + 50 * US, 800 * US)
    for i in range(16):
        trace.op(inner, FIRST + (55 + 48 * i) * US, 40 * US)
    assert max(pieces(trace).items(), key=lambda one: one[1])[0] == cause


@pytest.mark.parametrize(
    ("op", "call", "cause"),
    [
        ("aten::cudnn_convolution", "cudaEventSynchronize", "autotuning"),
        ("aten::miopen_convolution", "hipEventSynchronize", "autotuning"),
        ("aten::cudnn_convolution", "cudaStreamSynchronize", "synchronisation"),
        ("aten::item", "cudaEventSynchronize", "synchronisation"),
    ],
)
def test_waiting_for_an_event_in_a_convolution_is_autotuning(op: str, call: str, cause: str) -> None:
    trace = gap()
    trace.op(op, 40 * US, FIRST - 20 * US)
    trace.launch(call, 50 * US, FIRST - 40 * US, 9)
    for i in range(5):
        trace.op("aten::view", FIRST + 50 * US + i * 170 * US, 120 * US)
    assert judged(trace) == (cause, call, op)


@pytest.mark.parametrize(
    ("call", "cause"),
    [("cudaStreamSynchronize", "blocking-upload"), ("cudaEventSynchronize", "synchronisation")],
)
def test_an_upload_holds_up_by_its_own_wait_only(call: str, cause: str) -> None:
    trace = gap()
    trace.op("aten::copy_", 40 * US, FIRST - 20 * US)
    trace.launch("cudaMemcpyAsync", 42 * US, 2 * US, 8)
    trace.memcpy(FIRST, 1, 8, name="Memcpy HtoD (Pageable -> Device)")
    trace.launch(call, 50 * US, FIRST - 40 * US, 9)
    for i in range(5):
        trace.op("aten::view", FIRST + 50 * US + i * 170 * US, 120 * US)
    assert judged(trace, work=2)[0] == cause


@pytest.mark.parametrize(
    ("before_ns", "took_ns", "cause"),
    [
        (100, 60 * US, "dispatching"),  # the device was dry when the copy was called: it drained nothing
        (100, 200 * US, "blocking-upload"),  # but held the CPU up for most of the gap
        (45 * US, 60 * US, "blocking-upload"),  # it waited for what ran
    ],
)
def test_a_copy_to_a_dry_device_explains_what_its_own_call_takes(
    before_ns: int, took_ns: int, cause: str
) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    trace.launch("hipLaunchKernel", 1 * US, 5 * US, 1)
    trace.kernel(5 * US, before_ns, 1)
    trace.op("aten::copy_", 38 * US, took_ns + 4 * US)
    trace.launch("hipMemcpyWithStream", 40 * US, took_ns, 2)
    trace.memcpy(55 * US, 20 * US, 2, name="Memcpy HtoD (Host -> Device)")
    trace.op("aten::linear", 44 * US + took_ns, 310 * US - took_ns)
    trace.launch("hipLaunchKernel", 340 * US, 5 * US, 3)
    trace.kernel(350 * US, 20 * US, 3)
    assert judged(trace, work=2)[0] == cause


def test_library_start_in_a_thrashing_loop_is_first_use() -> None:
    trace = TraceBuilder()
    for number in range(6):
        start = number * 20_000 * US
        trace.step(number, start, 20_000 * US)
        long = 10_000 if number == 0 else 200
        trace.launch("cudaFree", start + 100 * US, long * US, 90 + number)
        launched = start + (long + 150) * US
        trace.launch("cudaLaunchKernel", launched, 5 * US, number + 1)
        trace.kernel(launched + 8 * US, start + 20_050 * US - launched, number + 1)
    assert judged(trace, work=0)[0] == "first-use"
    assert all(judged(trace, work=number)[0] == "allocator" for number in range(1, 6))


def test_without_steps_calls_that_go_on_recur() -> None:
    trace = TraceBuilder()
    for i in range(40):
        start = i * 1_000 * US
        trace.launch("hipFree", start, 500 * US, 100 + i)
        trace.launch("hipLaunchKernel", start + 510 * US, 5 * US, i + 1)
        trace.kernel(start + 520 * US, 400 * US, i + 1)
    assert {judged(trace, work=i)[0] for i in range(1, 40)} == {"allocator"}
    once = TraceBuilder()
    for event in trace.events:
        if event["name"] != "hipFree" or event["ts"] < 3_000:
            once.events.append(event)
    assert judged(once, work=1)[0] == "first-use"


def test_copy_that_is_first_work_waited_for_earlier_work() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.op("aten::copy_", 90 * US, 820 * US)
    trace.launch("cudaMemcpyAsync", 100 * US, 800 * US, 1)
    trace.memcpy(890 * US, 10 * US, 1, name="Memcpy HtoD (Pageable -> Device)")
    assert pieces(trace, work=0) == {}
