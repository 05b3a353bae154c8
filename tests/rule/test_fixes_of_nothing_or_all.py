"""Edits that change no time, that leave nothing of a step, or that make work longer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from tests.rule.careless import hit, why, yielding
from tests.rule.grouped import STEP, traced
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay import edits, rewrites
from traceanalyzer.rule import Calls, IdleTime, Work
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
        lambda work: edits.ShrinkSpans(work.op.start_ns, work.op.end_ns, 0.5),
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
    whole = "leaves nothing of any step: take the calls that the fix removes, not the step around them"
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
            lambda work: rewrites.Replace(work.op.start_ns, work.op.end_ns, (2, 5.5), 5_000),
            "work_ns of Replace is 5.5: times are ns",
        ),
        (lambda work: rewrites.Replace(work.op.start_ns, work.op.end_ns, (2, 500), 0.0), None),
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
        (lambda: rewrites.Replace([1, 5], [2, 6], np.array([2e2, 3e2]), 500), r"of one for each, work_ns\[:, None\]"),
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


def test_spans_are_of_the_cpu_and_gaps_hold_no_event() -> None:
    """Two ops with a pause between them, a kernel each, and idle time between these."""
    trace = TraceBuilder()
    for number, at in enumerate((0, 50_000), start=1):
        trace.op("aten::mm", at, 10_000)
        trace.launch("cudaLaunchKernel", at + 1_000, 5_000, number)
        trace.kernel(at + 8_000, 20_000, number)
    analysis = Analysis(trace.load())
    work, calls, idle = (analysis.index(kind) for kind in (Work, Calls, IdleTime))
    ops = calls[calls.is_op]
    device, own = "are those of the device: take the times of calls", "are those of calls: gaps hold no event"
    pause = np.array([10_000]), np.array([50_000])
    cases: list[tuple[Any, Any, str | None]] = [
        (work, edits.DropSpans(work.start_ns, work.end_ns), f"spans of DropSpans {device}"),
        (work, edits.ShrinkSpans(work[1:].start_ns, work[1:].end_ns, 0.5), f"spans of ShrinkSpans {device}"),
        (idle, edits.ShrinkGaps(idle.start_ns, idle.end_ns), f"spans of ShrinkGaps {device}"),
        (work, rewrites.Replace(work.start_ns, work.end_ns, (500,), 0), f"spans of Replace {device}"),
        (ops, edits.ShrinkGaps(ops.start_ns, ops.end_ns), f"spans of ShrinkGaps {own}"),
        (ops, edits.ShrinkGaps(ops[1:].start_ns, ops[1:].end_ns), f"spans of ShrinkGaps {own}"),
        (ops, edits.DropSpans(ops.start_ns, ops.end_ns), None),
        (ops, edits.ShrinkGaps([10_000, *ops.start_ns], [50_000, *ops.end_ns]), None),
        (idle, edits.ShrinkGaps(*pause), None),
        (work, edits.DropSpans(work.op.start_ns, work.op.end_ns), None),
        (work, edits.DropSpans(work.start_ns, work.end_ns + 1_000 * np.arange(2)[::-1]), None),
    ]
    for found, fix, said in cases:
        with refused(said):
            check(hit(found, fix=fix, info=True))


def test_what_becomes_one_kernel_is_of_one_step_and_device() -> None:
    work = traced(*((STEP * (at // 2) + MS * (1 + 3 * (at % 2)), MS, at % 2) for at in range(4))).index(Work)
    assert (work.step.tolist(), work.device.tolist()) == ([0, 0, 1, 1], [0, 1, 0, 1])
    one = traced(*((STEP * (at // 2) + MS * (1 + 3 * (at % 2)), MS) for at in range(6))).index(Work)
    cases: list[tuple[Work, list[int], str | None]] = [
        (work, [0, 0, 1, 1], "2 of 2 groups of Fuse have work of several devices: number each run by itself"),
        (work, [0, 1, 1, 2], None),  # of what few marks cut apart, as few
        (
            one,
            [0, 1, 0, 1, 0, 1],
            "2 of 2 groups of Fuse have work of several steps: number each run by itself",
        ),
        (one, [0, 0, 0, 0, 0, 0], "1 of 1 groups of Fuse have work of several steps"),
        (one, [0, 0, 0, 0, 0, 7], None),
        (one, [0, 0, 0, 0, 1, 1], None),  # a run may begin before a mark and end after it
        (one, [3, 3, 0, 0, 1, 1], None),
        (work, [0, 1, 2, 3], None),
    ]
    for found, group, said in cases:
        with refused(said):
            check(hit(found, fix=rewrites.Fuse(found.entries, np.array(group))))


def test_work_is_named_once_or_with_one_value(analysis: Analysis) -> None:
    work = analysis.index(Work)
    again = "are named again with another value: each once"
    for fix, said in (
        (edits.Scale([0, 1, 0], [0.5, 0.5, 0.9]), f"1 of 2 pieces of work of Scale {again}"),
        (edits.Resize([1, 0, 1, 1], [5e5, 5e5, 4e5, 5e5]), f"1 of 2 pieces of work of Resize {again}"),
        (edits.Scale([0, 1, 0], [0.5, 0.9, 0.5]), None),
        (edits.Scale([0, 0], 0.5), None),
        (edits.Resize([1, 0], [5e5, 4e5]), None),
        ([edits.Scale([0], [0.5]), edits.Scale([0], [0.9])], None),
    ):
        with refused(said):
            check(hit(work, fix=fix))
