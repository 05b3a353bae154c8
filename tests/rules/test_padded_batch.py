"""Batches that are padded beyond their longest sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import F32, Op, by_step, found, program

GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
FRAMES, WIDTH = 512, 384
LENGTHS = [200, 180, 150, 256]


def speech(
    *, lengths: list[int] = LENGTHS, frames: tuple[int, ...] = (FRAMES,), told: bool = True, other: int = 100
) -> list[Op]:
    """An encoder over four utterances before and after subsampling, its flattened rows, and a loss with lengths."""
    scores, targets = [[one, 4, 30] for one in frames], [4, 40]
    numbers = ("", "", str(lengths).replace(" ", "") if told else "", "[9, 9, 9]")
    return [
        Op("aten::relu", GEMM, other, [[9, 9]], [F32]),
        Op("aten::layer_norm", GEMM, 300, [[4, 2 * FRAMES, 80], [], [80]], [F32]),
        Op("aten::mm", GEMM, 600, [[4 * FRAMES, WIDTH], [WIDTH, WIDTH]], [F32, F32]),
        Op("aten::mm", GEMM, 50, [[FRAMES, WIDTH], [WIDTH, WIDTH]], [F32, F32]),
        *[Op("aten::_ctc_loss", GEMM, 100, [one, targets, [], []], [F32], scalars=numbers) for one in scores],
    ]


def test_work_on_padding_goes_where_lengths_are_recorded() -> None:
    (one,) = found(program(speech()), "padded-batch")
    assert "padded to 512 frames, but the longest sequence has 256 (median; at most 256)" in one.message
    assert one.cost_ns == pytest.approx(6e3 * (300 + 600 + 100) / 2, rel=0.01)
    assert one.evidence["gpu_share"] == pytest.approx(1_000 / 1_150)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(speech(lengths=[200, 180, 150, 450]), id="one sequence is long"),
        pytest.param(speech(lengths=LENGTHS[:3]), id="no length for each"),
        pytest.param(speech(told=False), id="lengths that are not recorded"),
        pytest.param(speech(frames=(FRAMES, 256)), id="batches of several lengths"),
        pytest.param(speech(other=20_000), id="a small part"),
    ],
)
def test_batches_that_are_full_or_not_known_are_left_alone(ops: list[Op]) -> None:
    assert found(program(ops), "padded-batch") == []


def test_two_steps_are_too_few() -> None:
    assert found(program(speech(), steps=2), "padded-batch") == []


def tokenised(*lengths: int, width: int = 512, both: bool = True) -> list[Op]:
    """Each sequence, and its mask, is filled up by F.pad; then a layer over the batch."""
    fill = "void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>(int)"
    pads = [
        Op(
            "aten::constant_pad_nd",
            fill,
            2,
            [[n], [], []],
            ["long int"],
            scalars=["", f"[0, {width - n}]", "0"],
        )
        for n in lengths
    ]
    return [
        *pads * (2 if both else 1),
        Op("aten::addmm", GEMM, 1_000, [[768], [len(lengths) * width, 768]], [F32]),
    ]


@pytest.mark.parametrize("both", [True, False])
def test_what_is_padded_by_hand_tells_the_lengths_too(both: bool) -> None:
    border = Op(
        "aten::constant_pad_nd", GEMM, 5, [[1, 3, 224, 224], [], []], [F32], scalars=["", "[1,1,1,1]", "0"]
    )
    (one,) = found(program([*tokenised(70, 90, 40, 128, both=both), border]), "padded-batch")
    assert (
        "the longest sequence has 128 (median; at most 128), by what F.pad adds to each sequence"
        in one.message
    )
    assert one.cost_ns == pytest.approx(6e6 * 0.75, rel=0.01)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(tokenised(70, 90, 40, 480), id="one sequence is long"),
        pytest.param(tokenised(70, 70, 70, 70), id="an image's border"),
        pytest.param([*tokenised(70, 90), *tokenised(40, 128, width=256)], id="several lengths"),
    ],
)
def test_pads_that_are_needed_are_left_alone(ops: list[Op]) -> None:
    assert found(program(ops), "padded-batch") == []


def test_scores_of_one_sequence_have_no_length_for_each() -> None:
    """(frames, classes): as many lengths as classes are no lengths of a batch."""
    *ops, loss = speech()
    assert found(program([*ops, replace(loss, dims=[[FRAMES, 4], *loss.dims[1:]])]), "padded-batch") == []


def test_each_step_needs_what_its_own_longest_sequence_does() -> None:
    """Of six steps, one tells no lengths, and one has a longest sequence of 128 frames of 512."""

    def told(event: dict[str, Any], step: int) -> None:
        if event.get("name") == "aten::_ctc_loss" and step in (0, 1):
            event["args"]["Concrete Inputs"] = ["", "", "[128,90,100,80]" if step else "", "[9, 9, 9]"]

    (one,) = found(by_step(program(speech()), told), "padded-batch")
    assert one.cost_ns == pytest.approx(1e6 * (4 / 2 + 3 / 4), rel=0.01)
    assert (one.evidence["longest"], one.evidence["most"]) == (256, 256)


def test_a_step_that_takes_longer_counts_with_its_own_longest_sequence() -> None:
    """Of 500 us in each of five steps half is needed; of 1,000 us in the sixth a quarter."""

    def told(event: dict[str, Any], step: int) -> None:
        if event.get("name") == "aten::_ctc_loss" and step == 5:
            event["args"]["Concrete Inputs"] = ["", "", "[128,90,100,80]", "[9, 9, 9]"]
        if event.get("cat") == "kernel" and step != 5:
            event["dur"] /= 2

    (one,) = found(by_step(program(speech()), told), "padded-batch")
    assert one.cost_ns == pytest.approx(1e6 * (5 / 4 + 3 / 4), rel=0.01)


@pytest.mark.parametrize(("known", "said"), [({0, 3, 5}, 1), ({0, 5}, 0)])
def test_lengths_of_three_steps_are_enough(known: set[int], said: int) -> None:
    def told(event: dict[str, Any], step: int) -> None:
        if event.get("name") == "aten::_ctc_loss" and step not in known:
            event["args"]["Concrete Inputs"] = ["", "", "", "[9, 9, 9]"]

    assert len(found(by_step(program(speech()), told), "padded-batch")) == said
