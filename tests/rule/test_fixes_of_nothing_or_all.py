"""Edits that change no time, that leave nothing of a step, or that make work longer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from tests.builder import TraceBuilder
from tests.rule.careless import hit, why, yielding
from tests.rule.grouped import STEP, traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay import edits, rewrites
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rule.checks import check

MS = 1_000_000


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((MS, 2 * MS), (30 * MS, 4 * MS))


def refused(said: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if said is None else pytest.raises(ValueError, match=said)


@pytest.mark.parametrize(
    "fix",
    [
        lambda work: edits.Scale(work.entries, 1.0),
        lambda work: edits.Scale(work.entries, [1.0, 1.0]),
        lambda work: edits.SplitAcrossRanks(work.entries, 1.0),
        lambda work: edits.DropSpans(work.start_ns, work.start_ns),
        lambda work: edits.ShrinkGaps(work.start_ns, work.start_ns),
        lambda work: edits.ShrinkSpans(work.start_ns, work.end_ns, 1.0),
        lambda work: [edits.Scale(work.entries, 1.0), edits.Drop(work.op[:0].rows)],
    ],
)
def test_a_fix_that_leaves_all_time_is_none(analysis: Analysis, fix: Callable[[Work], Any]) -> None:
    said = why(analysis, yielding(lambda work, _: hit(work, fix=fix(work))))
    assert "fix changes no row, no span, or none of their times: leave it out, or look at the mask" in said


@pytest.mark.parametrize(
    "fix",
    [
        lambda work: edits.Scale(work.entries, [1.0, 0.5]),
        lambda work: edits.ShrinkSpans(work.start_ns, work.end_ns, 0.5),
        lambda work: edits.DropSpans(work.start_ns, np.array([work.start_ns[0], work.end_ns[1]])),
        lambda work: [edits.Scale(work.entries, 1.0), edits.Drop(work.op.rows)],
    ],
)
def test_a_fix_of_some_of_the_time_is_one(analysis: Analysis, fix: Callable[[Work], Any]) -> None:
    work = analysis.index(Work)
    check(hit(work, fix=fix(work)))


def test_no_fix_drops_all_steps(analysis: Analysis) -> None:
    """By their marks, or by spans that cover them together; a step, or all but 1 ns, may go."""
    calls, work = analysis.index(Calls), analysis.index(Work)
    marks = calls[calls.is_annotation]
    assert len(marks) == 4
    whole = "leaves nothing of any step: no fix is a program that does nothing"
    for fix, said in (
        (edits.Drop(marks.rows), f"Drop {whole}"),
        (edits.Drop([*marks.rows, *work.op.rows]), f"Drop {whole}"),
        (edits.DropSpans([0], [4 * STEP]), f"DropSpans {whole}"),
        (edits.DropSpans([0, MS, STEP], [2 * MS, STEP, 4 * STEP]), f"DropSpans {whole}"),
        (edits.DropSpans([1], [4 * STEP]), None),
        (edits.DropSpans([0], [4 * STEP - 1]), None),
        (edits.DropSpans([0, MS + 1], [MS, 4 * STEP]), None),
        (edits.Drop(marks[1:].rows), None),
        (edits.Drop(work.op.rows), None),
        (edits.Wait(marks.rows), None),
        (edits.ShrinkGaps([0], [4 * STEP]), None),
    ):
        with refused(said):
            check(hit(work, fix=fix))


def test_steps_without_length_are_not_dropped() -> None:
    trace = TraceBuilder()
    for number in range(2):
        trace.step(number, 0, 0)
    trace.op("aten::mm", 0, 2_000)
    trace.launch("cudaLaunchKernel", 100, 1_000, 1)
    trace.kernel(2_000, 4_000, 1)
    work = Analysis(trace.load()).index(Work)
    assert work.events.steps.marked
    check(hit(work, fix=edits.Drop(work.op.rows)))


def test_without_marks_there_is_no_step_to_drop() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 2_000)
    trace.launch("cudaLaunchKernel", 100, 1_000, 1)
    trace.kernel(2_000, 4_000, 1)
    work = Analysis(trace.load()).index(Work)
    check(hit(work, fix=edits.DropSpans([0], [6_000])))


def test_what_is_quicker_takes_less_time_in_all(analysis: Analysis) -> None:
    """Two kernels of 2 and 4 ms; beside other edits one may take the place of what goes."""
    work = analysis.index(Work)
    longer = "fix makes its work longer in all: dur_ns of Resize is what each takes then"
    resized = edits.Resize(work.entries, [3.0 * MS, 3.0 * MS + 1])
    for fix, said in (
        (edits.Resize(work.entries, 4.0 * MS), longer),  # type: ignore[arg-type]
        (edits.Resize(work.entries, 3.0 * MS), None),  # type: ignore[arg-type]
        (resized, None),
        (edits.Resize(work.entries, [3.0 * MS, 3.0 * MS + 2]), longer),
        ([edits.Resize([0], [5.0 * MS]), edits.Resize([1], [2.0 * MS])], longer),
        ([edits.Resize([0], [5.0 * MS]), edits.Resize([1], [1.0 * MS])], None),
        ([edits.Resize([0], [6.5 * MS]), edits.DropWork([1])], None),
    ):
        with refused(said):
            check(hit(work, fix=fix))


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        (lambda work: edits.Insert(work.op.rows, 99.0), "cpu_ns of Insert is 99: times are ns"),
        (lambda work: edits.Insert(work.op.rows, 100.0), None),
        (lambda work: edits.Wait(work.op.rows), None),
        (lambda work: edits.Wait(work.op.rows, 5), "cpu_ns of Wait is 5: times are ns"),
        (
            lambda work: rewrites.Replace(work.start_ns, work.end_ns, (2, 5.5), 5_000),
            "work_ns of Replace is 5.5: times are ns",
        ),
        (lambda work: rewrites.Replace(work.start_ns, work.end_ns, (2, 500), 0.0), None),
    ],
)
def test_kernels_and_ops_take_a_tenth_of_a_microsecond_at_least(
    analysis: Analysis, fix: Callable[[Work], Any], said: str | None
) -> None:
    work = analysis.index(Work)
    with refused(said):
        check(hit(work, fix=fix(work)))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: rewrites.Replace([1], [2], 200, 500), r"work_ns is a list with a number for each, not int: \(200,\)"),
        (lambda: rewrites.Replace([1, 5], [2, 6], np.ones((3, 2)), 500), "3 lists of work_ns for 2 spans"),
        (lambda: rewrites.Replace([1], [2], (200,), [500]), "cpu_ns is one number for all, not list: make an edit"),
        (lambda: edits.Insert([1, 2], np.array([500.0, 600.0])), "cpu_ns is one number for all, not ndarray"),
        (lambda: edits.Drop([1], leaving_ns="5"), "leaving_ns is one number for all, not str"),
        (lambda: edits.Wait([1], -1.0), "cpu_ns is negative or no number"),
        (lambda: edits.Insert([1], float("nan")), "cpu_ns is negative or no number"),
        (lambda: edits.Insert([1], np.float32(600.0)), None),
        (lambda: rewrites.Replace([1, 5], [2, 6], np.ones((2, 3)), np.int64(500)), None),
    ],
)  # fmt: skip
def test_one_number_and_lists_are_told_apart(made: Callable[[], object], said: str | None) -> None:
    with refused(said):
        made()
