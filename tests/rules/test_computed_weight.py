"""Weights that are computed from parameters in each call of a layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program

POINTWISE = "void at::native::vectorized_elementwise_kernel<4>(float*)"
NORM = "void at::native::weight_norm_fwd_first_dim_kernel<float, float>(float*)"
CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc"
NODE = "autograd::engine::evaluate_function: "
W, X = [2_048, 2_048], [8, 512, 2_048]
ROWS = [2_048, 4_096], [4_096, 2_048]


def linear(weight: list[int] = W, x: list[int] = X) -> Op:
    return Op("aten::linear", NVJET, 90, [x, weight, []], [BF16, BF16, ""])


def weight_normed() -> list[Op]:
    """A convolution with weight norm, as it is served."""
    shape = [512, 512, 7]
    return [
        Op("aten::_weight_norm", NORM, 40, [shape, [512, 1, 1], []], [F32, F32, "Scalar"]),
        Op("aten::conv1d", CONV, 60, [[1, 512, 400], shape, [512], []], [F32, F32, F32, "ScalarList"]),
        Op("aten::leaky_relu", POINTWISE, 5, [[1, 512, 400], []], [F32, "Scalar"]),
    ]


def adapted(*, trained: list[int] | None = None) -> list[Op]:
    """W + s * B A of a linear layer, and its backward pass."""
    leaf = trained or [2_048, 16]
    return [
        Op("aten::matmul", NVJET, 20, [[2_048, 16], [16, 2_048]], [BF16, BF16]),
        Op("aten::mul", POINTWISE, 15, [W, []], [BF16, "double"]),
        Op("aten::add", POINTWISE, 25, [W, W, []], [BF16, BF16, "Scalar"]),
        linear(),
        Op("aten::mm", NVJET, 90, [[4_096, 2_048], W], [BF16, BF16], inside=f"{NODE}MmBackward0"),
        Op("aten::mm", NVJET, 90, list(ROWS), [BF16, BF16], inside=f"{NODE}MmBackward0"),
        Op("aten::mul", POINTWISE, 15, [W, []], [BF16, "double"], inside=f"{NODE}MulBackward0"),
        Op("aten::mm", NVJET, 20, [W, [2_048, 16]], [BF16, BF16], inside=f"{NODE}MmBackward0"),
        Op("torch::autograd::AccumulateGrad", POINTWISE, 1, [leaf], [BF16]),
    ]


def unpacked() -> list[Op]:
    return [
        Op("aten::to", POINTWISE, 30, [W, []], ["signed char", "Scalar"]),
        Op("aten::mul", POINTWISE, 30, [W, [2_048, 1]], [BF16, BF16]),
        linear(x=[1, 1, 2_048]),
    ]


@pytest.mark.parametrize(
    ("ops", "cause", "spent_us", "said"),
    [
        (
            weight_normed(),
            "constant",
            40,
            "before 1 layers a step the layer's weight is computed, in aten::_weight_norm",
        ),
        (unpacked(), "quantised", 60, "integers are unpacked"),
        (
            [Op("aten::cat", POINTWISE, 30, [[[1_024, 2_048], [1_024, 2_048]], []], ["", ""]), linear()],
            "constant",
            30,
            "in aten::cat",
        ),
    ],
)
def test_a_weight_that_is_the_same_in_each_call(ops: list[Op], cause: str, spent_us: int, said: str) -> None:
    (one,) = found(program(ops), "computed-weight")
    assert (one.cause, one.cost_ns) == (cause, 6_000 * spent_us)
    assert said in one.message
    assert one.saving is not None
    assert one.saving.share > 0.1


def test_gradients_of_a_whole_matrix_for_two_narrow_ones() -> None:
    (one,) = found(program(adapted()), "computed-weight")
    assert one.cause == "low-rank"
    assert "product of inner size 16" in one.message
    whole_ns = 6_000 * (20 + 15 + 25 + 90 + 15 + 20)  # but for the gradient of the layer's input
    kept_ns = 6 * 6 * 4_096 * (2 * 2_048) * 2 / 4_800 / 0.6
    assert one.cost_ns == pytest.approx(whole_ns - kept_ns, rel=0.01)


def test_without_types_what_stays_is_that_of_float32() -> None:
    plain = [replace(one, types=()) for one in adapted()]
    cost_ns = [found(program(ops), "computed-weight")[0].cost_ns for ops in (adapted(), plain)]
    kept_ns = 6 * 6 * 4_096 * (2 * 2_048) * 2 / 4_800 / 0.6
    assert cost_ns[0] - cost_ns[1] == pytest.approx(kept_ns, rel=0.01)  # twice as many bytes


WIDE = [1_024, 2_048]


@pytest.mark.parametrize(
    ("name", "dims", "makes"),
    [
        pytest.param("aten::mul", [WIDE, [1_024, 1]], True, id="a scale for each row"),
        pytest.param(
            "aten::mul", [WIDE, [1_024]], True, id="a scale for each row, without the other dimension"
        ),
        pytest.param("aten::mul", [WIDE, [2_048]], True, id="a scale for each column"),
        pytest.param("aten::mul", [WIDE, [8, 1, 1]], False, id="a weight for each of eight"),
        pytest.param("aten::mul", [WIDE, [1, 2_048]], True, id="a scale for each column, as a row"),
        pytest.param("aten::mul", [WIDE, [1_024, 2]], False, id="two numbers for each row"),
        pytest.param("aten::add", [WIDE, WIDE[::-1]], True, id="kept transposed"),
        pytest.param("aten::matmul", [[1_024, 16], [16, 2_048]], True, id="a narrow product"),
        pytest.param("aten::mm", [[2_048, 16], [16, 1_024]], True, id="a narrow product, transposed"),
        pytest.param("aten::matmul", [[1_024, 16], [16, 512]], False, id="a product of another width"),
        pytest.param("aten::bmm", [[1_024, 16], [16, 2_048]], False, id="a product of batches"),
        pytest.param("aten::cat", [[[512, 2_048], [512, 2_048]], []], True, id="joined rows"),
        pytest.param("aten::cat", [[[1_024, 1_024], [1_024, 1_024]], []], True, id="joined columns"),
        pytest.param("aten::cat", [[[512, 2_048], [256, 2_048]], []], False, id="joined to less"),
        pytest.param("aten::cat", [[[512, 1_024]] * 4, []], False, id="joined in two directions"),
        pytest.param("aten::clone", [WIDE], False, id="copied"),
    ],
)
def test_what_makes_a_weight_is_told_by_its_shapes(name: str, dims: list[list[int]], makes: bool) -> None:
    op = Op(name, POINTWISE, 40, dims, [BF16, BF16])
    assert bool(found(program([op, linear(weight=WIDE)]), "computed-weight")) is makes


@pytest.mark.parametrize(
    "ops",
    [
        adapted(trained=W),  # all of the matrix is trained
        [*weight_normed(), *adapted()[-1:]],  # weight norm in training: the weight changes
        [linear(), *weight_normed()[1:]],  # no weight is computed
        [*unpacked()[1:2], linear(x=W)],  # the input has the weight's shape
        [Op("aten::to", POINTWISE, 30, [W, []], [F32, "Scalar"]), linear()],  # a conversion alone
        [*unpacked(), *[linear()] * 3],  # chance: three of four such layers have none
    ],
)
def test_weights_that_are_not_computed_or_must_be(ops: list[Op]) -> None:
    assert found(program(ops), "computed-weight") == []


def narrow_products(rank: int, weight: list[int]) -> list[Op]:
    """W + B A of a linear layer, and the gradient of the whole matrix."""
    rows, columns = weight
    return [
        Op("aten::matmul", NVJET, 20, [[rows, rank], [rank, columns]], [BF16, BF16]),
        Op("aten::add", POINTWISE, 25, [weight, weight, []], [BF16, BF16, "Scalar"]),
        linear(weight=weight, x=[8, 512, columns]),
        Op("aten::mm", NVJET, 90, [[rows, 4_096], [4_096, columns]], [BF16] * 2, inside=f"{NODE}MmBackward0"),
        Op("torch::autograd::AccumulateGrad", POINTWISE, 1, [[rows, rank]], [BF16]),
    ]


@pytest.mark.parametrize(("rank", "low"), [(256, True), (257, False)])
def test_low_rank_is_up_to_a_quarter_of_the_smaller_side(rank: int, low: bool) -> None:
    for weight in (WIDE, WIDE[::-1]):
        assert len(found(program(narrow_products(rank, weight)), "computed-weight")) == low


def test_reports_largest_rank_and_layers_per_step() -> None:
    ops = [*narrow_products(16, WIDE), *narrow_products(64, W), *narrow_products(32, WIDE[::-1])]
    (one,) = found(program(ops), "computed-weight")
    assert (one.evidence["rank"], one.evidence["layers"]) == (64, 3)
    assert "before 3 layers a step a product of inner size 64" in one.message
    # 20 + 25 of making each, 90 of its gradient, less six passes over input and result at 0.6 of 4.8 TB/s
    kept_ns = sum(6 * 4_096 * sum(weight) * 2 for weight in (WIDE, W, WIDE[::-1])) / 4_800 / 0.6
    assert one.cost_ns == pytest.approx(6 * (3 * 135_000 - kept_ns), rel=0.01)


@pytest.mark.parametrize(("others", "said"), [(1, 1), (2, 0)])
def test_nine_of_ten_calls_decide_that_a_weight_is_computed(others: int, said: int) -> None:
    each = [Op("aten::mul", POINTWISE, 15, [WIDE, [1_024, 1]], [BF16, BF16]), linear(weight=WIDE)]
    relu = Op("aten::relu", POINTWISE, 5, [X], [BF16])
    plain = [relu, linear(weight=WIDE)] * others
    assert len(found(program([*each * 9, *plain]), "computed-weight")) == said


@pytest.mark.parametrize(("shape", "said"), [([4, 512, 1_024], 0), ([4, 512, 1_025], 1)])
def test_an_input_as_large_as_the_weight_may_be_computed(shape: list[int], said: int) -> None:
    """2,097,152 numbers in both; with a few more the input is another tensor."""
    makes = Op("aten::mul", POINTWISE, 15, [WIDE, [1_024, 1]], [BF16, BF16])
    assert len(found(program([makes, linear(weight=WIDE, x=shape)]), "computed-weight")) == said


def test_a_scaled_narrow_product_keeps_its_rank() -> None:
    """Another op that makes all of the weight, before or after it, has none."""
    product, *rest = narrow_products(32, W)
    before = Op("aten::mul", POINTWISE, 15, [W, []], [BF16, "double"])
    for ops in ([product, before, *rest], [before, product, *rest]):
        (one,) = found(program(ops), "computed-weight")
        assert (one.cause, one.evidence["rank"]) == ("low-rank", 32)
        assert "aten::mul" in one.evidence["ops"]
