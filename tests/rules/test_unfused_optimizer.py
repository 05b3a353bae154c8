"""Optimizers that launch kernels for one tensor after the other, on recorded and on built traces."""

import pytest

from tests.rules.launches import US, loop, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Status

LISTS = ["aten::_foreach_mul_", "aten::_foreach_lerp_", "aten::_foreach_sqrt_", "aten::_foreach_addcdiv_"]


def stepping(optimizer: str, ops: list[str], tensors: int) -> TraceBuilder:
    trace = loop(ops, tensors)
    trace.annotation(f"Optimizer.step#{optimizer}.step", 0, 12 * US * len(ops) * tensors)
    return trace


@pytest.mark.parametrize(
    ("op", "sparse"),
    [
        *(("aten::coalesce", True), ("aten::_coalesce", True), ("aten::sparse_mask", True)),
        *(("aten::_sparse_coo_tensor_with_dims_and_tensors", True), ("aten::to_sparse", False)),
    ],
)
def test_sparse_gradients_have_no_foreach(op: str, sparse: bool) -> None:
    dense = ["aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::addcdiv_"]
    assert (of_rule(stepping("Adagrad", [*dense, op], 30), "unfused-optimizer") == []) is sparse


def test_an_optimizer_without_ops_may_be_fused_elsewhere() -> None:
    """apex and DeepSpeed launch multi_tensor_apply without any op."""
    trace = TraceBuilder()
    for number in range(1, 41):
        trace.launch("cudaLaunchKernel", 12 * US * number, 5 * US, number)
        trace.kernel(12 * US * number + 8 * US, 2 * US, number, name="void multi_tensor_apply_kernel<Adam>(x)")
    trace.annotation("Optimizer.step#FusedAdam.step", 0, 600 * US)
    assert of_rule(trace, "unfused-optimizer") == []


def test_without_optimizer_the_rule_does_not_apply() -> None:
    report = diagnose(loop(["aten::add"], 4).load(), select=["unfused-optimizer"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(("lists", "others", "said"), [(10, 10, False), (11, 10, True), (20, 0, True)])
def test_list_updates_within_other_work_are_done(lists: int, others: int, said: bool) -> None:
    ops = ["aten::_foreach_add_"] * lists + ["aten::mm"] * others
    found = of_rule(stepping("Lion", ops, 1), "unfused-optimizer")
    assert [one.cause for one in found] == ["foreach"] * said


@pytest.mark.parametrize(
    ("optimizer", "ops", "cause", "advice"),
    [
        ("AdamW", ["aten::mul_", "aten::addcdiv_"], "loop", "Pass fused=True to AdamW"),
        ("AdamW", LISTS, "foreach", "Pass fused=True to AdamW"),
        ("RMSprop", ["aten::mul_", "aten::addcdiv_"], "loop", "Pass foreach=True to RMSprop"),
        ("RMSprop", LISTS, "foreach", "Compile the optimizer's"),
        ("Lion", ["aten::mul_", "aten::sign"], "loop", "Compile the optimizer's"),
    ],
)
def test_each_optimizer_is_told_what_it_has(optimizer: str, ops: list[str], cause: str, advice: str) -> None:
    (one,) = of_rule(stepping(optimizer, ops, 40 // len(ops)), "unfused-optimizer")
    assert (one.by, one.cause, one.count) == (optimizer, cause, 1)
    assert one.advice.startswith(advice)
    assert ("torch._foreach_ ops" in one.advice) is (optimizer == "Lion")
    assert (one.evidence["launches"], one.evidence["gpu_ns"]) == (40, 40 * US)


@pytest.mark.parametrize(
    "op",
    [
        *("aten::_fused_adamw_", "CompiledFunction", "triton_poi_fused_add_0"),
        *("## Call CompiledFxGraph fxyz", "Torch-Compiled Region: 0/0"),
    ],
)
def test_a_step_with_a_fused_or_compiled_part_is_done(op: str) -> None:
    assert of_rule(stepping("AdamW", [*["aten::mul_"] * 30, op], 1), "unfused-optimizer") == []


def test_a_step_in_a_graph_is_done() -> None:
    trace = stepping("AdamW", ["aten::mul_", "aten::addcdiv_"], 20)
    trace.launch("cudaGraphLaunch", 200 * US, 2 * US, 9_000)
    for node in range(3):
        trace.kernel((1_700 + 10 * node) * US, 5 * US, 9_000, stream=9)
    assert of_rule(trace, "unfused-optimizer") == []


@pytest.mark.parametrize(("each", "said"), [(15, False), (16, True)])
def test_launches_are_counted_in_each_step(each: int, said: bool) -> None:
    trace = loop(["aten::add_"], each)
    for step in range(3):
        begin = 12 * US * each * step
        trace.annotation("Optimizer.step#AdamW.step", begin, 12 * US * each - US)
    assert [(one.count, one.evidence["launches"]) for one in of_rule(trace, "unfused-optimizer")] == [(3, each)] * said


def test_two_optimizers_without_the_fused_one() -> None:
    trace = loop([*["aten::mul_"] * 20, *["aten::sqrt"] * 20, "aten::_fused_sgd_"], 1, steps=1)
    trace.annotation("Optimizer.step#RMSprop.step", 0, 240 * US - US)
    trace.annotation("Optimizer.step#Lion.step", 240 * US, 240 * US - US)
    trace.annotation("Optimizer.step#SGD.step", 480 * US, 12 * US)
    assert sorted(str(one.by) for one in of_rule(trace, "unfused-optimizer")) == ["Lion", "RMSprop"]


def test_op_of_few_parameters_does_not_set_the_count() -> None:
    """Of a hundred launches one op comes four times, such as for parameters of another type; the others for each."""
    for_each = [name for name in ("aten::mul_", "aten::sqrt", "aten::add_") for _ in range(32)]
    trace = stepping("RMSprop", [*for_each, *["aten::neg"] * 4], 1)
    (one,) = of_rule(trace, "unfused-optimizer")
    assert one.evidence["tensors"] == 32
    assert one.evidence["passes"] == 3


@pytest.mark.parametrize(("kernel", "said"), [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", False), ("gemm", True)])
def test_an_optimizer_that_communicates_has_no_fused_one(kernel: str, said: bool) -> None:
    """As one that shards its states."""
    trace = stepping("SGD", ["aten::mul_", "aten::add_"], 30)
    trace.launched((20 * US, US), (721 * US, 2 * US), 9_000, name=kernel, stream=20)
    assert bool(of_rule(trace, "unfused-optimizer")) is said


@pytest.mark.parametrize(("groups", "advice"), [(16, "Put parameters with equal options"), (15, "Pass fused=True")])
def test_many_parameter_groups_are_named(groups: int, advice: str) -> None:
    """Each foreach op runs once for each group, one of them twice."""
    ops = ["aten::_foreach_mul_", "aten::_foreach_lerp_", "aten::_foreach_addcdiv_", "aten::_foreach_mul_"]
    (found,) = of_rule(stepping("AdamW", ops, groups), "unfused-optimizer")
    assert found.advice.startswith(advice)
    assert (f"for {groups} parameter groups" in found.message) is (groups == 16)
