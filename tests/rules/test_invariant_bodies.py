"""What the ops of an iteration compute of tensors that it does not change, on small made bodies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.roofline.test_made import op
from tests.roofline.test_op_families import signature
from traceanalyzer.roofline.signatures import Signature
from traceanalyzer.rules.kernels.loop_invariant.bodies import Bodies

F32, LONG = "float", "long int"
CONTEXT, STATE = [77, 64], [9, 64]
KEYS = op("linear", CONTEXT, [100, 64])
UPDATE = op("add", STATE, STATE, "1")


def unchanged(*ops: Signature) -> list[bool]:
    """Of an iteration of these ops, each of which has written little."""
    bodies = Bodies(ops, np.ones(len(ops)), [], 0.5)
    return [bool(one) for one in bodies.unchanged(np.arange(len(ops)))]


def test_a_product_of_what_no_op_makes_is_the_same_each_time() -> None:
    assert unchanged(KEYS, UPDATE) == [True, False]
    assert unchanged(op("linear", STATE, [64, 64]), UPDATE) == [False, False]


def test_a_layer_on_numbers_that_are_drawn_for_it_begins_another_pass() -> None:
    drawn = signature("randn", [[], []], ["ScalarList", ""], "[9, 64]")
    first = op("linear", STATE, [64, 64])
    assert unchanged(drawn, first, KEYS, UPDATE) == [False] * 4
    noise = signature("randn_like", [STATE], [F32])
    assert unchanged(noise, first, KEYS, UPDATE) == [False] * 4
    # where the numbers are added first, they are noise of a sampler
    assert unchanged(drawn, UPDATE, first, KEYS) == [False, False, False, True]


@pytest.mark.parametrize(("number", "known"), [("0.5", True), ("", False)])
def test_a_number_that_is_not_recorded_may_be_another_each_time(number: str, *, known: bool) -> None:
    """The context is mixed of two fixed tensors, by a number."""
    mixed = signature("lerp", [[77, 1], [1, 64], []], [F32, F32, "double"], "", "", number)
    assert unchanged(mixed, KEYS, UPDATE) == [False, known, False]


@pytest.mark.parametrize(("read", "same"), [([64, 77], True), ([2, 64, 77], False)])
def test_what_is_reduced_has_fewer_elements_than_before(read: list[int], *, same: bool) -> None:
    """A maximum of whatever dimension may be the context if it reads more than the context has, and the state."""
    largest = signature("amax", [read, STATE], [F32, F32])
    assert unchanged(largest, KEYS, op("add_", read, "1")) == [False, same, False]


def test_of_a_look_up_the_indices_come_from_outside_and_not_the_table() -> None:
    """Two tensors that an iteration begins with may both be its own."""
    looked_up = signature("embedding", [CONTEXT, [5]], [F32, LONG])
    assert unchanged(looked_up, KEYS, UPDATE) == [False] * 3
