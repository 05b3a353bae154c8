"""Reordered state in traces without shapes: large rows of tensor after tensor, after each choice of beams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, NVJET, Op, found, program
from traceanalyzer import Trace
from traceanalyzer.model.finding import Severity

GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
CHOICE, DECODED = Op("aten::topk", "gatherTopK", 10), Op("aten::mm", NVJET, 300)
PICK = Op("aten::index_select", GATHER, 60, grid=(80, 750))  # rows of 749 to 750 times 4 KiB


def beams(picks: Sequence[Op] = (PICK,) * 4, before: Sequence[Op] = (CHOICE,)) -> Trace:
    """One token a step: a choice of beams, then the rows of each tensor."""
    return program([DECODED, *before, *picks])


def causes(trace: Trace) -> list[str]:
    return [one.cause for one in found(trace, "data-movement")]


def test_rows_of_several_tensors_after_a_choice_are_state() -> None:
    (one,) = found(beams(), "data-movement")
    assert (one.cause, one.by) == ("reorderings", "aten::index_select")
    assert one.severity > Severity.INFO
    assert one.message.startswith(
        "aten::index_select picks large rows of tensor after tensor after each topk or sort"
    )
    assert "cross-attention" in one.advice
    assert one.evidence["gpu_share"] == pytest.approx(240 / 550)
    assert one.cost_ns == 6 * 240_000


@pytest.mark.parametrize(
    "trace",
    [
        lambda: beams([PICK] * 3),  # as many tensors as a batch has
        lambda: beams(before=[]),  # nothing was chosen
        lambda: beams([PICK, DECODED, PICK, PICK, PICK]),  # not right after each other
        lambda: beams([PICK, PICK, replace(PICK, grid=(79, 750)), PICK]),  # by different indices
        lambda: beams([PICK, PICK, replace(PICK, stream=8), PICK]),
        lambda: beams([replace(PICK, grid=(80, 16))] * 4),  # rows of 60 to 64 KiB
        lambda: beams([replace(PICK, kernel="void indexSelectLargeIndex<float>(int)")] * 4),
        lambda: beams(
            [replace(PICK, dims=[[800, 16, 1500, 64], [], [80]], types=[BF16, "", "long int"])] * 4
        ),
    ],
)
def test_other_gathers_are_the_work_itself(trace: object) -> None:
    assert callable(trace)
    assert causes(trace()) == ["gathers"]


def test_a_row_of_just_more_than_64_kib_is_large() -> None:
    assert causes(beams([replace(PICK, grid=(80, 17))] * 4)) == ["reorderings"]
    assert causes(beams([replace(PICK, grid=(80, 33), kernel=GATHER.replace("16", "8"))] * 4)) == [
        "reorderings"
    ]
    assert causes(beams([replace(PICK, grid=(80, 32), kernel=GATHER.replace("16", "8"))] * 4)) == ["gathers"]


def test_small_tensors_are_reordered_with_large_ones() -> None:
    small = replace(PICK, grid=(80, 4), dur=10)
    (one,) = found(beams([PICK, small, PICK, small, PICK, small, PICK]), "data-movement")
    assert one.cause == "reorderings"
    assert one.cost_ns == 6 * 270_000


def test_each_run_needs_its_own_choice() -> None:
    """The second run of a step picks what it likes."""
    trace = program([DECODED, CHOICE, *[PICK] * 4, DECODED, *[replace(PICK, dur=90)] * 4])
    assert {one.cause: one.cost_ns for one in found(trace, "data-movement")} == {
        "reorderings": 6 * 240_000,
        "gathers": 6 * 360_000,
    }
