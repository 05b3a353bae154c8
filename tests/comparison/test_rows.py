"""Rows of a comparison: what they are named by, when they are alike, and when their times differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.comparison.built_sides import of, work
from tests.comparison.programs import ADDED, MM, built
from tests.rules.kernel_programs import Op
from traceanalyzer import compare
from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.compared_rows import (
    ComparedRow,
    _alike,
    _by_total,
    _floor,
    _note,
    compared_row,
    corrected,
)
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.result import Word, WorkSide
from traceanalyzer.comparison.sides import _device, _identical, _rungs, _with_deltas
from traceanalyzer.comparison.snapshot import TABLES
from traceanalyzer.comparison.waterfall import Busy, BusyPart


def judged(p: float | None, *, tested: bool) -> ComparedRow:
    row = compared_row(Pair("op", {0: 1.0}, {0: 1.0}), ([work("mm", 1, 10)], [work("mm", 1, 10)]))
    return replace(row, row=replace(row.row, p=p, word=Word.SLOWER), tested=tested)


def test_only_rows_that_a_test_decided_are_corrected() -> None:
    rows = [
        judged(None, tested=False),
        judged(0.04, tested=True),
        judged(0.001, tested=True),
        judged(0.2, tested=True),
    ]
    found = [row.word for row in corrected(rows, comparable=True)]
    assert found == [Word.SLOWER, Word.SAME, Word.SLOWER, Word.SAME]


def test_a_row_is_named_by_what_takes_longest() -> None:
    """Of a pair of several ops, not by what runs most often."""
    table = [work("often", 9, 10, outer="o"), work("long", 1, 90, outer="l")]
    found = compared_row(Pair("region", {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}), (table, table))
    assert (found.row.op, found.row.outer) == ("long", "l")
    assert found.row.base is not None
    assert found.row.base.kernels == ("long", "often")


@pytest.mark.parametrize(
    ("new", "alike"), [(of(4), True), (of(5), False), (of(4, kernels=("other",)), False)]
)
def test_the_same_kernels_as_often_are_alike(new: WorkSide, alike: bool) -> None:
    assert _alike(of(4), new) is alike


@pytest.mark.parametrize(
    ("base", "new", "other"),
    [((4, "a"), (4, "b"), True), ((4, "a"), (5, "b"), False), ((4, "a"), (4, ""), False)],
)
def test_other_sizes_are_of_ops_that_run_as_often(
    base: tuple[float, str], new: tuple[float, str], other: bool
) -> None:
    sides = [of(count, shapes=shapes and f"[[{shapes}]]") for count, shapes in (base, new)]
    assert _note(*sides, alike=False)[1] is other


@pytest.mark.parametrize(
    ("base", "new", "word"),
    [(98, 100, Word.SAME), (100, 98, Word.SAME), (98, 101, Word.SLOWER), (101, 98, Word.FASTER)],
)
def test_times_of_regions_differ_by_a_share_of_the_longer_one(base: float, new: float, word: Word) -> None:
    assert _by_total(of(ns=base), of(ns=new)) is word


def test_the_ratio_is_of_one_execution() -> None:
    """Twice as many that take twice as long in all: each takes the same."""
    table = [work("mm", 2, 200), work("mm", 2, 200)], [work("mm", 8, 800)]
    found = compared_row(Pair("op", {0: 1.0, 1: 1.0}, {0: 1.0}), table).row
    assert (found.ratio, found.word) == (1.0, Word.MORE)


@pytest.mark.parametrize(
    ("captures", "floor"), [((3, 3), 0.01), ((2, 3), 0.05), ((3, 2), 0.05), ((1, 1), 0.05)]
)
def test_both_sides_need_three_captures_for_a_measured_floor(captures: Sequence[int], floor: float) -> None:
    row: Any = SimpleNamespace(base=of(kernels=("elementwise",)), kind="compute")
    assert _floor(row, ([5.0] * captures[0], [5.0] * captures[1])) == floor


@pytest.mark.parametrize(
    ("real", "word"), [(10, Word.SAME), (11, Word.SLOWER), (-10, Word.SAME), (-11, Word.FASTER)]
)
def test_work_differs_by_a_hundredth_of_the_gpu_s_time(real: int, word: Word) -> None:
    rows: Any = [
        SimpleNamespace(base=of(ns=500), new=of(ns=500 + real), word=Word.SLOWER),
        SimpleNamespace(base=of(ns=500), new=of(ns=600), word=Word.SAME),
    ]
    found = _device(rows)
    assert found is not None
    assert (found.word, found.real_ns, found.base_ns, found.new_ns) == (word, real, 1_000, 1_100 + real)


def test_a_row_adds_to_the_step_what_nothing_hides() -> None:
    row = judged(None, tested=False)
    part = BusyPart("compute", "mm", Busy(1, 100, 40.4), Busy(1, 300, 50.6))
    (found,) = _with_deltas([row.row], [replace(row, part=part)], None, None, None)  # type: ignore[arg-type]
    assert found.delta_ns == 51 - 40


def test_more_captures_of_one_recording_are_not_identical() -> None:
    table = dict.fromkeys(TABLES, pd.DataFrame({"a": [1]}))
    one: Any = SimpleNamespace(step=1, tables=table)
    once, twice = Captures((one,), one), Captures((one, one), one)
    assert [_identical(*sides) for sides in ((once, once), (once, twice), (twice, once), (twice, twice))] == [
        True,
        False,
        False,
        True,
    ]


def test_rungs_are_shares_of_the_time_of_both_sides() -> None:
    """A row of 100 ns half by its path and half by its op, beside 100 ns by the path."""
    tables = pd.DataFrame({"ns": [100.0]}), pd.DataFrame({"ns": [100.0]})
    found = _rungs([Pair("path", {0: 0.5}, {0: 1.0}), Pair("op", {0: 0.5})], tables)
    assert {rung: share for rung, share in found.items() if share} == {"path": 0.75, "op": 0.25}


def test_what_differs_is_listed_before_what_adds_more_by_chance() -> None:
    """A product that takes 500 or 530 us, which is noise, and an addition of 10 that takes 5 us more."""
    slow = [Op(MM.name, MM.kernel, 530, MM.dims, MM.types), Op(ADDED.name, ADDED.kernel, 15, ADDED.dims)]
    quick = [MM, Op(ADDED.name, ADDED.kernel, 10, ADDED.dims)]
    found = compare(*(built(ops).load() for ops in (quick, slow))).rows
    assert [(row.op, row.word) for row in found] == [("aten::add", Word.SLOWER), ("aten::mm", Word.SAME)]
    assert found[1].delta_ns > found[0].delta_ns > 0
