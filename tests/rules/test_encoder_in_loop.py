"""A network on an image, in each iteration of a loop that works on something else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.kernel_programs import BF16, Op, found, program
from tests.support.sampling_loops import ADD, ENCODE, KEYS, both, conv, of_one
from tests.support.sampling_loops import sampler as conditioned

IMAGE, LATENT, DEEP = [8, 3, 256, 256], [8, 4, 32, 32], [8, 64, 32, 32]
HALVES = Op("aten::cat", ADD, 5, [[[4, 3, 256, 256]] * 2, []], ["TensorList", "Scalar"], scalars=["", "0"])
CLONE = of_one("clone", LATENT, 5)


HINT = [
    conv(IMAGE, 16, 300),
    of_one("silu", [8, 16, 256, 256], 40),
    conv([8, 16, 256, 256], 16, 300),
    of_one("silu", [8, 16, 256, 256], 40),
    conv([8, 16, 256, 256], 32, 200, 2),
    conv([8, 32, 128, 128], 64, 100, 4),
]
SPENT = 300 + 40 + 300 + 40 + 200 + 100


UP = Op("aten::upsample_nearest2d", ADD, 900, [[8, 64, 16, 16], [], []], [BF16, "", "ScalarList"])
DENOISE = [
    conv(LATENT, 64, 50),
    both("add", DEEP),
    of_one("silu", DEEP),
    conv(DEEP, 64, 400),
    conv(DEEP, 128, 100, 2),
    conv([8, 128, 16, 16], 64, 100),
    UP,
    conv(DEEP, 4, 50),
    both("sub", LATENT),
]


def sampler(
    hint: Sequence[Op] = HINT,
    *,
    before: Sequence[Op] = (CLONE, HALVES),
    last: Sequence[Op] = (),
    times: int = 5,
) -> list[Op]:
    return [*before, *[*hint, *DENOISE, *last] * times]


LOOPS = conditioned(KEYS), conditioned(KEYS, last=[ENCODE]), sampler()  # of which limits decide


@pytest.mark.parametrize("before", [(CLONE, HALVES), (CLONE, of_one("to", IMAGE), of_one("clone", IMAGE))])
def test_an_image_that_the_step_makes_once_is_encoded_once(before: Sequence[Op]) -> None:
    (one,) = found(program(sampler(before=before)), "loop-invariant")
    assert "each of 5 iterations of a loop" in one.message
    assert one.cost_ns == pytest.approx(6 * 4 * SPENT * 1e3)  # steps, iterations but the first
    assert one.saving is not None
    assert one.saving.share > 0.25


def test_one_pass_for_all_has_nothing_again() -> None:
    assert found(program([CLONE, HALVES, *HINT, *DENOISE * 5]), "loop-invariant") == []


FRAMES = Op("aten::unbind", "", 0, [[5, *IMAGE], []], [BF16, "Scalar"], scalars=["", "0"])
DRAWN = Op("aten::randn_like", ADD, 5, [IMAGE, [], [], [], [], []], [BF16, *[""] * 5])
UPLOADED = Op("aten::copy_", ADD, 5, [IMAGE, IMAGE, []], [BF16, BF16, "Scalar"])


@pytest.mark.parametrize(
    "ops",
    [
        sampler(before=(CLONE,)),
        sampler(before=(CLONE, HALVES, HALVES, HALVES, HALVES, HALVES)),
        sampler(before=(CLONE, HALVES, HALVES)),
        sampler(before=(CLONE, FRAMES, HALVES)),
        sampler(before=(CLONE, HALVES, conv(IMAGE, 16, 300))),
        sampler(last=[DRAWN]),
        sampler(last=[UPLOADED]),
        sampler(HINT[:2] + HINT[4:5]),
        sampler(
            [
                *HINT[:2],
                Op("aten::dropout", ADD, 5, [[8, 16, 256, 256], [], []], [BF16, "Scalar", ""]),
                *HINT[2:],
            ]
        ),
        sampler(times=2),
    ],
    ids=[
        "outside",
        "list",
        "two-images",
        "frames",
        "used",
        "drawn",
        "written",
        "few-layers",
        "dropout",
        "two",
    ],
)
def test_a_possibly_changing_image_is_not_reported(ops: list[Op]) -> None:
    assert found(program(ops), "loop-invariant") == []


def test_networks_that_hand_nothing_on_are_an_ensemble() -> None:
    """Each begins with the image and ends with a small result: they have weights of their own."""
    member = [*HINT, both("add", DEEP), conv(DEEP, 64, 400), conv(DEEP, 4, 50), both("sub", LATENT)]
    assert found(program([CLONE, HALVES, *member * 5]), "loop-invariant") == []


def test_three_layers_are_too_few_whatever_is_between_them() -> None:
    """A stage of an ordinary network may read the image once more; four layers are a network in the loop."""
    few = [*HINT[:2], conv([8, 16, 256, 256], 32, 200, 2), of_one("silu", [8, 32, 128, 128], 40), HINT[5]]
    assert found(program(sampler(few)), "loop-invariant") == []
    wide = [*few[:2], conv([8, 16, 256, 256], 16, 300), *few[2:]]
    (one,) = found(program(sampler(wide)), "loop-invariant")
    assert one.cost_ns == pytest.approx(6 * 4 * (300 + 40 + 300 + 200 + 40 + 100) * 1e3)
