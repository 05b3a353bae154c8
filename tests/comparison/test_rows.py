"""Rows of a comparison: names, when they are alike, when their times differ, and what is said of inputs and ops."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.comparison.built_sides import axis, compared, of, row, side, work
from tests.comparison.programs import ADDED, MM, built
from tests.rules.kernel_programs import Op
from traceanalyzer import compare
from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.compared_rows import ComparedRow, compared_row, corrected, note_of
from traceanalyzer.comparison.formatting import said_and_got
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.reasons import reasons
from traceanalyzer.comparison.result import CallRow, FaultChange, Part, Waterfall, Word
from traceanalyzer.comparison.sides import are_identical, device_axis, other_grids, other_inputs, rung_shares
from traceanalyzer.comparison.snapshot import TABLES


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
    ("base", "new", "other"),
    [((4, "a"), (4, "b"), True), ((4, "a"), (5, "b"), False), ((4, "a"), (4, ""), False)],
)
def test_other_sizes_are_of_ops_that_run_as_often(
    base: tuple[float, str], new: tuple[float, str], other: bool
) -> None:
    sides = [of(count, shapes=shapes and f"[[{shapes}]]") for count, shapes in (base, new)]
    assert note_of(*sides, alike=False)[1] is other


def test_the_ratio_is_of_one_execution() -> None:
    """Twice as many that take twice as long in all: each takes the same."""
    table = [work("mm", 2, 200), work("mm", 2, 200)], [work("mm", 8, 800)]
    found = compared_row(Pair("op", {0: 1.0, 1: 1.0}, {0: 1.0}), table).row
    assert (found.ratio, found.word) == (1.0, Word.MORE)


@pytest.mark.parametrize(
    ("real", "word"), [(10, Word.SAME), (11, Word.SLOWER), (-10, Word.SAME), (-11, Word.FASTER)]
)
def test_work_differs_by_a_hundredth_of_the_gpu_s_time(real: int, word: Word) -> None:
    rows: Any = [
        SimpleNamespace(base=of(ns=500), new=of(ns=500 + real), word=Word.SLOWER),
        SimpleNamespace(base=of(ns=500), new=of(ns=600), word=Word.SAME),
    ]
    found = device_axis(rows)
    assert found is not None
    assert (found.word, found.real_ns, found.base_ns, found.new_ns) == (word, real, 1_000, 1_100 + real)


def test_more_captures_of_one_recording_are_not_identical() -> None:
    table = dict.fromkeys(TABLES, pd.DataFrame({"a": [1]}))
    one: Any = SimpleNamespace(step=1, tables=table)
    once, twice = Captures((one,), one), Captures((one, one), one)
    assert [
        are_identical(*sides) for sides in ((once, once), (once, twice), (twice, once), (twice, twice))
    ] == [
        True,
        False,
        False,
        True,
    ]


def test_rungs_are_shares_of_the_time_of_both_sides() -> None:
    """A row of 100 ns half by its path and half by its op, beside 100 ns by the path."""
    tables = pd.DataFrame({"ns": [100.0]}), pd.DataFrame({"ns": [100.0]})
    found = rung_shares([Pair("path", {0: 0.5}, {0: 1.0}), Pair("op", {0: 0.5})], tables)
    assert {rung: share for rung, share in found.items() if share} == {"path": 0.75, "op": 0.25}


def test_what_differs_is_listed_before_what_adds_more_by_chance() -> None:
    """A product that takes 500 or 530 us, which is noise, and an addition of 10 that takes 5 us more."""
    slow = [Op(MM.name, MM.kernel, 530, MM.dims, MM.types), Op(ADDED.name, ADDED.kernel, 15, ADDED.dims)]
    quick = [MM, Op(ADDED.name, ADDED.kernel, 10, ADDED.dims)]
    found = compare(*(built(ops).load() for ops in (quick, slow))).rows
    assert [(row.op, row.word) for row in found] == [("aten::add", Word.SLOWER), ("aten::mm", Word.SAME)]
    assert found[1].delta_ns > found[0].delta_ns > 0


def test_longest_op_with_other_inputs_is_named() -> None:
    rows = [compared(20), compared(60), compared(10)]
    for one, name in zip(rows, ("aten::add", "aten::mm", "aten::sum"), strict=True):
        one.row.op = name
    assert other_inputs(rows, (side(), side())).startswith("other shapes: aten::mm got ")


@pytest.mark.parametrize(("ns", "noted"), [(30, "30 %"), (29, "")])
def test_other_grids_are_noted_from_three_tenths_of_the_time(ns: float, noted: str) -> None:
    rows = [
        compared_row(
            Pair("op", {0: 1.0}, {0: 1.0}), ([work("mm", 1, time)], [work("mm", 1, time, blocks=blocks)])
        )
        for time, blocks in ((ns, 2), (100 - ns, 1))
    ]
    assert [one.partition(" of GPU")[0] for one in other_grids(rows)] == [f"for {noted}"] * bool(noted)


def test_more_runs_on_other_grids_do_not_mean_other_inputs() -> None:
    table = [work("mm", 1, 10)], [work("mm", 2, 20, blocks=2)]
    assert not compared_row(Pair("op", {0: 1.0}, {0: 1.0}), table).other_grids
    other = [work("mm", 1, 10)], [work("mm", 1, 10, blocks=2, name="tanh")]
    assert not compared_row(Pair("op", {0: 1.0}, {0: 1.0}), other).other_grids


@pytest.mark.parametrize(("alike", "note"), [(True, "float32 became bfloat16 of 8x4"), (False, "")])
def test_types_are_compared_of_the_same_op_alone(alike: bool, note: str) -> None:
    sides = [of(shapes="[[8, 4]]", types=f'["{kind}"]') for kind in ("float", "c10::BFloat16")]
    assert note_of(*sides, alike=alike) == (note, False)


def test_what_waits_is_told_at_its_outer_op() -> None:
    call = CallRow(
        "synchronisations", "aten::item", "aten::is_nonzero", "cudaStreamSynchronize", 1, 3, Word.MORE
    )
    (found,) = reasons([], [row(1, 1, outer="aten::is_nonzero")], [call], None, None, "")
    assert found.startswith("aten::is_nonzero: ")


@pytest.mark.parametrize(("delta", "idle", "said"), [(4, 5, True), (5, 5, True), (6, 5, False)])
def test_idle_time_is_most_of_an_op_from_as_much_as_its_work(delta: int, idle: int, said: bool) -> None:
    fall = Waterfall(1_000, 2_000, (Part("idle", "late: aten::mm", 0, idle, 1_000 * idle),), {})
    slower = row(1, 1, word=Word.SLOWER, delta_ns=1_000 * delta)
    (found,) = reasons([], [slower], [], fall, axis(Word.SLOWER, 0.5), "")
    assert (", most of it idle time" in found) is said


def test_an_interval_of_a_saving_begins_at_nothing() -> None:
    fault = FaultChange("new", ("a",), "a", "low", 0.1, -0.05, 0.3, None, None, None)
    assert said_and_got(fault, interval=True) == "said 10 % (0 % to 30 %)"


def test_recordings_of_other_steps_are_not_identical() -> None:
    tables = dict.fromkeys(TABLES, pd.DataFrame({"a": [1]}))
    one: Any = SimpleNamespace(step=1, tables=tables)
    other: Any = SimpleNamespace(step=2, tables=tables)
    assert not are_identical(Captures((one,), one), Captures((other,), other))
    changed: Any = SimpleNamespace(step=1, tables={**tables, "host": pd.DataFrame({"a": [2]})})
    assert not are_identical(Captures((one,), one), Captures((changed,), changed))
