"""Rows, counters, roles, faults and captures of two sides, each at what tells it from its neighbour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.comparison.built_sides import fault, host, of, side, work
from traceanalyzer.comparison import recorded
from traceanalyzer.comparison.captures import Captures, _merged
from traceanalyzer.comparison.compared_rows import (
    compared_row,
)
from traceanalyzer.comparison.count_axis import _where, changed_calls, counted
from traceanalyzer.comparison.jobs import roles_of
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.reasons import changed_functions_note, fault_changes
from traceanalyzer.comparison.recorded import _step_time, _worth
from traceanalyzer.comparison.result import Word
from traceanalyzer.comparison.sides import other_grids, other_inputs
from traceanalyzer.comparison.snapshot import TABLES, StepTime
from traceanalyzer.comparison.step_axis import host_pace
from traceanalyzer.comparison.work_tables import Chosen, exposed_ns
from traceanalyzer.model.finding import Severity
from traceanalyzer.rule.registry import Kind
from traceanalyzer.timeline.device_work import KINDS


def test_a_counter_of_one_side_alone_is_none_on_the_other() -> None:
    columns = ["counter", "count", "least", "most"]
    sides: list[Any] = [
        SimpleNamespace(tables={"totals": pd.DataFrame(rows, columns=columns)}, recorded=())
        for rows in ([("launches", 4.0, 4.0, 4.0)], [("launches", 4.0, 4.0, 4.0), ("memsets", 2.0, 2.0, 2.0)])
    ]
    found = [(one.counter, one.base, one.new, one.word) for one in counted(sides[0], sides[1], (), ())]
    assert found == [("launches", 4, 4, Word.SAME), ("memsets", 0, 2, Word.MORE)]
    back = [(one.counter, one.base, one.new, one.word) for one in counted(sides[1], sides[0], (), ())]
    assert back[1] == ("memsets", 2, 0, Word.FEWER)


@pytest.mark.parametrize(
    ("counter", "kind"),
    [("d2d copies", "copy_d2d"), ("h2d bytes", "copy_h2d"), ("memsets", "memset"), ("kernels", "compute")],
)
def test_counters_of_work_changed_where_its_rows_did(counter: str, kind: str) -> None:
    kinds = ("copy_d2d", "copy_h2d", "memset", "compute", "communication")
    rows: Any = [
        SimpleNamespace(kind=one, outer=f"aten::{one}", region="", op="", base=of(1), new=of(3))
        for one in kinds
    ]
    assert _where(counter, [], rows) == (f"aten::{kind}",)


def test_ops_that_launch_nothing_are_listed_after_what_waits() -> None:
    columns = ["counter", "outer", "op", "name", "count", "least", "most"]
    rows = [
        ("ops", "", "aten::view", "", 90.0, 90, 90),
        ("launches", "", "aten::mm", "k", 2.0, 2, 2),
        ("synchronisations", "", "aten::item", "s", 5.0, 5, 5),
    ]
    sides: list[Any] = [
        SimpleNamespace(tables={"calls": pd.DataFrame(one, columns=columns)}) for one in ([], rows)
    ]
    found = [(one.counter, one.base, one.new) for one in changed_calls(sides[0], sides[1])]
    assert found == [("synchronisations", 0, 5), ("launches", 0, 2), ("ops", 0, 90)]


def test_work_is_hidden_by_every_kind_that_goes_before() -> None:
    """A copy from 0 to 50 beside computing, though communication, which is checked last, is elsewhere."""
    kinds = ("compute", "copy_h2d", "communication")
    device: Any = SimpleNamespace(
        row=np.arange(3),
        kind=np.array([KINDS.index(kind) for kind in kinds]),
        start_ns=np.array([0, 0, 200]),
        end_ns=np.array([100, 50, 300]),
        device=np.zeros(3, int),
    )
    assert exposed_ns(device).tolist() == [100, 0, 100]


def test_a_fault_has_its_saving_on_both_sides() -> None:
    (one,) = fault_changes([fault("a", "x", 1_000)], [fault("a", "x", 3_000)], None)
    assert (one.base_ns, one.new_ns) == (1_000, 3_000)
    found = fault_changes([fault("a", "x", 1_000)], [fault("b", "y", 2_000)], None)
    assert [(each.base_ns, each.new_ns) for each in found] == [(1_000, None), (None, 2_000)]


@pytest.mark.parametrize(("other_ms", "told"), [(3.0, True), (3.1, False)])
def test_half_as_much_on_the_other_side_may_be_another_name(other_ms: float, told: bool) -> None:
    sides: list[Any] = [
        SimpleNamespace(
            functions={("main", ""): 1e6, **more}, step=SimpleNamespace(recorded_ns=1e6 * step_ms)
        )
        for more, step_ms in (({("old", "main"): 1e6 * other_ms}, 10), ({("f", "main"): 6e6}, 20))
    ]
    assert bool(changed_functions_note(sides[0], sides[1])) is told


def test_the_mean_step_is_of_the_captures_that_have_one() -> None:
    tables = {name: pd.DataFrame({column: [] for column in TABLES[name]}) for name in TABLES}
    captures = []
    for ns in (None, 100, 300):
        one = side(there=False)
        step = None if ns is None else StepTime(ns, ns, ns, ns, True)
        captures.append(type(one)("a.json", None, (), {}, (), "window", None, None, 1, step, None, tables))
    merged = Captures.of(captures)
    assert merged.together.step is not None
    assert (len(merged), merged.together.step.ns) == (3, 200)


def test_a_call_that_one_of_three_captures_lacks_has_none_there() -> None:
    columns = ["counter", "outer", "op", "name", "count", "least", "most"]
    rows = [("launches", "", op, "k", 3.0, 3, 3) for op in ("aten::mm", "aten::add", "aten::sub")]
    merged = _merged("calls", [pd.DataFrame(rows[:upto], columns=columns) for upto in (1, 2, 3)])
    told = merged.set_index("op")[["count", "least", "most"]].to_dict("index")
    assert told == {
        "aten::mm": {"count": 3.0, "least": 3, "most": 3},
        "aten::add": {"count": 2.0, "least": 0, "most": 3},
        "aten::sub": {"count": 1.0, "least": 0, "most": 3},
    }


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        (("decode", 4), ("decode", 4), ""),
        (
            ("decode", 4),
            ("decode", 8),
            "the steps are of decode with 4 requests and of decode with 8 requests",
        ),
        (
            ("prefill", 4),
            ("decode", 4),
            "the steps are of prefill with 4 requests and of decode with 4 requests",
        ),
        ((None, None), ("decode", 0), "the steps are of no phase and of decode with 0 requests"),
    ],
)
def test_steps_of_another_phase_or_batch_have_other_inputs(
    base: tuple[Any, Any], new: tuple[Any, Any], said: str
) -> None:
    sides: list[Any] = [SimpleNamespace(phase=phase, batch=batch) for phase, batch in (base, new)]
    assert other_inputs([], (sides[0], sides[1])) == said


@pytest.mark.parametrize(
    ("shapes", "blocks", "noted"), [("", 2, True), ("[[4, 4]]", 2, False), ("", 1, False)]
)
def test_other_grids_are_noted_where_no_shapes_were_recorded(shapes: str, blocks: int, noted: bool) -> None:
    tables = [work("mm", 1, 10, dims=shapes)], [work("mm", 1, 10, dims=shapes, blocks=blocks)]
    notes = other_grids([compared_row(Pair("op", {0: 1.0}, {0: 1.0}), tables)])
    assert [one.startswith("for 100 % of GPU time the same kernels ran on other grids") for one in notes] == (
        [True] * noted
    )


def test_the_pace_is_of_the_same_part_of_an_op() -> None:
    """Before its first child and after it: 10 -> 20 us of part 0 and 40 -> 80 us of part 1."""
    sides = [host(("mm", 1, us), ("mm", 1, 4 * us)) for us in (10, 20)]
    for one in sides:
        one.tables["host"]["part"] = [0, 1]
    assert host_pace(*sides) == 2.0


def test_the_recorded_step_is_the_mean_of_the_chosen_ones() -> None:
    steps: Any = SimpleNamespace(
        marked=True, durations_ns=lambda device=None: np.array([9_000, 100, 100, 400])
    )
    head: Any = SimpleNamespace()
    step = _step_time(steps, Chosen(np.array([-1, 0, 1, 2, -1]), 3, 0), head, None)
    assert (step.ns, step.recorded_ns, step.predicted, step.each_ns) == (200, 200, False, (100, 100, 400))


@pytest.mark.parametrize(
    ("severity", "kind", "share", "worth"),
    [
        (Severity.LOW, "other", None, True),
        (Severity.INFO, "choice", 0.0, True),
        (Severity.INFO, "choice", None, False),
        (Severity.INFO, "other", None, False),
        (Severity.INFO, "other", 0.1, False),
        (Severity.INFO, "other", -0.01, True),
        (Severity.INFO, "other", -0.009, False),
    ],
)
def test_free_choices_with_a_known_saving_stay(
    severity: Severity, kind: str, share: float | None, worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "kind_of", lambda rule, cause: Kind.CHOICE if kind == "choice" else None)
    one: Any = SimpleNamespace(
        severity=severity, saving=None if share is None else SimpleNamespace(share=share)
    )
    assert _worth(one, SimpleNamespace(rule="a", cause="b")) is worth  # type: ignore[arg-type]


def rank(*rows: Any) -> Any:
    table = pd.DataFrame([vars(one) for one in rows])
    return SimpleNamespace(together=SimpleNamespace(tables={"work": table}))


def test_roles_that_one_side_alone_has_get_numbers_of_their_own() -> None:
    base: Any = {0: rank(work("mm", 1, 100))}
    new: Any = {at: rank(work(op, 1, 100)) for at, op in enumerate(("mm", "add", "sum"))}
    assert roles_of(base, new) == ({0: 0}, {0: 0, 1: 1, 2: 2})


def test_roles_are_told_by_computing_alone() -> None:
    """One rank communicates, the other does not: both compute the same."""
    talk = work("nccl", 1, 900, kind="communication")
    both: Any = {0: rank(work("mm", 1, 100)), 1: rank(work("mm", 1, 100), talk)}
    assert roles_of(both, both)[0] == {0: 0, 1: 0}
