"""The step without the profiler keeps what the profiler did not cause: host work, blocking copies, late starts."""

import pytest

from tests.support.paths import REPORTS
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import compare, diagnose, load_job
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.report import Report, TraceReport, Verdict

US = 1_000
MS = 1_000 * US


def reported(name: str) -> Report:
    path = REPORTS / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("no rebuilt reports beside the shared traces")
    return diagnose(path)


def head(report: Report) -> TraceReport:
    (trace,) = report.traces
    return trace


def summary_of(report: Report) -> Verdict:
    verdict = head(report).summary
    assert verdict is not None
    return verdict


def predicted_ms(report: Report) -> float:
    step = head(report).step
    assert step is not None
    return step.unprofiled_ns / 1e6


@pytest.mark.parametrize(
    ("name", "true_ms"),
    [
        ("serving_gap_400us", 1.4),
        ("serving_gap_graph", 3.6),
        ("pageable_small_copies", 3_640),
        ("late_start_wddm", 4.7),
    ],
)
def test_rebuilt_reports_are_predicted_within_a_tenth(name: str, true_ms: float) -> None:
    assert predicted_ms(reported(name)) == pytest.approx(true_ms, rel=0.1)


def test_a_pause_between_iterations_of_a_server_is_the_finding() -> None:
    first = reported("serving_gap_graph").findings[0]
    assert (first.rule, first.severity.name) == ("host-gap", "HIGH")
    assert first.title == "The CPU pauses between iterations of the server, for 1.53 ms a step"
    assert "while the GPU works (asynchronous scheduling" in first.advice


def serving(mark: str, gap_us: int, *, op: bool = False) -> TraceBuilder:
    """Twelve marked model calls of 500 us of kernels, each waited for; the host works between them."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(12):
        trace.annotation(mark.format(step), at, 520 * US)
        number += 2
        trace.op("aten::mm", at + 2 * US, 15 * US)
        trace.launched((at + 5 * US, 5 * US), (at + 12 * US, 495 * US), number)
        trace.launch("cudaStreamSynchronize", at + 20 * US, 492 * US, number + 1)
        if op:
            trace.op("aten::sort", at + 530 * US, (gap_us - 20) * US)
        at += (520 + gap_us) * US
    return trace


@pytest.mark.parametrize(
    ("mark", "gap_us", "op"),
    [
        ("execute_context_0(0)_generation_32(32)", 1_500, False),
        ("step[DECODE bs=32]", 1_500, True),
        ("run_batch {}", 400, False),
    ],
)
def test_host_work_between_marks_belongs_to_the_iteration(mark: str, gap_us: int, op: bool) -> None:
    report = diagnose(serving(mark, gap_us, op=op).load())
    assert predicted_ms(report) == pytest.approx((520 + gap_us) / 1e3, rel=0.1)
    assert head(report).step.bound == "wait"  # type: ignore[union-attr]


@pytest.mark.parametrize("pause_ms", [2, 20])
def test_host_work_before_the_first_kernel_of_a_mark_stays(pause_ms: int) -> None:
    """One request: the host prepares it without any row, and only then uses the GPU."""
    trace = TraceBuilder()
    trace.step(1, 0, (pause_ms + 10) * MS)
    trace.op("aten::to", pause_ms * MS, 100 * US)
    trace.launch("cudaMemcpyAsync", pause_ms * MS + 10 * US, 80 * US, 1)
    trace.memcpy(pause_ms * MS + 20 * US, 60 * US, 1, name="Memcpy HtoD (Pageable -> Device)")
    trace.launched((pause_ms * MS + 120 * US, 5 * US), (pause_ms * MS + 130 * US, 9 * MS), 2)
    assert predicted_ms(diagnose(trace.load())) == pytest.approx(pause_ms + 10, rel=0.1)


def copying(call_us: int, size: int) -> TraceBuilder:
    """Four steps of 20 pageable copies of 60 us, whose calls return long after them."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(4):
        begun = at
        for _ in range(20):
            number += 1
            trace.op("aten::copy_", at, (call_us + 10) * US)
            trace.launch("cudaMemcpyAsync", at + 5 * US, call_us * US, number)
            trace.memcpy(at + 8 * US, 60 * US, number, name="Memcpy HtoD (Pageable -> Device)", size=size)
            at += (call_us + 20) * US
        trace.step(step, begun, at - begun)
    return trace


@pytest.mark.parametrize(("call_us", "size"), [(1_500, 24_576), (5_000, 1 << 20)])
def test_copies_that_block_longer_than_they_take_are_the_fault(call_us: int, size: int) -> None:
    report = diagnose(copying(call_us, size).load())
    assert predicted_ms(report) == pytest.approx(20 * (call_us + 20) / 1e3, rel=0.1)
    first = report.findings[0]
    assert (first.rule, first.cause) == ("exposed-copy", "pageable")
    assert "pin" in first.advice.lower()


def test_copies_whose_calls_return_at_once_are_no_fault() -> None:
    assert not [one for one in diagnose(copying(70, 24_576).load()).findings if one.rule == "exposed-copy"]


def submitted_late(late_us: tuple[int, ...]) -> TraceBuilder:
    """A read-back loop whose kernel starts so late in each step."""
    trace, at = TraceBuilder(), 0
    for step, late in enumerate(late_us):
        trace.step(step, at, (50 + late) * US)
        trace.op("aten::mm", at + 2 * US, 10 * US)
        trace.launched((at + 5 * US, 5 * US), (at + (10 + late) * US, 20 * US), 2 * step + 1)
        trace.launch("cudaStreamSynchronize", at + 15 * US, (late + 20) * US, 2 * step + 2)
        at += (50 + late) * US
    return trace


@pytest.mark.parametrize(
    ("late_us", "true_us"),
    [
        ((900, 800, 900, 1_000, 900, 850), 950),  # a driver that submits in batches: in every step
        ((5, 5, 5, 12, 5, 5), 55),
        ((5, 5, 5, 700, 5, 5), 55),  # a hiccup
    ],
)
def test_late_starts_stay_as_far_as_the_median_step_has_them(late_us: tuple[int, ...], true_us: int) -> None:
    assert predicted_ms(diagnose(submitted_late(late_us).load())) == pytest.approx(true_us / 1e3, rel=0.12)


def test_work_from_before_the_recording_makes_a_lone_step_no_longer() -> None:
    """A copy to the host waits 460 ms for what the device does since before the recording; then work goes on."""
    trace, free = TraceBuilder(), 460 * MS
    trace.step(0, 0, free + 11 * MS)
    trace.launched((5 * US, 5 * US), (12 * US, 4 * US), 1_000, stream=2)
    for number in range(1, 5):
        trace.op("aten::mm", number * 20 * US, 12 * US)
        trace.launched((number * 20 * US + 5 * US, 5 * US), (free + number * 10 * US, 8 * US), number)
    trace.copied((110 * US, free), (free + 60 * US, 5 * US), 900, name="Memcpy DtoH (Device -> Pinned)")
    for number in range(5, 205):
        at = free + (100 + number * 20) * US
        trace.op("aten::mm", at, 12 * US)
        trace.launched((at + 5 * US, 5 * US), (free + (number * 50) * US, 48 * US), number)
    trace.launch("cudaDeviceSynchronize", free + 5 * MS, 5 * MS + 400 * US, 999)
    step = head(diagnose(trace.load())).step
    assert step is not None
    assert (step.unprofiled_ns / MS, step.high_ns / MS) == pytest.approx((11, 12), rel=0.05)


def graphs(nodes: int, launches: int) -> TraceBuilder:
    """Eight steps with launches of CUDA graphs, so many of which have a kernel in the trace."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(8):
        begun = at
        for launch in range(launches):
            number += 1
            trace.launch("cudaGraphLaunch", at + 5 * US, 20 * US, number)
            if launch < nodes:
                trace.kernel(at + 30 * US, MS, number)
                trace.kernel(at + 31 * US + MS, 10 * US, number)
            trace.launch("cudaStreamSynchronize", at + 30 * US, MS + 15 * US, 1_000 + number)
            at += 1_050 * US
        number += 1
        trace.op("aten::argmax", at + 2 * US, 12 * US)
        trace.launched((at + 5 * US, 5 * US), (at + 12 * US, 10 * US), number)
        at += 50 * US
        trace.step(step, begun, at - begun)
    return trace


@pytest.mark.parametrize("nodes", [0, 1])
def test_no_step_is_predicted_of_graphs_without_kernels(nodes: int) -> None:
    report = diagnose(graphs(nodes, launches=2).load())
    assert head(report).step is None
    verdict = summary_of(report)
    assert "launches of CUDA graphs in 7 steps have no kernel in the trace" in verdict.limit
    causes = head(report).accounting[0].idle_ns
    assert causes["not-recorded"] > 0.8 * sum(causes.values())
    assert not [one for one in report.findings if one.severity in (Severity.HIGH, Severity.MEDIUM)]


def test_graphs_with_their_kernels_are_predicted() -> None:
    assert predicted_ms(diagnose(graphs(2, launches=2).load())) == pytest.approx(2.15, rel=0.1)


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        (
            "memgetinfo_10s",
            "1 of 3 steps (100 % of the recorded time) takes 10.1 s longer than the others, "
            "with 10.1 s in cudaMemGetInfo, blocked in the driver by another thread or process",
        ),
        (
            "time_sliced",
            "6 of 20 steps (64 % of the recorded time) take 2.44 ms longer than the others, on average, "
            "with 2.45 ms in ampere_sgemm_32x128_nt, usually 12.0 µs: the GPU may be shared with another process",
        ),
    ],
)
def test_rare_slow_steps_are_named_with_their_cost(name: str, slow: str) -> None:
    assert summary_of(reported(name)).step.endswith(f"; {slow}")


def test_another_process_is_first_where_it_takes_half_of_the_time() -> None:
    first = reported("time_sliced").findings[0]
    assert (first.rule, first.cause, first.severity) == ("kernel-variance", "outliers", Severity.HIGH)
    assert first.saving is None
    assert first.evidence["measured_share"] == pytest.approx(6 * 2.44 / (20 * 0.776 + 6 * 2.44), abs=0.02)


def looping(slow: dict[int, tuple[str, int]]) -> TraceBuilder:
    """Ten steps of 1 ms of kernels; some contain a call that takes so many us."""
    trace, at = TraceBuilder(), 0
    for step in range(10):
        call, takes = slow.get(step, ("", 0))
        trace.step(step, at, (1_100 + takes) * US)
        if call:
            trace.launch(call, at + 2 * US, takes * US, 100 + step)
        begun = at + (5 + takes) * US
        trace.op("aten::mm", begun, 20 * US)
        trace.launched((begun + 5 * US, 5 * US), (begun + 15 * US, MS), 200 + step)
        trace.launch("cudaStreamSynchronize", begun + 25 * US, MS, 300 + step)
        at += (1_100 + takes) * US
    return trace


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (
            {4: ("cudaHostAlloc", 90_000)},
            "1 of 10 steps (90 % of the recorded time) takes 90.0 ms longer than the others, "
            "with 90.0 ms in cudaHostAlloc, blocked in the driver",
        ),
        (
            {3: ("cudaMalloc", 5_000), 4: ("cudaMalloc", 7_000)},
            "2 of 10 steps (62 % of the recorded time) take 6.00 ms longer than the others, on average",
        ),
    ],
)
def test_rare_driver_call_is_no_part_of_the_step(slow: dict[int, tuple[str, int]], said: str) -> None:
    report = diagnose(looping(slow).load())
    assert predicted_ms(report) == pytest.approx(1.1, rel=0.1)
    assert said in summary_of(report).step


def test_a_call_that_waits_for_the_gpu_is_not_blocked_in_the_driver() -> None:
    step = summary_of(diagnose(looping({4: ("cudaDeviceSynchronize", 90_000)}).load())).step
    assert step.endswith(" takes 90.0 ms longer than the others, with 90.0 ms in cudaDeviceSynchronize")


def decoding(kernels: int, prefills: dict[int, tuple[int, int]]) -> TraceBuilder:
    """Twelve steps of so many kernels of 100 us; some launch more of them, or of a larger grid that take longer."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(12):
        count, takes = prefills.get(step, (kernels, 100))
        end = at + (count * takes + 20) * US
        trace.step(step, at, end - at)
        for kernel in range(count):
            number += 1
            trace.op("aten::mm", at + 20 * kernel * US, 15 * US)
            trace.launch("cudaLaunchKernel", at + (20 * kernel + 5) * US, 5 * US, number)
            start = at + (15 + kernel * takes) * US
            trace.kernel(start, takes * US, number, grid=(takes, 1, 1))
        launched = at + 20 * count * US
        trace.launch("cudaStreamSynchronize", launched, end - 2 * US - launched, 9_000 + step)
        at = end
    return trace


@pytest.mark.parametrize(
    ("prefills", "said"),
    [
        (
            {4: (10, 800), 5: (10, 800)},
            "; 2 of 12 steps (61 % of the recorded time) do 8 times the GPU work, as prefills do",
        ),
        ({6: (60, 100)}, "; 1 of 12 steps (35 % of the recorded time) does 6 times the GPU work, as prefills do"),
        (
            {0: (10, 800), 1: (10, 800)},
            "; the slow first 2 steps, 61 % of the time, are left out; 1 of 12 steps (31 % of the recorded time) does "
            "8 times the GPU work, as prefills do",
        ),
        ({0: (10, 800)}, "; the slow first step, 42 % of the time, is left out"),
    ],
)
def test_steps_left_out_for_their_work_are_named(prefills: dict[int, tuple[int, int]], said: str) -> None:
    step = summary_of(diagnose(decoding(10, prefills).load())).step
    assert step.partition(")")[2].endswith(said)


def test_call_that_every_third_step_makes_is_part_of_the_step() -> None:
    slow = dict.fromkeys((2, 5, 8), ("cudaMemGetInfo", 3000))
    assert predicted_ms(diagnose(looping(slow).load())) == pytest.approx(2.1, rel=0.1)


@pytest.mark.parametrize(("before_ms", "after_ms"), [(300, 0), (0, 200)])
def test_what_a_trace_without_steps_leaves_out_is_said(before_ms: int, after_ms: int) -> None:
    trace = TraceBuilder()
    trace.op("aten::randperm", 0, 2 * MS)
    at = (before_ms + 2) * MS
    trace.op("aten::mm", at, 20 * US)
    trace.launched((at + 5 * US, 5 * US), (at + 15 * US, 20 * MS), 1)
    trace.op("aten::add", at + (after_ms + 20) * MS, MS)
    said = summary_of(diagnose(trace.load())).step
    assert ("before the first GPU work" in said) == (before_ms > 0)
    assert ("after the last GPU work" in said) == (after_ms > 0)


def test_late_submission_is_named_and_makes_savings_unsure() -> None:
    """Without the read-backs work may start as late: nobody knows."""
    report = reported("late_start_wddm")
    first = report.findings[0]
    assert (first.rule, first.cause) == ("scheduler-gap", "unknown")
    assert "nvidia-smi" in first.advice
    assert "WDDM" in first.advice
    (read_back,) = [one for one in report.findings if one.rule == "implicit-sync"]
    assert read_back.saving is not None
    assert not read_back.saving.sure


def job_of(name: str) -> Report:
    folder = REPORTS / name
    if not folder.exists():
        pytest.skip("no rebuilt reports beside the shared traces")
    return diagnose(load_job(folder))


def test_waits_by_turns_that_nothing_explains_stay_in_the_step() -> None:
    """Both GPUs stop for 2.4 to 4.5 ms at a time: their ranks wait for each other in turn."""
    report = job_of("moe_job_b")
    assert report.job is not None
    step, summary = report.job.step, report.job.summary
    assert step is not None
    assert step.unprofiled_ns / 1e6 == pytest.approx(20.2, rel=0.1)
    assert step.low_ns < 5 * MS
    assert "nothing in the trace explains 14.9 ms of the recorded step" in summary.limit
    assert "shared with another process" in summary.limit
    assert not [one for one in report.findings if one.rule == "cold-start"]


def test_a_single_cold_iteration_is_no_side_of_a_comparison() -> None:
    if not REPORTS.exists():
        pytest.skip("no rebuilt reports beside the shared traces")
    verdict = compare(REPORTS / "moe_job_a", REPORTS / "moe_job_b").verdict
    assert (verdict.word, verdict.why) == ("unknown", "the one step of BASE is a cold start")


def jumping(stall_us: int) -> TraceBuilder:
    """Five steps of 200 queued kernels of 10 us; in each the device stands still once, though work is queued."""
    trace, cpu, device, number = TraceBuilder(), 0, 100 * US, 0
    for step in range(5):
        begun = cpu
        for place in range(200):
            number += 1
            stream = 7 if place % 2 else 8
            trace.launch("cudaLaunchKernel", cpu, 3 * US, number)
            device = max(device, cpu + 8 * US) + (stall_us * US if place == 150 else 0)
            trace.kernel(device, 10 * US, number, stream=stream)
            device += 11 * US
            cpu += 4 * US
        trace.launch("cudaDeviceSynchronize", cpu, device - cpu + 5 * US, 90_000 + step)
        cpu = device + 10 * US
        trace.step(step, begun, cpu - begun)
    return trace


@pytest.mark.parametrize("stall_us", [0, 2_400, 6_000])
def test_device_stalled_with_queued_work_keeps_that_time(stall_us: int) -> None:
    assert predicted_ms(diagnose(jumping(stall_us).load())) == pytest.approx((2_200 + stall_us) / 1e3, rel=0.1)
