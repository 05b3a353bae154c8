"""Weights that are converted, and tables that are looked up, again and again within a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, F32, US, Op, found, program
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Status

SLUG = "repeated-parameter-work"
MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
W, OTHER = [4096, 4096], [4096, 1024]


def cast(shape: list[int] = W, kind: str = F32, name: str = "aten::_to_copy") -> Op:
    return Op(name, MOVE, 60, [shape, []], [kind, "Scalar"])


def gradient(shape: list[int] = W, kind: str = F32) -> Op:
    return Op("torch::autograd::AccumulateGrad", MOVE, 20, [shape], [kind])


PRODUCT = Op("aten::mm", GEMM, 300, [[512, 4096], W], [BF16, BF16])
BACK = Op("aten::_to_copy", MOVE, 40, [W, []], [BF16, "Scalar"], inside="ToCopyBackward0")


@pytest.mark.parametrize(
    ("ops", "needless_us"),
    [
        pytest.param([*[cast()] * 3, gradient()], 2 * 60, id="three times"),
        pytest.param([*[cast()] * 2, gradient()], 0, id="twice"),
        pytest.param([*[cast()] * 6, *[gradient()] * 2], 4 * 60, id="two weights, three times each"),
        pytest.param([*[cast()] * 5, *[gradient()] * 2], 0, id="two weights, seldomer"),
        pytest.param([*[cast()] * 3, gradient(OTHER)], 0, id="an activation of another shape"),
        pytest.param([*[cast()] * 3, gradient(kind=BF16)], 0, id="an activation of another type"),
        pytest.param([*[cast()] * 3, *[cast(OTHER)] * 3, gradient()], 2 * 60, id="beside activations"),
        pytest.param([*[cast()] * 3, *[BACK] * 3, gradient()], 2 * (60 + 40), id="with gradients back"),
        pytest.param([*[cast(name="aten::add")] * 3, gradient()], 0, id="no casts"),
    ],
)
def test_conversions_above_one_for_each_weight_are_needless(ops: list[Op], needless_us: int) -> None:
    said = found(program([*ops, PRODUCT]), SLUG)
    assert [one.cost_ns for one in said] == pytest.approx(
        [6 * needless_us * US] * bool(needless_us), rel=1e-3
    )
    for one in said:
        assert (one.cause, one.confidence) == ("casts", Confidence.MEDIUM)
        assert "converted 3 times a step" in one.message


def test_each_weight_has_its_own_number_of_needless_conversions() -> None:
    ops = [*[cast()] * 3, gradient(), *[cast(OTHER)] * 6, gradient(OTHER), PRODUCT]
    (one,) = found(program(ops), SLUG)
    assert one.cost_ns == pytest.approx(6 * (2 + 5) * 60 * US, rel=1e-3)


def lookup(index: list[int], table: list[int]) -> Op:
    return Op("aten::embedding", MOVE, 60, [table, index, [], [], []], [F32, "long int"])


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        pytest.param([[8, 512]] * 3, True, id="indices of one shape"),
        pytest.param([[8, 512]] * 2, False, id="twice"),
        pytest.param([[8, 512], [8, 256], [8, 128]], False, id="indices of three shapes"),
    ],
)
def test_lookups_repeat_with_indices_of_the_same_shape(indices: list[list[int]], said: bool) -> None:
    table = [32, 4096]
    ops = [*[lookup(index, table) for index in indices], gradient(table), PRODUCT]
    findings = found(program(ops), SLUG)
    assert [(one.cause, one.confidence) for one in findings] == [("lookups", Confidence.LOW)] * said
    assert all("one table is looked up 3 times a step" in one.message for one in findings)


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (PRODUCT, "no gradients of parameters"),
        (Op("torch::autograd::AccumulateGrad", MOVE, 20), "no shapes recorded"),
    ],
)
def test_parameters_are_unknown_without_gradient_shapes(last: Op, why: str) -> None:
    (outcome,) = diagnose(program([*[cast()] * 3, last]), select=[SLUG]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE
    assert why in str(outcome.why)


def test_gradients_converted_back_count_once() -> None:
    """Three conversions of one weight and nine of another, of which the middle one of twelve has nine."""
    back = replace(BACK, dims=[OTHER, []])
    ops = [*[cast()] * 3, gradient(), *[cast(OTHER)] * 9, gradient(OTHER), *[back] * 9, PRODUCT]
    (one,) = found(program(ops), SLUG)
    assert one.cost_ns == pytest.approx(6 * (2 * 60 + 8 * 60 + 8 * 40) * US, rel=1e-3)
    assert one.evidence["repeats"] == 9


def test_other_gradients_are_converted_on_their_own() -> None:
    ops = [*[cast()] * 3, *[replace(BACK, dims=[OTHER, []])] * 3, gradient(), PRODUCT]
    (one,) = found(program(ops), SLUG)
    assert one.cost_ns == pytest.approx(6 * 2 * 60 * US, rel=1e-3)


def test_a_gradient_of_a_lookup_is_one_of_its_table() -> None:
    """Three tables of one width are one to the gradients of lookups, which know rows and indices alone."""
    table, index = [32, 4096], [8, 512]
    dense = Op(
        "aten::embedding_dense_backward",
        MOVE,
        90,
        [[8, 512, 4096], index, [], [], []],
        [F32, "long int"],
        inside="EmbeddingBackward0",
    )
    other = replace(dense, dims=[[8, 512, 32], index, [], [], []])
    ops = [*[lookup(index, table)] * 3, gradient(table), *[dense] * 3, PRODUCT]
    (one,) = found(program(ops), SLUG)
    assert one.cost_ns == pytest.approx(6 * 2 * (60 + 90) * US, rel=1e-3)
    (one,) = found(program([*ops[:-1], *[other] * 3, PRODUCT]), SLUG)
    assert one.cost_ns == pytest.approx(6 * 2 * (60 + 90) * US, rel=1e-3)


def test_the_fix_leaves_one_conversion_of_each_weight() -> None:
    """Of 2,080 us in a step, two conversions of 60 are needless."""
    rest = replace(PRODUCT, dur=1_880)
    (one,) = found(program([*[cast()] * 3, gradient(), rest]), SLUG)
    assert one.saving is not None
    assert one.saving.share == pytest.approx(2 * 61 / (3 * 61 + 21 + 1_881), rel=0.15)


@pytest.mark.parametrize(("product_us", "said"), [(3_800, 1), (3_900, 0)])
def test_conversions_below_3_percent_are_not_reported(product_us: int, said: int) -> None:
    ops = [*[cast()] * 3, gradient(), replace(PRODUCT, dur=product_us)]
    assert len(found(program(ops), SLUG)) == said
