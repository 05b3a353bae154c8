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


def test_what_the_step_encodes_before_the_loop_stays_the_same_in_it() -> None:
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


def test_what_is_made_of_the_keys_is_the_same_too_but_not_what_takes_the_state() -> None:
    keys = op("relu", [77, 100])
    mixed = op("mm", [9, 64], [64, 77])
    assert encoded_again([ENCODED], KEYS, keys, mixed, UPDATE) == [True, True, False, False]


@pytest.mark.parametrize(
    ("call", "makes", "others"),
    [
        (op("relu", [4, 6]), (4, 6), [(6, 4), (24,)]),
        (op("mm", [4, 6], [6, 9]), (4, 9), [(4, 6)]),
        (op("add", [4, 1], [6], "1"), (4, 6), [(4, 1), (6,)]),
        (op("add_", [4, 6], [6], "1"), (4, 6), [(6,)]),
        (op("scaled_dot_product_attention", [2, 4, 8], [2, 6, 8], [2, 6, 5]), (2, 4, 5), [(2, 4, 8)]),
        (signature("embedding", [[9, 8], [4, 5]], [F32, LONG]), (4, 5, 8), [(9, 8), (4, 5)]),
        (op("avg_pool2d", [2, 3, 8, 8], "[2, 2]"), (2, 3, 4, 4), [(2, 4, 4, 4), (3, 3, 4, 4), (2, 3, 4)]),
        (op("max_pool1d", [2, 3, 8], "[2]"), (2, 3, 4), [(2, 4, 4)]),
        (op("view", [4, 6], "[2, 12]"), (2, 12), [(5, 5)]),
        (op("as_strided", [4, 6]), (12,), [(7,), (48,)]),
    ],
)
def test_an_op_may_make_what_its_inputs_allow(
    call: Signature, makes: tuple[int, ...], others: list[tuple[int, ...]]
) -> None:
    one = bodies(call)
    assert one._may_make(0, makes)
    assert not any(one._may_make(0, shape) for shape in others)


@pytest.mark.parametrize(
    ("written", "may"),
    [(23.0, False), (24.0, True), (0.0, True)],
)
def test_an_op_of_unknown_results_may_make_what_it_has_time_to_write(written: float, *, may: bool) -> None:
    """Half of 24 numbers of two bytes; without a kernel it is not known."""
    assert bool(bodies(op("nobody_knows", [9, 9]), written=written)._may_make(0, (4, 6))) is may


@pytest.mark.parametrize(
    ("call", "same"),
    [
        (op("add", CONTEXT, CONTEXT, "1"), True),
        (op("add", CONTEXT, STATE, "1"), False),
        (op("linear", CONTEXT, [100, 64]), True),  # the weight stays
        (op("linear", STATE, [100, 64]), False),
        (op("addmm", [100], CONTEXT, [64, 100]), True),
        (op("addmm", [100], STATE, [64, 100]), False),
        (op("dropout", CONTEXT), False),
        (op("add_", CONTEXT, CONTEXT, "1"), False),
        (op("arange", "9"), False),  # of no tensor
    ],
)
def test_the_same_is_made_of_fixed_tensors_unless_drawn_uploaded_or_written_in_place(
    call: Signature, *, same: bool
) -> None:
    fixed: set[tuple[int, ...]] = {(77, 64)}
    assert bodies(call)._constant(0, fixed) is same
    assert not bodies(call, uploaded=(0,))._constant(0, fixed)


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        (op("layer_norm", CONTEXT, "[64]", [64], [64]), True),
        (op("relu", CONTEXT), True),
        (op("type_as", CONTEXT, CONTEXT), False),  # another tensor of that shape, too
        (op("type_as", STATE, CONTEXT), False),
        (op("add", CONTEXT, CONTEXT, "1"), False),
    ],
)
def test_what_keeps_each_number_of_a_tensor_makes_no_other_one_of_it(call: Signature, *, kept: bool) -> None:
    assert bodies(call)._constant(0, set(), but=(77, 64)) is kept


def test_only_products_read_the_source_of_keys() -> None:
    shown, layer, other = (
        op("view", CONTEXT, "[7, 11, 64]"),
        op("linear", CONTEXT, [100, 64]),
        op("relu", CONTEXT),
    )
    for calls, alone in (
        ([layer, shown], True),
        ([shown], False),  # nothing reads it but a view
        ([layer, other], False),
        ([op("linear", STATE, CONTEXT), layer], False),  # the context is its weight
    ):
        assert bodies(*calls)._only_projected(range(len(calls)), (77, 64)) is alone
