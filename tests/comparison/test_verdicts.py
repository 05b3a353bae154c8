"""The verdict of a comparison, its reasons, and the statistics below it."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.comparison.built_sides import EQUAL, MORE, MS, axis, compared, judged, row, side
from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.compared_rows import compared_row
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.reasons import reasons
from traceanalyzer.comparison.result import Counted, FaultChange, Part, Waterfall, Word
from traceanalyzer.comparison.sides import notes_of, other_inputs
from traceanalyzer.comparison.statistics import holm, log_interval, permutation_p, spread
from traceanalyzer.comparison.waterfall import whole_parts


@pytest.mark.parametrize(
    ("there", "who"), [((False, True), "BASE"), ((True, False), "NEW"), ((False, False), "BASE and NEW")]
)
def test_the_side_without_work_on_a_gpu_is_named(there: tuple[bool, bool], who: str) -> None:
    found = judged(None, sides=tuple(side(there=one) for one in there))
    assert (found.word, found.why) == (Word.UNKNOWN, f"no GPU work in {who}")


@pytest.mark.parametrize(
    ("kinds", "known"),
    [(("ProfilerStep", "ProfilerStep"), True), (("window", "window"), True), (("ProfilerStep", "window"), False)],
)
def test_steps_that_one_side_alone_marks_are_not_compared(kinds: tuple[str, str], known: bool) -> None:
    found = judged(axis(Word.SLOWER, 0.5), sides=tuple(side(kind) for kind in kinds))
    assert (found.word is Word.SLOWER) is known
    assert known or "call prof.step() once an iteration on both" in found.settle
    assert "100 ms -> 150 ms a step (+50.0 %)" in found.headline


NOISE = "recordings of one program differ by 14 % at most in nine of ten"
CAPTURED = {"low": 0.02, "high": 0.05, "captures": (3, 4)}


@pytest.mark.parametrize(
    ("difference", "more", "why"),
    [
        (0.141, {}, f"predicted without the profiler; {NOISE}"),
        (0.139, {}, "predicted without the profiler; work on the GPU explains it"),
        (-0.124, {}, f"predicted without the profiler; {NOISE}"),
        (-0.122, {}, "predicted without the profiler; work on the GPU explains it"),
        (0.5, {"predicted": False}, f"as recorded; {NOISE}"),
        (0.5, {"predicted": False, "measured": True}, f"as timed; {NOISE}"),
        (0.03, CAPTURED, "3 and 4 captures, interval +2.0 % to +5.0 %"),
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
def test_same_has_its_limit(difference: float, more: dict[str, Any], within: float, settled: bool) -> None:
    found = judged(axis(Word.SAME, difference, **more))
    assert (found.word, found.within) == (Word.SAME, within)
    assert found.headline.startswith(f"same within {within * 100:.0f} %: ")
    assert (found.settle == "") is settled


ONE_A_SIDE = "one recording per side cannot show differences below 14 %"


@pytest.mark.parametrize(
    ("exact", "device", "told"),
    [
        (EQUAL, Word.SAME, "launches, work, waits and times of kernels are the same"),
        (EQUAL, Word.FASTER, f"its work changed, but {ONE_A_SIDE}"),
        (MORE, Word.SAME, f"the program changed, but {ONE_A_SIDE}"),
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
        takes = "compute takes 30.0 ms (40.0 ms -> 70.0 ms)"
        assert found.why.endswith(f"{told} 20.0 ms (50.0 ms -> 30.0 ms) and {takes}")
    slower = judged(axis(Word.SLOWER, 0.5), waterfall=Waterfall(1, 1, parts, groups))
    assert "Nothing gained" not in slower.why


def test_other_inputs_give_no_statement_about_the_step() -> None:
    found = judged(axis(Word.SLOWER, 3.0), MORE, inputs="other shapes")
    assert (found.word, found.why, found.because) == (Word.UNKNOWN, "other shapes", ("because",))


def fault(status: str, said: float | None, rule: str = "implicit-sync") -> FaultChange:
    return FaultChange(status, (rule,), rule, "high", said, said, said, None, None, None)


@pytest.mark.parametrize(
    ("status", "said", "word", "difference", "fits"),
    [
        ("gone", 0.1, Word.FASTER, -0.1, True),
        ("gone", 0.1, Word.UNKNOWN, 0.1, True),
        ("gone", 0.1, Word.SLOWER, 0.1, False),
        ("gone", 0.1, Word.SAME, 0.0, False),
        ("gone", -0.1, Word.SLOWER, 0.1, True),  # a fix that was said to add something
        ("gone", -0.1, Word.FASTER, -0.1, False),
        ("new", 0.2, Word.UNKNOWN, 0.051, True),  # a fourth of what it was said to cost
        ("new", 0.2, Word.UNKNOWN, 0.05, False),
        ("new", 0.2, Word.FASTER, 0.2, False),
        ("new", -0.1, Word.FASTER, -0.1, True),
        ("new", -0.1, Word.SLOWER, 0.1, False),
        ("worse", 0.1, Word.SLOWER, 0.1, False),
    ],
)
def test_fitting_faults_go_first(status: str, said: float, word: Word, difference: float, fits: bool) -> None:
    told = reasons([fault(status, said)], [], [], None, axis(word, difference), "f is new")
    assert len(told) == 2
    assert (told[1] == "f is new") is fits
    general = reasons([fault(status, said, "launch-bound")], [], [], None, axis(word, difference), "f is new")
    assert general[0] == "f is new"  # that much is launched is no reason of its own


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([(10, 15)], "1.5 times as often in NEW (10 -> 15"),
        ([(100, 149)], ""),
        ([(30, 10)], "3 times as often in BASE (30 -> 10"),
        ([(10, 20), (10, 26)], "2.6 times as often in NEW (20 -> 46"),
        ([(10, 20), (10, 27)], ""),  # neither is four fifths
        ([(10, 30), (10, None)], "3 times as often in NEW (10 -> 30"),
        ([(10, 30), (11, None)], ""),
    ],
)
def test_four_fifths_run_more_often(counts: Sequence[tuple[int, int | None]], said: str) -> None:
    told = reasons([], [row(*one) for one in counts], [], None, None, "")
    assert list(told) == [f"the same work runs {said} kernels and copies a step)"] * bool(said)


@pytest.mark.parametrize(
    ("word", "idle_ms", "told"), [(Word.SLOWER, 11, True), (Word.SLOWER, 10, False), (Word.UNKNOWN, 11, False)]
)
def test_idle_time_is_a_reason_from_a_tenth_of_the_difference(word: Word, idle_ms: int, told: bool) -> None:
    parts = [SimpleNamespace(group="idle", name="late: aten::item", delta_ns=idle_ms * MS)]
    fall: Any = SimpleNamespace(base_ns=100 * MS, new_ns=200 * MS, parts=parts)
    said = reasons([], [], [], fall, axis(word, 1.0), "")
    phrase = f"aten::item: +{idle_ms}.0 ms of the step, most of it idle time"
    assert list(said) == [phrase] * told


def test_proven_change_precedes_idle_below_half_the_difference() -> None:
    def first(idle_ms: int) -> str:
        parts = [SimpleNamespace(group="idle", name="late: loader", delta_ns=idle_ms * MS)]
        fall: Any = SimpleNamespace(base_ns=100 * MS, new_ns=200 * MS, parts=parts)
        slower = row(1, 1, word=Word.SLOWER, delta_ns=5 * MS)
        return reasons([], [slower], [], fall, axis(Word.SLOWER, 1.0), "")[0].partition(": +")[0]

    assert (first(50), first(51)) == ("aten::mm", "loader")


def work(**more: Any) -> Any:
    """A row of a work table, of one capture."""
    told = {"annotation": "", "outer": "", "op": "aten::add", "dims": "", "types": "", "kernel": "add"}
    told |= {"name": "add", "kind": "compute", "blocks": 1, "count": 2.0, "least": 2, "most": 2}
    told |= {"ns": 100e3, "exposed_ns": 100e3, "samples": [50e3], "medians": [50e3]}
    return SimpleNamespace(**(told | more))


def word_of(base: Any, new: Any, rung: Any = "path") -> Word:
    return compared_row(Pair(rung, {0: 1.0}, {0: 1.0}), ([base], [new])).row.word


@pytest.mark.parametrize(
    ("base", "new", "word"),
    [
        ((2, 3), (4, 5), Word.MORE),
        ((4, 5), (2, 3), Word.FEWER),
        ((2, 3), (3, 5), Word.UNKNOWN),  # a step of both with three
        ((3, 5), (2, 3), Word.UNKNOWN),
    ],
)
def test_more_frequent_if_no_steps_agree(base: tuple[int, int], new: tuple[int, int], word: Word) -> None:
    sides = [work(count=sum(one) / 2, least=one[0], most=one[1]) for one in (base, new)]
    assert word_of(*sides) is word


@pytest.mark.parametrize(
    ("rung", "kind", "new_ns", "word"),
    [
        ("family", "compute", 102e3, Word.SAME),  # 2 % of the longer one
        ("family", "compute", 102.1e3, Word.SLOWER),
        ("region", "compute", 97.9e3, Word.FASTER),
        ("family", "communication", 300e3, Word.SAME),  # others may have come late
        ("path", "communication", 300e3, Word.SAME),
        ("path", "compute", 300e3, Word.SLOWER),
    ],
)
def test_other_ops_compare_by_total_unlike_comm(rung: str, kind: str, new_ns: float, word: Word) -> None:
    once = {"kind": kind, "name": "ncclDevKernel_AllReduce" if kind == "communication" else "add"}
    half = new_ns / 2
    assert word_of(work(**once), work(**once, ns=new_ns, samples=[half], medians=[half]), rung) is word


@pytest.mark.parametrize(
    ("base", "new", "word"),
    [
        ((100, 100, 100), (101.1, 101.1, 101.1), Word.SLOWER),  # a hundredth, where captures do not differ
        ((100, 100, 100), (100.9, 100.9, 100.9), Word.SAME),
        ((100, 100), (103, 103), Word.SAME),  # two captures: as with one
        ((98, 100, 102), (104, 106, 108), Word.SLOWER),  # 6 %, errors of 1.6 %
        ((97, 100, 103), (103, 106, 109), Word.SAME),  # errors of 2.4 %
    ],
)
def test_three_captures_bound_executions(base: Sequence[float], new: Sequence[float], word: Word) -> None:
    sides = [
        work(medians=[1e3 * us for us in side], samples=[1e3 * us for us in side for _ in range(9)])
        for side in (base, new)
    ]
    assert word_of(*sides) is word


@pytest.mark.parametrize(
    ("own", "counts", "told"),
    [(30, (100, 100), True), (29.9, (100, 100), False), (60, (98, 100), True), (60, (97, 100), False)],
)
def test_inputs_differ_from_three_tenths_on(own: float, counts: tuple[float, float], told: bool) -> None:
    rows = [compared(own, counts), compared(100 - own, counts, other=False)]
    said = other_inputs(rows, (side(), side()))
    assert said == ("other shapes: aten::mm got 8x4 and gets 9x4" if told else "")


def test_what_makes_recordings_hard_to_compare_is_noted() -> None:
    versions = {"torch": "2.8", "cuda": "12"}
    base = replace(side(), gpus=("H100",), versions=versions, recorded=("shapes", "stacks"))
    new = replace(side("window"), versions={"torch": "2.9", "hip": "6"}, recorded=("stacks", "memory"))
    assert notes_of(base, new, 1.04) == [
        "other GPU: H100 and unknown",
        "other torch: 2.8 and 2.9",
        "steps are marked by ProfilerStep and by window",
        "recorded on one side only: memory, shapes",
    ]
    assert notes_of(new, new, 1.0) == ["nothing marks steps: each recording counts as one step"]
    for pace, told in ((1.06, "1.06"), (0.94, "0.94")):
        said = f"host: what both do took {told} times as long in NEW"
        assert notes_of(base, base, pace)[0].startswith(said)
    assert notes_of(base, base, 0.96) == []


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 1, 2], [2, 3, 3], 4 / 20),  # mean ranks 1.5, 1.5, 3.5 and 3.5, 5.5, 5.5
        ([1], [2, 3, 4], 2 / 4),  # the smallest of four: as far off as the largest would be
        ([1, 2], [3, 4, 5, 6], 2 / 15),  # the two smallest of six
        ([3, 4, 5, 6], [1, 2], 2 / 15),
        ([5] * 16, [5] * 16, 1),
        ([1, 2], [1, 2], 1),
        ([], [1.0], None),
    ],
)
def test_samples_are_dealt_out_in_all_ways(first: list[float], second: list[float], p: float | None) -> None:
    assert permutation_p(first, second) == (None if p is None else pytest.approx(p))


def test_many_values_agree_with_the_exact_test() -> None:
    first, second = [1.0, 2, 3, 4, 5.5, 7, 8], [4.5, 6, 9, 10, 11, 12, 13]  # 3,432 ways: by mean and variance
    exact = 0.0175  # of the rank-sum test
    assert permutation_p(first, second) == pytest.approx(exact, abs=0.004)


def test_chance_rejects_one_in_twenty() -> None:
    generator = np.random.default_rng(1)
    p = [permutation_p(generator.normal(size=12), generator.normal(size=12)) for _ in range(600)]
    assert 0.02 < np.mean([one is not None and one <= 0.05 for one in p]) < 0.08


def test_holm_stops_at_the_first_that_holds_no_more() -> None:
    assert holm([0.01, 0.04, None, 0.03]) == [True, False, False, False]
    assert holm([0.01, 0.02, 0.03]) == [True, True, True]
    assert holm([]) == []


def test_the_interval_covers_the_difference_of_captures() -> None:
    low, high = log_interval([[100, 101], [102, 103], [99, 98]], [[110, 111], [112, 113], [109, 108]])
    assert low < np.log(110.5 / 100.5) < high
    assert low > 0


@pytest.mark.parametrize(("base", "new"), [(3, 3), (3, 12), (5, 5)])
def test_interval_misses_the_truth_equally_on_both_sides(base: int, new: int) -> None:
    """Of captures that differ by 5 % by chance: one in forty at each side, though captures are few."""
    generator = np.random.default_rng(7)
    found = []
    for _ in range(300):
        sides = [[[float(ns)] for ns in np.exp(0.05 * generator.normal(size=size))] for size in (base, new)]
        found.append(log_interval(*sides))
    assert np.mean([low > 0 for low, _ in found]) <= 0.04
    assert np.mean([high < 0 for _, high in found]) <= 0.04


@pytest.mark.parametrize(
    ("fewer", "wider"), [(1, 1.0), (2, 1.41), (3, 1.74), (4, 1.44), (5, 1.32), (6, 1.10), (8, 1.07), (20, 1.07)]
)
def test_side_with_fewer_captures_widens_the_interval(fewer: int, wider: float) -> None:
    """Of eight captures that differ, and of others all alike; on whichever side these are."""
    differing = [[100.0 + capture] for capture in range(8)]
    for swapped in (False, True):
        widths = []
        for alike in (1, fewer):
            sides = (differing, [[100.0]] * alike)
            low, high = log_interval(*sides[::-1]) if swapped else log_interval(*sides)
            widths.append(high - low)
        assert widths[1] / widths[0] == pytest.approx(wider, rel=0.1 if swapped else 0.005)


def test_spread_of_one_capture_is_unknown() -> None:
    assert spread([3.0]) == 0
    assert spread([1.0, np.e]) == pytest.approx(1 / np.sqrt(2))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_whole_parts_sum_to_the_whole(values: list[float]) -> None:
    total = round(sum(values))
    parts = whole_parts(values, total)
    assert sum(parts) == total
    assert all(abs(part - value) <= 2 for part, value in zip(parts, values, strict=True))


def test_values_that_differ_are_never_shown_alike() -> None:
    def told(counter: str, base: float, new: float) -> str:
        return formatting.counter_values(Counted(counter, base, new, (base, base), (new, new), Word.MORE))

    assert told("launches", 301, 1) == "301 -> 1"
    assert told("d2d bytes", 65_540, 65_536) == "65,540 -> 65,536"
    assert told("d2d bytes", 0, 1 << 20) == "0 B -> 1.00 MiB"
