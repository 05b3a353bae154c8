"""Small parts that are spread over a tensor of full size, added in full, or copied in full to be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, Op, found, program

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
COPY = "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
WHOLE, PART = [14, 240, 240, 192], [14, 96, 96, 96]
NETWORK = Op("aten::mm", GEMM, 2_000, [[4_096, 4_096], [4_096, 4_096]], [F32, F32])
SLUG = "full-size-update"


def spread(
    whole: Sequence[int] = WHOLE, part: Sequence[int] = PART, *, inside: str | None = None
) -> list[Op]:
    """F.pad, which fills, takes a view, and copies the part into it."""
    return [
        Op("aten::fill_", FILL, 200, [whole, []], [F32, "Scalar"], inside=inside),
        Op("aten::slice", "", 0, [whole, [], [], [], []], [F32], inside=inside),
        Op("aten::copy_", COPY, 50, [part, part, []], [F32, F32], inside=inside),
    ]


def added(name: str = "aten::add", *, inside: str | None = None) -> Op:
    return Op(name, ADD, 600, [WHOLE, WHOLE, []], [F32, F32], inside=inside)


def test_padded_part_costs_the_fill_and_most_of_the_sum() -> None:
    (one,) = found(program([NETWORK, *spread(), added()]), SLUG)
    assert one.cause == "added"
    assert "a part (14x96x96x96) is spread over a tensor of full size (14x240x240x192)" in one.message
    assert one.evidence["touched_bytes"] == 4 * 4 * 14 * 240 * 240 * 192
    assert one.evidence["needed_bytes"] == 3 * 4 * 14 * 96**3
    assert one.cost_ns == pytest.approx(6 * (200_000 + 600_000 * (1 - 0.08)), rel=0.001)
    assert "total[..., z : z + depth] += part" in one.advice


@pytest.mark.parametrize(
    "write",
    [
        Op("aten::_index_put_impl_", COPY, 50, [WHOLE, [[2]], [2, 240, 240, 192], [], []], [F32]),
        Op("aten::index_add_", COPY, 50, [WHOLE, [], [2], [2, 240, 240, 192], []], [F32]),
        Op("aten::scatter_", COPY, 50, [WHOLE, [], [2, 240, 240, 192], []], [F32]),
    ],
)
def test_what_is_written_at_indices_counts_as_the_part(write: Op) -> None:
    (one,) = found(program([NETWORK, spread()[0], write, added("aten::add_")]), SLUG)
    assert one.evidence["part"] == "2x240x240x192"
    assert one.cost_ns == pytest.approx(6 * (200_000 + 600_000 * (1 - 2 / 14)), rel=0.001)


def test_the_gradients_of_slices_are_named_as_such() -> None:
    node = "autograd::engine::evaluate_function: SliceBackward0"
    twice = [*spread(inside=node), added(inside=node)] * 2
    (one,) = found(program([NETWORK, *twice]), SLUG)
    assert (one.cause, one.advice[:41]) == ("gradient", "Cut the tensor once, with unbind, split o")


ONES = replace(spread()[0], scalars=["", "1."])


@pytest.mark.parametrize("fill", [ONES, replace(ONES, scalars=["", "0."])])
def test_a_product_with_mostly_ones_changes_a_part(fill: Op) -> None:
    """x * mask; a mask of zeros changes all but the part."""
    told = found(program([NETWORK, fill, *spread()[1:], added("aten::mul")]), SLUG)
    assert [one.cause for one in told] == ["added"] * (fill is ONES)


def test_where_with_a_fresh_tensor_is_an_update() -> None:
    choice = Op("aten::where", ADD, 700, [[14, 1, 1, 1], WHOLE, WHOLE], ["bool", F32, F32])
    (one,) = found(program([NETWORK, *spread(), choice]), SLUG)
    assert one.cost_ns == pytest.approx(6 * (200_000 + 700_000 * (1 - 0.08)), rel=0.001)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (added("aten::sub"), True),
        (added("aten::logical_or"), True),
        (replace(added(), dims=[[1, *WHOLE[1:]], WHOLE, []]), False),
        (Op("aten::where", ADD, 700, [WHOLE, [14, 1, 1, 1], [14, 1, 1, 1]], ["bool", F32, F32]), False),
        (added("aten::div"), False),
    ],
)
def test_an_update_joins_two_whole_tensors(op: Op, said: bool) -> None:
    assert bool(found(program([NETWORK, *spread(), op]), SLUG)) is said


def test_largest_part_is_named_all_parts_are_needed() -> None:
    second = spread(part=[14, 48, 48, 96])[1:]
    (one,) = found(program([NETWORK, *spread(), *second, added()]), SLUG)
    assert one.evidence["part"] == "14x96x96x96"
    assert one.evidence["needed_bytes"] == 3 * 4 * 14 * 96 * (96**2 + 48**2)


def diagonal(view: str = "aten::diagonal") -> list[Op]:
    """torch.diag(d) @ x."""
    square = [4_096, 4_096]
    return [
        Op("aten::fill_", FILL, 30, [square, []], [F32, "Scalar"]),
        Op(view, "", 0, [square, [], [], []], [F32]),
        Op("aten::copy_", COPY, 2, [[4_096], [4_096], []], [F32, F32]),
        Op("aten::mm", GEMM, 2_000, [square, [4_096, 1_024]], [F32, F32]),
    ]


def test_a_diagonal_factor_costs_a_scaling() -> None:
    (one,) = found(program(diagonal()), SLUG)
    assert one.cause == "diagonal"
    assert "a diagonal (4096) is written into a matrix of zeros (4096x4096)" in one.message
    # the fill of 30 us writes 4096x4096 numbers once; the other factor has a quarter, read and written
    assert one.cost_ns == pytest.approx(6 * (30_000 + 2_000_000 - 15_000), rel=0.001)
    assert "d[:, None] * x" in one.advice
    assert found(program(diagonal("aten::slice")), SLUG) == []


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(
            [*spread(), Op("aten::conv3d", GEMM, 900, [WHOLE, [8, 14, 3, 3, 3]])], id="a layer's border"
        ),
        pytest.param([*spread(part=[14, 240, 240, 96]), added()], id="half of it"),
        pytest.param([spread()[0], added()], id="a total that begins with zeros"),
        pytest.param([spread()[0], spread()[2], added()], id="a copy into another tensor"),
        pytest.param([*spread(), Op("aten::mul", ADD, 300, [WHOLE, WHOLE]), added()], id="read before"),
        pytest.param(
            [*spread(), Op("aten::matmul", GEMM, 300, [WHOLE, [192, 8]]), added()], id="multiplied before"
        ),
        pytest.param([spread()[1], spread()[2], added()], id="updated in place"),
        pytest.param([*spread()], id="never added"),
    ],
)
def test_whole_tensors_that_are_needed_are_left_alone(ops: list[Op]) -> None:
    assert found(program([NETWORK, *ops]), SLUG) == []


def cloned(name: str = "aten::clone", kinds: Sequence[str] = (F32, F32)) -> list[Op]:
    """A clone of the whole, of which a slice is then written."""
    return [Op("aten::copy_", COPY, 500, [WHOLE, WHOLE, []], kinds, inside=name), *spread()[1:]]


def test_full_copies_in_a_loop_cost_the_copy() -> None:
    (one,) = found(program([NETWORK, *cloned(), *cloned()]), SLUG)
    assert (one.cause, one.cost_ns) == ("copied", 6 * 2 * 500_000)
    assert found(program([NETWORK, *cloned()]), SLUG) == []
    assert found(program([NETWORK, *cloned("aten::contiguous"), *cloned("aten::contiguous")]), SLUG) == []
    assert (
        found(program([NETWORK, *cloned(kinds=(F32, "c10::Half")), *cloned(kinds=(F32, "c10::Half"))]), SLUG)
        == []
    )


def test_a_copying_write_is_named_by_its_part() -> None:
    """cache = cache.index_copy(1, position, new) for each layer."""
    inputs = {
        "Input Dims": [WHOLE, [], [1], [14, 1, 240, 192]],
        "Input type": [F32, "Scalar", "long int", F32],
    }
    copy = Op("aten::copy_", COPY, 500, [WHOLE, WHOLE, []], [F32, F32])
    write = Op("aten::index_copy_", COPY, 20, [WHOLE, [], [1], [14, 1, 240, 192]], [F32])
    ops = [NETWORK, copy, write, copy, write]
    around = dict.fromkeys((1, 3), ("aten::index_copy", 2, inputs))
    (one,) = found(program(ops, around=around), SLUG)
    assert (one.cause, one.evidence["part"]) == ("copied", "14x1x240x192")
    assert "index_copy_" in one.advice


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::slice_scatter", [WHOLE, [14, 1, 240, 192], [], [], [], []]),
        ("aten::index_put", [WHOLE, [], [14, 1, 240, 192], []]),
        ("aten::scatter", [WHOLE, [], [14, 1, 240, 192], [14, 1, 240, 192]]),
        ("aten::index_add", [WHOLE, [], [1], [14, 1, 240, 192], []]),
    ],
)
def test_values_of_a_copying_write_are_found_by_op(name: str, dims: list[list[int]]) -> None:
    inputs = {"Input Dims": dims, "Input type": [F32] * len(dims)}
    copy = Op("aten::copy_", COPY, 500, [WHOLE, WHOLE, []], [F32, F32])
    (one,) = found(program([NETWORK, copy, copy], around=dict.fromkeys((1, 2), (name, 1, inputs))), SLUG)
    assert (one.cause, one.evidence["part"]) == ("copied", "14x1x240x192")
    assert one.cost_ns == 6 * 2 * 500_000


def test_a_diagonal_saves_at_most_its_product() -> None:
    """The other factor is 16 times as large: scaling it would take 32 fills of 30 us, the product takes 500 us."""
    *ops, product = diagonal()
    wide = replace(product, dur=500, dims=[[4_096, 4_096], [4_096, 65_536]])
    (one,) = found(program([*ops, wide]), SLUG)
    assert one.cost_ns == 6 * 30_000


def test_tensors_of_several_shapes_count_together() -> None:
    """The fill and the sum of each take 3 % of the GPU's time."""
    turned = {tuple(WHOLE): [14, 192, 240, 240], tuple(PART): [14, 96, 48, 192]}
    ops = [*spread(), added()]
    others = [replace(one, dims=[turned.get(tuple(dims), dims) for dims in one.dims]) for one in ops]
    (one,) = found(program([replace(NETWORK, dur=25_000), *ops, *others]), SLUG)
    assert one.evidence["updates"] == 6 * 2
    assert one.cost_ns == pytest.approx(6 * 2 * (200_000 + 600_000 * (1 - 0.08)), rel=0.001)


def test_a_write_within_a_write_is_the_same() -> None:
    inputs = {"Input Dims": [PART, PART, []], "Input type": [F32, F32, "Scalar"]}
    (one,) = found(program([NETWORK, *spread(), added()], around={3: ("aten::copy_", 1, inputs)}), SLUG)
    assert one.evidence["needed_bytes"] == 3 * 4 * 14 * 96**3


def test_a_tensor_that_is_filled_again_has_no_part_any_more() -> None:
    assert found(program([NETWORK, *spread(), spread()[0], added()]), SLUG) == []


def test_a_slice_may_be_viewed_before_it_is_written() -> None:
    fill, cut, write = spread()
    view = Op("aten::alias", "", 0, [WHOLE], [F32])
    assert len(found(program([NETWORK, fill, cut, view, write, added()]), SLUG)) == 1


@pytest.mark.parametrize(
    ("factors", "scaled_us"),
    [
        pytest.param([[4_096, 4_096], [4_096, 4_096]], 60, id="of two square ones, two fills"),
        pytest.param([[1_024, 4_096], [4_096, 4_096]], 15, id="from the right"),
    ],
)
def test_a_diagonal_product_takes_as_long_as_scaling(factors: list[list[int]], scaled_us: int) -> None:
    """A fill of 4,096 x 4,096 numbers takes 30 us; scaling reads and writes the factor."""
    *ops, product = diagonal()
    (one,) = found(program([*ops, replace(product, dims=factors)]), SLUG)
    assert one.cost_ns == pytest.approx(6e3 * (30 + 2_000 - scaled_us), rel=0.001)


def test_a_full_copy_into_a_view_is_not_a_part() -> None:
    fill, cut, _ = spread()
    (one,) = found(program([NETWORK, *[fill, cut, *cloned()] * 2]), SLUG)
    assert (one.cause, one.cost_ns) == ("copied", 6 * 2 * 500_000)
