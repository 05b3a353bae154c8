"""Optimizers, loops of calls, launch-bound steps, compiled code and collectives, on recorded and on built traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builder import TraceBuilder
from traceanalyzer import Finding, diagnose, load
from traceanalyzer.model.finding import Confidence, Severity, Status

US = 1_000
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_TNT"
ACCUSES = ("launch-bound", "repeated-calls", "unfused-optimizer", "compile", "scheduler-gap", "host-gap")
SLUGS = (*ACCUSES[:4], "exposed-communication", "needless-collectives", "hotspot")
Shared = Callable[[str], Path]


def found(path: Path, *rules: str) -> list[Finding]:
    return list(diagnose(load(path), select=rules or SLUGS).findings)


def above_info(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.severity is not Severity.INFO]


def loop(
    names: list[str],
    repeats: int,
    *,
    steps: int = 3,
    kernel: str = POINTWISE,
    dims: Callable[[int], object] | None = None,
) -> TraceBuilder:
    """Steps of `repeats` times these ops, each of 10 us and launching one kernel of 1 us at once."""
    trace = TraceBuilder()
    number, at = 0, 0
    for step in range(steps):
        begin = at
        for repeat in range(repeats):
            for name in names:
                number += 1
                args = {} if dims is None else {"Input Dims": dims(repeat)}
                trace.op(name, at, 10 * US, **args)
                trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
                trace.kernel(at + 9 * US, 1 * US, number, name=kernel)
                at += 12 * US
        trace.step(step, begin, at - begin)
    return trace


def of_rule(trace: TraceBuilder, *rules: str) -> list[Finding]:
    return list(diagnose(trace.load(), select=rules).findings)


# -- unfused-optimizer ---------------------------------------------------------------------------------------


def test_a_loop_over_parameters_is_told_to_be_fused(shared: Shared) -> None:
    (one, *rest) = found(shared("pairs/optimizer_loop.bad"))
    assert (one.rule, one.by, one.cause, one.severity) == (
        "unfused-optimizer",
        "AdamW",
        "loop",
        Severity.HIGH,
    )
    assert one.saving is not None
    assert one.saving.low_share <= 0.96 <= one.saving.high_share
    assert (one.evidence["launches"], one.evidence["tensors"]) == (2_400, 300)
    assert "fused=True" in one.advice
    assert above_info(rest) == []  # the idle time belongs to one finding


@pytest.mark.parametrize(
    "name", ["pairs/optimizer_loop.fixed", "pairs/clean_train.fixed", "real/resnet50.eager"]
)
def test_fused_and_small_optimizers_are_left_alone(shared: Shared, name: str) -> None:
    assert found(shared(name), "unfused-optimizer") == []


def test_foreach_behind_a_busy_gpu_is_only_mentioned(shared: Shared) -> None:
    (one,) = found(shared("real/gpt2_train.eager"), "unfused-optimizer")
    assert (one.cause, one.severity, one.evidence["passes"]) == ("foreach", Severity.INFO, 8)


def stepping(optimizer: str, ops: list[str], tensors: int) -> TraceBuilder:
    trace = loop(ops, tensors)
    trace.annotation(f"Optimizer.step#{optimizer}.step", 0, 12 * US * len(ops) * tensors)
    return trace


def test_an_optimizer_without_a_fused_kernel_is_sent_to_foreach() -> None:
    (one,) = of_rule(
        stepping("RMSprop", ["aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::addcdiv_"], 30),
        "unfused-optimizer",
    )
    assert (one.by, one.evidence["tensors"], one.evidence["passes"]) == ("RMSprop", 30, 4)
    assert "foreach=True" in one.advice


def test_an_optimizer_of_ones_own_is_compiled() -> None:
    (one,) = of_rule(stepping("Lion", ["aten::mul_", "aten::sign", "aten::add_"], 40), "unfused-optimizer")
    assert "torch.compile" in one.advice


def test_an_optimizer_without_ops_may_be_fused_elsewhere() -> None:
    """apex and DeepSpeed launch multi_tensor_apply without any op."""
    trace = TraceBuilder()
    for number in range(1, 41):
        trace.launch("cudaLaunchKernel", 12 * US * number, 5 * US, number)
        trace.kernel(
            12 * US * number + 8 * US, 2 * US, number, name="void multi_tensor_apply_kernel<Adam>(x)"
        )
    trace.annotation("Optimizer.step#FusedAdam.step", 0, 600 * US)
    assert of_rule(trace, "unfused-optimizer") == []


def test_without_optimizer_the_rule_does_not_apply() -> None:
    report = diagnose(loop(["aten::add"], 4).load(), select=["unfused-optimizer"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE


# -- repeated-calls ------------------------------------------------------------------------------------------


def test_small_copies_one_by_one(shared: Shared) -> None:
    one = found(shared("pairs4/small_h2d.bad"))[0]
    assert (one.rule, one.confidence, one.evidence["repeats"]) == ("repeated-calls", Confidence.MEDIUM, 64)
    assert one.saving is not None
    assert one.saving.low_share <= 0.74 <= one.saving.high_share
    assert "copy it once" in one.advice
    assert str(one.by).startswith("corpus4.py(36)")


def test_a_loop_over_experts_is_likely(shared: Shared) -> None:
    one = found(shared("pairs4/moe_loop.bad"))[0]
    assert (one.rule, one.confidence, one.evidence["repeats"]) == ("repeated-calls", Confidence.LOW, 8)
    assert one.saving is not None
    assert one.saving.low_share <= 0.85 <= one.saving.high_share


@pytest.mark.parametrize(
    "name",
    ["pairs4/small_h2d.fixed", "pairs4/moe_loop.fixed", "real/gpt2_train.eager", "real/llama_decode.eager",
     "real/resnet50.eager", "real/vit_infer.eager", "pairs/launch_bound.bad"],
)  # fmt: skip
def test_layers_and_chains_are_no_loops(shared: Shared, name: str) -> None:
    assert found(shared(name), "repeated-calls") == []


def test_picking_one_sample_after_the_other() -> None:
    (one,) = of_rule(loop(["aten::select", "aten::mul"], 20), "repeated-calls")
    assert (one.count, one.steps, one.evidence["members"]) == (60, 3, 2)
    assert one.message.startswith("aten::select, aten::mul: the same 2 ops 20 times a step")


def test_fewer_repeats_need_changing_shapes() -> None:
    assert of_rule(loop(["aten::select", "aten::mm"], 8, kernel=GEMM), "repeated-calls") == []
    changing = loop(["aten::select", "aten::mm"], 8, kernel=GEMM, dims=_growing)
    (one,) = of_rule(changing, "repeated-calls")
    assert one.confidence is Confidence.LOW


def _growing(repeat: int) -> object:
    return [[repeat + 1, 64], [64, 64]]


def test_layers_of_growing_width_are_no_loop() -> None:
    assert (
        of_rule(loop(["aten::linear", "aten::silu"], 20, kernel=GEMM, dims=_growing), "repeated-calls") == []
    )


def test_results_that_are_stacked_come_from_a_loop() -> None:
    trace = TraceBuilder()
    at, number = 0, 0
    for step in range(3):
        begin = at
        for name in [*["aten::linear", "aten::relu"] * 20, "aten::stack"]:
            number += 1
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=GEMM)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.confidence, one.evidence["repeats"]) == (Confidence.LOW, 20)
    assert "batched product" in one.advice


def test_updates_of_many_tensors_take_a_foreach_op() -> None:
    (one,) = of_rule(loop(["aten::lerp_"], 30), "repeated-calls")
    assert "_foreach_" in one.advice


def test_gradients_that_are_zeroed_one_by_one() -> None:
    (one,) = of_rule(loop(["aten::zero_"], 30), "repeated-calls")
    assert "set_to_none=True" in one.advice


def test_large_kernels_gain_nothing() -> None:
    trace = TraceBuilder()
    for number in range(90):
        at = 200 * US * number
        trace.op("aten::select", at, 10 * US)
        trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number + 1)
        trace.kernel(at + 9 * US, 100 * US, number + 1, name=POINTWISE)
    for step in range(3):
        trace.step(step, 6_000 * US * step, 6_000 * US)
    assert of_rule(trace, "repeated-calls") == []


# -- launch-bound --------------------------------------------------------------------------------------------


def test_a_step_of_tiny_kernels_becomes_a_graph(shared: Shared) -> None:
    one = found(shared("pairs/launch_bound.bad"))[0]
    assert (one.rule, one.cause, one.severity) == ("launch-bound", "graph", Severity.HIGH)
    assert one.saving is not None
    assert one.saving.low_share <= 0.88 <= one.saving.high_share
    assert one.evidence["launches"] == 300
    assert "CUDA graph" in one.advice


def test_who_has_a_graph_is_not_told_to_use_one(shared: Shared) -> None:
    assert above_info(found(shared("pairs/launch_bound.fixed"))) == []


def test_changing_shapes_cannot_be_captured(shared: Shared) -> None:
    one = found(shared("real/llama_decode.eager"))[0]
    assert (one.rule, one.cause) == ("launch-bound", "compile")
    assert "CUDA graph" not in one.advice


BUSY = (
    "pairs/unfused_pointwise.fixed pairs/malloc_thrash.fixed real/gpt2_train.eager pairs4/float64_leak.fixed "
    "pairs/python_between.fixed pairs/clean_gemm.fixed pairs/clean_train.fixed real/resnet50.eager "
    "real/vit_infer.eager real/cnn_lab.eager noise/gemm.a1 noise/gemm.a2 noise/gemm.a3 noise/gemm.a4 "
    "noise/resnet.a1 noise/resnet.a2 noise/resnet.a3 noise/resnet.a4"
)


@pytest.mark.parametrize("name", BUSY.split())
def test_busy_programs_are_not_accused(shared: Shared, name: str) -> None:
    assert above_info(found(shared(name), *ACCUSES)) == []


@pytest.mark.parametrize(
    "name", ["pairs/device_sync.bad", "pairs/dataloader.bad", "pairs/python_between.bad"]
)
def test_launching_beside_another_fault_is_minor(shared: Shared, name: str) -> None:
    assert above_info(found(shared(name), "launch-bound")) == []


def test_steps_that_differ_are_not_captured() -> None:
    trace = TraceBuilder()
    at, number = 0, 0
    for step in range(4):
        begin = at
        for _ in range(20 + step):
            number += 1
            trace.op("aten::linear", at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=GEMM)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "launch-bound")
    assert (one.cause, one.confidence, one.saving) == ("batch", Confidence.MEDIUM, None)
    assert "steps launch different kernels or grids" in one.advice


# -- compiled code -------------------------------------------------------------------------------------------


def test_compiling_in_every_step(shared: Shared) -> None:
    one = found(shared("pairs/recompile.bad"))[0]
    assert (one.rule, one.severity, one.count, one.steps) == ("compile", Severity.HIGH, 4, 4)
    assert (one.evidence["frame"], one.evidence["version"], one.evidence["over_limit"]) == (0, 22, True)
    assert one.saving is not None
    assert one.saving.share > 0.99


@pytest.mark.parametrize(
    "name", ["pairs/recompile.fixed", "pairs/graph_break.fixed", "real/gpt2_train.compile"]
)
def test_compiled_once_is_no_recompilation(shared: Shared, name: str) -> None:
    findings = found(shared(name), "compile")
    assert {(one.cause, one.severity) for one in findings} == {("tiny-regions", Severity.INFO)}


def test_breaks_are_never_told_to_be_removed(shared: Shared) -> None:
    assert "compile" not in above_info(found(shared("pairs/graph_break.bad")))


def compiling(steps: list[int]) -> TraceBuilder:
    trace = loop(["aten::mm"], 30, steps=4, kernel=GEMM)
    for step in steps:
        trace.op("dynamo", 360 * US * step + 1 * US, 105 * US, tid=7)
        trace.op("entire_frame_compile", 360 * US * step + 2 * US, 100 * US, tid=7)
    return trace


@pytest.mark.parametrize(("steps", "count"), [([0], 0), ([2], 1), ([0, 1], 2), ([1, 2, 3], 3)])
def test_compilation_of_the_first_step_alone_is_a_cold_start(steps: list[int], count: int) -> None:
    findings = of_rule(compiling(steps), "compile")
    assert sum(finding.count for finding in findings) == count


# -- communication -------------------------------------------------------------------------------------------


def test_an_all_reduce_after_the_backward_pass_is_exposed(shared: Shared) -> None:
    (one,) = found(shared("ddp/exposed.rank0"), "exposed-communication")
    assert (one.by, one.cause, one.confidence) == ("allreduce", "transfer", Confidence.MEDIUM)
    assert one.severity in (Severity.LOW, Severity.MEDIUM)
    (one,) = found(shared("ddp/overlap.rank0"), "exposed-communication")
    assert one.severity is Severity.INFO


@pytest.mark.parametrize("name", ["ddp/straggler_gpu.rank0", "ddp/straggler_cpu.rank0"])
def test_waiting_for_a_straggler_is_probable(shared: Shared, name: str) -> None:
    (one,) = found(shared(name), "exposed-communication")
    assert (one.cause, one.confidence, one.saving) == ("waiting", Confidence.LOW, None)


def test_reducing_in_every_micro_step(shared: Shared) -> None:
    (one,) = found(shared("ranks/no_sync.bad.rank0"), "needless-collectives")
    assert (one.cause, one.count) == ("every-micro-step", 6 * 24)
    assert "no_sync" in one.advice
    assert found(shared("ranks/no_sync.fixed.rank0"), "needless-collectives") == []


def test_reducing_values_one_by_one(shared: Shared) -> None:
    (one,) = found(shared("ranks/loss_reduce.bad.rank0"), "needless-collectives")
    assert (one.cause, one.by, one.count) == ("one-by-one", "c10d::allreduce_", 6 * 5)
    assert found(shared("ranks/loss_reduce.fixed.rank0"), "needless-collectives") == []


def test_one_gpu_does_not_communicate() -> None:
    report = diagnose(loop(["aten::add"], 4).load(), select=["exposed-communication", "needless-collectives"])
    assert {outcome.status for outcome in report.outcomes} == {Status.NOT_APPLICABLE}


# -- hotspot -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "op", "bound"),
    [
        ("pairs/low_occupancy.bad", "aten::cumsum", "unknown"),
        ("pairs/fp32_gemm.bad", "AddmmBackward0", "compute"),
        ("pairs4/norm_upcast.bad", None, "memory"),
        ("pairs/launch_bound.bad", "aten::mul", "latency"),
    ],
)
def test_the_hotspot_is_a_fact(shared: Shared, name: str, op: str | None, bound: str) -> None:
    (one,) = found(shared(name), "hotspot")
    assert (one.severity, one.cost_ns, one.cause) == (Severity.INFO, 0, bound)
    assert op is None or one.by == op
