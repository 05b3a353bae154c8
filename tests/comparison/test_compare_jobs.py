"""Comparisons of jobs, rank by rank, and of programs whose modules or phases tell them apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.comparison.programs import ADDED, MM, TANH, built, ranks_of, waiting
from traceanalyzer import Trace, compare
from traceanalyzer.comparison.jobs import job_notes, rank_changes
from traceanalyzer.comparison.result import Word
from traceanalyzer.render.text.comparison import render_comparison


def test_jobs_are_compared_by_the_rank_that_sets_the_pace() -> None:
    slow = replace(MM, dur=900)
    found = compare(ranks_of([MM], [slow]), ranks_of([slow], [MM]))
    assert (found.base.rank, found.new.rank) == (1, 0)
    assert found.axes.step is not None
    assert abs(found.axes.step.difference) < 0.01
    assert [one.word for one in found.ranks] == [Word.SLOWER, Word.FASTER]


def test_ranks_of_one_role_do_the_same_work() -> None:
    tanh = replace(ADDED, name="aten::tanh", kernel=TANH, dur=500)
    found = compare(ranks_of([MM], [MM], [tanh]), ranks_of([MM], [MM, MM], [tanh], [tanh]))
    assert [one.roles for one in found.ranks] == [(0, 0), (0, 0), (1, 1), (None, 1)]
    text = render_comparison(found)
    assert "rank 2 (work 1): " in text
    assert "rank 3 (work 1): missing -> " in text
    changed = compare(ranks_of([MM], [tanh]), ranks_of([tanh], [replace(tanh, name="aten::relu")]))
    assert [one.roles for one in changed.ranks] == [(0, 1), (1, 2)]
    assert {one.word for one in changed.ranks} == {Word.UNKNOWN}
    assert "ranks that do other work in NEW: 0, 1" in changed.notes
    compiled = compare(ranks_of([MM], [tanh]), ranks_of([ADDED], [replace(tanh, name="aten::relu")]))
    assert [one.roles for one in compiled.ranks] == [(0, 0), (1, 1)]  # all is new: by rank


def test_ranks_that_are_missing_are_said() -> None:
    found = compare(ranks_of([MM], [MM]), ranks_of([MM], [MM], [MM]))
    assert "ranks in NEW only: 2" in found.notes
    assert found.ranks[2].base_ns is None


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, 1, "rank 1 became late: others wait up to 6.00 ms a step more than it"),
        (1, None, "rank 1 is late no more: others waited up to 3.00 ms a step more than it"),
        (1, 1, "rank 1 is late in both: others wait 3.00 ms and 6.00 ms a step for it"),
        (None, None, None),
    ],
)
def test_who_is_late_is_said(before: int | None, after: int | None, told: str | None) -> None:
    sides = waiting(3_000_000, 0, culprit=before), waiting(6_000_000, 0, culprit=after)
    assert job_notes(*sides, rank_changes(*sides)) == ([told] if told else [])


def with_modules(*names: str) -> Trace:
    """Two products a step, each in a module of its own."""
    trace = built([MM, replace(MM, dur=300)])
    ops = [event for event in trace.events if event.get("name") == "aten::mm"]
    for at, event in enumerate(ops):
        begin = round(event["ts"] * 1_000)
        trace.python(
            f"nn.Module: {names[at % 2]}", begin - 500, round(event["dur"] * 1_000) + 900, python_id=at
        )
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
