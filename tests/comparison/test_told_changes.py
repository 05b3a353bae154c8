"""What a comparison says of single changes: reasons by how well they fit, rows, notes, roles, and who sets the pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.comparison.built_sides import axis, compared, row, side
from tests.comparison.programs import ADDED, MM, TANH, ranks_of
from traceanalyzer import compare
from traceanalyzer.comparison.compared_rows import compared_row
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.reasons import reasons
from traceanalyzer.comparison.result import FaultChange, Word
from traceanalyzer.comparison.sides import notes_of, other_inputs

MS = 1_000_000


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
def test_fitting_faults_precede_common_ones_others_follow(
    status: str, said: float, word: Word, difference: float, fits: bool
) -> None:
    told = reasons([fault(status, said)], [], [], None, axis(word, difference), "f is new")
    assert len(told) == 2
    assert (told[1] == "f is new") is fits
    general = reasons([fault(status, said, "launch-bound")], [], [], None, axis(word, difference), "f is new")
    assert general[0] == "f is new"  # that much is launched is no reason of its own


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([(10, 15)], "the same work runs 1.5 times as often in NEW (10 -> 15 kernels and copies a step)"),
        ([(100, 149)], ""),
        ([(30, 10)], "the same work runs 3 times as often in BASE (30 -> 10 kernels and copies a step)"),
        (
            [(10, 20), (10, 26)],
            "the same work runs 2.6 times as often in NEW (20 -> 46 kernels and copies a step)",
        ),
        ([(10, 20), (10, 27)], ""),  # neither is four fifths
        (
            [(10, 30), (10, None)],
            "the same work runs 3 times as often in NEW (10 -> 30 kernels and copies a step)",
        ),
        ([(10, 30), (11, None)], ""),
    ],
)
def test_work_runs_more_often_where_four_fifths_of_it_do(
    counts: Sequence[tuple[int, int | None]], said: str
) -> None:
    told = reasons([], [row(*one) for one in counts], [], None, None, "")
    assert list(told) == [said] * bool(said)


@pytest.mark.parametrize(
    ("word", "idle_ms", "told"),
    [(Word.SLOWER, 11, True), (Word.SLOWER, 10, False), (Word.UNKNOWN, 11, False)],
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
    return SimpleNamespace(
        **(told | {"ns": 100e3, "exposed_ns": 100e3, "samples": [50e3], "medians": [50e3]} | more)
    )


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
def test_work_is_more_frequent_if_no_steps_agree_on_it(
    base: tuple[int, int], new: tuple[int, int], word: Word
) -> None:
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
def test_other_ops_compare_by_total_and_collectives_do_not(
    rung: str, kind: str, new_ns: float, word: Word
) -> None:
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
def test_three_captures_say_how_far_executions_must_be_apart(
    base: Sequence[float], new: Sequence[float], word: Word
) -> None:
    sides = [
        work(medians=[1e3 * us for us in side], samples=[1e3 * us for us in side for _ in range(9)])
        for side in (base, new)
    ]
    assert word_of(*sides) is word


@pytest.mark.parametrize(
    ("own", "counts", "told"),
    [(30, (100, 100), True), (29.9, (100, 100), False), (60, (98, 100), True), (60, (97, 100), False)],
)
def test_inputs_differ_from_three_tenths_of_other_sizes(
    own: float, counts: tuple[float, float], told: bool
) -> None:
    rows = [compared(own, counts), compared(100 - own, counts, other=False)]
    said = other_inputs(rows, (side(), side()))
    assert said == ("other shapes: aten::mm got 8x4 and gets 9x4" if told else "")


def test_what_makes_recordings_hard_to_compare_is_noted() -> None:
    base = replace(
        side(), gpus=("H100",), versions={"torch": "2.8", "cuda": "12"}, recorded=("shapes", "stacks")
    )
    new = replace(side("window"), versions={"torch": "2.9", "hip": "6"}, recorded=("stacks", "memory"))
    assert notes_of(base, new, 1.04) == [
        "other GPU: H100 and unknown",
        "other torch: 2.8 and 2.9",
        "steps are marked by ProfilerStep and by window",
        "recorded on one side only: memory, shapes",
    ]
    assert notes_of(new, new, 1.0) == ["nothing marks steps: each recording counts as one step"]
    for pace, told in ((1.06, "1.06"), (0.94, "0.94")):
        assert notes_of(base, base, pace)[0].startswith(
            f"host: what both do took {told} times as long in NEW"
        )
    assert notes_of(base, base, 0.96) == []


def test_kind_of_ranks_only_in_base_has_one_role() -> None:
    tanh = replace(ADDED, name="aten::tanh", kernel=TANH, dur=500)
    found = compare(ranks_of([MM], [MM]), ranks_of([MM], [MM, tanh]))
    assert [one.roles for one in found.ranks] == [(0, 0), (0, 1)]
    turned = compare(ranks_of([MM], [MM]), ranks_of([MM, tanh], [MM]))
    assert [one.roles for one in turned.ranks] == [(0, 1), (0, 0)]
