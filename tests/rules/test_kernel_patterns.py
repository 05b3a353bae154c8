"""Rules about patterns of GPU work (chains, attention, casts, copies, few blocks): small built traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builder import H200, TraceBuilder
from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, found, program
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Severity, Status

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Arrays>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor> >(ReduceOp)"
BIG, SMALL = [[4096, 4096], [4096, 4096]], [[4096, 1], []]


def pointwise(*sizes: Sequence[Any], pause: int = 0) -> list[Op]:
    return [Op("aten::add", ADD, 40 if size is BIG else 2, size, [F32, F32], pause=pause) for size in sizes]


def test_three_pointwise_kernels_over_one_size_are_a_chain() -> None:
    (one,) = found(program([*pointwise(BIG, BIG, BIG), Op("aten::mm", NVJET, 100)]), "unfused-pointwise")
    assert (one.evidence["chains"], one.evidence["kernels_in_chains"]) == (6, 18)
    assert one.cost_share == pytest.approx(80 / 224, abs=0.03)


def test_two_pointwise_kernels_are_none() -> None:
    assert found(program([*pointwise(BIG, BIG), Op("aten::mm", NVJET, 100)]), "unfused-pointwise") == []


def test_a_reduction_and_its_row_belong_to_the_chain() -> None:
    norm = [
        *pointwise(BIG),
        Op("aten::mean", SUM, 30, [[4096, 4096], []], [F32, ""]),
        *pointwise(SMALL, BIG, BIG),
    ]
    (one,) = found(program([*norm, Op("aten::mm", NVJET, 100)]), "unfused-pointwise")
    assert one.evidence["chains"] == 6
    assert one.evidence["kernels_in_chains"] == 30


def test_another_size_begins_another_chain() -> None:
    half = [[2048, 4096], [2048, 4096]]
    ops = [*pointwise(BIG, BIG), *(Op("aten::add", ADD, 40, half, [F32, F32]) for _ in range(2))]
    assert found(program([*ops, Op("aten::mm", NVJET, 100)]), "unfused-pointwise") == []


def test_other_code_between_the_launches_cuts_a_chain() -> None:
    assert found(program([*pointwise(BIG, BIG, BIG, BIG, pause=300)]), "unfused-pointwise") == []


def test_an_optimizers_loop_over_parameters_is_no_chain() -> None:
    ops = [Op("aten::add_", ADD, 40, BIG, [F32, F32], inside="Optimizer.step#SGD.step") for _ in range(4)]
    assert found(program(ops), "unfused-pointwise") == []


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)"
QK, PV = [[128, 1024, 64], [128, 64, 1024]], [[128, 1024, 1024], [128, 1024, 64]]
ATTENTION = [
    Op("aten::bmm", NVJET, 85, QK, [BF16, BF16]),
    Op("aten::div", ADD, 127, [[128, 1024, 1024], []], [BF16, "long int"]),
    Op("aten::_softmax", SOFTMAX, 284, [[128, 1024, 1024], [], []], [BF16, "Scalar", "Scalar"]),
    Op("aten::bmm", NVJET, 82, PV, [BF16, BF16]),
]


def test_attention_by_hand_is_found_forward() -> None:
    (one,) = found(program([*ATTENTION, Op("aten::mm", NVJET, 100)]), "hand-written-attention")
    assert (one.evidence["forward"], one.evidence["backward"]) == (6, 0)
    assert one.cost_share == pytest.approx((578 - 87) / 683, abs=0.03)


def test_a_router_is_no_attention() -> None:
    router = [Op("aten::mm", NVJET, 50), Op("aten::_softmax", SOFTMAX, 20), Op("aten::mm", NVJET, 50)]
    assert found(program(router), "hand-written-attention") == []


CAST = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda(float)#1}, Arrays>(int)"
)


def test_casts_before_products_are_found() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"])
    (one,) = found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts")
    assert one.evidence["conversions"] == {"BFloat16 from float": 6 * 26 * US}
    assert found(program([cast, Op("aten::add", ADD, 86)]), "dtype-casts") == []
    assert (one.cause, "Keep weights" in one.advice) == ("", True)


def test_casts_of_results_are_no_matter_of_weights() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [F32, BF16, "Scalar"])
    (one,) = found(
        program([Op("aten::mm", NVJET, 86), cast, Op("aten::_softmax", SOFTMAX, 40)]), "dtype-casts"
    )
    assert (one.cause, list(one.evidence["readers"])) == ("results", ["aten::_softmax"])
    assert "softmax(dtype=torch.float32)" in one.advice
    assert one.evidence["conversions"] == {"float from BFloat16": 6 * 26 * US}


def test_a_few_blocks_beside_other_work_are_no_loss() -> None:
    scan = Op("aten::cumsum", "void at::native::tensor_kernel_scan_innermost_dim<float>(int)", 900, grid=4)
    (one,) = found(program([scan, Op("aten::mm", NVJET, 100)]), "low-occupancy")
    assert (one.by, one.evidence["blocks"], one.evidence["sms"]) == ("aten::cumsum", 4, 132)
    persistent = Op("aten::mm", NVJET, 900, grid=132)
    assert found(program([persistent]), "low-occupancy") == []


def test_without_multiprocessors_occupancy_is_not_judged() -> None:
    device = {key: value for key, value in H200.items() if key != "numSms"}
    report = diagnose(program([Op("aten::mm", NVJET)], device=device), select=["low-occupancy"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE


CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"


def test_a_cache_that_grows_by_cat_is_told_from_other_concatenations() -> None:
    grows = Op("aten::cat", CAT, 30, [[[32, 16, 500, 128], [32, 16, 1, 128]], []], ["TensorList", "Scalar"])
    (one,) = found(program([grows, Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert (one.cause, one.evidence["new"]) == ("growing-buffer", "32x16x1x128")
    joins = Op("aten::cat", CAT, 30, [[[32, 64], [32, 64]], []], ["TensorList", "Scalar"])
    (other,) = found(program([joins, Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert other.cause == "concatenation"


def test_a_call_far_from_what_its_shapes_need_is_found_without_knowing_why() -> None:
    index = Op(
        "aten::index_add_",
        "indexFuncLargeIndex",
        4_300,
        [[16], [], [1 << 24], [1 << 24], []],
        [F32, "Scalar", "long int", F32, "Scalar"],
    )
    (one,) = found(program([index]), "far-from-bound")
    assert (one.by, one.confidence) == ("aten::index_add_", Confidence.MEDIUM)
    assert one.evidence["ratio"] > 50
    near = Op("aten::add", ADD, 60, BIG, [F32, F32])
    assert found(program([near]), "far-from-bound") == []


def test_far_from_bound_needs_shapes() -> None:
    report = diagnose(program([Op("aten::mm", NVJET, 100)]), select=["far-from-bound"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE
    assert "record_shapes" in (report.outcomes[0].why or "")


def test_gathers_are_said_for_information() -> None:
    index = Op(
        "aten::index_select",
        "void vectorized_gather_kernel<16, long>(char*)",
        100,
        [[20000, 64], [], [219991]],
        [F32, "Scalar", "long int"],
    )
    (one,) = found(program([index, Op("aten::mm", NVJET, 100)]), "data-movement")
    assert (one.cause, one.severity) == ("gathers", Severity.INFO)


def test_anomaly_mode_is_seen_by_its_checks() -> None:
    trace = TraceBuilder()
    number = 0
    for step in range(4):
        begin = step * 400 * US
        trace.step(step, begin, 399 * US)
        for node in range(5):
            at = begin + node * 70 * US
            trace.op(f"autograd::engine::evaluate_function: MulBackward{node}", at, 60 * US)
            for place, name in enumerate(("aten::ne", "aten::any", "aten::item")):
                number += 1
                trace.op(name, at + (20 + 10 * place) * US, 9 * US)
                trace.launch("cudaLaunchKernel", at + (21 + 10 * place) * US, 3 * US, number)
                trace.kernel(at + (26 + 10 * place) * US, 2 * US, number)
    (one,) = found(trace.load(), "recomputation")
    assert (one.cause, one.evidence["checks"]) == ("anomaly-mode", 20)


def test_a_net_yields_where_others_claimed_most_of_its_time() -> None:
    scan = Op(
        "aten::cumsum",
        "void at::native::tensor_kernel_scan_innermost_dim<float>(int)",
        3_000,
        [[4, 1 << 20], [], []],
        [F32, "Scalar", ""],
        grid=4,
    )
    trace = program([scan, Op("aten::mm", NVJET, 100)])
    report = diagnose(trace, select=["low-occupancy", "far-from-bound"])
    assert [one.rule for one in report.findings] == ["low-occupancy"]
    assert [one.by for one in found(trace, "far-from-bound")] == ["aten::cumsum"]


def backward(numbers: Sequence[int | None], node: str = "MulBackward0") -> TraceBuilder:
    """Six steps of one backward node whose ops have these sequence numbers, a kernel each."""
    trace, number = TraceBuilder(), 0
    for step in range(6):
        begin = step * 1_000 * US
        trace.step(step, begin, 999 * US)
        trace.op(f"autograd::engine::evaluate_function: {node}", begin, 900 * US)
        trace.op(node, begin + 1 * US, 890 * US)
        for place, sequence in enumerate(numbers):
            number, at = number + 1, begin + (10 + 20 * place) * US
            recorded = {} if sequence is None else {"Sequence number": sequence}
            trace.op("aten::mm", at, 15 * US, **recorded)
            trace.launch("cudaLaunchKernel", at + 1 * US, 3 * US, number)
            trace.kernel(begin + (50 + 100 * place) * US, 99 * US, number, name=NVJET)
    return trace


def test_forward_within_backward_is_known_by_its_sequence_numbers() -> None:
    (one,) = found(backward([7, 8, None]).load(), "recomputation")
    assert (one.cause, one.count) == ("checkpoint", 12)
    (other,) = found(backward([7, 8], "CheckpointFunctionBackward").load(), "recomputation")
    assert other.count == 12


def test_gradients_of_gradients_are_no_recomputation() -> None:
    assert found(backward([7, 8, 9]).load(), "recomputation") == []
    assert found(backward([None, None]).load(), "recomputation") == []


def test_a_little_checkpointing_is_a_choice() -> None:
    (one,) = found(backward([7, *[None] * 11][:8]).load(), "recomputation")
    assert one.severity is not Severity.INFO  # an eighth of the GPU's time
    (less,) = diagnose(
        backward([7, None]).load(), select=["recomputation"], settings={"recomputation.choice_share": "0.6"}
    ).findings
    assert less.severity is Severity.INFO
