"""Fused and quantized ops, and kernels of torch.compile: work that recorded arguments determine.

`fused_ops.json.gz`: three steps on an H200 with torch 2.11 and record_shapes=True. Each calls `_scaled_mm` in float8,
`_weight_int4pack_mm`, `_grouped_mm`, causal attention by each backend, and four functions under torch.compile.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.op_calls import BF16, F32, signature
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.roofline.gpus import device_peaks
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.roofline.op_rates import Inputs, OpWork
from traceanalyzer.tensors.ops.table import op_cost
from traceanalyzer.tensors.signatures import Signature

Shared = Callable[[str], Path]
RECORDED = Path(__file__).with_name("fused_ops.json.gz")


def rates(path: Path) -> dict[str, Inputs]:
    """What the largest inputs of each op achieved."""
    return {one.op: one for one in reversed(Analysis(load(path)).index(OpWork).inputs)}


@pytest.mark.parametrize(
    ("op", "tflops", "gbps", "peak_share"),
    [
        ("aten::_scaled_mm", 1_342, 819, 0.68),
        ("aten::_grouped_mm", 688, 1_847, 0.70),
        ("aten::_weight_int4pack_mm", 25, 420, 0.09),
        ("aten::_flash_attention_forward", 253, 495, 0.26),
        ("aten::_efficient_attention_forward", 145, 283, 0.15),
        ("aten::_cudnn_attention_forward", 468, 914, 0.47),
        ("triton_poi_fused_mul_silu_0", None, 3_123, 0.65),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", None, 3_567, 0.74),
    ],
)
def test_rates_of_recorded_calls(op: str, tflops: int | None, gbps: int, peak_share: float) -> None:
    one = rates(RECORDED)[op]
    assert (one.tflops and round(one.tflops), round(one.gbps or 0)) == (tflops, gbps)
    assert one.peak_share == pytest.approx(peak_share, abs=0.01)


@pytest.mark.parametrize(
    ("name", "op", "tflops"),
    [
        ("jobs/ao_ep_moe/ref", "aten::_grouped_mm", 1_337),  # B200
        ("public2/amd_units/moe_03_top1_sparse", "vllm::rocm_aiter_fused_moe", 332),
    ],
)
def test_experts_of_public_traces(shared: Shared, name: str, op: str, tflops: int) -> None:
    assert round(rates(shared(name))[op].tflops or 0) == tflops


def test_compiled_kernels_reach_no_more_than_the_memory(shared: Shared) -> None:
    compiled = [one for one in rates(shared("real/gpt2_train.compile")).values() if one.kind == "compiled"]
    assert len(compiled) > 30
    assert max(one.peak_share or 0 for one in compiled) < 1


def test_what_experts_compute_is_unknown_if_it_is_not_recorded(shared: Shared) -> None:
    """The choices of vLLM's experts are no input; torchao's rows have room for the tokens of both ranks, 2 x 8,192."""
    served, padded = rates(shared("public/tracelens_b200_eager")), rates(shared("jobs/ao_ep_moe/syncless"))
    experts, groups = served["vllm::moe_forward"], padded["aten::_scaled_grouped_mm"]
    for one in (experts, groups):
        assert (one.flops, one.bytes, one.peak_share) == (None, None, None)
    assert groups.why == "how many of its rows are padding is not recorded"
    # If none were padding, it would be faster than the device.
    tflops = 2 * 16_384 * 2_048 * 7_168 * groups.calls / groups.gpu_ns / 1e3
    peaks = device_peaks("NVIDIA B200")
    assert peaks is not None
    assert round(tflops) == 5_028 > peaks.tflops["fp8"]


def test_paged_attention_by_the_sums_in_the_mark(shared: Shared) -> None:
    """One prompt of 888 tokens with 8 heads and 64 numbers each, in 36 layers, half of them with a window.

    Queries of 8 bits, results of 16; keys and values for one head, of 8 bits in the cache.
    """
    one = rates(shared("public/tracelens_b200_eager"))["vllm::unified_attention_with_output"]
    pairs = (888 * 889 // 2 + 888) // 2  # in a window each query sees itself at least
    assert one.flops == 2 * 8 * (64 + 64) * pairs == 405_098_496
    assert one.bytes == 888 * 8 * 64 * (1 + 2) + 888 * 1 * (64 + 64) * 1 == 1_477_632
    assert (one.calls, one.gpu_ns, one.peak_tflops) == (36, 485_821, 4_500)
    assert (round(one.tflops or 0), round(one.gbps or 0), one.limit) == (30, 109, "memory")


@pytest.mark.parametrize(
    ("dims", "flops", "moved"),
    [
        ([[100, 32], [4, 32, 8], [4]], 2 * 100 * 32 * 8, 2 * (3_200 + 1_024 + 800)),  # rows of four products
        ([[16, 100], [100, 8], [4]], 2 * 16 * 100 * 8, 2 * (1_600 + 800 + 4 * 128)),  # four gradients of weights
        ([[4, 16, 32], [4, 32, 8], []], 2 * 4 * 16 * 32 * 8, 2 * (2_048 + 1_024 + 512)),
    ],
)
def test_grouped_products(dims: list[list[int]], flops: int, moved: int) -> None:
    cost = op_cost(signature("_grouped_mm", dims, [BF16, BF16, "int"]))
    assert cost is not None
    assert (cost.flops, cost.bytes, cost.arithmetic) == (flops, moved, "bf16")


def test_weights_of_four_bits_are_read_as_they_are_packed() -> None:
    dims = [[16, 4096], [512, 32, 32, 4], [], [32, 4096, 2]]
    cost = op_cost(signature("_weight_int4pack_mm", dims, [BF16, "int", "Scalar", BF16]))
    assert cost is not None
    packed, scales = 4096 * 4096 // 2, 32 * 4096 * 2 * 2
    assert (cost.flops, cost.bytes) == (2 * 16 * 4096 * 4096, packed + scales + 2 * 16 * 4096 * 2)


def test_experts_are_read_by_one_token_at_least_and_by_all_choices_at_most() -> None:
    dims = [[16, 8], [64, 20, 8], [64, 8, 10], [16, 2]]
    op = Signature("vllm::inplace_fused_experts", tuple(dims), (BF16, BF16, BF16, F32), ("",) * 4)
    cost, bound = op_cost(op), bound_of(op)
    assert cost is not None
    assert bound is not None
    expert, tokens = 2 * (20 * 8 + 8 * 10), 2 * 2 * 16 * 8
    assert cost.flops == 2 * 16 * 2 * (20 * 8 + 8 * 10)
    assert (cost.bytes, bound.bytes) == (2 * expert + tokens, 32 * expert + tokens)


def test_a_compiled_kernel_touches_no_more_than_its_elements() -> None:
    """Of a table of embeddings it reads as many elements as it has itself, and one tensor may be read and written."""
    dims = [[50_257, 64], [10], [10, 64], []]
    op = Signature("triton_poi_fused_embedding_0", tuple(dims), (BF16, "long int", BF16, "Scalar"), ("", "", "", "640"))
    cost, bound = op_cost(op), bound_of(op)
    assert cost is not None
    assert bound is not None
    assert (cost.bytes, bound.bytes) == (640 * 2 + 80 + 640 * 2, 640 * 2 + 80 + 640 * 2 + 640 * 2)
