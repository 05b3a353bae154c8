"""Batches that are padded beyond their longest sequence."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import F32, Op, found, program

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
