"""Keys and values of a condition, projected again for each token while a cache grows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.kernel_programs import BF16, NVJET, Op, found, program
from tests.rules.test_loop_invariant import CONTEXT, add, linear, of_one

TOKEN, INNER, WIDE = [8, 1, 1_024], [8, 1, 4_096], [8, 77, 2_048]
SAME = [linear(CONTEXT, 1_024), linear(CONTEXT, 1_024)]  # as wide as the condition


def attention(keys: int) -> Op:
    return Op(
        "aten::scaled_dot_product_attention", NVJET, 5, [[8, 16, 1, 64], *[[8, 16, keys, 64]] * 2], [BF16] * 3
    )


def layer(condition: Sequence[Op], cached: int) -> list[Op]:
    """Attention to what was decoded so far, which grows by a token, and to the condition."""
    return [
        of_one("layer_norm", TOKEN, 3),
        linear(TOKEN, 3_072, 10),
        attention(cached),
        *condition,
        attention(77),
        linear(TOKEN, 4_096, 10),
        of_one("gelu", INNER, 3),
        linear(INNER, 1_024, 10),
        add(TOKEN, TOKEN),
    ]


def decoding(condition: Sequence[Op], *, tokens: int = 4, layers: int = 3, grows: int = 1) -> list[Op]:
    ops = []
    for number in range(tokens):
        ops += [
            *layer(condition, 100 + number * grows) * layers,
            linear(TOKEN, 5_000, 20),
            of_one("argmax", [8, 5_000], 5),
        ]
    return ops


@pytest.mark.parametrize("grows", [0, 1])
@pytest.mark.parametrize("condition", [SAME, [linear(CONTEXT, 1_000)]], ids=["same-width", "other-width"])
def test_a_condition_is_projected_once_whatever_its_width_and_the_caches_length(
    condition: list[Op], grows: int
) -> None:
    (one,) = found(program(decoding(condition, grows=grows)), "loop-invariant")
    assert one.evidence["iterations"] == 4
    assert one.cost_ns == pytest.approx(
        6 * 3 * 3 * 100e3 * len(condition)
    )  # steps, tokens but the first, layers


@pytest.mark.parametrize(
    "more",
    [[add(CONTEXT, CONTEXT)], [of_one("gelu", CONTEXT)], [add(WIDE, WIDE), linear(WIDE, 1_024)]],
    ids=["residual", "activation", "made"],
)
def test_a_state_that_layers_change_is_no_condition(more: list[Op]) -> None:
    """Each layer computes it anew, of the same shape."""
    assert found(program(decoding([*SAME, *more])), "loop-invariant") == []


def test_iterations_that_have_other_ops_are_no_loop() -> None:
    ops = decoding(SAME)
    assert found(program([*ops[:14], of_one("tanh", TOKEN), *ops[14:]]), "loop-invariant") == []
