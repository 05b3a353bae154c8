"""Scores of all positions of a masked language model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, Op, found, program

GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
TOKENS, WORDS = 8 * 512, 30_528


def masked(
    *,
    causal: str = "False",
    mask: list[int] | None = None,
    tokens: int = TOKENS,
    words: int = WORDS,
    table: int | None = None,
    backward: bool = True,
    other: int = 1_000,
) -> list[Op]:
    """Tokens that are looked up and attend to each other, the scores of words for them, and backward."""
    heads, scores = [8, 12, 512, 64], [tokens, words]
    asked = [heads, heads, heads, mask or [], [], []]
    return [
        Op("aten::embedding", GEMM, 20, [[table or words, 768], [8, 512], [], [], []], [F32, "long int"]),
        Op(
            "aten::scaled_dot_product_attention",
            GEMM,
            other,
            asked,
            [F32] * 3,
            scalars=("",) * 4 + ("0.", causal),
        ),
        Op("aten::mm", GEMM, 400, [[tokens, 768], [768, words]], [F32, F32]),
        Op("aten::_log_softmax", GEMM, 300, [scores, [], []], [F32]),
        Op("LogSoftmaxBackward0" if backward else "aten::exp", GEMM, 300, [scores], [F32]),
    ]


@pytest.mark.parametrize("mask", [None, [8, 1, 1, 512]], ids=["no mask", "a mask of padding"])
def test_scores_of_positions_that_were_not_hidden_are_needless(mask: list[int] | None) -> None:
    (one,) = found(program(masked(mask=mask)), "unlabelled-positions")
    assert "the scores of 30,528 tokens" in one.message
    assert "all 4,096 positions" in one.message
    assert one.confidence == "low"
    assert one.cost_ns == pytest.approx(6e3 * 1_000 * 0.85, rel=0.01)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(masked(causal="True"), id="each position is asked for the next token"),
        pytest.param(masked(mask=[1, 1, 512, 512]), id="a mask of queries by keys"),
        pytest.param(masked(tokens=600), id="scores of a part of the positions"),
        pytest.param(masked(table=50_000), id="classes that are no tokens"),
        pytest.param(masked(words=200), id="few classes"),
        pytest.param(masked(backward=False), id="nothing is trained"),
        pytest.param([one for one in masked() if "attention" not in one.name], id="no attention"),
        pytest.param(masked(other=100_000), id="a small part"),
    ],
)
def test_scores_that_may_all_be_asked_for_are_left_alone(ops: list[Op]) -> None:
    assert found(program(ops), "unlabelled-positions") == []


@pytest.mark.parametrize(
    ("mask", "said"), [([512], True), ([1, 512], True), ([512, 512], False), ([8, 12, 2, 512], False)]
)
def test_a_mask_of_keys_hides_no_later_position(mask: list[int], said: bool) -> None:
    assert bool(found(program(masked(mask=mask)), "unlabelled-positions")) is said


def test_one_attention_that_hides_later_positions_is_enough() -> None:
    both = [*masked(), masked(causal="True")[1]]
    assert found(program(both), "unlabelled-positions") == []
    unknown = [replace(one, scalars=()) if "attention" in one.name else one for one in masked()]
    assert found(program(unknown), "unlabelled-positions") == []


def test_work_on_the_positions_or_the_words_alone_is_needed() -> None:
    others = [
        Op("aten::relu", GEMM, 500, [[TOKENS, 768]], [F32]),
        Op("aten::add_", GEMM, 500, [[768, WORDS]] * 2, [F32] * 2),
    ]
    (one,) = found(program([*masked(), *others]), "unlabelled-positions")
    assert one.cost_ns == pytest.approx(6e3 * 1_000 * 0.85, rel=0.01)
    assert one.evidence["gpu_share"] == pytest.approx(1_000 / 3_020, rel=0.001)


@pytest.mark.parametrize(("words", "said"), [(1_000, True), (999, False)])
def test_a_vocabulary_has_a_thousand_words(words: int, said: bool) -> None:
    assert bool(found(program(masked(words=words)), "unlabelled-positions")) is said
