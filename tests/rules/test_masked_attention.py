"""Attention with a mask that fused kernels read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, NVJET, Op, found, program
from traceanalyzer import Severity, Trace

FORWARD, BACKWARD = (
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop",
    "cudnn_generated_fort_native_sdpa_sm90_bprop",
)
WHERE = "void at::native::elementwise_kernel<128, 4, WhereFunctor>(int)"
QKV = [[2, 12, 4_096, 64]] * 3
NODE = "autograd::engine::evaluate_function: ScaledDotProductCudnnAttentionBackward0"


def attention(mask: list[int], *, kernel: str = "aten::_cudnn_attention_forward") -> Trace:
    """Layers of attention, each of which converts its mask: outer ops by hand, since kernels have ops of their own."""
    bias = [2, 1, 4_096, 4_096]
    outer: dict[str, Any] = {"Input Dims": [*QKV, mask], "Input type": [BF16] * 3 + ["bool"]}
    ops = [
        Op("aten::where", WHERE, 90, [bias, [], []], ["bool", BF16, BF16]),
        Op(kernel, FORWARD, 380, [*QKV, bias], [BF16] * 4),
        Op("aten::_cudnn_attention_backward", BACKWARD, 980, [*QKV, bias], [BF16] * 4, inside=NODE),
        Op("aten::mm", NVJET, 300, [[4_096, 768], [768, 768]], [BF16, BF16]),
    ]
    return program(ops, around={0: ("aten::scaled_dot_product_attention", 2, outer)})


def test_a_mask_that_is_the_same_for_all_heads() -> None:
    (one,) = found(attention([2, 1, 4_096, 4_096]), "masked-attention")
    assert (one.severity, one.saving) == (Severity.LOW, None)
    assert one.cost_ns == pytest.approx(6_000 * (90 + 380 * 0.4 + 980 * 0.43), rel=0.001)
    assert "a mask of 2x1x4096x4096" in one.message
    assert "540 µs of this in conversions" in one.message


def test_a_mask_without_batch_and_heads_is_the_same_for_all() -> None:
    (one,) = found(attention([4_096, 4_096]), "masked-attention")
    assert "a mask of 4096x4096" in one.message


@pytest.mark.parametrize(
    "trace",
    [
        attention([2, 12, 4_096, 4_096]),  # a bias for each head
        attention([]),
        attention([2, 1, 1, 4_096]),
        attention([2, 1, 4_096, 4_096], kernel="aten::bmm"),  # no fused kernel
    ],
)
def test_masks_that_are_no_masks_of_all_heads(trace: Trace) -> None:
    assert found(trace, "masked-attention") == []
