"""Layers on rows that a repeated number became, such as the time step of each token."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
FRAMES, PATCHES, D = 4, 256, 512
TOKENS = FRAMES * PATCHES
TIMES, STATE = [1, TOKENS], [1, TOKENS, D]


def linear(data: list[int], out: int, us: int, kind: str = BF16) -> Op:
    return Op("aten::linear", NVJET, us, [data, [out, data[-1]], [out]], [kind, F32, F32])


def each(name: str, us: int, *dims: list[int], kinds: Sequence[str] = ()) -> Op:
    return Op(f"aten::{name}", FILL, us, dims, kinds or [F32] * len(dims))


def view(name: str, dims: list[int], *scalars: str, kind: str = F32) -> Op:
    types = [kind, *["Scalar"] * len(scalars)]
    return Op(f"aten::{name}", "", 0, [dims, *[[] for _ in scalars]], types, scalars=["", *scalars])


REPEAT = Op(
    "aten::repeat_interleave",
    FILL,
    5,
    [[1, FRAMES], [], [], []],
    [F32, "Scalar", "Scalar", ""],
    scalars=["", str(PATCHES), "1", ""],
)
WAVES = [1, TOKENS, 128]
CAT = Op("aten::cat", FILL, 10, [[WAVES, WAVES], []], ["TensorList", "Scalar"], scalars=["", "-1"])
CONDITION = [
    view("unsqueeze", TIMES, "2"),
    each("lerp", 10, [1, TOKENS, 64], [1, TOKENS, 64], [1, TOKENS, 1]),
    each("mul", 10, [1, TOKENS, 1], [128]),
    each("cos", 10, WAVES),
    each("sin", 10, WAVES),
    CAT,
    linear([1, TOKENS, 256], D, 50, F32),
    each("silu", 10, STATE, kinds=[BF16]),
    linear(STATE, D, 60),
]
MLP = (10, 10, 10, 10, 50, 10, 60)
EMBED = [linear([1, TOKENS, 64], D, 30, F32), each("add", 20, STATE, [1, TOKENS, D], kinds=[BF16, F32])]


def block(first: Sequence[Op], kind: str = F32) -> list[Op]:
    """What is made of the condition, and a layer on tokens."""
    return [
        *first,
        Op("aten::chunk", "", 0, [[1, TOKENS, 6 * D], [], []], [BF16, "Scalar", "Scalar"]),
        each("layer_norm", 20, STATE, kinds=[kind]),
        each("mul", 20, STATE, STATE, kinds=[kind, BF16]),
        linear(STATE, D, 200),
        each("add", 20, STATE, STATE, kinds=[kind, BF16]),
    ]


def transformer(
    first: Sequence[Op],
    *,
    repeat: Op = REPEAT,
    kind: str = F32,
    embed: Sequence[Op] = EMBED,
    early: bool = False,
) -> list[Op]:
    """Tokens are embedded before or after the condition is made; then three blocks."""
    both = [*embed, repeat, *CONDITION] if early else [repeat, *CONDITION, *embed]
    return [*both, *block(first, kind) * 3]


def modulation(kind: str = BF16, parts: int = 6) -> list[Op]:
    return [each("silu", 20, STATE, kinds=[kind]), linear(STATE, parts * D, 300, kind)]


def spared(us: Sequence[int]) -> float:
    """ns in six steps: a kernel takes 2 us at least."""
    return 6e3 * sum(one - max(2, one / PATCHES) for one in us)


PURE = [each("add", 20, STATE, [1, TOKENS, D], kinds=[BF16, BF16])]
PURE_EMBED = [linear([1, TOKENS, 64], D, 30), *PURE]


@pytest.mark.parametrize(
    "ops",
    [
        transformer(modulation()),
        transformer(modulation(), early=True),
        transformer(modulation(), kind=BF16, embed=PURE_EMBED),
        transformer(modulation(), kind=BF16, embed=PURE_EMBED, early=True),
    ],
    ids=["autocast", "autocast-tokens-first", "one-type", "one-type-tokens-first"],
)
def test_a_time_step_per_token_repeats_within_a_frame(ops: list[Op]) -> None:
    (one,) = found(program(ops), "encoded-copies")
    assert (one.evidence["copies"], one.evidence["items"]) == (TOKENS, FRAMES)
    assert one.evidence["maker"] == "aten::repeat_interleave"
    assert one.cost_ns == pytest.approx(spared((*MLP, *(20, 300) * 3)))


BARE = [linear(STATE, 6 * D, 300)]
GATED = [each("silu", 20, STATE, kinds=[BF16]), linear(STATE, 2 * D, 300)]


@pytest.mark.parametrize(
    ("ops", "more"),
    [
        (transformer(BARE), (300, 300, 300)),  # the type tells
        (transformer(BARE, kind=BF16, embed=PURE_EMBED, early=True), (300,)),
        (transformer(GATED, kind=BF16, embed=PURE_EMBED, early=True), (20, 300)),
    ],
)
def test_what_may_read_the_tokens_in_later_blocks_does_not_count(
    ops: list[Op], more: tuple[int, ...]
) -> None:
    (one,) = found(program(ops), "encoded-copies")
    assert one.cost_ns == pytest.approx(spared((*MLP, *more)))


def test_what_may_read_the_tokens_does_not_count() -> None:
    assert found(program(transformer(BARE, kind=BF16, embed=PURE_EMBED)), "encoded-copies") == []


def test_distinct_rows_are_not_reported() -> None:
    """A product of the repeated numbers themselves; and repeats that are a tensor."""
    wide = [REPEAT, *[linear(TIMES, 4_096, 300, F32)] * 3]
    assert found(program(wide), "encoded-copies") == []
    counted = Op(REPEAT.name, FILL, 5, [[1, FRAMES], [FRAMES], [], []], [F32, "long int", "Scalar", ""])
    assert found(program(transformer(modulation(), repeat=counted)), "encoded-copies") == []


def test_a_product_of_repeated_numbers_mixes_them() -> None:
    mixed = [REPEAT, *[linear(TIMES, TOKENS, 300, F32)] * 3]
    assert found(program(mixed), "encoded-copies") == []
