"""What the ops of an iteration compute of tensors that it does not change, on small made bodies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.op_calls import op, signature
from traceanalyzer.rules.tensors.loop_invariant import Bodies
from traceanalyzer.tensors.signatures import Signature

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


def test_a_layer_on_random_numbers_begins_another_pass() -> None:
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


def test_indices_of_a_lookup_are_inputs_the_table_is_not() -> None:
    """Two tensors that an iteration begins with may both be its own."""
    looked_up = signature("embedding", [CONTEXT, [5]], [F32, LONG])
    assert unchanged(looked_up, KEYS, UPDATE) == [False] * 3


def bodies(*ops: Signature, written: float = 1.0, uploaded: tuple[int, ...] = ()) -> Bodies:
    return Bodies(ops, np.full(len(ops), written), uploaded, 0.5)


def encoded_again(before: list[Signature], *ops: Signature) -> list[bool]:
    """Of an iteration of these ops, after others of the step."""
    every = [*ops, *before]
    number = np.arange(len(every))
    same = bodies(*every).encoded_again(number[: len(ops)], number[len(ops) :])
    return [bool(one) for one in same]


ENCODED = op("linear", [77, 32], [64, 32])
ATTEND = op("linear", STATE, [64, 64])


def test_encodings_made_before_the_loop_stay_fixed() -> None:
    """Keys of a context that was made before, and a state that each iteration hands to the next."""
    assert encoded_again([ENCODED], KEYS, UPDATE) == [True, False]
    assert encoded_again([], KEYS, UPDATE) == [False, False]  # nobody knows where it comes from
    assert encoded_again([ENCODED], KEYS, op("relu", STATE)) == [True, False]
    # what an iteration makes before it reads is its own, and no state
    assert encoded_again([ENCODED], op("linear", [9, 32], [64, 32]), op("relu", STATE), KEYS) == [False] * 3
    # used before the loop, or a part of something, it may be one of several
    assert encoded_again([ENCODED, op("linear", CONTEXT, [5, 64])], KEYS, UPDATE) == [False, False]
    assert encoded_again([ENCODED, op("view", CONTEXT, "[77, 8, 8]")], KEYS, UPDATE) == [True, False]
    part = op("slice", [99, 64], "0", "0", "77", "1")
    assert encoded_again([part, ENCODED], KEYS, UPDATE) == [False, False]


def test_a_list_of_encoded_tensors_is_no_single_one() -> None:
    every = [KEYS, UPDATE, ENCODED]
    number = np.arange(2)
    assert bodies(*every).encoded_again(number, np.array([2])).tolist() == [True, False]
    assert bodies(*every).encoded_again(number, np.array([2, 2])).tolist() == [False, False]


def test_results_of_keys_are_fixed_those_of_state_are_not() -> None:
    keys = op("relu", [77, 100])
    mixed = op("mm", [9, 64], [64, 77])
    assert encoded_again([ENCODED], KEYS, keys, mixed, UPDATE) == [True, True, False, False]
