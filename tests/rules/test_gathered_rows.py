"""Rows that are gathered, scaled or upsampled before a linear layer."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, Op, found, program
from tests.support.gathered_products import GEMM, MOVE
from tests.support.reordered_work import upsampled


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ([7, 128, 1, 1], True),
        ([64, 128, 1, 1], True),
        ([65, 128, 1, 1], False),
        ([7, 64, 1, 1], False),
        ([7, 128, 1, 3], False),
    ],
    ids=["1x1", "half the channels", "more than half", "two groups", "1x3"],
)
def test_only_1x1_convolutions_move_before_upsampling(weight: list[int], said: bool) -> None:
    up, conv, _ = upsampled()
    smaller = replace(conv, dims=[conv.dims[0], weight, weight[:1]])
    ops = [up, smaller, Op("aten::relu", MOVE, 9, [[7]], [F32])]
    assert bool(found(program(ops), "late-projection")) is said


def test_upsampling_a_gradient_or_less_than_twice_is_no_matter() -> None:
    up, conv, relu = upsampled()
    small = replace(up, dims=[[8, 128, 500, 500], [], [], []])
    assert found(program([small, conv, relu]), "late-projection") == []
    other = replace(up, dims=[[8, 64, 128, 128], [], [], []])
    assert found(program([other, conv, relu]), "late-projection") == []


def test_backward_may_read_what_was_upsampled() -> None:
    wide = [8, 128, 512, 512]
    node = Op("autograd::engine::evaluate_function: ConvolutionBackward0", GEMM, 10, [wide], [F32])
    assert found(program([*upsampled(), node]), "late-projection")
    assert found(program([*upsampled(), replace(node, name="aten::mean")]), "late-projection") == []
