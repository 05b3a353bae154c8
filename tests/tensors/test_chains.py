"""Loops whose repeats need the one before, by the ids of their tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.execution_traces import Call, Tensor
from tests.tensors.test_flow import W, X, Y, flow, mul, reader_of
from traceanalyzer.tensors.chains import beside_chain, chain_length, read_the_same


def add(left: Tensor, right: Tensor, result: Tensor) -> Call:
    return Call("aten::add", (left, right), (result,))


def repeats(kind: str, count: int = 6) -> list[list[Call]]:
    """Repeats of two ops, each with new tensors; `state` is what the repeat before has made."""
    made: list[list[Call]] = []
    state = X
    for number in range(count):
        inner, result = Tensor(20 + 2 * number), Tensor(21 + 2 * number)
        row = Tensor(8, (1, 64), offset=64 * number)
        made.append(
            {
                "apart": [mul(X, W, inner), mul(inner, W, result)],
                "sum": [mul(X, W, inner), add(state, inner, result)],
                "recurrence": [mul(state, W, inner), add(inner, W, result)],
                "layers": [mul(X, W, inner), Call("aten::mm", (state, inner), (result,))],
                "rows": [mul(X, W, inner), Call("aten::add_", (row, inner), (row,), writes=(0,))],
            }[kind]
        )
        state = result
    return made


@pytest.mark.parametrize(("kind", "length"), [("apart", 0), ("rows", 0), ("sum", 1), ("recurrence", 2), ("layers", 2)])
def test_a_chain_is_what_each_repeat_needs_of_the_one_before(tmp_path: Path, kind: str, length: int) -> None:
    calls = [call for repeat in repeats(kind) for call in repeat]
    of_steps = flow(tmp_path, *[[*calls, reader_of(*calls)]] * 2)
    starts = of_steps.ops.start_ns
    edges = [starts[first : first + 13 : 2] for first in (0, 13)]
    assert chain_length(of_steps, edges) == length


def test_a_chain_is_unknown_where_no_op_was_recorded(tmp_path: Path) -> None:
    assert chain_length(flow(tmp_path, *[[mul(X, W, Y)]] * 2), [np.array([-9, -5, -1])]) is None


def test_a_readout_lies_beside_the_recurrence_of_its_loop(tmp_path: Path) -> None:
    """Each repeat makes a state from the one before, reads it out by a layer, and adds the result to a sum."""
    calls, state, total = list[Call](), X, Tensor(9)
    for number in range(8):
        first, second, read, added = (Tensor(20 + 4 * number + place) for place in range(4))
        calls += [mul(state, W, first), Call("aten::mm", (first, W), (second,))]
        calls += [Call("aten::mm", (second, W), (read,)), add(total, read, added)]
        state, total = second, added
    of_steps = flow(tmp_path, [*calls, reader_of(*calls)], [*calls, reader_of(*calls)])
    starts = of_steps.ops.start_ns
    beside = beside_chain(of_steps, [starts[0:33:4]])
    assert beside[:16].reshape(4, 4).tolist() == [[False, False, True, True]] * 4


@pytest.mark.parametrize(("weights", "same"), [((W, W), True), ((Tensor(30), Tensor(31)), False)])
def test_layers_are_the_same_by_their_weights_not_by_their_data(
    tmp_path: Path, weights: tuple[Tensor, Tensor], same: bool
) -> None:
    calls = [mul(X, W, Y), *(mul(Y, weight, Tensor(20 + at)) for at, weight in enumerate(weights))]
    of_steps = flow(tmp_path, [*calls, reader_of(*calls)], [*calls, reader_of(*calls)])
    first = of_steps.number[4:]
    assert read_the_same(of_steps, first[1:2], first[2:3]) is same
