"""Edits of what they cannot be made of, and of what a finding has nothing to do with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.rule.careless import hit, why, yielding
from tests.rule.grouped import traced
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay import edits, rewrites
from traceanalyzer.rule import IdleTime, LostTime, Work
from traceanalyzer.rule.checks import check

MS = 1_000_000
_TWO = np.array([3, 1])


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced(*((20 * MS * number + MS, 2 * MS) for number in range(5)))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: edits.Drop(np.array([1, 0], np.uint8)),
            "a list of whole numbers, not uint8, 1-dimensional: int64",
        ),
        (lambda: edits.Drop(np.array([1, 0], np.int32)), "a list of whole numbers, not int32, 1-dimensional"),
        (lambda: edits.Drop([True, False]), "an edit takes numbers of rows, not a mask"),
        (lambda: edits.DropWork(np.array([[1, 0]])), "not int64, 2-dimensional"),
        (lambda: edits.Drop("12"), "rows of an edit is a list or an array of numbers, not str"),  # type: ignore[arg-type]
        (lambda: edits.Drop(None), "rows of an edit is a list or an array of numbers, not NoneType"),  # type: ignore[arg-type]
        (lambda: edits.Drop(["a"]), "a list of whole numbers, not <U1"),  # type: ignore[list-item]
        (lambda: edits.DropSpans(np.array([1], np.int32), [2]), "lists of whole ns, not int32: int64"),
        (lambda: edits.DropSpans(np.array([[1]]), [2]), "lists of whole ns, not int64"),
        (lambda: edits.ShrinkSpans([1], [2], 1.5), "factor is more than 1: what a fix leaves is a part"),
        (lambda: edits.Scale(_TWO, np.array([0.5, 2.0])), "factor is more than 1"),
        (lambda: edits.SplitAcrossRanks(_TWO, 4), "factor is more than 1"),
        (
            lambda: edits.Resize(_TWO, np.array([True, False])),
            "dur_ns is a number or a list of numbers, not bool",
        ),
        (lambda: edits.Resize(_TWO, "12"), "dur_ns is a list or an array of numbers, not str"),  # type: ignore[arg-type]
        (lambda: edits.Resize(_TWO, np.ones((2, 2))), "not float64, 2-dimensional"),
        (lambda: edits.MoveToSideStream(_TWO, [1.0]), "1 numbers of dur_ns for 2 rows"),
        (lambda: edits.Insert(_TWO, None), "cpu_ns is one number for all, not NoneType"),  # type: ignore[arg-type]
        (
            lambda: rewrites.Fuse(_TWO, np.array([0, 10**15])),
            "group has the number 1,000,000,000,000,000: number",
        ),
    ],
)
def test_edits_are_made_of_rows_times_and_parts(made: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made()


def test_a_view_gives_its_rows(analysis: Analysis) -> None:
    work: Any = analysis.index(Work)
    with pytest.raises(ValueError, match=r"not Work: give \.entries"):
        edits.DropWork(work)
    with pytest.raises(ValueError, match=r"not Calls: give \.rows"):
        edits.Drop(work.op)


class _Own:
    """An edit of the author's."""

    kind = "drop"

    def apply(self, edited: Any) -> None:
        """Does nothing."""


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        (lambda w: _Own(), "fix is an edit or a tuple of edits, not _Own"),
        (lambda w: None, "fix is an edit or a tuple of edits, not NoneType"),
        (lambda w: iter([edits.DropWork([0])]), "fix is an edit or a tuple of edits, not list_iterator"),
        (lambda w: edits.ShrinkGaps([0], [10**12]), "1 of 1 spans of ShrinkGaps lie outside of the trace"),
        (
            lambda w: rewrites.Compile([99]),
            "1 of 1 entries of Compile are no entries of DeviceWork: work.entries",
        ),
    ],
)
def test_a_fix_changes_what_its_finding_is_about(
    analysis: Analysis, fix: Callable[[Work], Any], said: str
) -> None:
    assert said in why(analysis, yielding(lambda work, _: hit(work[0:1], fix=fix(work))))


def test_one_edit_of_several_is_of_the_finding(analysis: Analysis) -> None:
    """What comes to lie elsewhere is an edit beside it."""
    work = analysis.index(Work)
    elsewhere = edits.Resize(work[1:2].entries, work[1:2].dur_ns.astype(float))
    own = edits.DropWork(work[0:1].entries)
    for fix in ((elsewhere, own), (own, elsewhere)):
        check(hit(work[0:1], fix=fix))
    check(hit(work[0:1], fix=elsewhere, fixed_elsewhere=True))


@pytest.mark.parametrize(("times", "refused"), [(1, False), (1_000, True)])
def test_what_a_fix_leaves_is_no_longer_than_the_trace(analysis: Analysis, times: int, refused: bool) -> None:
    work = analysis.index(Work)
    spans = work.op.start_ns, work.op.end_ns
    short = traced((0, 1_000)).index(Work)
    check(
        hit(short, fix=edits.Insert(short.op.rows, 10.0 * MS))
    )  # what rules add may be more than a tiny trace
    for fix, name in (
        (edits.MoveToSideStream(work.entries, work.dur_ns * float(times)), "dur_ns of MoveToSideStream"),
        (edits.DropSpans(*spans, leaving_ns=float(MS * times)), "leaving_ns of DropSpans"),
        (rewrites.Replace(*spans, np.full((len(work), 2), MS * times), 0.0), "work_ns of Replace"),
    ):
        said = (
            pytest.raises(ValueError, match=f"{name} are longer than the trace") if refused else nullcontext()
        )
        with said:
            check(hit(work, fix=fix))


def test_a_fix_changes_something(analysis: Analysis) -> None:
    none = np.empty(0, np.int64)
    for fix in (edits.Drop(none), [edits.DropWork([]), edits.DropSpans(none, none)]):
        said = why(analysis, yielding(lambda work, _, fix=fix: hit(work, fix=fix)))
        assert "fix changes no row, no span, or none of their times: leave it out" in said
    work = analysis.index(Work)
    check(hit(work, fix=[edits.DropWork([]), edits.DropWork(work.entries)]))


@pytest.mark.parametrize(("length", "most"), [(80, 100.0 * MS), (2, 10.0 * MS)])
def test_what_a_fix_leaves_is_as_long_as_the_trace_or_ten_ms_at_most(length: int, most: float) -> None:
    """A trace of 100 ms, and one of little more than 2 ms."""
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 1_000, 1)
    trace.kernel(1_000, length * MS, 1)
    if length == 80:
        trace.step(0, 0, 100 * MS)
    work = Analysis(trace.load()).index(Work)
    check(hit(work, fix=edits.Insert(work.launch.rows, most)))
    with pytest.raises(ValueError, match="1 of 1 cpu_ns of Insert are longer than the trace: times are ns"):
        check(hit(work, fix=edits.Insert(work.launch.rows, most + 1)))


def test_rows_and_work_and_spans_of_a_fix_are_there(analysis: Analysis) -> None:
    """The last of each is, what comes after it is not."""
    work = analysis.index(Work)
    rows = len(work.events.nesting.parent)
    for fix in (
        edits.Drop([rows - 1]),
        edits.DropWork([4]),
        rewrites.Compile([0, 4]),
        edits.ShrinkGaps([0], [100 * MS]),
    ):
        check(hit(work, fix=fix))
    wrong: list[tuple[Any, str]] = [
        (edits.Drop([0, rows]), "1 of 2 rows of Drop are no rows of trace.cpu"),
        (edits.DropWork([4, 5]), "1 of 2 entries of DropWork are no entries of DeviceWork: work.entries"),
        (rewrites.Compile([5]), "1 of 1 entries of Compile are no entries of DeviceWork: work.entries"),
        (edits.DropSpans([0], [100 * MS + 1]), "1 of 1 spans of DropSpans lie outside of the trace"),
        (edits.DropSpans([-1], [100 * MS]), "1 of 1 spans of DropSpans lie outside of the trace"),
    ]
    for fix, said in wrong:
        with pytest.raises(ValueError, match=said):
            check(hit(work, fix=fix))


def test_a_fix_is_of_what_is_around_the_occurrences_or_within_them_or_while_they_lose(
    analysis: Analysis,
) -> None:
    """Of the second of five kernels: its op and call, its step, and whatever runs at the same time."""
    work = analysis.index(Work)
    own = work[1:2]
    step = own.op.parent.rows
    for fix in (edits.Drop(own.op.rows), edits.Drop(own.launch.rows), edits.Wait(step)):
        check(hit(own, fix=fix))
        check(hit(own.op, info=True, fix=fix))
    at = int(own.start_ns[0])
    for spans in (([at], [at + 1]), ([at - 5], [at]), ([at + 2 * MS], [at + 3 * MS])):
        check(hit(own, fix=edits.DropSpans(*spans)))
    others: list[Any] = [
        edits.Drop(work[3:4].op.rows),
        edits.DropWork(work[3:4].entries),
        edits.DropSpans([at + 2 * MS + 1], [at + 3 * MS]),
        edits.DropSpans([at - 9 * MS], [at - 8 * MS]),
    ]
    for fix in others:
        with pytest.raises(
            ValueError, match="nothing that fix changes is of the occurrences or of what they lost"
        ):
            check(hit(own, fix=fix))
    lost = LostTime(*(np.array([value]) for value in (0, 0, at + 3 * MS, at + 50 * MS)))
    for fix in others[:3]:
        check(hit(own, fix=fix, lost=lost))
    check(hit(own, fix=others[1], related=[work[3:4]]))
    check(hit(own, fix=others[0], related=[work[3:4].op]))


def test_what_a_call_launches_is_of_it_however_much_later_it_runs() -> None:
    """And what is launched before a pause, or after it, of the pause."""
    trace = TraceBuilder()
    for number in range(3):
        trace.op("aten::mm", 20_000 * number, 5_000)
        trace.launch("cudaLaunchKernel", 20_000 * number + 1_000, 1_000, number + 1)
        trace.kernel(500_000 + 100_000 * number, 10_000, number + 1)
    analysis = Analysis(trace.load())
    work = analysis.index(Work)
    check(hit(work[1:2].op, info=True, fix=edits.DropWork([1])))
    with pytest.raises(ValueError, match="nothing that fix changes is of the occurrences"):
        check(hit(work[1:2].op, info=True, fix=edits.DropWork([2])))
    idle = analysis.index(IdleTime)
    pause = idle[idle.next_entries == 1]
    for fix in (edits.DropWork([0]), edits.DropWork([1]), edits.Drop(work[1:2].launch.rows)):
        check(hit(pause, fix=fix))
    for fix in (edits.DropWork([2]), edits.Drop(work[:1].op.rows)):
        with pytest.raises(ValueError, match="nothing that fix changes is of the occurrences"):
            check(hit(pause, fix=fix))


def test_the_op_of_work_whose_launch_is_not_recorded_is_of_it() -> None:
    trace = TraceBuilder()
    for number, at in enumerate((0, 20_000), start=1):
        trace.op("aten::mm", at, 5_000, external_id=number)
        trace.kernel(500_000 + at, 10_000, number, external_id=number)
    work = Analysis(trace.load()).index(Work)
    check(hit(work[:1], fix=edits.Drop(work[:1].op.rows)))
    with pytest.raises(ValueError, match="nothing that fix changes is of the occurrences"):
        check(hit(work[:1], fix=edits.Drop(work[1:].op.rows)))
