"""Which ops of an iteration nothing reads, and which loops go over the items of a batch, on small made bodies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.op_calls import op, signature
from traceanalyzer.rules.tensors.unread_results import Body, Made, takes_items
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.timeline.loops import Loop

Shape = tuple[int, ...]
IMAGE, STATE, INNER, HIDDEN, RESULT = (9,), (1,), (2,), (3,), (4,)


def made(makes: Shape | None, *reads: Shape, views: bool = False, more: bool = False) -> Made:
    return Made(Counter(reads), makes, views, more)


UPDATE = [made(INNER, STATE), made(STATE, INNER, STATE)]
HEAD = [made(HIDDEN, STATE), made(RESULT, HIDDEN)]


def blocks(
    ops: Sequence[Made], spent: Sequence[float], listed: Sequence[Shape] = ()
) -> list[tuple[Shape, list[int]]]:
    return [(one.makes, one.places) for one in Body(ops, spent, frozenset(listed)).blocks(0.1)]


def test_what_only_an_unread_result_needs_goes_with_it() -> None:
    ops, spent = [*UPDATE, *HEAD], [300, 300, 100, 50]
    assert blocks(ops, spent) == [(RESULT, [3, 2])]
    # a list of hidden tensors is read after the loop
    assert blocks(ops, spent, [HIDDEN]) == [(RESULT, [3])]
    assert blocks([*ops, made(STATE, RESULT, STATE)], [*spent, 300]) == []
    assert blocks([*ops, made(None, IMAGE, more=True)], [*spent, 1]) == []


@pytest.mark.parametrize(("between", "places"), [(5, [3, 1]), (19, [3, 1]), (22, [3])])
def test_ops_between_are_short_and_their_inputs_needed(between: float, places: list[int]) -> None:
    """The state's op lies between both of the head, and reads what is made before both."""
    ops = [made(INNER, STATE), HEAD[0], made(STATE, INNER, STATE), HEAD[1]]
    assert blocks(ops, [10, 100, between, 100]) == [(RESULT, places)]


def test_a_state_is_what_the_iteration_before_made() -> None:
    own = {2, 3}
    assert Body([*UPDATE, *HEAD], [1] * 4, frozenset()).carries(own, 3)
    calls = [made(INNER, IMAGE), made(STATE, INNER), *HEAD]
    assert not Body(calls, [1] * 4, frozenset()).carries(own, 3)
    shown = [UPDATE[0], made(STATE, INNER, STATE, views=True), *HEAD]
    assert not Body(shown, [1] * 4, frozenset()).carries(own, 3)
    # what the unread ops alone read of the iteration before is no state
    alone = [made(INNER, IMAGE), made(STATE, INNER), made(HIDDEN, STATE, HIDDEN), made(RESULT, HIDDEN)]
    assert not Body(alone, [1] * 4, frozenset()).carries(own, 3)
    # nor is what they alone read of it, beside the one made since
    compared = [made(HIDDEN, STATE, STATE), HEAD[1], made(INNER, IMAGE), made(STATE, INNER)]
    assert not Body(compared, [1] * 4, frozenset()).carries({0, 1}, 1)


def test_a_result_of_a_read_shape_may_be_read() -> None:
    """Two are made, and one is read."""
    twice = [*UPDATE, *HEAD, made(None, RESULT), HEAD[1]]
    assert blocks(twice, [300, 300, 100, 50, 1, 50]) == []
    assert blocks([*UPDATE, *HEAD, HEAD[1]], [300, 300, 100, 50, 50]) == [(RESULT, [4, 3, 2])]


@pytest.mark.parametrize(
    ("call", "makes"),
    [
        (op("pixel_shuffle", [2, 36, 8, 6], "2"), (2, 9, 16, 12)),
        (op("flatten", [2, 3, 4, 5], "1", "2"), (2, 12, 5)),
        (op("flatten", [2, 3, 4, 5], "1", "-1"), (2, 60)),
        (op("im2col", [2, 3, 10, 12], "[3, 2]", "[2, 1]", "[1, 0]", "[2, 1]"), (2, 18, 44)),
        (op("relu_", [2, 3]), (2, 3)),
        (op("add_", [2, 3], [2, 3]), None),  # writes into what is read elsewhere
        (op("dropout", [2, 3]), None),
        (op("mm", [2, 3], [3, 4]), (2, 4)),
        (op("mm", [2, 3], [3, 4], [2, 4]), None),  # into another tensor
        (op("nobody_knows", [2, 3]), None),
    ],
)
def test_what_an_op_makes_and_no_more(call: Signature, makes: Shape | None) -> None:
    assert Made.of(call, hands_out=False).makes == makes
    assert Made.of(call, hands_out=True).makes is None


@pytest.mark.parametrize(("dims", "more"), [([[2, 3], []], True), ([[2, 3]], True), ([[2, 3], [[5]]], False)])
def test_indices_that_are_not_recorded_are_read_besides(dims: list[Any], more: bool) -> None:
    call = signature("index", dims, ["float", ""][: len(dims)])
    assert Made.of(call, hands_out=False).reads_more is more


def over(items: Sequence[Signature], *before: Signature) -> bool:
    """A loop of three iterations, of a layer and one of these each, after other ops."""
    layer = op("mm", [2, 3], [3, 4])
    known = [layer, *items, *before]
    number = np.array([*range(4, len(known)), 0, 1, 0, 2, 0, 3])
    first = len(before)
    return takes_items(Loop(first, 2, 3, first + 6), number[:first], number, known)


@pytest.mark.parametrize(
    ("items", "takes"),
    [
        ([op("select", [8, 64], "0", str(at)) for at in range(3)], True),
        ([op("select", [8], "0", str(at)) for at in range(3)], False),  # a number of a schedule
        ([op("slice", [8], "0", str(at), str(at + 1), "1") for at in range(3)], True),
        ([op("narrow", [8, 64], "0", str(at), "1") for at in range(3)], True),
        ([op("select", [8 + at, 64], "0", "-1") for at in range(3)], False),  # the last of what grows
        ([op("mul", [8, 64], str(at)) for at in range(3)], False),
        ([op("select", [8, 64], "0", "1")] * 3, False),
    ],
)
def test_a_loop_over_items_takes_another_part_each_time(items: list[Signature], takes: bool) -> None:
    assert over(items) is takes


@pytest.mark.parametrize(
    ("cut", "takes"),
    [
        (op("chunk", [9, 4], "3", "0"), True),
        (op("chunk", [9, 4], "4", "0"), False),
        (op("split", [5, 4], "2", "0"), True),  # 2, 2 and 1
        (op("split", [7, 4], "2", "0"), False),
        (op("split", [4, 9], "3", "1"), True),
        (op("unbind", [5, 3], "1"), True),
        (op("unbind", [5, 3], "0"), False),
        (op("unbind", [3], "many"), False),
        (op("select", [3, 4], "0", "0"), False),
    ],
)
def test_parts_cut_before_the_loop_are_its_items(cut: Signature, takes: bool) -> None:
    same = [op("relu", [8, 64])] * 3
    assert over(same, cut) is takes
