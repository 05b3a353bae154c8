"""Unread results of loops whose iterations begin amid the result, or whose tensors a list takes later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import Op, found, program
from tests.rules.test_loop_invariant import ADD
from tests.rules.test_unread_results import BEFORE, MASK, SHUFFLE, SLUG, SOFTMAX, SPENT, refined


def test_a_result_made_across_two_iterations() -> None:
    """Before the loop is what ends an iteration, of other times: its product was not made in the loop."""
    others = [replace(SOFTMAX, dur=7), replace(SHUFFLE, dur=9)]
    (one,) = found(program([*BEFORE, *others, *refined()[2:]]), SLUG)
    assert one.cost_ns == 6 * 4 * SPENT * 1_000
    assert one.count == 6 * 4 * 3


@pytest.mark.parametrize(("count", "said"), [(4, True), (5, False)])
def test_a_list_as_long_as_the_loop_holds_its_results(count: int, said: bool) -> None:
    """Without the masks, only a shuffle is left that nothing reads."""
    joined = Op("aten::stack", ADD, 5, [[MASK] * count, []], ["TensorList", "Scalar"], scalars=["", "0"])
    assert bool(found(program(refined(after=[joined])), SLUG)) is said
