"""Refinements whose first results nothing reads."""

from __future__ import annotations

from collections.abc import Sequence

from tests.rules.kernel_programs import BF16, Op
from tests.support.sampling_loops import ADD, both, conv, of_one

IMAGE, STATE, INNER, MASK, LARGE = (
    [8, 3, 32, 32],
    [8, 64, 32, 32],
    [8, 96, 32, 32],
    [8, 36, 32, 32],
    [8, 9, 64, 64],
)
BEFORE = [conv(IMAGE, 64, 50), of_one("tanh", STATE)]
UPDATE = [conv(STATE, 96, 300), of_one("relu", INNER), conv(INNER, 64, 300), both("add", STATE)]
SOFTMAX = Op("aten::softmax", ADD, 30, [MASK, [], []], [BF16, "Scalar", ""], scalars=["", "1", ""])
SHUFFLE = Op("aten::pixel_shuffle", ADD, 50, [MASK, []], [BF16, "Scalar"], scalars=["", "2"])
HEAD = [conv(STATE, 36, 100), SOFTMAX, SHUFFLE]


def refined(
    head: Sequence[Op] = HEAD,
    *,
    update: Sequence[Op] = UPDATE,
    times: int = 5,
    after: Sequence[Op] = (),
) -> list[Op]:
    return [*BEFORE, *[*update, *head] * times, *after]
