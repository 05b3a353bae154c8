"""Gaps and their segments: what events prove is cut out, the rest is judged."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.idle.generated import has_work, traces
from tests.idle.one_gap import FIRST, LATE, LOADER, US, gap, judged, pieces, views
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import load
from traceanalyzer.idle.cause_conditions import refill
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.idle.gaps import (
    DEFAULT_DELAY_NS,
    MAX_DELAY_NS,
    Cutter,
    Evidence,
    Gaps,
    Proof,
    chained_call,
    longest_row,
)
from traceanalyzer.model import intervals
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
    trace.launched((0, 5 * US), (8 * US, 100 * US), 1)
    trace.launch("cuModuleLoadData", 110 * US, 6 * US, 9)
    trace.launched((117 * US, 5 * US), (120 * US, 10 * US), 2)
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
        trace.launched((start + 950 * US, 5 * US), (start + 960 * US, 900 * US), number + 1)
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
    trace.launched((900 * US, 5 * US), (910 * US, 10 * US), 1)
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
    ("inner", "cause"), [("aten::narrow", "dispatching"), ("aten::view", "dispatching"), ("aten::add_", "host-work")]
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
    views(trace)
    assert judged(trace) == (cause, call, op)


@pytest.mark.parametrize(
    ("call", "cause"), [("cudaStreamSynchronize", "blocking-upload"), ("cudaEventSynchronize", "synchronisation")]
)
def test_an_upload_holds_up_by_its_own_wait_only(call: str, cause: str) -> None:
    trace = gap()
    trace.op("aten::copy_", 40 * US, FIRST - 20 * US)
    trace.copied((42 * US, 2 * US), (FIRST, 1), 8, name="Memcpy HtoD (Pageable -> Device)")
    trace.launch(call, 50 * US, FIRST - 40 * US, 9)
    views(trace)
    assert judged(trace, work=2)[0] == cause


@pytest.mark.parametrize(
    ("before_ns", "took_ns", "cause"),
    [
        (100, 60 * US, "dispatching"),  # the device was dry when the copy was called: it drained nothing
        (100, 200 * US, "blocking-upload"),  # but held the CPU up for most of the gap
        (45 * US, 60 * US, "blocking-upload"),  # it waited for what ran
    ],
)
def test_copy_to_a_dry_device_explains_its_own_call(before_ns: int, took_ns: int, cause: str) -> None:
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
        trace.launched((launched, 5 * US), (launched + 8 * US, start + 20_050 * US - launched), number + 1)
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
    trace.copied((100 * US, 800 * US), (890 * US, 10 * US), 1, name="Memcpy HtoD (Pageable -> Device)")
    assert pieces(trace, work=0) == {}


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


@examples(200)
@given(spans, spans)
def test_longest_overlap_of_each(members: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    begins, lengths = (np.array([row[i] for row in members], np.int64) for i in (0, 1))
    found = intervals.union(begins, begins + lengths)
    starts, ends = np.array([s for s, _ in wanted], np.int64), np.array([s + d for s, d in wanted], np.int64)
    position, longest = intervals.longest_overlap(found, starts, ends)
    stretches = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
    for at, ns, start, end in zip(*(one.tolist() for one in (position, longest, starts, ends)), strict=True):
        overlaps = [min(b, end) - max(a, start) for a, b in stretches]
        best = max([0, *overlaps])
        assert ns == best
        assert at == (overlaps.index(best) if best else -1)


def test_gaps_know_what_ran_before_and_what_comes_next() -> None:
    trace = TraceBuilder()
    trace.kernel(10, 90, 1, stream=7)  # runs on while the next one comes and goes
    trace.kernel(20, 10, 2, stream=13)
    trace.launched((120, 10), (150, 10), 3)
    trace.kernel(155, 30, 4, device=1)
    gaps = Gaps.of(Analysis(trace.load()).index(DeviceWork), (0, 200))
    assert gaps.device.tolist() == [0, 0, 0, 1, 1]
    assert gaps.start_ns.tolist() == [0, 100, 160, 0, 185]
    assert gaps.end_ns.tolist() == [10, 150, 200, 155, 200]
    assert gaps.previous_work.tolist() == [-1, 0, 2, -1, 3]
    assert gaps.next_work.tolist() == [0, 2, -1, 3, -1]
    assert gaps.in_time.tolist() == [True, False, True, True, True]
    assert gaps.overlap_ns(gaps.launched_ns, gaps.returned_ns).tolist() == [0, 10, 0, 0, 0]


def test_the_tail_of_a_file_that_was_cut_is_not_recorded(tmp_path: Path) -> None:
    written = gap().write(tmp_path / "trace.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(written[: written.rindex(b"]")])
    whole, cut = (pieces(load(tmp_path / name), work=-1) for name in ("trace.json", "cut.json"))
    assert whole == {"tail": sum(whole.values())}
    assert cut == {"not-recorded": sum(whole.values())}


@pytest.mark.parametrize("kernel_first", [False, True])
def test_no_call_at_the_head_is_charged_for_unknown_waits(kernel_first: bool) -> None:
    """A copy's call of 80 us before the first work that was recorded: work before it would not be in the file."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    if kernel_first:
        trace.op("aten::mm", 1_000, 8_000)
        trace.launched((2_000, 5_000), (8_000, 1_000), 1)
    trace.op("aten::copy_", 10_000, 100_000)
    trace.copied((12_000, 90_000), (90_000, 10_000), 2, name="Memcpy HtoD (Pageable -> Device)")
    found = pieces(trace, work=int(kernel_first))
    assert bool({"synchronisation", "blocking-upload"} & found.keys()) is kernel_first


def test_gaps_never_touch_on_the_axis_that_they_are_cut_on() -> None:
    start, length = np.array([100, 100, 130]), np.array([20, 30, 5])
    ends: dict[str, Any] = {"start_ns": start, "end_ns": start + length, "returned_ns": start}
    gaps: Any = SimpleNamespace(dur_ns=length, call=np.array([-1, -1, -1]), **ends)
    assert Cutter(gaps).axis.tolist() == [0, 21, 52]


@pytest.mark.parametrize(
    ("before", "in_time", "calls"),
    [
        ([0, 1, 2], [False, True, True], [7, 7, 7]),  # each begins after the work of the one before
        ([0, 1, 2], [False, True, False], [7, 7, 9]),  # the third was launched late: its own call
        ([0, 5, 2], [False, True, True], [7, 8, 8]),  # the second follows other work
    ],
)
def test_gap_goes_back_to_its_chains_call(before: list[int], in_time: list[bool], calls: list[int]) -> None:
    work = {"previous_work": np.array(before), "next_work": np.array([1, 2, 3])}
    gaps: Any = SimpleNamespace(in_time=np.array(in_time), **work)
    own = np.array([7, 8, 9])
    chained = chained_call(own, gaps)
    assert np.where(chained < 0, own, chained).tolist() == calls


def test_of_rows_that_begin_together_the_outermost_counts() -> None:
    nesting: Any = SimpleNamespace(start_ns=np.array([0, 0, 50, 60]), end_ns=np.array([10, 40, 90, 70]))
    starts, ends = np.array([20, 30, 45, 95]), np.array([45, 80, 48, 99])
    for order in ([0, 1, 2, 3], [3, 1, 2, 0]):
        found = longest_row(nesting, np.array(order), starts, ends)
        assert found.tolist() == [1, 2, -1, -1]


@pytest.mark.parametrize(("ns", "whole", "taken"), [(10_000, True, 1), (9_999, True, 0), (10_000, False, 0)])
def test_real_part_is_a_tenth_or_whole_gap_without_launch(ns: int, whole: bool, taken: int) -> None:
    start, end, none = np.array([0]), np.array([100_000]), np.array([-1])
    gaps: Any = SimpleNamespace(dur_ns=end - start, start_ns=start, end_ns=end, returned_ns=none, call=none)
    gaps = type("Gaps", (SimpleNamespace,), {"__len__": lambda self: 1})(**vars(gaps))
    found = Cutter(gaps).take(Proof((start, np.array([ns])), none, np.array([True]), whole))
    assert [one.tolist() for one in found] == [[0] * taken, [0] * taken, [ns] * taken]


class _Gaps(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.device)


def test_delay_is_usual_unless_disagreeing_clocks_explain_it() -> None:
    device = np.array([0, 0, 1, 2, 3])
    launched = np.array([10, 20, 30, 40, 5])
    delay = np.array([7_000, 7_000, MAX_DELAY_NS, MAX_DELAY_NS + 1, 9_000])
    gaps = _Gaps(device=device, launched_ns=launched, start_ns=np.full(5, 5), end_ns=launched + delay)
    usual = Evidence.usual_delay_ns.func(SimpleNamespace(gaps=gaps))  # type: ignore[attr-defined, arg-type]
    assert usual.tolist() == [7_000, 7_000, MAX_DELAY_NS, DEFAULT_DELAY_NS, DEFAULT_DELAY_NS]


def test_a_gap_may_wait_for_the_call_in_the_first_row() -> None:
    evidence: Any = SimpleNamespace(waits=(None, np.array([0, -1, 4])))
    assert refill(evidence)[0].tolist() == [True, False, True]
