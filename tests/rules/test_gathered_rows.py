"""Rows that are gathered before a linear layer: how they are picked, joined and scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, Op, found, program
from tests.support.gathered_products import GEMM, MOVE, messages
from tests.support.reordered_work import LONG, propagated, upsampled

EDGES = 600_000
GATHER, _, JOINED, LAYER, PRODUCT = messages()


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        pytest.param({}, True, id="along the rows"),
        pytest.param({"scalars": ["", "1", ""]}, False, id="along the columns"),
        pytest.param({"types": [F32, "Scalar", "bool"]}, False, id="by a mask"),
        pytest.param({"dims": [[10, 3_000, 64], [], [EDGES]]}, False, id="of several matrices"),
        pytest.param({"name": "aten::index", "dims": [[30_000, 64], []]}, False, id="unknown index"),
        pytest.param(
            {"name": "aten::index", "dims": [[30_000, 64], [EDGES]], "types": [F32, LONG], "scalars": []},
            True,
            id="x[index]",
        ),
        pytest.param({"name": "aten::gather"}, False, id="another op"),
    ],
)
def test_rows_are_copies_where_a_matrix_is_indexed_by_its_rows(
    changes: dict[str, Sequence[object]], copies: bool
) -> None:
    gather = replace(GATHER, **changes)  # type: ignore[arg-type]
    assert bool(found(program([gather, gather, JOINED, LAYER, PRODUCT]), "product-of-copies")) is copies


def test_rows_read_directly_need_no_sum_of_parts() -> None:
    product = replace(PRODUCT, dims=[[64], [EDGES, 64], [64, 64]], inside=None)
    called = "aten::linear", 1, {"Input Dims": [[EDGES, 64], [64, 64], [64]], "Input type": [F32] * 3}
    (one,) = found(program([GATHER, product], around={1: called}), "product-of-copies")
    assert (one.evidence["rows"], one.evidence["copies"]) == (EDGES, 20)
    assert one.cost_ns == pytest.approx(6e3 * 900 * (1 - 1 / 20), rel=0.01)


def test_joined_along_the_rows_they_are_other_rows() -> None:
    stacked = replace(JOINED, dims=[[[EDGES // 2, 128], [EDGES // 2, 127]], []])
    assert found(program([GATHER, stacked, LAYER, PRODUCT]), "product-of-copies") == []


WIDE = [1_280_000, 500]


@pytest.mark.parametrize(
    ("factor", "linear"),
    [
        pytest.param([1_280_000, 1], True, id="a weight for each edge"),
        pytest.param([1], True, id="one number"),
        pytest.param(WIDE, False, id="other rows"),
        pytest.param([500], False, id="a weight for each channel"),
    ],
)
def test_rows_may_be_scaled_channels_may_not(factor: list[int], linear: bool) -> None:
    gather, scale, *rest = propagated()
    ops = [gather, replace(scale, dims=[WIDE, factor]), *rest]
    assert bool(found(program(ops), "late-projection")) is linear


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
    ops = [
        up,
        replace(conv, dims=[conv.dims[0], weight, weight[:1]]),
        Op("aten::relu", MOVE, 9, [[7]], [F32]),
    ]
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


@pytest.mark.parametrize(("between", "said"), [(7, 1), (9, 0)])
@pytest.mark.parametrize("before", [True, False])
def test_gathers_sums_and_layers_are_near_each_other(between: int, said: int, *, before: bool) -> None:
    """So many ops on other tensors are between the gather and the sum, or between the sum and the layer."""
    others = [Op("aten::relu", MOVE, 1, [[7, 7]], [F32])] * (between - before)
    *sums, layer = propagated(*others) if before else [*propagated()[:-1], *others, propagated()[-1]]
    assert len(found(program([*sums, layer]), "late-projection")) == said
