"""Numbering, looking up and edges, against what numpy and plain loops say."""

from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model import arrays
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import (
    Rows,
    among,
    distinct,
    distinct_pairs,
    frozen,
    grouped,
    median_of,
    medians,
    narrowed,
    numbered,
    pick,
    quantile,
    starts_of_runs,
    sums_of,
)
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.timeline.nesting import Nesting, edges_around

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


@given(st.lists(st.tuples(*[st.sampled_from([-2, 0, 1, 7, 2**50])] * 3), max_size=30))
def test_groups_of_three_keys_are_told_apart_as_well(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array([row[i] for row in rows], np.int64) for i in (0, 1, 2)]
    group, first = grouped(keys)
    seen = list(dict.fromkeys(rows))
    assert group.tolist() == [seen.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in seen]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 5, 2**50])), max_size=30))
def test_pairs_come_sorted_and_once(rows: list[tuple[int, int]]) -> None:
    pairs = distinct_pairs(*(np.array([row[i] for row in rows], np.int64) for i in (0, 1)))
    assert [*zip(*(side.tolist() for side in pairs), strict=True)] == sorted(set(rows))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 40)), max_size=20))
def test_median_is_the_middle_or_mean_of_two(rows: list[tuple[int, int]]) -> None:
    rows = [*rows, (0, 3), (1, 8), (2, 2)]
    number, some = (np.array(side) for side in zip(*rows, strict=True))
    expected = [median(value for own, value in rows if own == group) for group in range(3)]
    assert median_of(number, some).tolist() == expected


numbers = st.lists(st.one_of(st.integers(-9, 9), st.floats(-1e9, 1e9), st.just(float("nan"))), max_size=12)


@given(st.lists(st.integers(-9, 40), max_size=20), numbers)
def test_medians_are_those_of_numpy(whole: list[int], some: list[float]) -> None:
    for given_numbers in filter(len, (whole, some)):
        expected = float(np.median(given_numbers))
        assert arrays.median(given_numbers) == pytest.approx(expected, nan_ok=True)
        rows = np.array([given_numbers, given_numbers[::-1]])
        assert medians(rows) == pytest.approx(np.median(rows, axis=1), nan_ok=True)
    assert np.isnan(arrays.median([]))
    assert medians(np.empty((2, 0))) == pytest.approx([np.nan, np.nan], nan_ok=True)


@given(st.lists(st.integers(-9, 2**40), min_size=1, max_size=20), st.sampled_from([0.0, 0.1, 0.5, 0.75, 1.0]))
def test_a_quantile_is_that_of_numpy(some: list[int], share: float) -> None:
    assert quantile(np.array(some), share) == pytest.approx(float(np.quantile(some, share)))


@given(values)
def test_narrowed_numbers_are_the_same(some: Rows) -> None:
    narrow = narrowed(some)
    assert narrow.tolist() == some.tolist()
    if all(0 <= one < 256 for one in some.tolist()):
        assert narrow.itemsize == 1


@given(values)
def test_a_run_starts_where_a_value_differs_from_the_one_before(some: Rows) -> None:
    told = some.tolist()
    expected = [at == 0 or told[at] != told[at - 1] for at in range(len(told))]
    assert starts_of_runs(some).tolist() == expected


def test_frozen_reaches_tuples_lists_and_mappings() -> None:
    @dataclass
    class Made:
        one: Rows
        pair: tuple[Rows, ...]
        named: dict[str, Rows]
        told: list[str]
        listed: list[Rows]

    one = [np.zeros(1, np.int64) for _ in range(4)]
    made = Made(one[0], (one[1], one[1]), {"a": one[2]}, ["a"], [one[3], np.zeros(2, np.int64)])
    assert frozen(made) is made
    every = made.one, *made.pair, *made.named.values(), *made.listed
    assert not any(one.flags.writeable for one in every)
    assert frozen(3) == 3


@given(values, values)
def test_among_is_membership(some: Rows, members: Rows) -> None:
    assert among(some, np.sort(members)).tolist() == np.isin(some, members).tolist()


@given(values)
def test_no_row_picks_what_is_missing(some: Rows) -> None:
    rows = np.arange(-1, len(some))
    assert pick(some, rows, -9).tolist() == [-9, *some.tolist()]


@pytest.mark.parametrize("values", [[], [3, -4]])
def test_rows_that_are_kept_small_are_picked_as_large_ones(values: list[int]) -> None:
    """So that what is missing may be any number; other arrays keep their type."""
    rows = np.array([-1, 1, 0])[: 1 + len(values)]
    found = pick(np.array(values, np.int32), rows, -(2**40))
    assert str(found.dtype) == "int64"
    assert found.tolist() == [-(2**40), *values[::-1]]
    assert pick(np.array(values, np.float64), rows, -7).dtype == np.float64


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), st.sampled_from([1, 2])), min_size=1, max_size=12),
    st.lists(st.integers(-2, 70), min_size=1, max_size=8),
    st.sampled_from(["left", "right"]),
)
def test_edges_around_instants(
    rows: list[tuple[int, int, int]], instants: list[int], side: Literal["left", "right"]
) -> None:
    trace = TraceBuilder()
    for start, dur, tid in rows:
        trace.op("aten::mm", start, dur, tid=tid)
    nesting = Analysis(trace.load()).index(Nesting)
    never = np.iinfo(np.int64)
    for lane, tid in enumerate(sorted({tid for *_, tid in rows})):
        marks = {at for start, dur, of in rows if of == tid for at in (start, start + dur)}
        before, behind = edges_around(*nesting.edges(lane), np.array(instants), side)
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
