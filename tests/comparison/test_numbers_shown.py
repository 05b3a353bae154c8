"""Numbers, ranks, shares and phrases of a comparison, each worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.comparison.built_sides import axis, judged, row, side
from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.reasons import reasons
from traceanalyzer.comparison.result import (
    CallRow,
    Counted,
    FaultChange,
    Part,
    Waterfall,
    Word,
    WorkSide,
)
from traceanalyzer.comparison.snapshot import StepTime
from traceanalyzer.comparison.statistics import permutation_p
from traceanalyzer.comparison.step_axis import step_axis
from traceanalyzer.comparison.waterfall import Busy, BusyPart, busy_part, waterfall_of, whole_parts
from traceanalyzer.comparison.work_tables import uncovered

MS = 1_000_000


def test_equal_values_have_their_mean_rank() -> None:
    """1, 1, 2 against 2, 3, 3: ranks 1.5, 1.5, 3.5 and 3.5, 5.5, 5.5; of 20 ways four are so far apart."""
    assert permutation_p([1, 1, 2], [2, 3, 3]) == pytest.approx(4 / 20)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1234, "1,234"),
        (2.5, "2.5"),
        (0.33333, "0.3333"),
        (999_999_999, "999,999,999"),
        (2e9, "2e+09"),
    ],
)
def test_a_large_count_is_in_powers_of_ten(value: float, said: str) -> None:
    assert formatting.number(value) == said


@pytest.mark.parametrize(
    ("counter", "base", "new", "said"),
    [
        ("launches", 7, 7, "7 -> 7"),
        ("d2d bytes", 65_536, 65_536, "64.0 KiB -> 64.0 KiB"),
        ("launches", 1.00001, 1.00002, "1.00001 -> 1.00002"),
    ],
)
def test_counters_that_are_equal_are_as_short_as_others(
    counter: str, base: float, new: float, said: str
) -> None:
    one = Counted(counter, base, new, (base, base), (new, new), Word.SAME)
    assert formatting.counter_values(one) == said


@pytest.mark.parametrize(
    ("share", "interval", "said"),
    [
        (0.17, True, "said 17 % (12 % to 30 %), got 15 %"),
        (0.17, False, "said 17 %, got 15 %"),
        (-0.17, True, "said to add 17 %, got 15 %"),
        (None, True, ""),
    ],
)
def test_what_a_fix_was_said_to_add_has_no_interval(share: float | None, interval: bool, said: str) -> None:
    fault = FaultChange("gone", ("a",), "a", "high", share, 0.12, 0.30, 0.15, None, None)
    assert formatting.said_and_got(fault, interval=interval) == said


@pytest.mark.parametrize(
    ("counts", "ns", "said"),
    [
        ((4, 4), (1_000, 2_000), "4 x, 1.00 µs -> 2.00 µs"),
        ((4, 8), (1_000, 1_000), "4 -> 8 x, 1.00 µs -> 1.00 µs"),
        ((4, None), (1_000, 0), "4 x, 1.00 µs"),
    ],
)
def test_a_count_that_is_the_same_is_shown_once(
    counts: Sequence[float | None], ns: Sequence[float], said: str
) -> None:
    sides = [
        None if count is None else WorkSide(count, time, 0, None, ("k",), "", "")
        for count, time in zip(counts, ns, strict=True)
    ]
    one: Any = SimpleNamespace(base=sides[0], new=sides[1])
    assert formatting.row_values(one) == said


def test_of_several_captures_half_the_interval_is_needed() -> None:
    captures = []
    for scale in (1, 2):
        each = []
        for ns in (100, 104, 96, 102):
            one: Any = SimpleNamespace(
                step=StepTime(scale * ns, 1, 1, 1, True, each_ns=(ns,)), gpus=("H200",), recorded=()
            )
            each.append(one)
        captures.append(Captures(tuple(each), each[0]))
    found = step_axis(captures[0], captures[1], None, changed=False)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.needed == pytest.approx((math.log1p(found.high) - math.log1p(found.low)) / 2)
    assert (found.word, found.captures, found.pace) == (Word.SLOWER, (4, 4), 1.0)


def test_steps_that_other_marks_bound_are_compared_too() -> None:
    """Marked by the profiler here and by an annotation there."""
    found = judged(axis(Word.SLOWER, 0.5), sides=(side("ProfilerStep"), side("annotation")))
    assert found.word is Word.SLOWER


def test_idle_time_of_one_cause_and_op_is_one_part() -> None:
    """20 ns of `mm` in two rows, 20 ns of `add`: half of what is left each."""
    table = pd.DataFrame(
        [("late", "mm", "a", 5.0), ("late", "mm", "b", 15.0), ("late", "", "add", 20.0)],
        columns=["cause", "outer", "op", "ns"],
    )
    sides: Any = [SimpleNamespace(tables={"idle": table})] * 2
    found = waterfall_of((80, 160), [], (sides[0], sides[1]))
    assert {part.name: (part.base_ns, part.new_ns) for part in found.parts} == {
        "late: mm": (40, 80),
        "late: add": (40, 80),
    }


def test_what_is_missing_goes_to_the_largest_fractions() -> None:
    assert whole_parts([1.9, 1.1], 3) == [2, 1]
    assert whole_parts([0.2, 0.7, 0.6, 0.5], 2) == [0, 1, 1, 0]
    assert whole_parts([0.5, 0.5], 1) == [1, 0]


@pytest.mark.parametrize("ns", [(0.0, 5.0), (5.0, 0.0)])
def test_work_of_no_duration_makes_no_difference_by_its_count(ns: tuple[float, float]) -> None:
    work = BusyPart("compute", "mm", Busy(1, ns[0], 0.5), Busy(2, ns[1], 1.5))
    part = busy_part(work, 1, 2)
    assert (part.delta_ns, part.by_count_ns, part.by_duration_ns, part.by_overlap_ns) == (1, 0, 0, 1)


def test_piece_inside_a_longer_piece_is_hidden() -> None:
    start, end = uncovered(np.array([0, 10, 50, 90]), np.array([100, 20, 60, 130]))
    assert (end - start).tolist() == [100, 0, 0, 30]


def test_how_often_most_work_runs_decides_by_its_weight() -> None:
    """80 of 82 pieces run three times as often, whichever row is first."""
    rows = [row(40, 120), row(1, 1)]
    said = "the same work runs 3 times as often in NEW (41 -> 121 kernels and copies a step)"
    for given in (rows, rows[::-1]):
        assert reasons([], given, [], None, None, "") == (said,)


@pytest.mark.parametrize(
    ("counter", "told"), [("launches", False), ("ops", False), ("synchronisations", True), ("memcpys", True)]
)
def test_calls_that_only_launch_are_no_reason_of_their_own(counter: str, told: bool) -> None:
    call = CallRow(counter, "aten::item", "aten::item", "cudaCall", 0, 1, Word.MORE)
    found = reasons([], [], [call], None, None, "")
    assert [one.endswith("; cudaCall 0 -> 1 a step") for one in found] == [True] * told


@pytest.mark.parametrize(
    ("word", "counts", "said"),
    [
        (Word.MORE, (1, 2), "aten::mm 1 -> 2 a step"),
        (Word.FEWER, (2, 1), "aten::mm 2 -> 1 a step"),
        (Word.SLOWER, (2, 2), "aten::mm 1.00 µs -> 1.00 µs"),
        (Word.NEW, (None, 2), "aten::mm is new (2 a step, 1.00 µs)"),
    ],
)
def test_a_reason_names_counts_or_times_by_what_changed(
    word: Word, counts: tuple[float | None, float], said: str
) -> None:
    found = reasons([], [row(*counts, word=word)], [], None, None, "")
    assert found[-1].endswith(f"; {said}")


def test_two_phrases_are_named_of_one_op() -> None:
    """Of three rows of one outer op."""
    rows = [
        row(1, 1, op=f"op{at}", outer="aten::linear", word=Word.SLOWER, delta_ns=1_000) for at in range(3)
    ]
    (found,) = reasons([], rows, [], None, None, "")
    assert found == "aten::linear: +3.00 µs of the step; op0 1.00 µs -> 1.00 µs; op1 1.00 µs -> 1.00 µs"


def test_idle_time_of_no_op_is_named_by_its_cause() -> None:
    parts = (Part("idle", "unknown", 0, 5_000, 5_000), Part("idle", "late: mm", 0, 4_000, 4_000))
    fall = Waterfall(1_000, 10_000, parts, {})
    found = reasons([], [], [], fall, axis(Word.SLOWER, 0.5), "")
    assert found == (
        "unknown: +5.00 µs of the step, most of it idle time",
        "mm: +4.00 µs of the step, most of it idle time",
    )
