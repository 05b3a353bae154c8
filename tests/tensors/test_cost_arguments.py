"""Which argument of an op is which in the models of work: against counts made by hand."""

import math
from typing import Any

import pytest

from tests.support.op_calls import BF16, F32, signature
from traceanalyzer.roofline.op_rates import linked_op_cost_of
from traceanalyzer.tensors.ops.costs import OpCost
from traceanalyzer.tensors.ops.table import op_cost
from traceanalyzer.tensors.signatures import Signature, largest_odd_size


def cost(op: Signature) -> OpCost:
    found = op_cost(op)
    assert found is not None
    return found


def called(name: str, dims: list[Any], kind: str = F32, **at: str) -> Signature:
    """With these numbers at their positions: p5="[2]"."""
    scalars = [at.get(f"p{place}", "") for place in range(16)]
    return signature(name, [*dims, *[[]] * (16 - len(dims))], [kind] * len(dims), *scalars)


# Twenty positions, three taps; padded by 2 on both sides, every third of them, taps 4 apart.
@pytest.mark.parametrize(
    ("name", "padding", "stride", "dilation"),
    [
        ("cudnn_convolution", 2, 3, 4),
        ("cudnn_convolution_relu", 4, 3, 5),
        ("miopen_convolution", 3, 4, 5),
        ("miopen_depthwise_convolution", 3, 4, 5),
        ("_conv_depthwise2d", 5, 4, 6),
        ("conv_depthwise3d", 5, 4, 6),
        ("_slow_conv2d_forward", 5, 4, None),
        ("slow_conv_dilated2d", 5, 4, 6),
        ("slow_conv_dilated3d", 5, 4, 6),
    ],
)
def test_padding_stride_and_dilation_of_convolutions(
    name: str, padding: int, stride: int, dilation: int | None
) -> None:
    numbers = {f"p{padding}": "[2]", f"p{stride}": "[3]"} | ({f"p{dilation}": "[4]"} if dilation else {})
    positions = (24 - 4 * 2 - 1) // 3 + 1 if dilation else (24 - 2 - 1) // 3 + 1
    found = cost(called(name, [[5, 2, 20], [3, 2, 3]], **numbers))
    assert found.flops == 2 * 5 * 3 * positions * 2 * 3
    assert found.bytes == (5 * 2 * 20 + 3 * 2 * 3 + 5 * 3 * positions) * 4


@pytest.mark.parametrize(
    ("name", "padding", "stride", "dilation", "groups"),
    [
        ("cudnn_convolution_transpose", 2, 4, 5, 6),
        ("miopen_convolution_transpose", 3, 5, 6, 7),
        ("slow_conv_transpose2d", 5, 4, 7, None),
    ],
)
def test_a_transposed_convolution_makes_more_positions(
    name: str, padding: int, stride: int, dilation: int, groups: int | None
) -> None:
    numbers = {f"p{padding}": "[2]", f"p{padding + 1}": "[1]", f"p{stride}": "[3]", f"p{dilation}": "[4]"}
    if groups is not None:
        numbers[f"p{groups}"] = "1"
    positions = 19 * 3 - 2 * 2 + 4 * 2 + 1 + 1
    found = cost(called(name, [[5, 2, 20], [2, 7, 3]], **numbers))
    assert found.flops == 2 * 5 * 2 * 20 * 7 * 3
    assert found.bytes == (5 * 2 * 20 + 2 * 7 * 3 + 5 * 7 * positions) * 4


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [("[True, True, True]", 2), ("[False, False, True]", 0), ("[True,False,False]", 1), ("[True]", None)],
)
def test_the_gradient_of_a_bias_is_no_convolution(mask: str, wanted: int | None) -> None:
    op = called("convolution_backward", [[5, 3, 18], [5, 2, 20], [3, 2, 3]], p7="False", p10=mask)
    found = op_cost(op)
    assert (found and found.flops) == (None if wanted is None else wanted * 2 * 5 * 3 * 18 * 2 * 3)


@pytest.mark.parametrize(
    ("name", "first", "causal", "heads_first"),
    [
        ("_flash_attention_forward", 0, 8, False),
        ("_flash_attention_backward", 1, 11, False),
        ("_efficient_attention_forward", 0, 9, False),
        ("_efficient_attention_backward", 1, 14, False),
        ("_cudnn_attention_forward", 0, 10, True),
        ("_cudnn_attention_backward", 1, 14, True),
        ("_scaled_dot_product_cudnn_attention", 0, 6, True),
        ("_scaled_dot_product_cudnn_attention_backward", 1, 14, True),
    ],
)
def test_attention_with_other_keys_and_narrow_values(name: str, first: int, causal: int, heads_first: bool) -> None:
    """128 queries of 64 numbers, 96 keys, values of 32 numbers; 4 heads, 2 sequences."""

    def turned(rows: int, width: int) -> list[int]:
        return [2, 4, rows, width] if heads_first else [2, rows, 4, width]

    dims = [turned(128, 32)] * first + [turned(128, 64), turned(96, 64), turned(96, 32)]
    products, kept = (5, 2) if first else (2, 1)
    for mask, part in (("False", 1), ("True", 2)):
        found = cost(called(name, dims, BF16, **{f"p{causal}": mask}))
        assert found.flops == 2 * 8 * 128 * 96 * (64 + 32) * products // 2 // part
        assert found.bytes == 8 * (2 * 128 * 64 + 96 * 64 + 96 * 32) * kept * 2
        assert found.arithmetic == "bf16"


def test_products_of_two_types_and_of_many_matrices() -> None:
    assert cost(signature("mm", [[4, 6], [6, 5]], [F32, BF16])).bytes == (24 + 20) * 4 + 30 * 2
    bias = signature("addmm", [[5], [4, 6], [6, 5]], [F32, BF16, "double"])
    assert (cost(bias).bytes, cost(bias).arithmetic) == (5 * 4 + (24 + 20) * 2 + 30 * 8, "bf16")
    batch = signature("baddbmm", [[3, 4, 5], [3, 4, 6], [3, 6, 5]], [F32] * 3)
    assert (cost(batch).flops, cost(batch).bytes) == (2 * 3 * 4 * 5 * 6, (60 + 72 + 90 + 60) * 4)
    assert cost(signature("_addmm_activation", [[5], [4, 6], [6, 5]], [F32] * 3)).flops == 240
    assert op_cost(signature("bmm", [[3, 4, 6], [2, 6, 5]], [F32, F32])) is None
    fp8 = signature("mm", [[4, 6], [6, 5]], ["c10::Float8_e5m2"] * 2)
    assert (cost(fp8).arithmetic, cost(fp8).bytes) == ("fp8", 24 + 30 + 20)


@pytest.mark.parametrize(("kind", "arithmetic"), [(BF16, "fp32"), (F32, "fp32"), ("double", "fp64")])
def test_depthwise_convolution_uses_float32_except_doubles(kind: str, arithmetic: str) -> None:
    op = called("_conv_depthwise2d", [[1, 8, 20], [8, 1, 3]], kind, p4="[1]", p5="[0]", p6="[1]")
    assert (cost(op).kind, cost(op).arithmetic) == ("depthwise conv", arithmetic)


@pytest.mark.parametrize(
    ("dims", "odd"),
    [
        ([[9, 8], [8, 16]], 9),
        ([[16, 8], [8, 12]], 12),
        ([[9, 15], [15, 31]], 31),
        ([[3, 16, 8]], 0),  # a number of matrices is no stride
        ([[7]], 0),
        ([[16, 8], [], [8, 8]], 0),
    ],
)
def test_the_largest_size_that_is_no_multiple_of_eight(dims: list[Any], odd: int) -> None:
    assert largest_odd_size(signature("mm", dims, [BF16] * len(dims)), 8) == odd


def test_a_copy_over_the_link_moves_the_bytes_of_its_target() -> None:
    copy = signature("copy_", [[8], [8], []], [F32, BF16, "Scalar"])
    linked, local = linked_op_cost_of(copy), op_cost(copy)
    assert linked is not None
    assert local is not None
    assert (linked.kind, linked.bytes, local.bytes) == ("elementwise", 32, 48)
    add = signature("add", [[8], [8], []], [F32, F32, "Scalar"])
    assert linked_op_cost_of(add) == op_cost(add)
    assert linked_op_cost_of(signature("mine", [[8]], [F32])) is None


@pytest.mark.parametrize(
    ("name", "dims", "types", "moved"),
    [
        ("add", [[8, 1], [1, 16]], [F32, BF16], 8 * 4 + 16 * 2 + 128 * 4),
        ("add_", [[8, 16], [16]], [BF16, F32], 2 * 256 + 64),
        ("isnan", [[10]], [F32], 50),
        ("logical_and", [[10], [10]], ["bool", F32], 10 + 40 + 10),
        ("where", [[10], [10], []], ["bool", F32, "double"], 10 + 40 + 40),
        ("fill_", [[10], []], [BF16, "Scalar"], 20),
    ],
)
def test_elementwise_ops_read_inputs_and_write_the_broadcast(
    name: str, dims: list[Any], types: list[str], moved: int
) -> None:
    found = cost(signature(name, dims, types))
    assert (found.kind, found.flops, found.bytes) == ("elementwise", None, moved)


def test_an_expanded_source_is_read_as_far_as_it_is_in_memory() -> None:
    dims, strides = [[8, 16], [8, 16], []], ([16, 1], [0, 1], [])
    copy = Signature("aten::copy_", tuple(dims), (F32, F32, ""), ("", "", ""), strides)
    assert cost(copy).bytes == (math.prod([8, 16]) + 16) * 4
