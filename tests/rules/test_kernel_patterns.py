"""Rules about patterns of GPU work (chains, attention, casts, copies, few blocks): small built traces."""

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.kernel_programs import BF16, F32, F64, NVJET, US, Op, found, program
from tests.support.pointwise_chains import ADD, ATTENTION, BIG, SMALL, SOFTMAX, SUM, pointwise
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.rule import Work
from traceanalyzer.rules.kernels.dtype_casts import neighbors_of

CAST = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda(float)#1}, Arrays>(int)"
)


def test_a_reduction_and_its_row_belong_to_the_chain() -> None:
    mean = Op("aten::mean", SUM, 30, [[4096, 4096], []], [F32, ""])
    norm = [*pointwise(BIG), mean, *pointwise(SMALL, BIG, BIG)]
    (one,) = found(program([*norm, Op("aten::mm", NVJET, 100)]), "unfused-pointwise")
    assert one.evidence["chains"] == 6
    assert one.evidence["kernels_in_chains"] == 30


def loss(classes: int) -> list[Op]:
    """A loss over classes as autocast runs it: casts and products around log_softmax, all within one op."""
    whole = [[512, classes], [512, classes], []]
    kinds = ("aten::_to_copy", "aten::mul", "aten::add")
    return [Op(kind, ADD, 40, whole, [F32, F32], inside="aten::cross_entropy_loss") for kind in kinds]


@pytest.mark.parametrize(("classes", "named"), [(32_000, True), (19, False)])
def test_a_chain_of_a_loss_over_a_vocabulary_is_named_as_such(classes: int, named: bool) -> None:
    (one,) = found(program([*loss(classes), Op("aten::mm", NVJET, 100)]), "unfused-pointwise")
    assert ("100.0 % of this is in the loss over all classes, for inputs of shape 512x32000" in one.message) is named
    assert one.advice.startswith("First check whether many labels of the loss are ignored (-100)") is named
    assert one.advice.endswith("Inductor makes one kernel of it.")


@pytest.mark.parametrize(("kind", "kernels"), [("LogSoftMaxForward", 18), ("SoftMaxForward", 18)])
def test_the_softmax_of_a_loss_is_fused_with_what_is_around_it(kind: str, kernels: int) -> None:
    kernel = f"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, {kind}Epilogue>(float)"
    ops = [*pointwise(BIG), Op("aten::_log_softmax", kernel, 60, BIG[:1], [F32]), *pointwise(BIG)]
    told = found(program([*ops, Op("aten::mm", NVJET, 100)]), "unfused-pointwise")
    assert sum(one.evidence["kernels_in_chains"] for one in told) == kernels


def test_another_size_begins_another_chain() -> None:
    half = [[2048, 4096], [2048, 4096]]
    ops = [*pointwise(BIG, BIG), *(Op("aten::add", ADD, 40, half, [F32, F32]) for _ in range(2))]
    assert found(program([*ops, Op("aten::mm", NVJET, 100)]), "unfused-pointwise") == []


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, Functor>(int)",
        "void at::native::index_elementwise_kernel<128, 4, gpu_index_kernel>(int)",
    ],
)
def test_lookups_in_tables_are_no_chain(kernel: str) -> None:
    ops = [Op("aten::embedding", kernel, 40, BIG, [F32, F32]) for _ in range(6)]
    assert found(program([*ops, Op("aten::mm", NVJET, 100)]), "unfused-pointwise") == []


def test_other_code_between_the_launches_cuts_a_chain() -> None:
    assert found(program([*pointwise(BIG, BIG, BIG, BIG, pause=300)]), "unfused-pointwise") == []


def test_an_optimizers_loop_over_parameters_is_no_chain() -> None:
    ops = [Op("aten::add_", ADD, 40, BIG, [F32, F32], inside="Optimizer.step#SGD.step") for _ in range(4)]
    assert found(program(ops), "unfused-pointwise") == []


def test_attention_by_hand_is_found_forward() -> None:
    (one,) = found(program([*ATTENTION, Op("aten::mm", NVJET, 100)]), "hand-written-attention")
    assert (one.evidence["forward"], one.evidence["backward"]) == (6, 0)
    assert one.cost_share == pytest.approx((578 - 87) / 683, abs=0.03)


def test_a_router_is_no_attention() -> None:
    router = [Op("aten::mm", NVJET, 50), Op("aten::_softmax", SOFTMAX, 20), Op("aten::mm", NVJET, 50)]
    assert found(program(router), "hand-written-attention") == []


def test_optimizer_kernels_are_not_short_of_blocks() -> None:
    kernel = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(int)"
    assert found(program([Op("aten::_fused_adamw_", kernel, 200, grid=36)]), "low-occupancy") == []


def test_without_multiprocessors_occupancy_is_not_judged() -> None:
    device = {key: value for key, value in H200.items() if key != "numSms"}
    report = diagnose(program([Op("aten::mm", NVJET)], device=device), select=["low-occupancy"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE


MOVED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int, int)"
)
HEADS = [[24, 8, 4, 512, 64], [24, 8, 4, 512, 64], []]
OUT, EXPANDED = [1048576, 131072, 32768, 64, 1], [262144, 32768, 0, 64, 1]


def copied(*read: int) -> Op:
    return Op("aten::copy_", MOVED, 40, HEADS, [BF16, BF16, "Scalar"], strides=[OUT, list(read), []])


@pytest.mark.parametrize(
    ("copy", "cause", "often"),
    [
        (copied(*EXPANDED), "repetition", "4 times"),
        (copied(262144, 32768, 64, 256, 1), "transposition", ""),
        (copied(0, 0, 0, 0, 0), "transposition", ""),  # one number for all: a fill
        (Op("aten::repeat_interleave", MOVED, 40), "repetition", "several times"),
        (Op("aten::clone", MOVED, 40), "transposition", ""),
    ],
)
def test_repeated_copies_differ_from_transposed_ones(copy: Op, cause: str, often: str) -> None:
    (one,) = found(program([copy, Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert (one.cause, one.evidence["often"]) == (cause, often)
    assert ("broadcast" in one.advice) == (cause == "repetition")


@pytest.mark.parametrize(("rows", "said"), [(512, True), (4096, False)])
def test_writes_into_a_buffer_are_not_needless_copies(rows: int, said: bool) -> None:
    """A cache of as many rows as are written is written as a whole."""
    dims = [[24, 8, 512, 64], [24, 8, 512, 64], []]
    strides = [[8 * rows * 64, rows * 64, 64, 1], [262144, 64, 512, 1], []]
    write = Op("aten::copy_", MOVED, 40, dims, [BF16, BF16, "Scalar"], strides=strides)
    assert bool(found(program([write, Op("aten::mm", NVJET, 100)]), "strided-copy")) is said


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


def test_casts_before_products_are_found() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"])
    (one,) = found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts")
    assert one.evidence["conversions"] == {"from float32 to bfloat16": 6 * 26 * US}
    assert found(program([cast, Op("aten::add", ADD, 86)]), "dtype-casts") == []
    assert (one.cause, "Keep weights" in one.advice) == ("", True)
    assert (
        "right before a matrix product (mostly from float32 to bfloat16): these conversions take 23.2 % of all GPU work"
        in one.message
    )


@pytest.mark.parametrize("kinds", [(F64, F32), (F32, F64), (F32, "unsigned char")])
def test_only_casts_between_narrower_floats_are_the_products(kinds: tuple[str, str]) -> None:
    """Doubles are float64-math's, and images that come as bytes must be converted."""
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [*kinds, "Scalar"])
    assert found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts") == []


def test_a_cast_is_read_by_the_next_work_of_stream_and_step() -> None:
    cast, product = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"]), Op("aten::mm", NVJET, 86)
    other = Op("aten::cumsum", "scan", 20)
    assert found(program([cast, product]), "dtype-casts")[0].cause == ""
    assert found(program([replace(cast, stream=13), product]), "dtype-casts") == []
    assert found(program([product, other, cast]), "dtype-casts") == []
    assert found(program([cast, other, product]), "dtype-casts") == []


def test_casts_of_results_are_no_matter_of_weights() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [F32, BF16, "Scalar"])
    (one,) = found(program([Op("aten::mm", NVJET, 86), cast, Op("aten::_softmax", SOFTMAX, 40)]), "dtype-casts")
    assert (one.cause, list(one.evidence["readers"])) == ("results", ["aten::_softmax"])
    assert "softmax(dtype=torch.float32)" in one.advice
    assert one.evidence["conversions"] == {"from bfloat16 to float32": 6 * 26 * US}


def test_a_result_converted_at_the_head_of_a_chain_is_the_chains() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [F32, BF16, "Scalar"])
    chain = [Op("aten::mm", NVJET, 86), cast, *pointwise(BIG, BIG, BIG), Op("aten::_softmax", SOFTMAX, 40)]
    assert len(found(program(chain), "unfused-pointwise")) == 1
    assert found(program(chain), "dtype-casts") == []


def casting(names: tuple[str, ...], others: int = 0) -> TraceBuilder:
    """Steps of 100 small layers whose weights are converted first, in ops within each other, and of other ops."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(6):
        begun = at
        for _ in range(100):
            trace.op("aten::linear", at, 50 * US)
            for depth, name in enumerate(names):
                trace.op(name, at + (2 + depth) * US, (28 - 2 * depth) * US)
            number += 2
            trace.launched((at + 15 * US, 6 * US), (at + 25 * US, 3 * US), name=CAST)
            trace.op("aten::mm", at + 32 * US, 16 * US)
            trace.launched((at + 38 * US, 6 * US), (at + 46 * US, 3 * US), number + 1, name=NVJET)
            at += 50 * US
            for _ in range(others):
                number += 1
                trace.op("aten::cumsum", at, 20 * US)
                trace.launched((at + 8 * US, 6 * US), (at + 16 * US, 2 * US), number + 1, name="scan")
                at += 20 * US
            number += 2
        trace.step(step, begun, at - begun)
    return trace


@pytest.mark.parametrize(
    ("names", "share"),
    [(("aten::to", "aten::_to_copy", "aten::copy_"), 0.55), (("own::cast", "own::pick", "aten::copy_"), 0.2)],
)
def test_pure_conversions_save_their_cpu_time(names: tuple[str, ...], share: float) -> None:
    """Autocast calls no `to` on weights that have the product's dtype; what another op converts, it still calls."""
    (one,) = found(casting(names).load(), "dtype-casts")
    assert one.saving is not None
    assert one.saving.share == pytest.approx(share, abs=0.1)


def test_casts_rank_before_cuda_graphs() -> None:
    findings = diagnose(casting(("aten::to", "aten::_to_copy", "aten::copy_"), 2).load()).findings
    assert [one.rule for one in findings][:2] == ["dtype-casts", "launch-bound"]
    (casts, launches) = (one.saving for one in findings[:2])
    assert casts is not None
    assert launches is not None
    assert 0.25 < casts.share < launches.share


GRADIENT = Op(
    "aten::copy_",
    CAST,
    2,
    [*BIG, []],
    [F32, BF16, "Scalar"],
    inside="autograd::engine::evaluate_function: ToCopyBackward0",
)


@pytest.mark.parametrize(
    ("product_us", "trained", "said"),
    [
        pytest.param(400, False, 1, id="6.1 % in inference"),
        pytest.param(400, True, 0, id="6.1 % in training"),
        pytest.param(900, False, 0, id="2.8 % in inference"),
        pytest.param(200, True, 1, id="11.4 % in training"),
    ],
)
def test_in_training_casts_are_worth_it_from_a_tenth_of_the_time(product_us: int, trained: bool, said: int) -> None:
    """Gradients of what was converted go back to float32; that is no cast to be avoided by itself."""
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"])
    ops = [cast, Op("aten::mm", NVJET, product_us), *[GRADIENT] * trained, Op("aten::mm", NVJET, 1)]
    assert [one.cost_ns for one in found(program(ops), "dtype-casts")] == [6 * 26 * US] * said


@pytest.mark.parametrize(("name", "said"), [("aten::native_batch_norm", 0), ("aten::linear", 1)])
def test_a_batch_norm_converts_its_own_statistics(name: str, said: int) -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"], inside=name)
    assert len(found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts")) == said


def test_what_also_moves_to_another_device_is_still_called() -> None:
    """x.to(device, dtype) keeps its time on the CPU, and its copy; the cast alone goes."""
    trace = casting(("aten::to", "aten::_to_copy", "aten::copy_"))
    calls = [event for event in trace.events if event["name"] == "aten::to"]
    for number, event in enumerate(calls, 100_000):
        at = round(event["ts"] * US)
        trace.launch("cudaMemcpyAsync", at + 1 * US, 1 * US, number)
        trace.memcpy(at + 4 * US, 1 * US, number, name="Memcpy HtoD (Pinned -> Device)")
    (one,) = found(trace.load(), "dtype-casts")
    assert one.saving is not None
    assert one.saving.share < 0.3


def test_first_and_last_work_have_no_neighbor() -> None:
    """Of three kernels the first and the third, by the second."""
    work = Analysis(program([Op("aten::mm", NVJET, 86)] * 3, steps=1)).index(Work).in_order()
    (before, some_before), (after, some_after) = neighbors_of(work, work[np.array([0, 2])], work[np.array([1])])
    assert (some_before.tolist(), some_after.tolist()) == ([False, True], [True, False])
    assert before.entries[1] == after.entries[0] == work.entries[1]


def test_reports_the_count_of_the_most_expensive_copies() -> None:
    """One of 90 us writes each element four times, two of 10 us twice."""
    dims = [[24, 8, 2, 512, 64], [24, 8, 2, 512, 64], []]
    strides = [[524288, 65536, 32768, 64, 1], EXPANDED, []]
    short = Op("aten::copy_", MOVED, 10, dims, [BF16, BF16, "Scalar"], strides=strides)
    copies = [replace(copied(*EXPANDED), dur=90), short, short]
    (one,) = found(program([*copies, Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert (one.count, one.evidence["often"]) == (18, "4 times")


def test_requested_copies_may_write_parts_without_strides() -> None:
    own = replace(copied(262144, 32768, 64, 256, 1), strides=[])
    assert found(program([own, Op("aten::mm", NVJET, 100)]), "strided-copy") == []
    (inner,) = found(program([replace(own, inside="aten::contiguous"), Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert inner.cause == "transposition"
