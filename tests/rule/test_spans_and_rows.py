"""Spans that share time, rows that come twice, and views of another trace are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.rule.careless import hit, why, yielding
from tests.rule.grouped import traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, IdleTime, LostTime, Work
from traceanalyzer.rule.checks import check

MS = 1_000_000
PLACES = ((1 * MS, 2 * MS), (30 * MS, 3 * MS), (55 * MS, 2 * MS), (80 * MS, 2 * MS))


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced(*PLACES)


def _ns(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("starts", "ends", "said"),
    [
        (_ns(6, 9), _ns(0, 8), "2 of 2 spans end before they start"),
        (_ns(0, 5), _ns(6), "2 starts_ns and 1 ends_ns: each span has both"),
        (_ns(0, 900 * MS), _ns(6, 901 * MS), "1 of 2 spans lie outside of the trace: times are ns"),
        (_ns(0, 5), _ns(6, 900 * MS), "1 of 2 spans lie outside of the trace: times are ns"),
        (_ns(0, -1), _ns(6, 9), "1 of 2 spans lie outside of the trace: times are ns"),
        ([0, 5], _ns(6, 9), "starts_ns is an int64 array of one dimension, not list"),
        (_ns(0), None, "ends_ns is an int64 array of one dimension, not NoneType"),
        (_ns(0), np.array([5.0]), "ends_ns is an int64 array of one dimension, not float64, 1-dim"),
        (_ns(0).reshape(1, 1), _ns(5), "starts_ns is an int64 array of one dimension, not int64, 2-dim"),
    ],
)
def test_spans_are_parallel_and_end_after_they_start(
    analysis: Analysis, starts: Any, ends: Any, said: str
) -> None:
    idle, work = analysis.index(IdleTime), analysis.index(Work)
    makers: list[tuple[Callable[..., LostTime], Any]] = [
        (LostTime.idle_within, idle),
        (LostTime.idle_from, idle),
        (LostTime.launched_within, idle),
        (LostTime.spent_within, work),
    ]
    for make, view in makers:
        make(view, _ns(5, 0, 9, 9), _ns(9, 5, 9, 12))  # they touch, and one has no length
        make(view, _ns(5, 0), _ns(9, 6))  # of two threads
        with pytest.raises((ValueError, TypeError), match=said.replace("(", r"\(").replace(")", r"\)")):
            make(view, starts, ends)


def test_lost_time_has_a_span_for_each_occurrence(analysis: Analysis) -> None:
    idle, work = analysis.index(IdleTime), analysis.index(Work)
    spans = work.start_ns[1:], work.end_ns[1:] + MS
    for lost in (
        LostTime.idle_within(idle, *spans),
        LostTime.idle_from(idle, *spans),
        LostTime.launched_within(idle, *spans),
        LostTime.spent_within(work, *spans),
        LostTime.all_of(work[1:]),
        LostTime.excess(work[1:], work[1:].dur_ns // 2),
    ):
        said = why(analysis, yielding(lambda work, _, lost=lost: hit(work, lost=lost)))
        assert "lost is of 3 spans or rows, and there are 4 occurrences: they are parallel" in said
    kept = LostTime.idle_within(idle, *spans)
    assert kept[np.arange(1)].spans == 3
    assert kept.owned_by(np.arange(1, 4)).spans is None
    check(hit(work, lost=kept.owned_by(np.arange(1, 4))))
    check(hit(work[1:], lost=kept))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda w, c: w[np.repeat(np.arange(len(w)), 2)], "4 of 8 occurrences are repeated: .distinct()"),
        (lambda w, c: w[(w.dur_ns > 0).astype(int)], "3 of 4 occurrences are repeated"),
        (lambda w, c: w[np.array([1, 0, 1])], "1 of 3 occurrences are repeated"),
        (lambda w, c: c[c.is_call].op.joined([w.op, w.op]), "4 of 8 occurrences are repeated"),
        (lambda w, c: c[~c.is_op].op, "of 8 occurrences are not there: choose [view.there] first"),
    ],
)
def test_each_row_is_one_occurrence(analysis: Analysis, made: Callable[..., Any], said: str) -> None:
    assert said in why(analysis, yielding(lambda work, calls: hit(made(work, calls))))


def test_calls_that_nobody_can_be_told_of_are_refused(analysis: Analysis) -> None:
    said = why(analysis, yielding(lambda _, calls: hit(calls[calls.is_op])))
    assert "occurrences without lost time, a fix or info=True are never said" in said
    said = why(analysis, yielding(lambda work, _: hit(work, lost=LostTime.none())))
    assert "occurrences without lost time, a fix or info=True are never said" in said
    check(hit(analysis.index(Work), lost=LostTime.joined([])))
    calls = analysis.index(Calls)
    ops = calls[calls.is_op]
    check(hit(ops, info=True))
    check(hit(ops, fix=Drop(ops.rows)))
    check(hit(ops, lost=LostTime.launched_by(analysis.index(IdleTime), ops)))


def test_rows_may_come_again_where_that_is_said(analysis: Analysis) -> None:
    work, calls = analysis.index(Work), analysis.index(Calls)
    again = calls[np.array([1, 0, 1])]
    idle = LostTime.idle_within(analysis.index(IdleTime), again.start_ns, again.end_ns)
    check(hit(again, repeated_rows=True, lost=idle))
    with pytest.raises(ValueError, match="repeated_rows is for stretches of lost time"):
        check(hit(again, repeated_rows=True, info=True))
    check(hit(work[np.array([1, 0, 2])]))
    with pytest.raises(ValueError, match="a piece of work is there once"):
        check(hit(work[np.array([1, 0, 1])], repeated_rows=True))


def test_views_of_another_trace_are_refused(analysis: Analysis) -> None:
    other = traced(*PLACES)
    work, calls = analysis.index(Work), analysis.index(Calls)
    foreign, foreign_calls = other.index(Work), other.index(Calls)
    of_another = "of another trace, or of another window"
    assert of_another in why(analysis, yielding(lambda *_: hit(foreign)))
    assert of_another in why(analysis, yielding(lambda work, _: hit(work, related=[foreign])))
    for wrong in (
        lambda: calls.inside(foreign_calls),
        lambda: calls.index_of_enclosing(foreign_calls),
        lambda: LostTime.uncovered(work, foreign),
        lambda: LostTime.launched_by(analysis.index(IdleTime), foreign_calls),
        lambda: calls.joined([foreign_calls]),
    ):
        with pytest.raises(ValueError, match=of_another):
            wrong()


def test_what_was_idle_before_a_span_is_not_lost_in_it(analysis: Analysis) -> None:
    """But for what is between two launches of spans: it is lost on the way from one to the next."""
    idle, work = analysis.index(IdleTime), analysis.index(Work)
    launched = work.launch.start_ns
    begins = launched - 50
    alone = LostTime.launched_within(idle, begins[[1, 3]], launched[[1, 3]] + 500)
    assert alone.sums(2).tolist() == [450, 450]  # from a span's start to its kernel
    both = LostTime.launched_within(idle, begins[[1, 2]], launched[[1, 2]] + 500)
    assert both.sums(2).tolist() == [450, PLACES[2][0] - sum(PLACES[1])]


def test_a_launch_is_the_latest_begun_spans_that_is_still_open(analysis: Analysis) -> None:
    """Spans of two threads, one of them within the other."""
    work = analysis.index(Work)
    at = work.launch.start_ns
    begins, ends = _ns(at[0] - 50, at[1] - 50, at[2] - 60), _ns(at[3] + 50, at[1] + 50, at[2] - 50)
    assert LostTime.spent_within(work, begins, ends).owner.tolist() == [0, 1, 0, 0]
    assert LostTime.spent_within(work, begins[1:], ends[1:]).owner.tolist() == [0]
