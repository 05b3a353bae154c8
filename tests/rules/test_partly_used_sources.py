"""Which part of its input an op needs for a part of its result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.partly_used_results import signature
from traceanalyzer.rules.tensors.partly_used.sources import (
    is_diagonal,
    joined,
    pieces,
    sources,
    taken,
    viewed,
)
from traceanalyzer.tensors.ops.table import result_shape


@pytest.mark.parametrize(
    ("op", "whole", "part", "expected"),
    [
        (("view", [[512, 3, 8]], "[8, 64, 3, 8]"), (8, 64, 3, 8), {1}, ((512, 3, 8), {0}, 1.0)),
        (("view", [[8, 64, 3]], "[512, 3]"), (512, 3), {0}, ((8, 64, 3), {0, 1}, 1.0)),
        (("view", [[4, 128, 3]], "[8, 64, 3]"), (8, 64, 3), {1}, ((4, 128, 3), {1}, 1.0)),
        (("view", [[512, 3, 8]], "[512, 24]"), (512, 3, 8), {0}, None),
        (("permute", [[2, 3, 4]], "[2, 0, 1]"), (4, 2, 3), {0}, ((2, 3, 4), {2}, 1.0)),
        (("transpose", [[2, 3, 4]], "0", "-1"), (4, 3, 2), {0}, ((2, 3, 4), {2}, 1.0)),
        (("transpose", [[2, 3, 4]], "-1", "0"), (4, 3, 2), {0}, ((2, 3, 4), {2}, 1.0)),
        (("swapaxes", [[2, 3, 4]], "-1", "-2"), (2, 4, 3), {1}, ((2, 3, 4), {2}, 1.0)),
        (("select", [[2, 3, 4]], "1", "0"), (2, 4), {1}, ((2, 3, 4), {2}, 1.0)),
        (("slice", [[2, 8, 4]], "1", "0", "4", "1"), (2, 4, 4), {1}, ((2, 8, 4), {1}, 0.5)),
        (("slice", [[2, 8, 4]], "1", "0", "4", "1"), (2, 4, 4), {0}, ((2, 8, 4), {0}, 1.0)),
        (("slice", [[2, 8, 4]], "1", "0", "4", "1"), (2, 5, 4), {1}, None),
        (("select", [[2, 3, 4]], "1", "0"), (3, 4), {0}, None),
        (("select", [[2, 3, 4]], "-2", "0"), (2, 4), {0}, ((2, 3, 4), {0}, 1.0)),
        (("t", [[3, 4]]), (4, 3), {0}, ((3, 4), {1}, 1.0)),
        (("t", [[3, 4]]), (3, 4), {0}, None),
        (("flatten", [[3, 4]], "0", "1"), (6,), {0}, None),  # a view of fewer numbers, and of more
        (("flatten", [[3, 4]], "0", "1"), (24,), {0}, None),
        (("flatten", [[3, 4]], "0", "1"), (12,), {0}, ((3, 4), {0, 1}, 1.0)),
    ],
)
def test_the_part_of_a_view_is_found_in_what_it_views(
    op: tuple[Any, ...], whole: tuple[int, ...], part: set[int], expected: tuple[Any, ...] | None
) -> None:
    assert viewed(signature(*op), whole, frozenset(part)) == expected


IMAGE, ROWS = [8, 3, 32, 32], [8, 16, 64]


@pytest.mark.parametrize(
    ("op", "makes", "apart", "needs"),
    [
        (("relu", [ROWS]), (8, 16, 64), [{0}, {1}, {2}], [8, 16, 64]),
        (("mul", [ROWS, [8, 1, 64]]), (8, 16, 64), [{0}, {1}, {2}], [8, 16, 64]),
        (("add", [ROWS, ROWS]), (8, 16, 64), [{1}, {2}], []),
        (("softmax", [ROWS], "-1", ""), (8, 16, 64), [{0}, {1}], ROWS),
        (("softmax", [ROWS], "1", ""), (8, 16, 64), [{0}, {2}], ROWS),
        (("flip", [ROWS], "[1, 2]"), (8, 16, 64), [{0}], ROWS),
        (("layer_norm", [ROWS], "[64]"), (8, 16, 64), [{0}, {1}], ROWS),
        (("layer_norm", [ROWS], "[16, 64]"), (8, 16, 64), [{0}], ROWS),
        (("pad", [ROWS], "[1, 2]", ""), (8, 16, 67), [{0}, {1}], ROWS),
        (("linear", [ROWS, [32, 64]]), (8, 16, 32), [{0}, {1}], ROWS),
        (("bmm", [ROWS, [8, 64, 32]]), (8, 16, 32), [{1}], ROWS),
        (("mm", [[16, 64], [64, 32]]), (16, 32), [{0}], [16, 64]),
        (("addmm", [[32], [16, 64], [64, 32]]), (16, 32), [{0}], [16, 64]),
        (("sum", [ROWS], "[1]", "False"), (8, 64), [{0}, {1}], ROWS),
        (("amax", [ROWS], "[-1]", "True"), (8, 16, 1), [{0}, {1}], ROWS),
        (("linalg_vector_norm", [ROWS], "2", "[-1]", "False"), (8, 16), [{0}, {1}], ROWS),
        (("upsample_bilinear2d", [IMAGE], "[64, 48]", "False"), (8, 3, 64, 48), [{0}, {1}], IMAGE),
        (("upsample_bilinear2d", [IMAGE], "", "False", "[2.5, 1.28]"), (8, 3, 80, 40), [{0}, {1}], IMAGE),
        (("upsample_nearest2d", [IMAGE], "", "[2., 4.]"), (8, 3, 64, 128), [{0}, {1}], IMAGE),
        (("upsample_nearest2d", [IMAGE], "", "[2.]"), None, [], IMAGE),
        (("adaptive_avg_pool2d", [IMAGE], "[1, 1]"), (8, 3, 1, 1), [{0}, {1}], IMAGE),
        (
            ("max_pool2d", [IMAGE], "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"),
            (8, 3, 16, 16),
            [{0}, {1}],
            IMAGE,
        ),
        (("avg_pool2d", [IMAGE], "[2, 2]", "[]", "[0, 0]", "False"), (8, 3, 16, 16), [{0}, {1}], IMAGE),
        (("avg_pool2d", [IMAGE], "[2, 2]", "[]", "[0, 0]", "True"), None, [], IMAGE),
        (("group_norm", [IMAGE], "3"), (8, 3, 32, 32), [{0}], IMAGE),
        (("grid_sampler", [IMAGE, [8, 20, 10, 2]], "0"), (8, 3, 20, 10), [{0}], IMAGE),
        (
            ("conv2d", [IMAGE, [16, 3, 3, 3], [16]], "[2, 2]", "[1, 1]", "[1, 1]", "1"),
            (8, 16, 16, 16),
            [{0}],
            IMAGE,
        ),
        (("stack", [[ROWS, ROWS]], "1"), (8, 2, 16, 64), [{0}, {1}, {2}, {3}], []),
        (("embedding", [[1000, 64], [8, 16]]), (8, 16, 64), [{0}, {1}], []),
        (
            ("scaled_dot_product_attention", [[8, 4, 9, 64], [8, 4, 7, 64], [8, 4, 7, 32]]),
            (8, 4, 9, 32),
            [{2}],
            [8, 4, 9, 64],
        ),
    ],
)
def test_unmixed_parts_need_the_same_part_of_the_input(
    op: tuple[Any, ...], makes: tuple[int, ...] | None, apart: list[set[int]], needs: list[int]
) -> None:
    one = signature(*op)
    assert result_shape(one) == makes
    for part in [{at} for at in range(len(makes or ()))]:
        found = sources(one, makes or (), frozenset(part))
        if part in apart:
            assert found is not None
            assert {shape for shape, _ in found} == ({tuple(needs)} if needs else set())
        else:
            assert not found or len(found) > 1  # all of it, or of several inputs


@pytest.mark.parametrize(
    ("op", "makes", "needs"),
    [
        (("add", [ROWS, ROWS]), ROWS, [ROWS, ROWS]),
        (("bmm", [ROWS, [8, 64, 32]]), [8, 16, 32], [ROWS, [8, 64, 32]]),
        (
            ("scaled_dot_product_attention", [[8, 4, 9, 64], *[[8, 4, 7, 64]] * 2]),
            [8, 4, 9, 64],
            [[8, 4, 9, 64], *[[8, 4, 7, 64]] * 2],
        ),
        (("cat", [[ROWS, [8, 1, 64]]], "1"), [8, 17, 64], [ROWS, [8, 1, 64]]),
        (("cat", [[ROWS, ROWS]], "0"), [16, 16, 64], []),
    ],
)
def test_a_part_of_a_batch_needs_the_same_part_of_all_inputs(
    op: tuple[Any, ...], makes: list[int], needs: list[list[int]]
) -> None:
    first = frozenset({0})
    assert sources(signature(*op), tuple(makes), first) == [(tuple(shape), first) for shape in needs]


@pytest.mark.parametrize(
    ("training", "part"), [("True", None), ("False", [((8, 3, 32, 32), frozenset({0}))])]
)
def test_batch_norm_needs_all_images_in_training(training: str, part: Any) -> None:
    call = signature("batch_norm", [IMAGE, *[[3]] * 4], training, "0.1", "1e-5")
    assert sources(call, (8, 3, 32, 32), frozenset({0})) == part


@pytest.mark.parametrize(
    ("op", "makes", "part", "needs"),
    [
        (("linear", [ROWS, [32, 64]]), (8, 16, 32), {2}, []),  # columns are of the weight
        (("bmm", [ROWS, [8, 64, 32]]), (8, 16, 32), {2}, []),
        (("linear", [ROWS, [32, 64]]), (8, 16, 32), {1, 2}, None),  # pairs of a row and a column
        (("linear", [ROWS, [32, 64]]), (8, 16, 32), {0, 1}, [((8, 16, 64), {0, 1})]),
        (("bmm", [ROWS, [8, 64, 32]]), (8, 16, 32), {0, 1}, []),
        (("mm", [[16, 64], [64, 32]]), (16, 31), {0}, None),
        (("matmul", [ROWS, [1, 64, 32]]), (8, 16, 32), {0}, None),
    ],
)
def test_columns_of_a_product_need_no_part_of_its_rows(
    op: tuple[Any, ...], makes: tuple[int, ...], part: set[int], needs: list[Any] | None
) -> None:
    assert sources(signature(*op), makes, frozenset(part)) == needs


@pytest.mark.parametrize(
    ("op", "dims", "part"),
    [
        (("select", [[8, 5]], "0", "3"), {0}, 1 / 8),
        (("select", [[8, 5]], "-1", "3"), {1}, 1 / 5),
        (("slice", [[8, 5]], "0", "2", "8", "2"), {0}, 3 / 8),
        (("slice", [[8, 5]], "0", "-2", "9223372036854775807", "1"), {0}, 2 / 8),
        (("slice", [[8, 5]], "0", "", "", "4"), {0}, 2 / 8),
        (("narrow", [[8, 5]], "1", "1", "2"), {1}, 2 / 5),
        (("diagonal", [[2, 8, 5]], "0", "1", "2"), {1, 2}, 5 / 40),
        (("diagonal", [[2, 8, 5]], "0", "0", "-1"), {0, 2}, 2 / 10),
        (("trace", [[8, 5]]), {0, 1}, 5 / 40),
        (("diag", [[8, 9]], "0"), {0, 1}, 8 / 72),
    ],
)
def test_a_cut_takes_a_part_along_its_dimensions(op: tuple[Any, ...], dims: set[int], part: float) -> None:
    assert taken(signature(*op)) == (frozenset(dims), part)
    assert is_diagonal(signature(*op)) is op[0].startswith(("diag", "trace"))


def test_other_ops_take_no_part() -> None:
    for name, *inputs in (
        ("exp", [[8, 5]]),
        ("select", [[8, 5]], "", "3"),
        ("diagonal", [[8, 5]], "", "0", "1"),
    ):
        found = taken(signature(name, *inputs))
        assert (found is None) is (name != "diagonal")


@pytest.mark.parametrize(
    ("op", "whole"),
    [
        (("mean", [[8, 5, 4]], "[1]", "False"), ({1}, 1 / 5)),
        (("mean", [[8, 5, 4]], "[0, -2]", "False"), ({0, 1}, 1 / 40)),
        (("sum", [[8, 5, 4]], "[-1]", "False"), None),
        (("sum", [[8, 5, 4]], "[]", "False"), None),
        (("amax", [[8, 5, 4]], "[1]", "False"), None),
    ],
)
def test_a_mean_or_sum_over_rows_joins_so_many(op: tuple[Any, ...], whole: tuple[Any, ...] | None) -> None:
    assert joined(signature(*op)) == whole


@pytest.mark.parametrize(
    ("op", "found"),
    [
        (("chunk", [[8, 6]], "3", "-1"), (1, (8, 2), 3)),
        (("split", [[8, 6]], "2", "0"), (0, (2, 6), 4)),
        (("split", [[8, 6]], "3", "0"), None),
        (("unbind", [[8, 6]], "0"), (0, (6,), 8)),
        (("unbind", [[8, 6]], "-1"), (1, (8,), 6)),
        (("select", [[8, 6]], "0", "1"), None),
    ],
)
def test_pieces_are_equal(op: tuple[Any, ...], found: tuple[Any, ...] | None) -> None:
    assert pieces(signature(*op)) == found
