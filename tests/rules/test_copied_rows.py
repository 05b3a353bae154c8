"""A network that runs on copies of the same indices, or on rows that a repeated number became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, Op, found, program

MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"
LONG = "long int"
USERS, EACH, LENGTH, WIDTH = 32, 100, 50, 64
ROWS = USERS * EACH
ITEM, HEADS = [ROWS, LENGTH, WIDTH], [ROWS, 4, LENGTH, 16]


def repeated(kind: str = LONG, sizes: Sequence[int] = (USERS, LENGTH), times: int = EACH, at: int = 0) -> Op:
    scalars = ["", str(times), str(at), ""]
    types = [kind, "Scalar", "Scalar", ""]
    return Op("aten::repeat_interleave", MOVE, 5, [list(sizes), [], [], []], types, scalars=scalars)


def op(name: str, us: int, *dims: list[int], kinds: Sequence[str] = (), scalars: Sequence[str] = ()) -> Op:
    return Op(
        f"aten::{name}", MOVE if us else "", us, dims, kinds or [F32] * len(dims), scalars=[*[""] * len(dims)]
    )


def view(name: str, sizes: list[int], *scalars: str) -> Op:
    dims = [sizes, *[[] for _ in scalars]]
    return Op(f"aten::{name}", "", 0, dims, [F32, *["Scalar"] * len(scalars)], scalars=["", *scalars])


def lookup(sizes: list[int], us: int = 100, stride: Sequence[int] = ()) -> Op:
    strides = [[WIDTH, 1], list(stride)] if stride else ()
    return Op("aten::embedding", MOVE, us, [[5_000, WIDTH], sizes], [F32, LONG], strides=strides)


def attention(mask: list[int], *, apart: bool = False) -> list[Op]:
    """A layer that looks at the whole history: q, k and v of one product, or of three."""
    heads = [
        view("view", ITEM, f"[{ROWS}, {LENGTH}, 4, 16]"),
        view("transpose", [ROWS, LENGTH, 4, 16], "1", "2"),
    ]
    if apart:
        made = [op("linear", 100, ITEM, [WIDTH, WIDTH])] * 3 + heads * 3
    else:
        made = [
            op("linear", 300, ITEM, [3 * WIDTH, WIDTH]),
            view("view", [ROWS, LENGTH, 3 * WIDTH], f"[{ROWS}, {LENGTH}, 3, 4, 16]"),
            view("permute", [ROWS, LENGTH, 3, 4, 16], "[2, 0, 3, 1, 4]"),
            view("unbind", [3, *HEADS], "0"),
        ]
    return [
        op("layer_norm", 60, ITEM, [], [WIDTH], [WIDTH]),
        *made,
        op("scaled_dot_product_attention", 200, HEADS, HEADS, HEADS, mask),
        view("transpose", HEADS, "1", "2"),
        view("reshape", [ROWS, LENGTH, 4, 16], f"[{ROWS}, {LENGTH}, {WIDTH}]"),
        op("linear", 90, ITEM, [WIDTH, WIDTH]),
        op("add", 30, ITEM, ITEM),
    ]


def ranker(
    *before: Op, first: Op | None = None, mask: Sequence[Op] | None = None, apart: bool = False
) -> list[Op]:
    """Histories of users, once for each candidate; then candidates of as many rows."""
    hidden = [view("unsqueeze", [ROWS, LENGTH], "1"), view("unsqueeze", [ROWS, 1, LENGTH], "2")]
    return [
        *before,
        first or lookup([ROWS, LENGTH]),
        op("add", 40, ITEM, [LENGTH, WIDTH]),
        *(hidden if mask is None else mask),
        *attention([ROWS, 1, 1, LENGTH], apart=apart),
        lookup([ROWS], 50),
        op("cat", 500, [ROWS, WIDTH], [ROWS, WIDTH]),
        op("linear", 500, [ROWS, 2 * WIDTH], [WIDTH, 2 * WIDTH]),
    ]


ENCODER = (100, 40, 60, 300, 200, 90, 30)


def spared(*us: int) -> float:
    """ns in six steps: a kernel takes 2 us at least."""
    return 6e3 * sum(one - max(2, one / EACH) for one in us)


@pytest.mark.parametrize("apart", [False, True])
def test_a_repeated_history_is_encoded_per_candidate(apart: bool) -> None:
    (one,) = found(program(ranker(repeated("bool"), repeated(), apart=apart)), "encoded-copies")
    assert (one.evidence["copies"], one.evidence["items"]) == (ROWS, USERS)
    assert one.evidence["maker"] == "aten::repeat_interleave"
    layers = (100, 40, 60, 100, 100, 100, 200, 90, 30) if apart else ENCODER
    assert one.cost_ns == pytest.approx(spared(*layers))


def test_a_mask_counts_if_it_is_repeated_for_the_same_items() -> None:
    """A mask of floats and of another width: only its own op says whose it is."""
    mask = [repeated(F32, (USERS, 1, 1, LENGTH))]
    (one,) = found(program(ranker(repeated(), mask=mask)), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(*ENCODER))
    (one,) = found(program(ranker(repeated(), mask=())), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(100, 40, 60, 300))


EXPANDED = Op("aten::expand", "", 0, [[1, LENGTH], [], []], [LONG, "ScalarList", "Scalar"])
POSITIONS = Op(
    "aten::arange", MOVE, 1, [[], [], [], [], []], ["Scalar", "", "", "", "Scalar"], scalars=[str(LENGTH)]
)
TILED = Op("aten::repeat", MOVE, 5, [[1, LENGTH], []], [LONG, "ScalarList"], scalars=["", f"[{ROWS}, 1]"])


@pytest.mark.parametrize(
    "ops",
    [
        ranker(repeated("bool")),
        ranker(EXPANDED, first=lookup([ROWS, LENGTH], stride=[LENGTH, 1])),
        ranker(EXPANDED),
        ranker(POSITIONS, TILED),
        ranker(repeated(sizes=(ROWS // 2 + 1, LENGTH))),
    ],
    ids=["mask", "positions-beside-tokens", "no-strides", "tiled-positions", "others"],
)
def test_indices_of_unknown_origin_are_not_reported(ops: list[Op]) -> None:
    assert found(program(ops), "encoded-copies") == []


def test_indices_of_a_user_are_known_by_strides() -> None:
    for ops in (ranker(EXPANDED, first=lookup([ROWS, LENGTH], stride=[0, 1])), ranker(TILED)):
        (one,) = found(program(ops), "encoded-copies")
        assert one.evidence["items"] == 1


def test_a_second_table_needs_a_second_copy() -> None:
    """Tokens and their types have one shape, and only one of them may be the copy."""
    both = lookup([ROWS, LENGTH]), lookup([ROWS, LENGTH], 400)
    joined = op("add", 40, ITEM, ITEM)
    assert found(program(ranker(repeated(), *both, first=joined)), "encoded-copies") == []
    (one,) = found(program(ranker(repeated(), repeated(), *both, first=joined)), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(400, 40, *ENCODER))


def test_pairs_of_items_that_are_gathered_are_no_items() -> None:
    gather = Op("aten::index_select", MOVE, 50, [[USERS, WIDTH], [], [ROWS]], [F32, "Scalar", LONG])
    layer = op("linear", 300, [ROWS, WIDTH], [WIDTH, WIDTH])
    pair = op("mul", 5_000, [ROWS, WIDTH], [ROWS, WIDTH])
    (one,) = found(program([gather, gather, layer, layer, layer, pair]), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(300, 300, 300))


def test_a_mask_of_other_items_is_none_of_the_copies() -> None:
    """Of twice as many users, each for half as many candidates: the network ends at attention, which reads it."""
    mask = [repeated(F32, (2 * USERS, 1, 1, LENGTH), EACH // 2)]
    (one,) = found(program(ranker(repeated(), mask=mask)), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(100, 40, 60, 300))


def test_a_mask_may_be_repeated_after_the_indices() -> None:
    (one,) = found(program(ranker(repeated(), repeated("bool"))), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(*ENCODER))


def test_a_growing_mask_is_not_a_mask_of_the_copies() -> None:
    """Twice as long in each copy: the network ends at attention, which reads it."""
    indices = Op(
        "aten::repeat", MOVE, 5, [[USERS, LENGTH], []], [LONG, "ScalarList"], scalars=["", f"[{EACH}, 1]"]
    )
    mask = Op(
        "aten::repeat",
        MOVE,
        5,
        [[USERS, 1, 1, LENGTH // 2], []],
        [F32, "ScalarList"],
        scalars=["", f"[{EACH}, 1, 1, 2]"],
    )
    (one,) = found(program(ranker(indices, mask=[mask])), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(100, 40, 60, 300))
    whole = replace(mask, dims=[[USERS, 1, 1, LENGTH], []], scalars=["", f"[{EACH}, 1, 1, 1]"])
    (one,) = found(program(ranker(indices, mask=[whole])), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared(*ENCODER))
