"""Comparisons of jobs, rank by rank: who sets the pace, who is late, missing, or does other work."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.comparison.built_sides import work
from tests.comparison.programs import ADDED, MM, TANH, built, ranks_of
from traceanalyzer import Trace, compare
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.comparison.jobs import job_notes, rank_changes, slowest
from traceanalyzer.comparison.result import RankChange, Word
from traceanalyzer.comparison.snapshot import Captures
from traceanalyzer.render.text.comparison import render_comparison


def test_jobs_are_compared_by_the_rank_that_sets_the_pace() -> None:
    slow = replace(MM, dur=900)
    found = compare(ranks_of([MM], [slow]), ranks_of([slow], [MM]))
    assert (found.base.rank, found.new.rank) == (1, 0)
    assert found.axes.step is not None
    assert abs(found.axes.step.difference) < 0.01
    assert [one.word for one in found.ranks] == [Word.SLOWER, Word.FASTER]


def test_ranks_that_do_the_work_of_others_are_not_judged() -> None:
    tanh = replace(ADDED, name="aten::tanh", kernel=TANH, dur=500)
    found = compare(ranks_of([MM], [MM], [tanh]), ranks_of([MM], [MM, MM], [tanh], [tanh]))
    assert not any(one.other_work for one in found.ranks)
    assert "rank 3: missing -> " in render_comparison(found)
    changed = compare(ranks_of([MM], [tanh]), ranks_of([tanh], [MM]))
    assert all(one.other_work for one in changed.ranks)
    assert {one.word for one in changed.ranks} == {Word.UNKNOWN}
    assert "ranks that do other work in NEW: 0, 1" in changed.notes
    compiled = compare(ranks_of([MM], [tanh]), ranks_of([ADDED], [replace(tanh, name="aten::relu")]))
    assert not any(one.other_work for one in compiled.ranks)  # all is new


def with_modules(*names: str) -> Trace:
    """Two products a step, each in a module of its own."""
    trace = built([MM, replace(MM, dur=300)])
    ops = [event for event in trace.events if event.get("name") == "aten::mm"]
    for at, event in enumerate(ops):
        begin = round(event["ts"] * 1_000)
        trace.python(f"nn.Module: {names[at % 2]}", begin - 500, round(event["dur"] * 1_000) + 900, python_id=at)
    return trace.load()


def test_modules_are_part_of_the_path() -> None:
    found = compare(with_modules("Linear_0", "Linear_1"), with_modules("Linear_0", "Linear_1"))
    assert {row.region for row in found.rows} == {"nn.Module: Linear_0", "nn.Module: Linear_1"}
    assert found.rungs["path"] == pytest.approx(1)
    moved = compare(with_modules("Linear_0", "Linear_1"), with_modules("Conv_0", "Conv_1"))
    assert moved.rungs["op"] == pytest.approx(1)


def served(mark: str) -> Trace:
    """A program whose steps a serving engine marks so."""
    trace = built([MM, ADDED])
    for event in trace.events:
        if str(event.get("name")).startswith("ProfilerStep#"):
            event["name"] = mark
    return trace.load()


@pytest.mark.parametrize("mark", ["step[DECODE bs=16]", "step[EXTEND bs=8 toks=512]"])
def test_another_batch_or_serving_phase_is_not_compared(mark: str) -> None:
    found = compare(served("step[DECODE bs=8]"), served(mark))
    assert found.verdict.word is Word.UNKNOWN
    assert "the steps are of decode with 8 requests and of " in found.verdict.why
    assert found.verdict.settle == "record both with the same inputs"
    assert compare(served(mark), served(mark)).verdict.word is Word.IDENTICAL


MS = 1_000_000


def rank(
    step_ms: float | None, waiting_ms: float | None, culprit: bool = False, captures: int = 1, op: str = "mm"
) -> Any:
    """A rank with such a step; of several captures the last one alone says that it is late."""
    step = None if step_ms is None else SimpleNamespace(ns=round(step_ms * MS))
    waits = None if waiting_ms is None else round(waiting_ms * MS)
    each = [SimpleNamespace(culprit=culprit and at == captures - 1) for at in range(captures)]
    tables = {"work": pd.DataFrame([vars(work(op, 1, 100))])}
    return SimpleNamespace(together=SimpleNamespace(step=step, waiting_ns=waits, tables=tables), each=each)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ({0: (100, 3), 1: (95, 1)}, 1),  # as long, and others wait for it
        ({0: (100, 3), 1: (94.9, 1)}, 0),  # too quick to be the one
        ({0: (95, 1), 1: (100, 3)}, 0),
        ({0: (100, 1), 1: (99, 3)}, 0),
        ({0: (99, 1), 1: (100, None)}, 1),  # whose waits are unknown: the longest
        ({0: (99, None), 1: (100, 5), 2: (98, 0)}, 1),
        ({0: (100, 5), 1: (99, 2), 2: (50, None)}, 1),  # not near, so nobody asks for its waits
        ({0: (None, 0), 1: (10, 9)}, 1),
        ({0: (None, None), 1: (None, None)}, 0),
        ({None: (5, None)}, None),
    ],
)
def test_pace_is_set_by_the_slow_rank_that_waits_least(
    ranks: dict[int | None, tuple[float | None, float | None]], expected: int | None
) -> None:
    assert slowest({number: rank(*one) for number, one in ranks.items()}) == expected


def changes(*waits: tuple[float | None, float | None], other_work: tuple[int, ...] = ()) -> list[RankChange]:
    """Ranks from 0 on, with the ms that they wait in BASE and in NEW."""
    ns = [[None if ms is None else round(ms * MS) for ms in one] for one in waits]
    return [
        RankChange(at, at in other_work, 10 * MS, 10 * MS, base, new, Word.SAME) for at, (base, new) in enumerate(ns)
    ]


def side(*late: int, ranks: int = 3, captures: int = 1) -> Any:
    """Ranks of 10 ms; the first waits least."""
    return {at: rank(10, at, culprit=at in late, captures=captures) for at in range(ranks)}


@pytest.mark.parametrize(
    ("before", "after", "waits", "told"),
    [
        ((), (2,), [(1, 5), (2, 9), (7, 3)], ["rank 2 became late: others wait up to 6.00 ms a step more than it"]),
        (
            (2,),
            (),
            [(1, 5), (9, 9), (7, 3)],
            ["rank 2 is late no more: others waited up to 2.00 ms a step more than it"],
        ),
        (
            (1, 2),
            (2, 0),
            [(8, 1), (3, 4), (2, 3)],
            [
                "rank 0 became late: others wait up to 3.00 ms a step more than it",
                "rank 1 is late no more: others waited up to 5.00 ms a step more than it",
                "rank 2 is late in both: others wait 6.00 ms and 1.00 ms a step for it",
            ],
        ),
        ((), (1,), [(1, 5), (2, None), (3, 4)], ["rank 1 became late"]),
        ((1,), (), [(1, 5), (None, 2), (3, 4)], ["rank 1 is late no more"]),
        ((1,), (1,), [(1, 5), (None, 2), (3, 4)], ["rank 1 is late in both"]),
        ((1,), (1,), [(1, 5), (2, None), (3, 4)], ["rank 1 is late in both"]),
        ((), (1,), [(1, None), (2, 4), (3, 6)], ["rank 1 became late: others wait up to 2.00 ms a step more than it"]),
    ],
)
@pytest.mark.parametrize("captures", [1, 2])
def test_time_others_wait_for_a_late_rank_needs_its_waits(
    before: tuple[int, ...], after: tuple[int, ...], waits: Any, told: list[str], captures: int
) -> None:
    """A rank is late of which any capture says so."""
    sides = side(*before, captures=captures), side(*after, captures=captures)
    assert job_notes(*sides, changes(*waits)) == told


@pytest.mark.parametrize(
    ("base", "new", "told"),
    [
        ((0, 1), (0, 1), []),
        ((0, 1, 10, 2), (0,), ["ranks in BASE only: 1, 2, 10"]),
        ((0,), (1,), []),  # one trace each: nobody takes them for a job
        ((0, 1), (1, 2), ["ranks in BASE only: 0", "ranks in NEW only: 2"]),
        ((None,), (0, 1), ["ranks in NEW only: 0, 1"]),
    ],
)
def test_ranks_of_one_side_are_named_where_there_are_several(
    base: tuple[int | None, ...], new: tuple[int | None, ...], told: list[str]
) -> None:
    sides: Any = [{number: rank(10, 0) for number in ranks} for ranks in (base, new)]
    every = sorted({*base, *new}, key=str)
    known = [RankChange(one, False, 1, 1, 0, 0, Word.SAME) for one in every]
    assert job_notes(sides[0], sides[1], known) == told


@pytest.mark.parametrize(
    ("ops", "other", "slow", "told"),
    [
        ("mm mm mm", (), (0, 1), []),
        ("mm mm mm", (0, 1), (0, 0), ["ranks that do other work in NEW: 0, 1"]),
        (
            "mm add mm",
            (),
            (0, 1),
            ["rank 0 in BASE and rank 1 in NEW set the pace and do other work: the comparison is not of the same work"],
        ),
        ("mm add mm", (), (1, 1), []),
    ],
)
def test_ranks_of_other_work(ops: str, other: tuple[int, ...], slow: tuple[int, int], told: list[str]) -> None:
    sides: Any = [
        {at: rank(20 if at == longest else 10, 0, op=op) for at, op in enumerate(ops.split())} for longest in slow
    ]
    assert job_notes(sides[0], sides[1], changes((0, 0), (0, 0), (0, 0), other_work=other)) == told


def captured(number: int | None, step_ns: int, waiting_ns: int | None) -> Captures:
    (one,) = (capture[None] for capture in side_of(built([MM], steps=3).load()))
    assert one.step is not None
    paces = tuple((pace, step_ns) for pace, _ in one.step.paces)
    step = replace(one.step, ns=step_ns, low_ns=step_ns, high_ns=step_ns, paces=paces)
    return Captures.of([replace(one, rank=number, step=step, waiting_ns=waiting_ns)])


def test_each_rank_has_times_of_both_sides() -> None:
    base = {10: captured(10, 1_000, 5), 2: captured(2, 1_000, None), None: captured(None, 9, 7)}
    new = {2: captured(2, 2_000, 6), 11: captured(11, 1_000, 8)}
    told = [
        (one.rank, one.base_ns, one.new_ns, one.base_waiting_ns, one.new_waiting_ns, one.word)
        for one in rank_changes(base, new)
    ]
    assert told == [
        (None, 9, None, 7, None, Word.UNKNOWN),
        (2, 1_000, 2_000, None, 6, Word.SLOWER),
        (10, 1_000, None, 5, None, Word.UNKNOWN),
        (11, None, 1_000, None, 8, Word.UNKNOWN),
    ]
