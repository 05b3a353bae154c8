"""Conversions around matrix products: small built traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.kernel_programs import BF16, F32, F64, NVJET, US, Op, found, program
from tests.rules.test_kernel_patterns import ADD, BIG, CAST, SOFTMAX, pointwise
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Work
from traceanalyzer.rules.kernels.dtype_casts import neighbors_of


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
    (one,) = found(
        program([Op("aten::mm", NVJET, 86), cast, Op("aten::_softmax", SOFTMAX, 40)]), "dtype-casts"
    )
    assert (one.cause, list(one.evidence["readers"])) == ("results", ["aten::_softmax"])
    assert "softmax(dtype=torch.float32)" in one.advice
    assert one.evidence["conversions"] == {"from bfloat16 to float32": 6 * 26 * US}


def test_a_result_converted_at_the_head_of_a_chain_is_the_chains() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [F32, BF16, "Scalar"])
    chain = [
        Op("aten::mm", NVJET, 86),
        cast,
        *pointwise(BIG, BIG, BIG),
        Op("aten::_softmax", SOFTMAX, 40),
    ]
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
            trace.launch("cudaLaunchKernel", at + 15 * US, 6 * US, number)
            trace.kernel(at + 25 * US, 3 * US, number, name=CAST)
            trace.op("aten::mm", at + 32 * US, 16 * US)
            trace.launch("cudaLaunchKernel", at + 38 * US, 6 * US, number + 1)
            trace.kernel(at + 46 * US, 3 * US, number + 1, name=NVJET)
            at += 50 * US
            for _ in range(others):
                number += 1
                trace.op("aten::cumsum", at, 20 * US)
                trace.launch("cudaLaunchKernel", at + 8 * US, 6 * US, number + 1)
                trace.kernel(at + 16 * US, 2 * US, number + 1, name="scan")
                at += 20 * US
            number += 2
        trace.step(step, begun, at - begun)
    return trace


@pytest.mark.parametrize(
    ("names", "share"),
    [
        (("aten::to", "aten::_to_copy", "aten::copy_"), 0.55),
        (("own::cast", "own::pick", "aten::copy_"), 0.2),
    ],
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
def test_in_training_casts_are_worth_it_from_a_tenth_of_the_time(
    product_us: int, trained: bool, said: int
) -> None:
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
    (before, some_before), (after, some_after) = neighbors_of(
        work, work[np.array([0, 2])], work[np.array([1])]
    )
    assert (some_before.tolist(), some_after.tolist()) == ([False, True], [True, False])
    assert before.entries[1] == after.entries[0] == work.entries[1]
