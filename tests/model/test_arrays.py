"""Numbering, looking up and edges, against what numpy and plain loops say."""

from __future__ import annotations

from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows, among, distinct, grouped, numbered, pick, sums_of
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.timeline.boundaries import Boundaries
from traceanalyzer.timeline.nesting import Nesting

close = st.lists(st.integers(-5, 30), max_size=40)
spread = st.lists(st.sampled_from([NULL_INT, -7, 0, 3, 2**40, 2**62]), max_size=40)
values = st.one_of(close, spread).map(lambda found: np.array(found, np.int64))


@given(values)
def test_numbers_are_those_of_unique(some: Rows) -> None:
    expected, inverse = np.unique(some, return_inverse=True)
    number, found = numbered(some)
    assert found.tolist() == expected.tolist() == distinct(some).tolist()
    assert number.tolist() == inverse.tolist()
    assert sums_of(number, some // 2, len(found)).sum() == (some // 2).sum()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 5, 2**50])), max_size=30))
def test_groups_come_in_order_of_first_sight(rows: list[tuple[int, int]]) -> None:
    keys = [np.array([row[i] for row in rows], np.int64) for i in (0, 1)]
    group, first = grouped(keys)
    seen = list(dict.fromkeys(rows))
    assert group.tolist() == [seen.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in seen]


@given(values, values)
def test_among_is_membership(some: Rows, members: Rows) -> None:
    assert among(some, np.sort(members)).tolist() == np.isin(some, members).tolist()


@given(values)
def test_no_row_picks_what_is_missing(some: Rows) -> None:
    rows = np.arange(-1, len(some))
    assert pick(some, rows, -9).tolist() == [-9, *some.tolist()]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.sampled_from([1, 2])), min_size=1, max_size=12
    ),
    st.lists(st.integers(-2, 70), min_size=1, max_size=8),
    st.sampled_from(["left", "right"]),
)
def test_edges_around_instants(
    rows: list[tuple[int, int, int]], instants: list[int], side: Literal["left", "right"]
) -> None:
    trace = TraceBuilder()
    for start, dur, tid in rows:
        trace.op("aten::mm", start, dur, tid=tid)
    edges = Boundaries.of(Analysis(trace.load()).index(Nesting))
    never = np.iinfo(np.int64)
    for lane, tid in enumerate(sorted({tid for *_, tid in rows})):
        marks = {at for start, dur, of in rows if of == tid for at in (start, start + dur)}
        before, behind = edges.around(lane, np.array(instants), side)
        for low, high, at in zip(before.tolist(), behind.tolist(), instants, strict=True):
            earlier = {m for m in marks if m < at or (side == "right" and m == at)}
            assert low == max(earlier, default=never.min)
            assert high == min(marks - earlier, default=never.max)


def test_a_trace_without_a_cpu_lane_is_diagnosed() -> None:
    trace = TraceBuilder()
    for at in (0, 1_000_000, 2_000_000):
        trace.kernel(at, 1_000, at + 1)
    report = diagnose(trace.load())
    assert not [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert report.traces[0].accounting[0].parts_ns["idle:unlinked"] == 1_998_000
