"""Programs with two optimizers, of which one has the table."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, found
from tests.support.recommenders import STEP, recommender


@pytest.mark.parametrize("other", ["AdamW", "Adam", "SGD"])
def test_of_two_optimizers_that_of_the_table_is_spoken_of(other: str) -> None:
    trace = recommender(optimizer="Adagrad")
    alone = found(recommender(optimizer="Adagrad"), "dense-gradient")
    for number in range(3):
        trace.annotation(f"Optimizer.step#{other}.step", number * STEP, 21 * US)  # around the product
    two = found(trace, "dense-gradient")
    assert [one.advice for one in two] == [one.advice for one in alone]
    assert two[0].saving is not None
    assert alone[0].saving is not None
    assert two[0].saving.step_ns == alone[0].saving.step_ns
