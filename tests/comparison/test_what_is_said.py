"""What a comparison says of inputs, idle time and ops, each beside its nearest other case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.comparison.built_sides import axis, compared, of, row, side, work
from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.compared_rows import _note, compared_row
from traceanalyzer.comparison.formatting import said_and_got
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.reasons import reasons
from traceanalyzer.comparison.result import CallRow, FaultChange, Part, Waterfall, Word
from traceanalyzer.comparison.sides import _identical, other_grids, other_inputs
from traceanalyzer.comparison.snapshot import TABLES


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
    assert _note(*sides, alike=alike) == (note, False)


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
    assert not _identical(Captures((one,), one), Captures((other,), other))
    changed: Any = SimpleNamespace(step=1, tables={**tables, "host": pd.DataFrame({"a": [2]})})
    assert not _identical(Captures((one,), one), Captures((changed,), changed))
