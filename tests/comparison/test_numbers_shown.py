"""Numbers and decisions of a comparison, each worked out by hand at either side."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.comparison.built_sides import axis, fault, host, judged, row, side, work_row
from tests.support.comparison_samples import STEP
from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.compared_rows import word_by_time, work_side
from traceanalyzer.comparison.formatting import source_line
from traceanalyzer.comparison.gates import broken, gates_of
from traceanalyzer.comparison.reasons import changed_functions_note, fault_changes, reasons
from traceanalyzer.comparison.result import CallRow, Counted, FaultChange, Part, RegionChange, Waterfall, Word, WorkSide
from traceanalyzer.comparison.snapshot import Captures, StepTime
from traceanalyzer.comparison.step_axis import (
    at_pace,
    count_word,
    host_pace,
    is_comparable,
    most_changed,
    program_changed,
    step_axis,
)
from traceanalyzer.comparison.waterfall import waterfall_of, whole_parts, work_part
from traceanalyzer.comparison.work_tables import uncovered

MS = 1_000_000


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (1234, "1,234"), (2.5, "2.5"), (0.33333, "0.3333"), (999_999_999, "999,999,999"), (2e9, "2e+09")],
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
def test_equal_counters_are_as_short_as_others(counter: str, base: float, new: float, said: str) -> None:
    one = Counted(counter, base, new, (base, base), (new, new), Word.SAME)
    assert formatting.counter_values(one) == said


@pytest.mark.parametrize(
    ("share", "interval", "said"),
    [
        (0.17, True, "predicted 17 % (12 % to 30 %), got 15 %"),
        (0.17, False, "predicted 17 %, got 15 %"),
        (-0.17, True, "predicted to add 17 %, got 15 %"),
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
def test_equal_counts_are_shown_once(counts: Sequence[float | None], ns: Sequence[float], said: str) -> None:
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
            step = StepTime(scale * ns, 1, 1, 1, True, each_ns=(ns,))
            one: Any = SimpleNamespace(step=step, gpus=("H200",), recorded=())
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
    work = work_row("compute", "mm", (1, ns[0], 0.5), (2, ns[1], 1.5))
    part = work_part(work, 1, 2)
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
def test_reasons_name_counts_or_times(word: Word, counts: tuple[float | None, float], said: str) -> None:
    found = reasons([], [row(*counts, word=word)], [], None, None, "")
    assert found[-1].endswith(f"; {said}")


def test_two_phrases_are_named_of_one_op() -> None:
    """Of three rows of one outer op."""
    slower = {"outer": "aten::linear", "word": Word.SLOWER, "delta_ns": 1_000}
    rows = [row(1, 1, op=f"op{at}", **slower) for at in range(3)]
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


@pytest.mark.parametrize(
    ("base", "new", "means", "word"),
    [
        ((1, 3), (4, 5), (2, 4), Word.MORE),
        ((4, 5), (1, 3), (4, 2), Word.FEWER),
        ((1, 3), (2, 4), (2, 3), Word.UNKNOWN),
        ((1, 3), (2, 4), (2.5, 2.5), Word.SAME),
    ],
)
def test_overlapping_counts_are_equal_only_if_means_are(
    base: tuple[float, float], new: tuple[float, float], means: tuple[float, float], word: Word
) -> None:
    assert count_word((base, new), means) is word


@pytest.mark.parametrize(
    ("counter", "shapes", "known"),
    [
        ("FLOPs", (True, True), True),
        ("FLOPs", (True, False), False),
        ("FLOPs", (False, True), False),
        ("FLOPs", (False, False), True),
        ("launches", (True, False), True),
    ],
)
def test_flops_need_shapes_on_both_or_neither(counter: str, shapes: tuple[bool, bool], known: bool) -> None:
    sides: Any = [SimpleNamespace(recorded=("shapes",) if one else ("stacks",)) for one in shapes]
    assert is_comparable(counter, *sides) is known


def test_counter_with_the_largest_difference_is_named() -> None:
    calls: Any = [
        SimpleNamespace(counter=counter, outer=outer, call="cudaLaunchKernel", base=base, new=new)
        for counter, outer, base, new in (
            ("launches", "aten::add", 1, 3),
            ("launches", "aten::mm", 9, 4),
            ("launches", "aten::add", 2, 3),
            ("launches", "", 5, 6),
            ("launches", "aten::sum", 7, 7),
            ("launches", "aten::mul", 100, 100.5),
            ("memcpys", "aten::copy_", 0, 50),
        )
    ]
    assert most_changed("launches", calls, []) == ("aten::mm", "aten::add", "cudaLaunchKernel")


FUNCTIONS_NAMED = [
    ({"f": 6}, {}, (20, 10), "f is gone (6.00 ms of CPU time a step)"),
    ({"f": 4}, {}, (20, 10), ""),  # less than half of the difference
    ({"f": 6, "g": 4}, {}, (20, 10), "f and 1 more are gone (10.0 ms of CPU time a step)"),
    ({}, {"f": 6}, (20, 10), ""),  # new, while the step got shorter
    ({"old": 4}, {"f": 6}, (10, 20), ""),  # may have got another name
    ({"old": 3}, {"f": 6}, (10, 20), "f is new (6.00 ms of CPU time a step)"),
]


@pytest.mark.parametrize(("gone_ms", "new_ms", "steps_ms", "said"), FUNCTIONS_NAMED)
def test_functions_of_one_side_alone_are_named(
    gone_ms: dict[str, int], new_ms: dict[str, int], steps_ms: tuple[int, int], said: str
) -> None:
    regions = [RegionChange(name, "function", "CPU", ms * MS, None, -ms * MS) for name, ms in gone_ms.items()]
    regions += [RegionChange(name, "function", "CPU", None, ms * MS, ms * MS) for name, ms in new_ms.items()]
    step = replace(STEP, base_ns=steps_ms[0] * MS, new_ns=steps_ms[1] * MS)
    assert changed_functions_note(regions, step) == said


def test_of_work_that_is_shared_out_each_side_has_its_share() -> None:
    one = SimpleNamespace(count=4, ns=1_000, exposed_ns=100, samples=(10,), name="k", dims="", types="")
    side = work_side([one], {0: 0.5})  # type: ignore[list-item,arg-type]
    assert side is not None
    assert (side.count, side.ns, side.exposed_ns) == (2, 500, 50)


def test_of_several_gpus_the_line_of_sources_has_the_first() -> None:
    of_rank = {"names": ["a.json"], "ranks": [0], "rank": 0, "captures": 1}
    side: Any = SimpleNamespace(**of_rank, gpus=["H100", "A100"], steps=1)
    assert source_line(side) == "a.json, H100, 1 step"


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("step=29%", ["step: +30.0 % slower, 29.0 % are allowed"]),
        ("step=30%", []),
        ("gpu=5%", []),  # slower by 10 %, which may be noise
        ("launches=20%", ["launches: 100 -> 130 a step, 20 more are allowed"]),
        ("launches=30%", []),
        ("syncs=0", ["synchronisations: 0 -> 1 a step, 0 more are allowed"]),
    ],
)
def test_gates_in_shares_are_of_what_the_base_took(gate: str, said: list[str]) -> None:
    exact = [
        Counted("launches", 100, 130, (100, 100), (130, 130), Word.MORE),
        Counted("synchronisations", 0, 1, (0, 0), (1, 1), Word.MORE),
    ]
    step = SimpleNamespace(word="slower", base_ns=100, new_ns=130)
    device = SimpleNamespace(word="unknown", base_ns=100, new_ns=110)
    found: Any = SimpleNamespace(axes=SimpleNamespace(exact=exact, step=step, device=device))
    assert broken(found, gates_of([gate])) == said


def test_counter_breaks_its_gate_if_every_step_exceeds_it() -> None:
    """However far the means are apart: steps of one program differ. Of steps that overlap nothing is known."""
    for width, new_width, apart, most in product(range(0, 7, 3), range(0, 7, 3), range(-1, 5), range(4)):
        base, new = (2, 2 + width), (2 + width + apart, 2 + width + apart + new_width)
        means = (base[0] + base[1]) / 2, (new[0] + new[1]) / 2
        one = Counted("launches", *means, base, new, count_word((base, new), means))
        found: Any = SimpleNamespace(axes=SimpleNamespace(exact=[one]))
        assert bool(broken(found, gates_of([f"launches={most}"]))) is (apart > most), (base, new, most)


@pytest.mark.parametrize(
    ("base", "new", "pace"),
    [
        ([("mm", 1, 10), ("add", 2, 10)], [("mm", 4, 20), ("add", 2, 10)], (20 + 20) / 30),
        ([("mm", 4, 20), ("add", 2, 10)], [("mm", 1, 10), ("add", 2, 10)], 30 / (20 + 20)),
        ([("mm", 1, 10), ("cudaMemcpyAsync", 1, 10)], [("mm", 1, 15), ("cudaMemcpyAsync", 1, 11)], 1.5),
        ([("mm", 9, 10), ("add", 9, 10)], [("mm", 9, 12), ("add", 9, 26.6)], 1.2),  # add: another program
        ([("mm", 9, 10), ("add", 9, 10)], [("mm", 9, 12), ("add", 9, 26.4)], 1.92),  # the same one
        ([("mm", 1, 10), ("add", 1, 50)], [("mm", 1, 12), ("sub", 1, 50)], 1.2),
        ([("mm", 1, 10), ("add", 1, 60)], [("mm", 1, 12), ("sub", 1, 20)], 1.0),  # mm is too little of base
        ([("mm", 1, 10), ("add", 1, 50)], [("mm", 1, 12), ("sub", 1, 70)], 1.0),  # and here of new
        ([("mm", 1, 10)], [("add", 1, 10)], 1.0),
    ],
)
def test_the_host_s_pace_is_that_of_what_both_do(base: Any, new: Any, pace: float) -> None:
    assert host_pace(host(*base), host(*new)) == pytest.approx(pace)


def test_hosts_of_other_gpus_or_versions_have_no_pace_in_common() -> None:
    base, new = [("mm", 1, 10)], [("mm", 1, 20)]
    assert host_pace(host(*base), host(*new)) == 2.0
    assert host_pace(host(*base), host(*new, gpu="H100")) == 1.0
    assert host_pace(host(*base), host(*new, torch="2.8")) == 1.0


@pytest.mark.parametrize(
    ("base_ns", "new_ns", "word"),
    [
        (1_000, 1_500, Word.SAME),  # short: medians differ by half a microsecond
        (1_000, 1_501, Word.SLOWER),
        (1_501, 1_000, Word.FASTER),
        (100_000, 104_900, Word.SAME),
        (100_000, 105_100, Word.SLOWER),
        (105_100, 100_000, Word.FASTER),
    ],
)
def test_times_differ_beyond_a_share_and_the_median_noise(base_ns: float, new_ns: float, word: Word) -> None:
    sides = [WorkSide(4, 4 * ns, 0, ns, ("k",), "", "") for ns in (base_ns, new_ns)]
    row: Any = SimpleNamespace(base=sides[0], new=sides[1], kind="compute")
    assert word_by_time(row, new_ns / base_ns, ([], [])) is word


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ({"ops": Word.MORE, "launches": Word.SAME}, False),  # ops that launch nothing are no other program
        ({"ops": Word.SAME, "launches": Word.FEWER}, True),
        ({"launches": Word.UNKNOWN}, False),
    ],
)
def test_a_program_is_another_where_it_does_other_work(words: dict[str, Word], changed: bool) -> None:
    counters: Any = [SimpleNamespace(counter=name, word=word) for name, word in words.items()]
    assert program_changed(counters) is changed


def test_step_at_another_pace_is_interpolated() -> None:
    """Of a CPU-bound half: at twice the CPU's time 20 of 30 ms, and by the logarithm between."""
    step = StepTime(30, 0, 0, 0, True, paces=((0.5, 10e6), (1.0, 20e6), (2.0, 40e6)))
    assert [at_pace(step, factor) for factor in (0.5, 1.0, 2.0, 4.0)] == [15, 30, 60, 60]
    assert at_pace(step, 2**0.5) == round(30 * 2**0.5)
    assert at_pace(StepTime(30, 0, 0, 0, True), 2.0) == 30


@pytest.mark.parametrize(
    ("base_ns", "new_ns", "status"),
    [
        (1_000, 1_250, "unchanged"),  # a fifth of the larger one
        (1_000, 1_260, "worse"),
        (1_260, 1_000, "better"),
        (200, 299, "unchanged"),  # a hundredth of the step
        (200, 301, "worse"),
        (None, 301, "unchanged"),
    ],
)
def test_fault_changes_by_share_of_itself_and_step(base_ns: int | None, new_ns: int, status: str) -> None:
    (one,) = fault_changes([fault("a", "op", base_ns)], [fault("a", "op", new_ns)], 0.1)
    assert (one.status, one.got_share) == (status, None)


def test_lost_step_time_belongs_to_the_only_gone_fault() -> None:
    gone, other = fault("a", "x", 2_000), fault("b", "y", 1_000)
    (alone,) = fault_changes([gone], [], 0.3)
    assert (alone.status, alone.said_share, alone.got_share) == ("gone", 0.2, 0.3)
    assert [one.got_share for one in fault_changes([gone, other], [], 0.3)] == [None, None]
    assert [one.got_share for one in fault_changes([gone], [other], 0.3)] == [None, None]
    better = fault_changes([gone, other], [fault("b", "y", 500)], 0.3)
    assert [(one.status, one.got_share) for one in better] == [("gone", 0.3), ("better", None)]
    worse = fault_changes([gone, other], [fault("b", "y", 2_000)], 0.3)
    assert [(one.status, one.got_share) for one in worse] == [("gone", None), ("worse", None)]


def test_faults_pair_by_subject_before_rule() -> None:
    """The largest first of one status; an op that got another name is the same fault."""
    base = [fault("a", "x", 1_000), fault("a", "y", 3_000), fault("c", "old", 500)]
    found = fault_changes(base, [fault("a", "y", 3_000), fault("c", "new", 500)], None)
    assert [(one.status, one.title) for one in found] == [("gone", "x"), ("unchanged", "y"), ("unchanged", "old")]
    both = fault_changes(base[:2], [], None)
    assert [one.title for one in both] == ["y", "x"]
