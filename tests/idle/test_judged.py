"""What the rest of a gap is charged to, what recurs, and the known causes of shared traces."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.idle.books import Books
from tests.idle.one_gap import FIRST, LATE, US, gap, judged, pieces, views
from tests.support.cached_reports import analysed
from tests.support.paths import shared_names
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.idle.stalled_calls import recurring_calls, standing_out
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import StepMarks


@pytest.mark.parametrize(("back", "cause"), [(False, "blocking-upload"), (True, "synchronisation")])
def test_op_that_copies_both_ways_waits_for_its_read_back(back: bool, cause: str) -> None:
    trace = gap()
    trace.op("aten::copy_", 40 * US, FIRST - 20 * US)
    trace.copied((42 * US, 2 * US), (FIRST, 1), 8, name="Memcpy HtoD (Pageable -> Device)")
    if back:
        trace.copied((45 * US, 2 * US), (FIRST + 1, 1), 7, name="Memcpy DtoH (Device -> Pinned)")
    trace.launch("cudaStreamSynchronize", 50 * US, FIRST - 40 * US, 9)
    views(trace)
    assert judged(trace, work=2 + back)[0] == cause


@pytest.mark.parametrize(
    ("waited_at", "linked", "cause"),
    [
        (40, True, "waiting"),  # since the work before was launched
        (5, True, "unknown"),  # what came before that wait was over
        (40, False, "unknown"),  # nobody knows when the work before was launched
    ],
)
def test_work_waits_for_an_event_since_the_last_launch(waited_at: int, linked: bool, cause: str) -> None:
    """Launched while the device was busy, and started long after."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launched((1 * US, 2 * US), (4 * US, 2 * US), 5)
    trace.launch("cudaStreamWaitEvent", waited_at * US, 1 * US, 9)
    if linked:
        trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, FIRST - 28 * US, 1)
    trace.launched((60 * US, 5 * US), (LATE, 50 * US), 2)
    assert judged(trace, work=2)[0] == cause


@pytest.mark.parametrize(("held_us", "cause"), [(200, "host-code"), (520, "unknown")])
def test_delay_after_a_late_launch_counts_if_most_of_the_gap(held_us: int, cause: str) -> None:
    """Thirty others started 4 us after their launches: that is the usual delay."""
    trace = TraceBuilder()
    trace.step(0, 0, 5_000 * US)
    for i in range(30):
        trace.launched((20 * i * US, 2 * US), ((20 * i + 4) * US, 6 * US), i + 1)
    trace.launched(((1_600 - held_us) * US, 2 * US), (1_600 * US, 50 * US), 99)
    assert judged(trace, work=30)[0] == cause


@pytest.mark.parametrize(("ends_us", "row"), [(880, "aten::sum"), (884, "cudaLaunchKernel")])
def test_gap_belongs_to_the_op_before_the_launch_or_launching(ends_us: int, row: str) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launched((1 * US, 2 * US), (4 * US, 90 * US), 1)
    trace.op("aten::norm", 90 * US, 800 * US)
    trace.op("aten::sum", 91 * US, (ends_us - 91) * US)
    for i in range(70):
        trace.op("aten::view", (100 + 11 * i) * US, 10 * US)
    trace.launched((881 * US, 2 * US), (886 * US, 50 * US), 2)
    assert judged(trace)[:2] == ("dispatching", row)


@pytest.mark.parametrize("recorded", [True, False])
def test_launches_to_another_device_leave_nothing_unrecorded(recorded: bool) -> None:
    """One device is done; what is launched after that runs on the other one, or is not in the file."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, device in ((1, 0), (2, 1)):
        trace.launched((number * 10 * US, 5 * US), (100 * US, 100 * US), number, device=device)
    trace.launch("cudaLaunchKernel", 300 * US, 5 * US, 3)
    if recorded:
        trace.kernel(310 * US, 690 * US, 3, device=1)
    found = pieces(trace, work=-1)
    assert ("not-recorded" in found) is not recorded
    assert "tail" in found


@pytest.mark.parametrize(("gap_us", "charged"), [(200, True), (201, False)])
def test_call_that_found_the_device_idle_explains_short_gaps(gap_us: int, charged: bool) -> None:
    """It began 20 us after the device ran dry and took 20 us; an op fills the rest."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launched((1 * US, 2 * US), (4 * US, 96 * US), 1)
    trace.op("aten::item", 118 * US, 24 * US)
    trace.launch("cudaStreamSynchronize", 120 * US, 20 * US, 9)
    for at in range(143, 90 + gap_us, 10):
        trace.op("aten::view", at * US, 9 * US)
    trace.launched(((94 + gap_us) * US, 3 * US), ((100 + gap_us) * US, 50 * US), 2)
    assert (judged(trace)[0] == "synchronisation") is charged


@pytest.mark.parametrize(
    ("launched_us", "sync_us", "refill"),
    [
        (90, 95, True),  # launched in time, and the call waits for it
        (90, 131, False),  # the call came when the copy had begun
        (120, 123, False),  # the CPU came late: the device had run dry before
    ],
)
def test_copy_to_host_is_awaited_by_earlier_call(launched_us: int, sync_us: int, refill: bool) -> None:
    """The device idles from 100 to 130 us."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    trace.launched((1 * US, 2 * US), (4 * US, 96 * US), 1)
    trace.copied((launched_us * US, 2 * US), (130 * US, 40 * US), 2, name="Memcpy DtoH (Device -> Pinned)")
    trace.launch("cudaStreamSynchronize", sync_us * US, (175 - sync_us) * US, 9)
    trace.launched((200 * US, 2 * US), (204 * US, 96 * US), 3)
    assert (judged(trace)[:2] == ("synchronisation", "cudaStreamSynchronize")) is refill


@pytest.mark.parametrize(
    ("name", "cause"),
    [("Memcpy HtoD (Pageable -> Device)", "blocking-upload"), ("Memcpy DtoH (Device -> Pageable)", "synchronisation")],
)
def test_a_call_that_copies_outside_any_op_holds_up_by_itself(name: str, cause: str) -> None:
    trace = gap()
    trace.launch("cudaMemcpy", 40 * US, FIRST - 20 * US, 8)
    trace.memcpy(FIRST, 1, 8, name=name)
    views(trace)
    assert judged(trace, work=2)[:2] == (cause, "cudaMemcpy")


@pytest.mark.parametrize(
    ("spikes", "leading", "alone"),
    [([0], True, True), ([0, 1], True, False), ([2], False, True), ([0, 2], False, False)],
)
def test_the_leading_third_of_seven_steps_is_two(spikes: list[int], leading: bool, alone: bool) -> None:
    ns = np.array([1_000 if step in spikes else 10 for step in range(7)])
    found_leading, found_alone = standing_out(np.zeros(7, np.int64), np.arange(7), ns, 7, 5.0)
    assert np.flatnonzero(found_leading).tolist() == (spikes if leading else [])
    assert np.flatnonzero(found_alone).tolist() == (spikes if alone else [])


def test_five_times_the_median_does_not_stand_out_yet() -> None:
    for first_ns, expected in ((51, [0]), (50, [])):
        ns = np.array([first_ns, 10, 10, 10])
        _, alone = standing_out(np.zeros(4, np.int64), np.arange(4), ns, 4, 5.0)
        assert np.flatnonzero(alone).tolist() == expected


def recurring(trace: TraceBuilder) -> list[bool]:
    """Of the cudaMalloc calls of a trace, which recur."""
    analysis = Analysis(trace.load())
    names = analysis.trace.cpu["name"].astype(str).to_numpy()
    rows = np.flatnonzero(names == "cudaMalloc")
    parts = (analysis.index(kind) for kind in (Nesting, StepMarks, DeviceWork))
    return recurring_calls(analysis.trace, *parts, rows).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("in_steps", "recur"),
    [
        ([0, 1], False),  # the leading third
        ([2], False),  # one of four later steps
        ([2, 4], True),  # half of them
        ([0, 3, 5], True),
    ],
)
def test_calls_recur_that_half_of_the_later_steps_have(in_steps: list[int], recur: bool) -> None:
    trace = TraceBuilder()
    for number in range(6):
        start = number * 1_000 * US
        trace.step(number, start, 1_000 * US)
        if number in in_steps:
            trace.launch("cudaMalloc", start + 10 * US, 50 * US, 90 + number)
        trace.launched((start + 100 * US, 5 * US), (start + 110 * US, 800 * US), number + 1)
    assert recurring(trace) == [recur] * len(in_steps)


def test_without_steps_first_run_of_the_last_kernel_is_start() -> None:
    """What comes before the next launch is in none of the quarters; with it two of them would have an allocation."""
    trace = TraceBuilder()
    for i in range(9):
        if i in (1, 3):
            trace.launch("cudaMalloc", i * 1_000 * US, 50 * US, 100 + i)
        trace.launch("cudaLaunchKernel", (i * 1_000 + 100) * US, 5 * US, i + 1)
        trace.kernel((i * 1_000 + 110) * US, 800 * US, i + 1, name=f"kernel_{min(i, 1)}")
    assert recurring(trace) == [False, False]


@pytest.mark.parametrize(("fresh", "recur"), [(4, True), (40, False)])
def test_without_steps_they_recur_when_the_kernels_have_run_once(fresh: int, recur: bool) -> None:
    """Forty launches, a call before each; `fresh` of the kernels are new, the first ones."""
    trace = TraceBuilder()
    for i in range(40):
        trace.launch("cudaMalloc", i * 1_000 * US, 50 * US, 100 + i)
        trace.launch("cudaLaunchKernel", (i * 1_000 + 100) * US, 5 * US, i + 1)
        trace.kernel((i * 1_000 + 110) * US, 800 * US, i + 1, name=f"kernel_{min(i, fresh)}")
    assert recurring(trace) == [recur] * 40


Shared = Callable[[str], Path]

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
RECORDED_ON_H200 = ("pairs/", "real/", "ddp/", "seeds/")


@pytest.mark.parametrize(
    ("pair", "cause", "ops"),
    [
        ("dataloader", "data-loading", {LOADER}),
        ("python_between", "python", {None}),
        ("launch_bound", "dispatching", {"aten::mul", "aten::add"}),
        ("optimizer_loop", "dispatching", {"aten::mul_"}),
        ("device_sync", "synchronisation", {"cudaDeviceSynchronize"}),
        ("nonzero", "synchronisation", {"aten::index"}),
        ("cpu_roundtrip", "synchronisation", {"aten::to"}),
        ("recompile", "compilation", {"dynamo"}),
        ("gc_pause", "host-code", {None}),
        ("graph_break", "dispatching", {"aten::linear"}),
    ],
)
def test_dominant_cause_and_op(shared: Shared, pair: str, cause: str, ops: set[str | None]) -> None:
    books = Books.within(analysed(shared(f"pairs/{pair}.bad")))
    assert books.dominant_cause() == cause
    assert books.dominant()[0] == cause
    assert books.dominant()[1] in ops


def test_no_op_is_open_while_garbage_is_collected(shared: Shared) -> None:
    books = Books.within(analysed(shared("pairs/gc_pause.bad")))
    trace = books.trace
    nesting = books.analysis.index(Nesting)
    pauses = np.flatnonzero(books.idle.dur_ns > 100_000_000)
    pauses = pauses[books.idle.cause[pauses] == CAUSES.index("host-code")]
    assert len(pauses) == len(books.steps) - 1  # the last one has no work behind it: the tail
    ops = nesting.op == np.arange(len(trace.cpu))
    for start, end in zip(books.idle.start_ns[pauses], books.idle.end_ns[pauses], strict=True):
        inside = np.minimum(nesting.end_ns[ops], end) - np.maximum(nesting.start_ns[ops], start)
        assert inside.max() < 0.001 * (end - start)


def test_part_of_the_optimizer_loop_is_the_profilers(shared: Shared) -> None:
    parts = Books.within(analysed(shared("pairs/optimizer_loop.bad"))).parts(0)
    request_and_flush = 2.0e6
    assert parts["idle:profiler-overhead"] == pytest.approx(request_and_flush, rel=0.05)


@pytest.mark.parametrize("name", ["clean_gemm.fixed", "clean_train.fixed", "fp32_gemm.bad", "low_occupancy.bad"])
def test_busy_traces_are_hardly_idle(shared: Shared, name: str) -> None:
    assert Books.within(analysed(shared(f"pairs/{name}"))).idle_share(0) < 0.05


def test_gaps_between_the_kernels_of_a_graph_are_in_it(shared: Shared) -> None:
    books = Books.within(analysed(shared("pairs/launch_bound.fixed")))
    trace = books.trace
    idle, work = books.idle, books.analysis.index(DeviceWork)
    both = (idle.work >= 0) & (idle.before >= 0)
    call, before = work.call[idle.work[both]], work.call[idle.before[both]]
    within = (call == before) & (call >= 0) & (trace.cpu["name"].to_numpy()[call] == "cudaGraphLaunch")
    assert within.sum() > 1000
    assert (idle.cause[both][within] == CAUSES.index("in-graph")).all()
    assert (idle.cause[both][~within] != CAUSES.index("in-graph")).all()


@pytest.mark.parametrize("name", [name for name in shared_names() if name.startswith(RECORDED_ON_H200)])
def test_hardly_anything_is_unknown(shared: Shared, name: str) -> None:
    books = Books.within(analysed(shared(name)))
    for device in books.devices:
        assert books.parts(device).get("idle:unknown", 0) < 0.02 * books.steps.window_ns


@pytest.mark.parametrize(
    ("name", "cause", "op"),
    [
        ("public/kineto_v100_resnet50_nw0", "data-loading", LOADER),
        ("public/hta_a100_alexnet", "first-use", "aten::empty_strided"),  # the CUDA context
        ("public/hta_a100_event_sync", "first-use", "aten::empty"),  # not the aten::fill_ after it
        ("seeds/2048_bf16_cold_eager_w0u0a10", "first-use", "aten::mm"),
        ("seeds/4096_bf16_warm_eager_w0u0a20", "profiler-overhead", "Activity Buffer Request"),
        ("ddp/straggler_cpu.rank1", "host-code", None),
    ],
)
def test_largest_gap_as_an_expert_sees_it(shared: Shared, name: str, cause: str, op: str | None) -> None:
    books = Books.within(analysed(shared(name)))
    assert books.dominant() == (cause, op)


def test_annotations_that_old_exporters_wrote_as_ops_mark_steps(shared: Shared) -> None:
    books = Books.within(analysed(shared("public/kineto_v100_resnet50_nw4")))
    assert books.steps.kind == "ProfilerStep"
    assert books.steps.number.tolist() == [5, 6, 7, 8, 9, 10]
