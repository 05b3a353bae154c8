"""How much of a tensor an op takes, along which dimensions, and where an op needs the rest of it as well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, NVJET, Op, found, program
from tests.support.partly_used_results import CAST, ROW, SMALL, WHOLE, between, head, select, signature
from traceanalyzer.rules.tensors.partly_used.sources import (
    is_diagonal,
    joined,
    pieces,
    sources,
    taken,
    viewed,
)

ROWS = [8, 16, 64]


@pytest.mark.parametrize(
    ("op", "dims", "part"),
    [
        (("select", [ROWS], "1", "0"), {1}, 1 / 16),
        (("select", [ROWS], "-1", "0"), {2}, 1 / 64),
        (("slice", [ROWS], "1", "4", "", "1"), {1}, 12 / 16),
        (("slice", [ROWS], "1", "0", "-1", "1"), {1}, 15 / 16),
        (("slice", [ROWS], "2", "", "", "4"), {2}, 16 / 64),
        (("slice", [ROWS], "1", "0", "9223372036854775807", "1"), {1}, 1.0),
        (("narrow", [ROWS], "1", "2", "4"), {1}, 4 / 16),
        (("diagonal", [[9, 16, 64]], "0", "1", "2"), {1, 2}, 1 / 64),
        (("diagonal", [[9, 16, 64]], "0", "-2", "-1"), {1, 2}, 1 / 64),
        (("trace", [[16, 64]]), {0, 1}, 1 / 64),
        (("relu", [ROWS]), None, 0.0),
        (("select", [ROWS]), None, 0.0),
    ],
)
def test_what_an_op_takes(op: tuple[Any, ...], dims: set[int] | None, part: float) -> None:
    expected = None if dims is None else (dims, pytest.approx(part))
    assert taken(signature(*op)) == expected


@pytest.mark.parametrize(
    ("dims", "scalars", "expected"),
    [
        ([ROWS, [], [5]], ["", "1", ""], ({1}, 5 / 16)),
        ([ROWS, [], [5]], ["", "-3", ""], ({0}, 5 / 8)),
    ],
)
def test_as_many_rows_are_taken_as_are_indexed(dims: list[Any], scalars: list[str], expected: Any) -> None:
    op = signature("index_select", dims)
    assert taken(type(op)(op.name, op.dims, op.types, tuple(scalars))) == expected


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[5]], ({0}, 5 / 8)),
        ([[], [5]], ({1}, 5 / 16)),
        ([[5], [5]], ({0, 1}, 5 / 128)),
        ([[5], [1]], ({0, 1}, 5 / 128)),
        ([[5], [5], [5]], None),  # single numbers
        ([[2, 4]], None),
        ([[], []], None),
    ],
)
def test_lists_of_indices_take_as_many_as_the_longest_has(lists: list[Any], expected: Any) -> None:
    assert taken(signature("index", [ROWS, lists])) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (("chunk", [ROWS], "4", "1"), (1, (8, 4, 64), 4)),
        (("chunk", [ROWS], "3", "1"), None),
        (("split", [ROWS], "4", "-1"), (2, (8, 16, 4), 16)),
        (("split", [ROWS], "5", "1"), None),
        (("unbind", [ROWS], "1"), (1, (8, 64), 16)),
        (("unbind", [ROWS], "-1"), (2, (8, 16), 64)),
        (("select", [ROWS], "1", "0"), None),
        (("split", [ROWS], "[4, 12]", "1"), None),
    ],
)
def test_equal_pieces(op: tuple[Any, ...], expected: Any) -> None:
    assert pieces(signature(*op)) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (("mean", [ROWS], "[1]", "False"), ({1}, 1 / 16)),
        (("sum", [ROWS], "[0, 1]", "False"), ({0, 1}, 1 / 128)),
        (("sum", [ROWS], "[-2]", "False"), ({1}, 1 / 16)),
        (("mean", [ROWS], "0"), ({0}, 1 / 8)),
        (("mean", [ROWS], "[1, -1]", "False"), None),
        (("mean", [ROWS], "[]"), None),
        (("amax", [ROWS], "[1]", "False"), None),
    ],
)
def test_sums_over_rows_join_them(op: tuple[Any, ...], expected: Any) -> None:
    assert joined(signature(*op)) == expected


@pytest.mark.parametrize(
    ("op", "whole", "part", "expected"),
    [
        (("view", [[8, 2, 3]], "[8, 7]"), (8, 7), {0}, None),
        (("reshape", [[8, 6]], "[8, 3]"), (8, 3), {0}, None),  # other numbers
        (("t", [[3, 4]]), (4, 3), {0}, ((3, 4), {1}, 1.0)),
        (("permute", [[2, 3, 4]], "[2, 0, 1]"), (3, 4, 2), {0}, None),
        (("unsqueeze", [[2, 3]], "1"), (2, 1, 3), {2}, ((2, 3), {1}, 1.0)),
        (("select", [[2, 3, 4]], "0", "0"), (3, 4), {0, 1}, ((2, 3, 4), {1, 2}, 1.0)),
        (("select", [[2, 3, 4]], "2", "0"), (2, 3), {0, 1}, ((2, 3, 4), {0, 1}, 1.0)),
        (("unbind", [[2, 3, 4]], "0"), (3, 4), {0}, ((2, 3, 4), {1}, 1.0)),
        (("slice", [[2, 8, 4]], "1", "0", "4", "1"), (2, 5, 4), {1}, None),
        (("narrow", [[2, 8, 4]], "-2", "0", "2"), (2, 2, 4), {1}, ((2, 8, 4), {1}, 0.25)),
        (("relu", [[8, 6]]), (8, 6), {0}, None),
    ],
)
def test_what_a_view_shows(
    op: tuple[Any, ...], whole: tuple[int, ...], part: set[int], expected: Any
) -> None:
    assert viewed(signature(*op), whole, frozenset(part)) == expected


@pytest.mark.parametrize(
    ("op", "whole", "part", "expected"),
    [
        (("mm", [[9, 5], [5, 7]]), (9, 7), {0}, [((9, 5), {0})]),
        (("mm", [[9, 5], [5, 7]]), (9, 7), {1}, []),
        (("mm", [[9, 5], [5, 7]]), (9, 7), {0, 1}, None),  # pairs of a row and a column
        (("addmm", [[7], [9, 5], [5, 7]]), (9, 7), {0}, [((9, 5), {0})]),
        (("bmm", [[4, 9, 5], [4, 5, 7]]), (4, 9, 7), {0}, [((4, 9, 5), {0}), ((4, 5, 7), {0})]),
        (("bmm", [[4, 9, 5], [4, 5, 7]]), (4, 9, 7), {1}, [((4, 9, 5), {1})]),
        (("bmm", [[4, 9, 5], [4, 5, 7]]), (4, 9, 7), {0, 1}, []),
        (("matmul", [[4, 9, 5], [5, 7]]), (4, 9, 7), {0}, None),
        (("linear", [[4, 9, 5], [7, 5]]), (4, 9, 7), {0}, [((4, 9, 5), {0})]),
        (("mm", [[9, 5], [5, 7]]), (9, 8), {0}, None),
        (("add", [ROWS, ROWS]), (8, 16, 64), {0}, [((8, 16, 64), {0})] * 2),
        (("softmax", [ROWS], "-1", ""), (8, 16, 64), {2}, None),
        (("layer_norm", [ROWS], "[16, 64]"), (8, 16, 64), {1}, None),
        (("sum", [ROWS], "[1]", "False"), (8, 64), {1}, [((8, 16, 64), {2})]),
        (("sum", [ROWS], "[1]", "True"), (8, 1, 64), {1}, None),
        (("embedding", [[100, 64], [8, 16]]), (8, 16, 64), {1}, []),
        (("embedding", [[100, 64], [8, 16]]), (8, 16, 64), {2}, None),
    ],
)
def test_what_an_op_needs(op: tuple[Any, ...], whole: tuple[int, ...], part: set[int], expected: Any) -> None:
    assert sources(signature(*op), whole, frozenset(part)) == expected


def test_a_diagonal_is_known_by_its_op() -> None:
    names = ("diagonal", "trace", "select", "diag_embed")
    assert [is_diagonal(signature(name, [[4, 4]])) for name in names] == [True, True, False, False]


def test_each_piece_that_is_taken_beside_the_chain_counts() -> None:
    """A sixteenth of the positions, and the last one as many times as it is selected."""
    few = Op(
        "aten::slice",
        SMALL,
        1,
        [WHOLE, [], [], [], []],
        [BF16, *["Scalar"] * 4],
        scalars=["", "1", "0", "32", "1"],
    )
    reader = Op("aten::argmax", SMALL, 10, [[8, 32, 32_000], []], [BF16, "Scalar"])
    product, *_, last = head(None, ROW)
    for others in (0, 2, 4):
        ops = [product, *[select("", 1, -1), last] * others, few, reader]
        said = found(program(ops), "partly-used")
        share = 1 / 16 + others / 512
        assert said[0].cost_ns == pytest.approx(6 * 900e3 * (1 - share), rel=1e-3)


def test_layers_average_before_batched_products_do_not() -> None:
    rows = Op("aten::matmul", NVJET, 900, [[8, 512, 1024], [8, 1024, 32_000]], [BF16, BF16])
    mean = between("aten::mean", [WHOLE, [], []], [BF16, "ScalarList", "Scalar"], "", "[1]", "False")
    reader = Op("aten::argmax", SMALL, 10, [ROW, []], [BF16, "Scalar"])
    assert found(program([rows, mean, reader]), "partly-used") == []
    layer = Op("aten::linear", NVJET, 900, [[8, 512, 1024], [32_000, 1024]], [BF16, BF16])
    (one,) = found(program([layer, mean, reader]), "partly-used")
    assert one.cause == "averaged"
    (one,) = found(program([layer, FLATTENED, BACK, mean, reader]), "partly-used")
    assert one.cause == "averaged"
    assert found(program([layer, CAST, mean, reader]), "partly-used") == []


FLATTENED = Op("aten::view", "", 0, [WHOLE, []], [BF16, "ScalarList"], scalars=["", "[4096, 32000]"])
BACK = Op("aten::view", "", 0, [[4_096, 32_000], []], [BF16, "ScalarList"], scalars=["", "[8, 512, 32000]"])
