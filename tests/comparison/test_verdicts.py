"""The verdict of a comparison in words, by the step that it is of: each sentence at either side of its limit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.comparison.built_sides import EQUAL, MORE, MS, axis, judged, side
from traceanalyzer.comparison.result import (
    Counted,
    Part,
    Waterfall,
    Word,
)


@pytest.mark.parametrize(
    ("there", "who"),
    [((False, True), "BASE"), ((True, False), "NEW"), ((False, False), "BASE and NEW")],
)
def test_the_side_without_work_on_a_gpu_is_named(there: tuple[bool, bool], who: str) -> None:
    found = judged(None, sides=tuple(side(there=one) for one in there))
    assert (found.word, found.why) == (Word.UNKNOWN, f"no GPU work in {who}")


@pytest.mark.parametrize(
    ("kinds", "known"),
    [
        (("ProfilerStep", "ProfilerStep"), True),
        (("window", "window"), True),
        (("ProfilerStep", "window"), False),
    ],
)
def test_steps_that_one_side_alone_marks_are_not_compared(kinds: tuple[str, str], known: bool) -> None:
    found = judged(axis(Word.SLOWER, 0.5), sides=tuple(side(kind) for kind in kinds))
    assert (found.word is Word.SLOWER) is known
    assert known or "call prof.step() once an iteration on both" in found.settle
    assert "100 ms -> 150 ms a step (+50.0 %)" in found.headline


@pytest.mark.parametrize(
    ("difference", "more", "why"),
    [
        (
            0.141,
            {},
            "predicted without the profiler; recordings of one program differ by 14 % at most in nine of ten",
        ),
        (0.139, {}, "predicted without the profiler; work on the GPU explains it"),
        (
            -0.124,
            {},
            "predicted without the profiler; recordings of one program differ by 14 % at most in nine of ten",
        ),
        (-0.122, {}, "predicted without the profiler; work on the GPU explains it"),
        (
            0.5,
            {"predicted": False},
            "as recorded; recordings of one program differ by 14 % at most in nine of ten",
        ),
        (
            0.5,
            {"predicted": False, "measured": True},
            "as timed; recordings of one program differ by 14 % at most in nine of ten",
        ),
        (
            0.03,
            {"low": 0.02, "high": 0.05, "captures": (3, 4)},
            "3 and 4 captures, interval +2.0 % to +5.0 %",
        ),
    ],
)
def test_difference_rests_on_size_work_or_captures(difference: float, more: dict[str, Any], why: str) -> None:
    """A seventh more is as much as an eighth less: 1.14 and 1 / 1.14."""
    found = judged(axis(Word.SLOWER if difference > 0 else Word.FASTER, difference, **more))
    assert (found.why, found.settle) == (why, "")


@pytest.mark.parametrize(
    ("difference", "more", "within", "settled"),
    [
        (0.01, {}, 0.08, False),  # what kernels of a GPU-bound step tell
        (-0.09, {}, 0.09, False),
        (0.01, {"new_bound": "cpu"}, 0.14, False),
        (0.01, {"low": -0.03, "high": 0.05}, 0.05, True),
        (-0.01, {"low": -0.06, "high": 0.04}, 0.06, True),
    ],
)
def test_the_same_is_said_with_what_is_not_excluded(
    difference: float, more: dict[str, Any], within: float, settled: bool
) -> None:
    found = judged(axis(Word.SAME, difference, **more))
    assert (found.word, found.within) == (Word.SAME, within)
    assert found.headline.startswith(f"same within {within * 100:.0f} %: ")
    assert (found.settle == "") is settled


@pytest.mark.parametrize(
    ("exact", "device", "told"),
    [
        (EQUAL, Word.SAME, "launches, work, waits and times of kernels are the same"),
        (
            EQUAL,
            Word.FASTER,
            "its work changed, but one recording per side cannot show differences below 14 %",
        ),
        (
            MORE,
            Word.SAME,
            "the program changed, but one recording per side cannot show differences below 14 %",
        ),
    ],
)
def test_unknown_step_is_equal_if_program_and_work_are(exact: Counted, device: Word, told: str) -> None:
    found = judged(axis(Word.UNKNOWN, 0.1), exact, device=device)
    assert told in found.why
    assert found.word is (Word.SAME if told.startswith("launches") else Word.UNKNOWN)
    assert "record 3 more captures of each" in found.settle


@pytest.mark.parametrize(
    ("gain_ms", "loss_ms", "said"), [(5, 5, True), (4.9, 5, False), (5, 4.9, False), (20, 30, True)]
)
def test_shift_between_groups_counts_from_a_twentieth(gain_ms: float, loss_ms: float, said: bool) -> None:
    groups = {
        "compute": (40 * MS, round((40 + loss_ms) * MS), round(loss_ms * MS)),
        "idle": (10 * MS, 10 * MS, 0),
        "communication": (50 * MS, round((50 - gain_ms) * MS), -round(gain_ms * MS)),
    }
    parts: tuple[Part, ...] = ()
    found = judged(axis(Word.SAME, 0.0), waterfall=Waterfall(100 * MS, 100 * MS, parts, groups))
    told = ". Nothing gained, because communication gives"
    assert (told in found.why) is said
    if gain_ms == 20:
        assert found.why.endswith(
            f"{told} 20.0 ms (50.0 ms -> 30.0 ms) and compute takes 30.0 ms (40.0 ms -> 70.0 ms)"
        )
    assert (
        "Nothing gained" not in judged(axis(Word.SLOWER, 0.5), waterfall=Waterfall(1, 1, parts, groups)).why
    )


def test_other_inputs_give_no_statement_about_the_step() -> None:
    found = judged(axis(Word.SLOWER, 3.0), MORE, inputs="other shapes")
    assert (found.word, found.why, found.because) == (Word.UNKNOWN, "other shapes", ("because",))
