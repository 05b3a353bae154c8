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
NODE = "autograd::engine::evaluate_function: ScaledDotProductCudnnAttentionBackward0"


def attention(
    mask: list[int],
    *,
    kernel: str = "aten::_cudnn_attention_forward",
    queries: int = 4_096,
    keys: int = 4_096,
) -> Trace:
    """Layers of attention, each of which converts its mask: outer ops by hand, since kernels have ops of their own."""
    bias = [2, 1, queries, keys]
    qkv = [[2, 12, queries, 64], *[[2, 12, keys, 64]] * 2]
    outer: dict[str, Any] = {"Input Dims": [*qkv, mask], "Input type": [BF16] * 3 + ["bool"]}
    ops = [
        Op("aten::where", WHERE, 90, [bias, [], []], ["bool", BF16, BF16]),
        Op(kernel, FORWARD, 380, [*qkv, bias], [BF16] * 4),
        Op("aten::_cudnn_attention_backward", BACKWARD, 980, [*qkv, bias], [BF16] * 4, inside=NODE),
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


@pytest.mark.parametrize(
    ("queries", "keys", "mask", "said"),
    [
        pytest.param(4_096, 1_024, [2, 1, 4_096, 1_024], 1, id="of one sequence to another"),
        pytest.param(4_096, 1_024, [2, 1, 1_024, 4_096], 0, id="turned round"),
        pytest.param(64, 4_096, [1, 64, 4_096], 1, id="64 queries"),
        pytest.param(63, 4_096, [1, 63, 4_096], 0, id="63 queries"),
        pytest.param(4_096, 4_096, [12, 4_096, 4_096], 0, id="of each head, without a batch"),
    ],
)
def test_a_mask_has_rows_of_queries_and_columns_of_keys(
    queries: int, keys: int, mask: list[int], said: int
) -> None:
    told = found(attention(mask, queries=queries, keys=keys), "masked-attention")
    assert [one.evidence["mask"] for one in told] == ["x".join(map(str, mask))] * said
