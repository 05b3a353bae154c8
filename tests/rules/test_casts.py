"""Conversions around matrix products: small built traces."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import BF16, F32, F64, NVJET, US, Op, found, program
from tests.rules.test_kernel_patterns import ADD, BIG, CAST, SOFTMAX, pointwise


def test_casts_before_products_are_found() -> None:
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [BF16, F32, "Scalar"])
    (one,) = found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts")
    assert one.evidence["conversions"] == {"from float32 to bfloat16": 6 * 26 * US}
    assert found(program([cast, Op("aten::add", ADD, 86)]), "dtype-casts") == []
    assert (one.cause, "Keep weights" in one.advice) == ("", True)


@pytest.mark.parametrize("kinds", [(F64, F32), (F32, F64), (F32, "unsigned char")])
def test_only_casts_between_narrower_floats_are_the_products(kinds: tuple[str, str]) -> None:
    """Doubles are float64-math's, and images that come as bytes must be converted."""
    cast = Op("aten::copy_", CAST, 26, [*BIG, []], [*kinds, "Scalar"])
    assert found(program([cast, Op("aten::mm", NVJET, 86)]), "dtype-casts") == []


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
