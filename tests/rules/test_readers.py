"""Which ops read a tensor, and what cuts take of it, on a few ops in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.op_calls import op, signature
from tests.support.partly_used_results import in_order
from traceanalyzer.rules.tensors.partly_used.sources import Cut, cut_at
from traceanalyzer.tensors.signatures import Signature

MUL, ADD = op("mul", [4, 5]), op("add", [4, 5], [4, 5])
UNKNOWN = Signature("aten::nobody_knows", (), (), ())


def test_the_next_op_alike_is_of_the_same_thread() -> None:
    ops = in_order(MUL, ADD, MUL, UNKNOWN, MUL, ADD, others=2)
    assert ops.last.tolist() == [4, 4, 4, 4, 6, 6]
    assert [ops.next_alike(0, 0), ops.next_alike(0, 1), ops.next_alike(0, 2)] == [2, 2, 4]
    assert [ops.next_alike(1, 1), ops.next_alike(4, 4), ops.next_alike(5, 4)] == [4, 6, 5]


def test_readers_are_those_of_so_many_rows_and_columns() -> None:
    ops = in_order(MUL, ADD, MUL, UNKNOWN, op("mul", [2, 2, 5]), op("mul", [5, 4]))
    assert ops.unknown.tolist() == [3]
    assert {one.name: at.tolist() for one, at in ops.between(0, 3, (4, 5))} == {
        "aten::mul": [2],
        "aten::add": [1],
    }
    assert [at.tolist() for _, at in ops.between(0, 2, (4, 5))] == [[1]]
    assert sorted(at.tolist()[0] for _, at in ops.between(2, 6, (4, 5))) == [4]  # as many, seen otherwise
    assert [ops.reads(at, (4, 5)) for at in range(6)] == [True, True, True, True, True, False]


CHUNK = op("chunk", [4, 6], "3", "1")
ONE, TWO, THREE = op("relu", [4, 2]), op("mul", [4, 2], [4, 2]), op("cat", [4, 2], [4, 2], [4, 2])


@pytest.mark.parametrize(
    ("after", "read"),
    [
        ([ONE], 1),
        ([TWO], 2),
        ([ONE, ONE], 2),
        ([ONE, TWO], 0),  # all three
        ([THREE], 0),
        ([], 0),
        ([op("relu", [4, 3])], 0),
        ([ONE, CHUNK, TWO], 1),  # of the next tensor that is cut
        ([ONE, UNKNOWN], 0),
        ([ONE, signature("arange", [[], []], ["Scalar", ""])], 1),  # of numbers alone: it reads no piece
    ],
)
def test_pieces_are_used_in_part_where_fewer_are_read(after: list[Signature], read: int) -> None:
    found = cut_at(0, in_order(CHUNK, *after))
    assert found == (Cut(read / 3, frozenset({1}), averaged=False, diagonal=False) if read else None)


INDEX = signature("index", [[8, 64], []], ["float", ""])


@pytest.mark.parametrize(
    ("after", "views", "part"),
    [
        ([op("relu", [3, 64])], (), 3 / 8),
        ([op("relu", [2, 2, 64])], (), 4 / 8),  # by two indices of each
        ([op("relu", [8, 64])], (), 0),  # as many rows
        ([op("relu", [3, 32])], (), 0),
        ([op("add", [5], [3, 64])], (), 3 / 8),
        ([op("t", [3, 64]), op("relu", [64, 3])], (1,), 3 / 8),  # the view tells
        ([op("t", [9, 9]), op("relu", [3, 64])], (1,), 3 / 8),
        ([op("relu", [64, 3]), op("relu", [3, 64])], (), 0),  # what reads next is another tensor's
        ([op("t", [3, 64]), op("t", [5, 64])], (1, 2), 3 / 8),  # only the next view is of the index
        ([op("relu", [9, 9]), op("t", [5, 64])], (2,), 0),
        ([], (), 0),
    ],
)
def test_an_unrecorded_index_takes_what_the_next_op_reads(
    after: list[Signature], views: Sequence[int], part: float
) -> None:
    found = cut_at(0, in_order(INDEX, *after, views=views))
    assert found == (Cut(part, frozenset({0}), averaged=False, diagonal=False) if part else None)


def test_cuts_are_of_one_thread() -> None:
    assert cut_at(0, in_order(INDEX, op("relu", [3, 64]), others=1)) is None
    assert cut_at(0, in_order(CHUNK, ONE, others=1)) is None
