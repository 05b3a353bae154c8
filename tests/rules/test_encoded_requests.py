"""A history that is repeated for each candidate before it is encoded."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import BF16, NVJET, Op, found, program
from traceanalyzer.rules.tensors.encoded_copies.networks import Others
from traceanalyzer.tensors.signatures import Signature

MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"
MANY, ONES, INT = "ScalarList", "Scalar", "long int"
WIDE = [3_200, 100, 128]


def view(name: str, dims: list[int], *scalars: str, kinds: tuple[str, ...] = ("ScalarList",)) -> Op:
    """A view of one tensor."""
    return Op(name, "", 0, [dims, *([] for _ in scalars)], [BF16, *kinds], scalars=["", *scalars])


def linear(rows: list[int], out: int, dur: int) -> Op:
    return Op("aten::linear", NVJET, dur, [rows, [out, rows[-1]]], [BF16, BF16])


def encoder(*, users: int = 32, apart: str = "aten::unbind") -> list[Op]:
    """Histories of 100 ids, once for each of 100 candidates; embedding, attention and one layer: 1,100 us."""
    repeat = Op(
        "aten::repeat_interleave",
        MOVE,
        20,
        [[users, 100], [], []],
        [INT, ONES, ONES],
        scalars=["", "100", "0"],
    )
    look = Op("aten::embedding", MOVE, 200, [[5_000, 128], [3_200, 100]], [BF16, INT])
    heads = [3_200, 4, 100, 32]
    taken = (
        view("aten::unbind", [3, *heads], "0", kinds=(ONES,))
        if apart == "aten::unbind"
        else view("aten::chunk", [3_200, 4, 100, 96], "3", "-1", kinds=(ONES, ONES))
    )
    turned = [
        view("aten::view", [3_200, 100, 384], "[3200, 100, 3, 4, 32]"),
        view("aten::permute", [3_200, 100, 3, 4, 32], "[2, 0, 3, 1, 4]"),
    ]
    if apart == "aten::chunk":
        turned = [
            view("aten::view", [3_200, 100, 384], "[3200, 100, 4, 96]"),
            view("aten::transpose", [3_200, 100, 4, 96], "1", "2", kinds=(ONES, ONES)),
        ]
    attend = Op("aten::scaled_dot_product_attention", MOVE, 400, [heads, heads, heads], [BF16] * 3)
    return [
        repeat,
        look,
        linear(WIDE, 384, 300),
        *turned,
        taken,
        attend,
        view("aten::transpose", heads, "1", "2", kinds=(ONES, ONES)),
        view("aten::reshape", [3_200, 100, 4, 32], "[3200, 100, 128]"),
        linear(WIDE, 128, 200),
    ]


def candidates() -> list[Op]:
    """Other ids, one a row; what compares them with the histories is needed for each candidate."""
    return [
        Op("aten::embedding", MOVE, 10, [[5_000, 128], [3_200]], [BF16, INT]),
        view("aten::unsqueeze", [3_200, 128], "1", kinds=(ONES,)),
        view("aten::expand", [3_200, 1, 128], "[-1, 100, -1]"),
        Op("aten::sub", MOVE, 300, [WIDE, WIDE], [BF16, BF16]),
        linear(WIDE, 64, 500),
    ]


@pytest.mark.parametrize("apart", ["aten::unbind", "aten::chunk"])
def test_ids_that_are_repeated_are_encoded_several_times(apart: str) -> None:
    (one,) = found(program([*encoder(apart=apart), *candidates()]), "encoded-copies")
    assert (one.evidence["copies"], one.evidence["items"]) == (3_200, 32)
    assert one.evidence["maker"] == "aten::repeat_interleave"
    assert one.cost_ns == pytest.approx(6 * 1_100_000 * (1 - 1 / 100), rel=0.001)


def test_of_the_table_rows_are_read_and_none_is_a_copy() -> None:
    """3,200 users with a history each: as many rows as the ids have."""
    assert found(program([*encoder(users=3_200), *candidates()]), "encoded-copies") == []


def seen(*ops: Signature) -> Others:
    others = Others(64)
    for op in ops:
        others.see(op, [tuple(shape) for shape in op.dims if shape])
    return others


def made(name: str, *dims: list[int], scalars: tuple[str, ...] = ()) -> Signature:
    empty = ("",) * len(dims)
    return Signature(name=name, dims=dims, types=("float",) * len(dims), scalars=scalars or empty, strides=())


def test_foreign_tensors_are_known_by_shape() -> None:
    """A product's shape is known; what an unknown op makes may be any tensor until an op reads it."""
    product = seen(made("aten::linear", [64, 8], [16, 8]))
    assert product.may_be([(64, 16), (64, 5)])
    assert not product.may_be([(64, 5), (64, 4)])
    assert not product.may_be([(64, 16)])
    assert seen(made("shop::rank", [64, 8])).may_be([(64, 5), (64, 4)])
    read = seen(made("shop::rank", [64, 8]), made("aten::linear", [64, 9], [3, 9]))
    assert not read.may_be([(64, 5), (64, 4)])
    assert read.may_be([(64, 9), (64, 4)])
    assert not seen(made("shop::rank", [32, 8])).may_be([(64, 5), (64, 4)])


@pytest.mark.parametrize(("users", "said"), [(32, 1), (1, 0)])
def test_shared_positions_are_not_requests(users: int, said: int) -> None:
    """Beside a range of numbers, one row of ids may be positions; histories of several users are none."""
    positions = Op("aten::arange", MOVE, 1, [[], []], [ONES, ""], scalars=["100", ""])
    assert len(found(program([positions, *encoder(users=users)]), "encoded-copies")) == said
    assert len(found(program(encoder(users=users)), "encoded-copies")) == 1
