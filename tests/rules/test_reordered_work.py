"""Work that another place in the program saves: a layer that comes too late, a prefix or a table made again."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import Op, found, program
from tests.support.reordered_work import F32, MOVE, SHAPES, upsampled


def test_a_classifier_moves_before_upsampling() -> None:
    (one,) = found(program(upsampled()), "late-projection")
    assert one.cause == "upsampled"
    assert "makes 8x128x512x512 with 128 channels, and then a linear layer leaves 7 of 128" in one.message
    assert one.cost_ns == pytest.approx(6 * 1e3 * (2_400 * (1 - 7 / 128) + 800 * (1 - 1 / 16)), rel=0.01)


def test_scale_factors_take_the_size_of_the_inner_op() -> None:
    """F.interpolate(x, scale_factor=4): the op that is called has no size, the one inside has."""
    shapes = {"Input Dims": [[8, 128, 128, 128], [], [], []], "Input type": SHAPES}
    called = "aten::upsample_bilinear2d", 1, {**shapes, "Concrete Inputs": ["", "", "False", "[4., 4.]"]}
    ops = upsampled()
    (one,) = found(program(ops, around={0: called}), "late-projection")
    assert one.cost_ns == pytest.approx(6 * 1e3 * (2_400 * (1 - 7 / 128) + 800 * (1 - 1 / 16)), rel=0.01)
    other = [*ops, replace(ops[0], scalars=["", "[256, 256]"], dur=900)]
    (same,) = found(program(other, around={0: called}), "late-projection")
    assert same.cost_ns == one.cost_ns


def test_nonlinear_or_wide_layers_stay_after_upsampling() -> None:
    relu = Op("aten::relu", MOVE, 100, [[8, 128, 512, 512]], [F32])
    for ops in (upsampled(relu), upsampled(narrow=96), upsampled(kernel=3), [*upsampled(), relu]):
        assert found(program(ops), "late-projection") == []
