"""Public bug reports, rebuilt as traces, and programs with the same faults."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program
from tests.support.paths import SHARED
from tests.support.reports import diagnosed, first_finding, report_file
from tests.support.trace_builder import H200, TraceBuilder, load_bytes
from traceanalyzer import Finding, NotATrace, Trace, diagnose, load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.regions.regions import Regions
from traceanalyzer.report.facts import facts_of
from traceanalyzer.roofline.op_rates import OpWork
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps

US, MS = 1_000, 1_000_000
SQUARE = [[4096, 4096], [4096, 4096]]
HALF = "c10::Half"
HALF_NAMES = [
    "ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn",
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
    "cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x5_nn_align8",
]


def rules(name: str) -> list[str]:
    return [finding.rule for finding in diagnosed(name).findings]


def of(trace: Trace | TraceBuilder, rule: str) -> list[Finding]:
    loaded = trace.load() if isinstance(trace, TraceBuilder) else trace
    return [finding for finding in diagnose(loaded).findings if finding.rule == rule]


# -- float16 kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", HALF_NAMES)
def test_names_of_float16_kernels_are_half_precision(kernel: str) -> None:
    other = Op("aten::mm", NVJET, 100, SQUARE, [BF16, BF16])
    assert found(program([other, Op("aten::mm", kernel, 300)]), "outside-autocast") == []


@pytest.mark.parametrize(("kind", "count"), [(HALF, 0), (BF16, 0), (F32, 1)])
def test_recorded_types_decide_where_names_are_open(kind: str, count: int) -> None:
    product = Op("aten::mm", "cutlass_80_tensorop_s16816gemm_128x128_nn", 300, SQUARE, [kind, kind])
    other = Op("aten::mm", NVJET, 100, SQUARE, [BF16, BF16])
    assert len(found(program([other, product]), "outside-autocast")) == count


# -- where the recording begins to tell, and what it lost ---------------------------------------------------


def test_the_window_holds_the_first_kernel_of_the_report() -> None:
    (device,) = diagnosed("moe_first_kernel").traces[0].busy
    assert device.busy_ns == 122_594


@pytest.mark.parametrize(("held_us", "first_counts"), [(2_000, True), (20, False)])
def test_a_first_kernel_that_waited_too_is_not_left_out(held_us: int, first_counts: bool) -> None:
    """Both streams wait for what was queued before the recording, or one runs while the other waits."""
    trace = TraceBuilder()
    for number, (stream, start_us) in enumerate([(20, held_us), (7, 2_020), (7, 2_040)], 1):
        trace.op("aten::mm", (number - 1) * 5 * US, 4 * US)
        trace.launched(((number - 1) * 5 * US, 3 * US), (start_us * US, 10 * US), number, stream=stream)
    loaded = trace.load()
    steps = Analysis(loaded).index(Steps)
    assert (steps.window_start_ns <= held_us * US) is first_counts


def steps_with_kernels(change: Callable[[int, int], str]) -> TraceBuilder:
    """Six steps of ten kernels; `change(step, kernel)` says "lost", "zero" or "start" (the other is known) of some."""
    trace, number = TraceBuilder(), 0
    for step in range(6):
        at = 1_000 * US + step * 2_000 * US
        trace.step(step, at, 2_000 * US)
        for kernel in range(10):
            number += 1
            launch = at + kernel * 20 * US
            trace.op("aten::mm", launch, 15 * US)
            trace.launch("cudaLaunchKernel", launch + 2 * US, 5 * US, number)
            what = change(step, kernel)
            if what in ("zero", "start"):
                trace.kernel(0, 140 * US * (what == "start"), number)
            elif what != "lost":
                trace.kernel(at + 50 * US + kernel * 150 * US, 140 * US, number)
    return trace


def damaged_steps(trace: Trace) -> list[int]:
    steps = Analysis(trace).index(Steps)
    return steps.number[steps.damaged].tolist()


def lost_message(trace: Trace) -> str:
    (health,) = (one for one in of(trace, "trace-health") if one.cause == "lost-work")
    return health.message


@pytest.mark.parametrize("what", ["lost", "zero", "start"])
@pytest.mark.parametrize("damaged", [[1], [2, 3]])
def test_steps_that_lost_kernels_are_left_out_of_means(what: str, damaged: list[int]) -> None:
    trace = steps_with_kernels(lambda step, kernel: what if step in damaged else "").load()
    assert damaged_steps(trace) == damaged
    assert not Analysis(trace).index(Steps).steady[damaged].any()
    assert (trace.gpu["start_ns"] > 0).all()
    message = lost_message(trace)
    assert f"{10 * len(damaged)} of 60 launches have no work" in message
    assert ("without a time" in message) is (what != "lost")


@pytest.mark.parametrize(("dur_us", "idle"), [(20, "90"), (60, "70"), (180, "")])
def test_limit_of_a_queue_that_hardly_runs_is_no_kernel(dur_us: int, idle: str) -> None:
    """The CPU is ahead: 60 kernels are queued, one starts every 200 us, and nothing tells what runs between."""
    trace = TraceBuilder()
    for number in range(60):
        launch = 1_000 * US + number * 20 * US
        if number % 10 == 0:
            trace.step(number // 10, launch, 200 * US)
        trace.op("aten::mm", launch, 15 * US)
        trace.launched((launch + 2 * US, 5 * US), (1_010 * US + number * 200 * US, dur_us * US), number + 1)
    verdict = diagnose(trace.load()).traces[0].summary
    assert verdict is not None
    expected = f", idle during {idle} % of the predicted step though work is queued" if idle else ": "
    assert verdict.limit.startswith(f"the GPU{expected}")


def test_a_few_lost_kernels_damage_no_step() -> None:
    trace = steps_with_kernels(lambda step, kernel: "lost" if step == 5 and kernel > 4 else "").load()
    assert damaged_steps(trace) == []
    assert [one for one in of(trace, "trace-health") if one.cause == "lost-work"] == []


def test_whole_steps_and_steps_that_all_lost_work_are_kept() -> None:
    assert damaged_steps(steps_with_kernels(lambda step, kernel: "").load()) == []
    assert damaged_steps(steps_with_kernels(lambda step, kernel: "lost" if kernel > 4 else "").load()) == []


def test_kernel_at_time_zero_counts_if_recording_begins_there() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 20 * US)
    trace.launched((0, 5 * US), (0, 0), 1)
    trace.kernel(30 * US, 5 * US, 2)
    assert len(trace.load().gpu) == 2


@pytest.mark.parametrize(("what", "calls"), [("zero", 50), ("start", 50), ("", 60)])
def test_ops_and_regions_leave_out_kernels_without_time(what: str, calls: int) -> None:
    """The second step's kernels have no start: 50 of 140 us remain in a window that begins with the first one."""
    analysis = Analysis(steps_with_kernels(lambda step, kernel: what if step == 1 else "").load())
    work = analysis.index(OpWork)
    assert (work.inputs[0].calls, work.inputs[0].gpu_ns) == (calls, calls * 140 * US)
    assert work.window_ns < 13 * MS
    assert analysis.index(Regions).totals["gpu_ns"][0] == 10 * 140 * US


@pytest.mark.parametrize("what", ["zero", "start"])
def test_without_any_time_of_kernels_the_regions_of_the_cpu_remain(what: str) -> None:
    analysis = Analysis(steps_with_kernels(lambda step, kernel: what).load())
    regions = analysis.index(Regions)
    assert (regions.replayed, regions.totals["gpu_ns"][0]) == (False, 0)
    with pytest.raises(Unavailable, match="all 60 GPU records lost their times"):
        analysis.index(OpWork)


@pytest.mark.parametrize(
    "content",
    [
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0}]}',
        b'{"traceEvents": [{"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 17, "s": "g"}]}',
    ],
)
def test_a_trace_in_which_nothing_was_recorded_says_so(content: bytes) -> None:
    with pytest.raises(NotATrace, match=r"of torch\.profiler in which nothing was recorded") as refused:
        load_bytes(content)
    assert "prof.step()" in str(refused.value.remedy)


# -- other accelerators ------------------------------------------------------------------------------------


def mtia(*, repeats: bool) -> Trace:
    """A copy, two kernels and a wait between streams on MTIA 3, whose process repeats host ids."""
    trace = TraceBuilder(devices=[{"id": 3, "name": "ARTEMIS"}])
    for number, name in enumerate(["memcpyHtoDAsync", "one", "two"], 1):
        args = {"correlation": number, "device": 3}
        call = f"enqueueCommand {name}" if number == 1 else f"runFunction - {name}"
        trace.span("mtia_runtime", call, number * 10 * US, 5 * US, 865, 865, args)
        if repeats:
            trace.span("mtia_runtime", "synchronize", number * 10 * US, 1 * US, 3, 9, args)
    copy: dict[str, Any] = {"stream": 5, "direction": "HOST_TO_DEVICE", "size": 4096, "correlation": 1}
    trace.span("mtia_ccp_events", "dma_request", 30 * US, 10 * US, 3, 5, copy)
    for number in (2, 3):
        place = {"stream": 5, "row": "0", "column": "0", "correlation": number}
        trace.span("mtia_ccp_events", "pe_exe", number * 100 * US, 80 * US, 3, 5, place)
    trace.span("mtia_ccp_events", "event_wait", 0, 500 * US, 3, 6, {"stream": 6, "wait_on_stream": 5})
    return trace.load()


@pytest.mark.parametrize("repeats", [False, True])
def test_rows_of_mtia_are_its_work(repeats: bool) -> None:
    trace = mtia(repeats=repeats)
    work = Analysis(trace).index(DeviceWork)
    assert work.device.tolist() == [3, 3, 3]
    assert (work.end_ns - work.start_ns).tolist() == [10 * US, 80 * US, 80 * US]
    assert (work.call >= 0).all()
    assert trace.gpu["bytes"].dropna().tolist() == [4096]
    assert trace.meta.unknown_categories == {}


def test_the_report_of_mtia_is_read() -> None:
    (device,) = diagnosed("mtia_inference").traces[0].busy
    assert device.device == 17
    assert 0.94 < device.share < 0.96
    (hotspot,) = [one for one in diagnosed("mtia_inference").findings if one.rule == "hotspot"]
    assert hotspot.advice.endswith("profile the op with the device's own profiler.")
    assert hotspot.profiler_command == ""
    facts = facts_of(Analysis(load(report_file("mtia_inference"))))
    assert "the device's own profiler shows why" in next(one.text for one in facts if one.name == "hotspot")


def counted(*values: int) -> Trace:
    """A launch, and rows of counters of kernels in place of their times."""
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 5 * US, 1)
    for number, value in enumerate(values):
        args = {"smsp__inst_executed.sum": value, "note": "text"}
        trace.span("cuda_profiler_range", f"kernel_{number % 2}", number * 10 * US, 10 * US, 0, 0, args)
    return trace.load()


def test_counters_of_kernels_are_summed() -> None:
    (fact,) = [fact for fact in facts_of(Analysis(counted(10, 20, 30))) if fact.name == "kernel-counter"]
    assert fact.text == "smsp__inst_executed.sum: 60 in 3 kernels; kernel_0 has 67 %"
    assert fact.values == {"counter": "smsp__inst_executed.sum", "sum": 60, "kernels": 3, "most": "kernel_0"}


def test_a_trace_of_counters_is_no_failed_recording() -> None:
    report = diagnose(counted(10, 20, 30))
    assert report.traces[0].summary.limit == (
        "not judged: 3 kernels have counters of the GPU (cuda_profiler_range), which replace their times"
    )
    assert report.traces[0].summary.fix.startswith("`traceanalyzer facts` prints the counters")


@pytest.mark.skipif(not SHARED.exists(), reason="no shared traces")
def test_counters_of_a_public_trace_are_exported() -> None:
    trace = load(SHARED / "public2" / "hta_cupti_counters.json.gz")
    facts = {str(fact.values.get("counter")): fact.values.get("sum") for fact in facts_of(Analysis(trace))}
    assert facts["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 39_142_369_720
    assert trace.gpu["other_args"].str.contains("op_ffma_pred_on").sum() == 77


def launches(call: str, launch_us: int, category: str = "cuda_runtime") -> TraceBuilder:
    trace = TraceBuilder()
    for step in range(5):
        at = step * 20 * (launch_us + 40) * US
        trace.step(step, at, 20 * (launch_us + 40) * US - 1)
        for number in range(20):
            start, key = at + number * (launch_us + 40) * US, step * 20 + number + 1
            trace.op("aten::mm", start, (launch_us + 35) * US)
            trace.launch(call, start + 20 * US, launch_us * US, key, category=category)
            trace.kernel(start + 25 * US, 10 * US, key)
    return trace


@pytest.mark.parametrize(
    ("call", "category", "launch_us", "slow"),
    [
        ("urEnqueueKernelLaunch", "xpu_runtime", 300, True),
        ("cudaLaunchKernel", "cuda_runtime", 150, True),
        ("urEnqueueKernelLaunch", "xpu_runtime", 20, False),
    ],
)
def test_launches_that_take_long_in_the_driver_are_named(call: str, category: str, launch_us: int, slow: bool) -> None:
    (finding,) = of(launches(call, launch_us, category), "launch-bound")
    assert (finding.cause == "slow-launches") is slow
    assert "torch.cuda" not in finding.advice or category == "cuda_runtime"
    assert (f"{call} takes {launch_us} µs" in finding.message) is slow


def test_the_report_of_slow_launches_does_not_speak_of_cuda() -> None:
    assert not any("CUDA" in finding.advice.upper() for finding in diagnosed("xpu_launch").findings)


# -- remedies ------------------------------------------------------------------------------------------------


def test_the_report_of_batched_copies_pads_nothing() -> None:
    assert not any("Pad" in finding.advice for finding in diagnosed("batched_copies").findings)


CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"


@pytest.mark.parametrize(
    ("writer", "cause"),
    [
        ("void kDequantizeBlockwise<__half, 512, 64, 8, 2>(float*, unsigned char*)", "dequantized"),
        ("void dequantize_block_q4_0<__nv_bfloat16>(void const*, __nv_bfloat16*)", "dequantized"),
        ("void at::native::vectorized_elementwise_kernel<4, silu>(int)", None),
    ],
)
def test_dequantized_weights_have_their_own_remedy(writer: str, cause: str | None) -> None:
    ops = [Op("lib::dequantize", writer, 200), Op("aten::copy_", CAST, 150), Op("aten::mm", NVJET, 400)]
    (finding,) = found(program(ops), "dtype-casts")
    assert (finding.cause or None) == cause
    assert ("bnb_4bit_compute_dtype" in finding.advice) is (cause is not None)


def guarded(lookup_us: int, regions: int = 1) -> TraceBuilder:
    trace, key = TraceBuilder(), 0
    for step in range(6):
        now = at = step * 4_000 * US
        trace.step(step, at, 4_000 * US - 1)
        for region in range(regions):
            trace.op("TorchDynamo Cache Lookup", now, lookup_us * US)
            now += lookup_us * US
            trace.op(f"Torch-Compiled Region: {region}/0", now, 100 * US)
            for number in range(4):
                key += 1
                trace.launch("cudaLaunchKernel", now + (5 + 20 * number) * US, 5 * US, key)
                trace.kernel(now + (15 + 20 * number) * US, 15 * US, key, name="triton_poi_fused_0")
            now += 110 * US
    return trace


@pytest.mark.parametrize(("lookup_us", "regions", "named"), [(2_000, 1, True), (900, 2, True), (30, 1, False)])
def test_long_checks_of_guards_are_named(lookup_us: int, regions: int, named: bool) -> None:
    guards = [one for one in of(guarded(lookup_us, regions), "compile") if one.cause == "guards"]
    assert [one.evidence["lookup_ns"] for one in guards] == [regions * lookup_us * US] * named


@pytest.mark.parametrize(
    ("report", "first"),
    [
        ("xpu_launch", ("launch-bound", "slow-launches")),
        ("nf4_mlp", ("dtype-casts", "dequantized")),
        ("guards_4ms", ("compile", "guards")),
        ("foreach_per_tensor", ("unfused-optimizer", "foreach-fallback")),
    ],
)
def test_the_fault_of_a_report_is_its_first_finding(report: str, first: tuple[str, str]) -> None:
    assert first_finding(report) == first


def optimizer(inner: str, outer: str | None = None, reads: int = 0) -> TraceBuilder:
    """Four steps of an optimizer with 40 tensors, an op each in a loop or in one op around all."""
    trace, key = TraceBuilder(), 0
    for step in range(4):
        at = now = step * 6_000 * US
        trace.step(step, at, 6_000 * US - 1)
        trace.annotation("Optimizer.step#Muon.step", at, 5_500 * US)
        if outer:
            trace.op(outer, at + 1 * US, 3_000 * US)
        for number in range(40):
            key += 1
            now = at + (10 + 60 * number) * US
            trace.op(inner, now, 50 * US)
            trace.launched((now + 10 * US, 5 * US), (now + 20 * US, 3 * US), key)
        for number in range(reads):
            key += 1
            now = at + (3_100 + 60 * number) * US
            trace.op("aten::item", now, 50 * US)
            trace.launch("cudaMemcpyAsync", now + 10 * US, 20 * US, key)
            trace.memcpy(now + 20 * US, 2 * US, key, name="Memcpy DtoH (Device -> Pageable)", size=4)
    return trace


@pytest.mark.parametrize("op", ["lerp_", "mul_"])
def test_foreach_ops_that_run_an_op_for_each_tensor_are_named(op: str) -> None:
    (finding,) = of(optimizer(f"aten::{op}", f"aten::_foreach_{op}"), "unfused-optimizer")
    assert finding.cause == "foreach-fallback"
    assert "torch._foreach_" not in finding.advice
    (loop,) = of(optimizer(f"aten::{op}"), "unfused-optimizer")
    assert loop.cause == "loop"


@pytest.mark.parametrize(("reads", "count"), [(0, 1), (1, 1), (20, 0), (40, 0)])
def test_optimizer_that_reads_back_values_is_not_compiled(reads: int, count: int) -> None:
    assert len(of(optimizer("aten::mul_", reads=reads), "unfused-optimizer")) == count


def test_an_optimizer_that_reads_back_is_told_of_its_reads() -> None:
    assert first_finding("item_per_parameter")[0] == "implicit-sync"
    assert "unfused-optimizer" not in rules("item_per_parameter")


def copied(worker: str, apart_us: int, elements: int | None = None) -> Trace:
    """An op on the host, and then a copy of a million floats to the device."""
    trace = TraceBuilder(devices=[H200])
    for step in range(4):
        at = step * 10_000 * US
        shapes = {} if elements is None else {"Input Dims": [[elements]], "Input type": ["float"]}
        trace.step(step, at, 10_000 * US - 1)
        trace.op(worker, at, 1_000 * US, **shapes)
        now = at + (1_010 + apart_us) * US
        trace.op("aten::to", now, 600 * US)
        trace.launch("cudaMemcpyAsync", now + 10 * US, 500 * US, 2 * step + 1)
        name = "Memcpy HtoD (Pageable -> Device)"
        trace.memcpy(now + 20 * US, 480 * US, 2 * step + 1, name=name, size=4_000_000)
        trace.op("aten::mm", now + 620 * US, 20 * US)
        trace.launched((now + 625 * US, 5 * US), (now + 640 * US, 500 * US), 2 * step + 2)
    return trace.load()


@pytest.mark.parametrize(
    ("worker", "apart_us", "elements", "named"),
    [
        ("aten::randn", 10, None, True),
        ("aten::randperm", 5_000, None, False),
        ("aten::exp", 10, 1_000_000, True),
        ("aten::exp", 10, 999, False),
    ],
)
def test_data_come_from_an_op_right_before_the_copy_of_its_size(
    worker: str, apart_us: int, elements: int | None, named: bool
) -> None:
    (finding,) = of(copied(worker, apart_us, elements), "exposed-copy")
    assert (worker in finding.advice) is named


def test_an_unknown_gpu_gives_no_more_than_low() -> None:
    device = {**H200, "name": "Graphics Card 9000"}
    kernel = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)"
    (finding,) = found(program([Op("aten::mm", kernel, 900)], device=device), "no-tensor-cores")
    assert finding.severity == "low"


@pytest.mark.parametrize(("device", "count"), [("AMD Instinct MI300X", 1), ("AMD Something", 0)])
def test_float32_matrix_cores_need_peaks_of_a_known_device(device: str, count: int) -> None:
    kernel = "igemm_fwd_gtcx_nhwc_fp32_bx0_ex0_bt128x128x32"
    trace = program([Op("aten::miopen_convolution", kernel, 900)], device={**H200, "name": device})
    hits = found(trace, "no-tensor-cores")
    assert [("in full precision" in one.message) for one in hits] == [True] * count


def test_misaligned_gemm_does_not_apply_to_kernels_of_amd() -> None:
    kernel = "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1"
    report = diagnose(program([Op("aten::mm", kernel, 900)]), select=["misaligned-gemm"])
    assert [(one.status, one.why) for one in report.outcomes] == [
        ("not applicable", "names of AMD's kernels do not show the width of loads")
    ]
