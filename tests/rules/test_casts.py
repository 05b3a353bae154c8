"""Conversions around matrix products: small built traces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builder import TraceBuilder
from tests.rules.kernel_programs import BF16, F32, F64, NVJET, US, Op, found, program
from tests.rules.test_kernel_patterns import ADD, BIG, CAST, SOFTMAX, pointwise
from traceanalyzer import diagnose


def test_casts_before_products_are_found() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"])
    (one,) = found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts")
    assert one.evidence["conversions"] == {"from float32 to bfloat16": 6 * 26 * US}
    assert found(program([cast, Op("aten::add", ADD, 86)]), "dtype-casts") == []
    assert (one.cause, "Keep weights" in one.advice) == ("", True)
    assert (
        "right before a matrix product (mostly from float32 to bfloat16): 23.2 % of all GPU work"
        in one.message
    )


@pytest.mark.parametrize("kinds", [(F64, F32), (F32, F64), (F32, "unsigned char")])
def test_only_casts_between_narrower_floats_are_the_products(kinds: tuple[str, str]) -> None:
    """Doubles are float64-math's, and images that come as bytes must be converted."""
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [*kinds, "Scalar"])
    assert found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts") == []


def test_only_what_is_next_on_the_same_stream_in_the_same_step_reads_a_cast() -> None:
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
def test_what_converts_and_does_nothing_else_goes_with_its_time_on_the_cpu(
    names: tuple[str, ...], share: float
) -> None:
    """Autocast calls no `to` on weights that have the product's dtype; what another op converts, it still calls."""
    (one,) = found(casting(names).load(), "dtype-casts")
    assert one.saving is not None
    assert one.saving.share == pytest.approx(share, abs=0.1)


def test_casts_are_said_before_that_a_graph_would_take_the_other_launches() -> None:
    findings = diagnose(casting(("aten::to", "aten::_to_copy", "aten::copy_"), 2).load()).findings
    assert [one.rule for one in findings][:2] == ["dtype-casts", "launch-bound"]
    (casts, launches) = (one.saving for one in findings[:2])
    assert casts is not None
    assert launches is not None
    assert 0.25 < casts.share < launches.share
