"""The models of work against counts made by hand."""

import pytest

from tests.support.op_calls import BF16, F32, LONG, signature
from traceanalyzer.tensors.ops.table import flops_of, op_cost
from traceanalyzer.tensors.signatures import Signature, largest_odd_size
from traceanalyzer.torch_table.key_averages import torch_flops

CONV = [[8, 3, 32, 32], [64, 3, 5, 5], [], [], [], [], [], [], []]
QKV = [[2, 128, 4, 64]] * 3
ATTENTION = 4 * 2 * 4 * 128 * 128 * 64
CASES = {
    "mm": (signature("mm", [[4, 6], [6, 5]], [BF16, BF16]), "matmul", 240, (24 + 30 + 20) * 2, "bf16"),
    "bmm": (signature("bmm", [[3, 4, 6], [3, 6, 5]], [F32, F32]), "matmul", 720, (72 + 90 + 60) * 4, "fp32"),
    "addmm": (signature("addmm", [[5], [4, 6], [6, 5]], [F32] * 3), "matmul", 240, (5 + 24 + 30 + 20) * 4, "fp32"),
    "conv": (
        signature("cudnn_convolution", CONV, [BF16, BF16], *["", "", "[2, 2]", "[2, 2]", "[1, 1]", "1"]),
        "conv",
        2 * 8 * 64 * 16 * 16 * 3 * 25,
        (8 * 3 * 32 * 32 + 64 * 75 + 8 * 64 * 16 * 16) * 2,
        "bf16",
    ),
    "conv_backward": (
        signature(
            "convolution_backward",
            [[8, 64, 16, 16], [8, 3, 32, 32], [64, 3, 5, 5]],
            [F32] * 3,
            *["", "", "", "[64]", "[2, 2]", "[2, 2]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, False]"],
        ),
        "conv",
        2 * 8 * 64 * 16 * 16 * 3 * 25,
        (8 * 64 * 256 + 2 * 8 * 3 * 1024 + 2 * 64 * 75) * 4,
        "fp32",
    ),
    "depthwise": (
        signature(
            "_conv_depthwise2d",
            [[1, 32, 1, 99], [32, 1, 1, 10], [], [], [], [], []],
            [BF16, BF16],
            *["", "", "[1, 10]", "", "[1, 1]", "[0, 0]", "[1, 1]"],
        ),
        "depthwise conv",
        2 * 32 * 90 * 10,
        (32 * 99 + 32 * 10 + 32 * 90) * 2,
        "fp32",
    ),
    "grouped": (
        signature(
            "cudnn_convolution",
            [[2, 8, 9], [16, 2, 3], [], [], [], [], [], [], []],
            [BF16, BF16],
            *["", "", "[1]", "[2]", "[1]", "4"],
        ),
        "conv",
        2 * 2 * 16 * 5 * 2 * 3,
        (2 * 8 * 9 + 16 * 2 * 3 + 2 * 16 * 5) * 2,
        "bf16",
    ),
    "transposed": (
        signature(
            "cudnn_convolution_transpose",
            [[2, 8, 5], [8, 3, 4], [], [], [], [], []],
            [F32, F32],
            *["", "", "[1]", "[1]", "[2]", "[1]", "2"],
        ),
        "conv",
        2 * 2 * 8 * 5 * 3 * 4,
        (2 * 8 * 5 + 8 * 3 * 4 + 2 * 6 * 11) * 4,
        "fp32",
    ),
    "transposed, 3d": (
        signature(
            "slow_conv_transpose3d",
            [[1, 4, 3, 3, 3], [4, 2, 2, 2, 2], [], [], [], [], [], []],
            [F32, F32],
            *["", "", "[2, 2, 2]", "", "[2, 2, 2]", "[0, 0, 0]", "[0, 0, 0]", "[1, 1, 1]"],
        ),
        "conv",
        2 * 4 * 27 * 2 * 8,
        (4 * 27 + 4 * 2 * 8 + 2 * 216) * 4,
        "fp32",
    ),
    "transposed, backward": (
        signature(
            "convolution_backward",
            [[2, 6, 11], [2, 8, 5], [8, 3, 4]],
            [F32] * 3,
            *["", "", "", "[0]", "[2]", "[1]", "[1]", "True", "[1]", "2", "[True, True, False]"],
        ),
        "conv",
        2 * 2 * 2 * 8 * 5 * 3 * 4,
        (2 * 2 * 6 * 11 + 2 * 2 * 8 * 5 + 2 * 8 * 3 * 4) * 4,
        "fp32",
    ),
    "flash": (
        signature("_flash_attention_forward", QKV, [BF16] * 3, *([""] * 8 + ["False"])),
        "attention",
        ATTENTION,
        4 * 2 * 128 * 4 * 64 * 2,
        "bf16",
    ),
    "flash_causal": (
        signature("_flash_attention_forward", QKV, [BF16] * 3, *([""] * 8 + ["True"])),
        "attention",
        ATTENTION // 2,
        4 * 2 * 128 * 4 * 64 * 2,
        "bf16",
    ),
    "cudnn_backward": (
        signature("_cudnn_attention_backward", [[2, 4, 128, 64]] * 4, [BF16] * 4, *([""] * 14 + ["False"])),
        "attention",
        ATTENTION * 5 // 2,
        8 * 2 * 128 * 4 * 64 * 2,
        "bf16",
    ),
    "add": (signature("add", [[8, 16], [16], []], [BF16, F32, "Scalar"]), "elementwise", None, 256 + 64 + 512, None),
    "mul_": (signature("mul_", [[8, 16], [8, 16]], [BF16, F32]), "elementwise", None, 256 + 512 + 256, None),
    "mul_scalar": (signature("mul", [[8, 16], []], [BF16, "double"]), "elementwise", None, 512, None),
    "eq": (signature("eq", [[10], []], [LONG, LONG]), "elementwise", None, 90, None),
    "copy_": (signature("copy_", [[8], [8], []], [F32, BF16, "Scalar"]), "elementwise", None, 48, None),
    "zero_": (signature("zero_", [[8]], [F32]), "elementwise", None, 32, None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_work_of_one_call(case: tuple[Signature, str, int | None, int, str | None]) -> None:
    op, kind, flops, moved, arithmetic = case
    work = op_cost(op)
    assert work is not None
    assert (work.kind, work.flops, work.bytes, work.arithmetic) == (kind, flops, moved, arithmetic)


UNKNOWN = {
    "no_model": signature("mine", [[4, 4]], [F32]),
    "no_shapes": signature("mm", [], []),
    "not_a_product": signature("mm", [[4, 5], [6, 7]], [F32, F32]),
    "list_of_tensors": signature("add", [[[4], [5]], [4]], [F32, F32]),
    "unknown_type": signature("mm", [[4, 6], [6, 5]], ["c10::Odd", "c10::Odd"]),
    "unread_scalar": signature("cudnn_convolution", CONV, [F32, F32], *["", "", "[2", "[2]", "[1]", "1"]),
    "no_mask": signature("convolution_backward", [[1, 1, 1]] * 3, [F32] * 3, *([""] * 7 + ["False", "", "", ""])),
    "varlen": signature("_flash_attention_forward", [[256, 4, 64]] * 3, [BF16] * 3, *([""] * 8 + ["False"])),
}


@pytest.mark.parametrize("op", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_inputs_do_not_tell_has_no_answer(op: Signature) -> None:
    assert op_cost(op) is None
    assert torch_flops(op) == 0 or op.name == "aten::add"


def test_damaged_inputs_are_empty() -> None:
    assert Signature.parsed("aten::mm", "[[4,", '{"a": 1}', None) == Signature("aten::mm", (), (), ())


def test_torch_counts_seven_ops() -> None:
    conv = signature("conv2d", [*CONV[:2], [], [], [], [], []], [F32, F32], *["", "", "", "[2, 2]", "2", "[1, 1]", "1"])
    assert torch_flops(conv) == 2 * 8 * 64 * 16 * 16 * 3 * 25
    assert torch_flops(CASES["bmm"][0]) == 720
    assert torch_flops(signature("mul", [[8, 16], []], [F32, F32])) == 128
    assert torch_flops(signature("relu", [[8, 16]], [F32])) == 0


def test_sizes_that_nothing_has_are_left_out() -> None:
    vast = signature("mm", [[2**70, 7], [7, 9]], [BF16] * 2)
    assert flops_of(vast) == 0
    assert largest_odd_size(vast, 8) == 9
    assert flops_of(signature("mm", [[4, 8], [8, 2]], [BF16] * 2)) == 2 * 4 * 8 * 2


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_write_one_byte_per_element(name: str) -> None:
    assert op_cost(signature(name, [[10], [10]], [F32, F32])).bytes == 10 * (4 + 4 + 1)


@pytest.mark.parametrize(
    ("name", "first", "causal"),
    [
        ("_flash_attention_forward", 0, 8),
        ("_flash_attention_backward", 1, 11),
        ("_efficient_attention_backward", 1, 14),
    ],
)
def test_a_causal_mask_halves_attention_whichever_argument_it_is(name: str, first: int, causal: int) -> None:
    dims = [[2, 128, 4, 64]] * (first + 3) + [[]] * 16
    types = [BF16] * (first + 3) + [""] * 16

    def flops(mask: str) -> int | None:
        scalars = [""] * len(dims)
        scalars[causal] = mask
        return op_cost(signature(name, dims, types, *scalars)).flops

    assert flops("False") == ATTENTION * (5 if "backward" in name else 2) // 2
    assert flops("True") == flops("False") // 2  # type: ignore[operator]
