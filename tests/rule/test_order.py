"""In which order findings and faults are said, each limit by an example just at either side of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse
from traceanalyzer.rule import faults
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.registry import Kind, all_rules
from traceanalyzer.rule.severity import ranked

HIGH, MEDIUM, LOW, INFO = Severity


def found(severity: Severity, share: float = 0.0, low: float | None = None, **changes: Any) -> Finding:
    """A finding that saves a share of the step, with the low end of its interval."""
    saving = None if low is None else Saving(1, 1, 1, share, low, share, "replayed")
    made = replace(samples.findings()[0], severity=severity, saving=saving, cost_ns=1, cost_share=share)
    return replace(made, evidence={}, **changes)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (found(HIGH, 0.1, 0.05), found(MEDIUM, 0.5, 0.4)),
        (found(HIGH, 0.2, 0.05), found(HIGH, 0.1, 0.1)),
        (found(HIGH, 0.1, 0.0), found(HIGH, 0.9)),  # what nobody can tell comes last
        (found(HIGH, 0.2, 0.0), found(HIGH, 0.1, 0.1)),
        (found(LOW, 0.01, 0.001), found(LOW, 0.2, 0.0)),  # of what is low, what is not sure as well
        (found(HIGH, 0.9), found(HIGH, 0.8)),
        (found(HIGH, 0.9, cause="b"), found(HIGH, 0.8, cause="a")),
        (found(HIGH, 0.9, cause="a"), found(HIGH, 0.9, cause="b")),
        (replace(found(HIGH, 0.9), cost_ns=3), replace(found(HIGH, 0.9, rule="a"), cost_ns=2)),
        (found(HIGH, 0.9, rule="a", rank=3), found(HIGH, 0.9, rule="b", rank=1)),
        (found(HIGH, 0.9, rank=None), found(HIGH, 0.9, rank=0)),
        (found(HIGH, 0.9, rank=0, device=1), found(HIGH, 0.9, rank=1, device=0)),
        (found(HIGH, 0.9, device=None), found(HIGH, 0.9, device=0)),
        (found(HIGH, 0.9, start_ns=1), found(HIGH, 0.9, start_ns=2)),
    ],
)
def test_order_is_severity_saving_cost_name_rank_place(first: Finding, second: Finding) -> None:
    assert ranked([second, first]) == ranked([first, second]) == (first, second)


def test_sure_saving_precedes_facts_if_all_is_info() -> None:
    fact = replace(found(INFO, rule="hotspot"), cost_ns=0, evidence={"gpu_share": 0.3})
    for low, first in ((0.001, "launch-bound"), (0.0, "hotspot")):
        fix = found(INFO, 0.4, low, rule="launch-bound")
        assert ranked([fact, fix])[0].rule == first


def pending(order: Claims, edit: type[Any] | None = None, info: bool = False) -> Any:
    """What a finding was made of."""
    edits = () if edit is None else (object.__new__(edit),)
    return SimpleNamespace(order=order, hits=SimpleNamespace(cause="", info=info, edits=lambda: edits))


def preceding(
    *members: tuple[Any, Finding], work_ns: tuple[tuple[int, ...], ...] = ((1,), (1,))
) -> dict[int, list[int]]:
    """Which of two findings stands before which; what is worth comparing is all but what takes launches off the CPU."""
    worth = {
        i: one.saving.share
        for i, (made, one) in enumerate(members)
        if one.saving is not None and made.order is not Claims.LAUNCHES
    }
    prints: Any = {i: SimpleNamespace(work_ns=np.array(own)) for i, own in enumerate(work_ns)}
    made = faults.FindingOrder.of(
        [made for made, _ in members], [one for _, one in members], prints, worth
    ).preceded_by()
    return {i: sorted(others) for i, others in made.items()}


@pytest.mark.parametrize(
    ("share", "work_ns", "order", "edit", "severity", "explains"),
    [
        (0.1, ((20, 80), (1, 0)), Claims.PATTERN, None, MEDIUM, True),
        (0.099, ((20, 80), (1, 0)), Claims.PATTERN, None, MEDIUM, False),  # of 0.3 that fusing saves a third
        (0.1, ((19, 81), (1, 0)), Claims.PATTERN, None, MEDIUM, False),  # a fifth of the chain's kernels
        (0.1, ((20, 80), (1, 0)), Claims.GENERAL, None, MEDIUM, False),
        (0.1, ((20, 80), (1, 0)), Claims.PATTERN, None, LOW, False),
        (0.1, ((20, 80), (1, 0)), Claims.PATTERN, Batch, MEDIUM, False),
    ],
)
def test_cause_of_a_chains_kernels_precedes_the_chain(
    share: float,
    work_ns: tuple[tuple[int, ...], ...],
    order: Claims,
    edit: type[Any] | None,
    severity: Severity,
    explains: bool,
) -> None:
    chain = pending(Claims.PATTERN, Fuse), found(HIGH, 0.3, 0.3)
    reason = pending(order, edit), found(severity, share, share)
    assert preceding(chain, reason, work_ns=work_ns) == ({0: [1]} if explains else {})


@pytest.mark.parametrize(
    ("launches", "other", "severity", "before"),
    [
        (0.41, 0.1, HIGH, {}),
        (0.4, 0.1, HIGH, {0: [1]}),  # a quarter
        (0.4, 0.1, MEDIUM, {0: [1]}),
        (0.4, 0.1, LOW, {}),
    ],
)
def test_launch_reduction_follows_savings_of_a_quarter(
    launches: float, other: float, severity: Severity, before: dict[int, list[int]]
) -> None:
    graph = pending(Claims.LAUNCHES), found(MEDIUM, launches, launches)
    fault = pending(Claims.EVENT), found(severity, other, other)
    assert preceding(graph, fault) == before


@pytest.mark.parametrize(
    ("launches", "info", "first"), [(0.2, False, True), (0.19, False, False), (0.9, True, False)]
)
def test_graph_worth_twice_as_much_precedes_a_chain(launches: float, info: bool, first: bool) -> None:
    chain = pending(Claims.PATTERN, Fuse), found(MEDIUM, 0.1, 0.1)
    graph = pending(Claims.LAUNCHES, info=info), found(HIGH, launches, launches)
    assert preceding(chain, graph) == ({0: [1]} if first else {})


def test_findings_group_by_links_numbered_by_the_first() -> None:
    assert faults._groups(6, [(3, 1), (4, 5), (5, 3)]) == [0, 1, 2, 1, 1, 1]
    assert faults._groups(0, []) == []


def test_step_compiler_fuses_chains_no_other_fix_removes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for those that are only worth knowing."""
    made = [
        pending(Claims.WORK, Compile),
        pending(Claims.PATTERN, Fuse),
        pending(Claims.PATTERN, Fuse, info=True),
        pending(Claims.PATTERN, Fuse),
        pending(Claims.EVENT),
    ]
    monkeypatch.setattr(faults, "_removed_together", lambda *_: ([(3, 4)], set()))
    monkeypatch.setattr(faults.Footprint, "of", lambda *_: SimpleNamespace(work_ns=np.zeros(1)))
    forecast: Any = SimpleNamespace(program=None)
    linked, _, _ = faults._linked(made, [found(HIGH, 0.1, 0.1)] * 5, forecast)
    assert linked == [(0, 1), (3, 4)]


@pytest.mark.parametrize(("least", "compared"), [(-0.005, True), (-0.0051, False)])
def test_what_makes_the_step_longer_belongs_to_no_other_change(least: float, compared: bool) -> None:
    one, other = found(HIGH, 0.2, 0.2), found(INFO, least, least)
    made = [pending(Claims.EVENT), pending(Claims.EVENT)]
    assert faults._worth_comparing(made, [other, one]) == ({1: 0.2, 0: least} if compared else {})
    assert faults._worth_comparing([made[0], pending(Claims.LAUNCHES)], [one, one]) == {}
    assert faults._worth_comparing([made[0], pending(Claims.EVENT, info=True)], [one, one]) == {}


@pytest.mark.parametrize(("saved", "first"), [(0.29, "hotspot"), (0.31, "launch-bound")])
def test_fact_is_ordered_by_gpu_share_among_savings(saved: float, first: str) -> None:
    fact = replace(found(INFO, rule="hotspot"), cost_ns=0, evidence={"gpu_share": 0.3})
    assert ranked([fact, found(INFO, saved, 0.001, rule="launch-bound")])[0].rule == first


def test_without_sure_faults_facts_and_questions_come_first() -> None:
    kinds = {kind: next(one.slug for one in all_rules() if one.kind is kind) for kind in Kind}
    fault, question, fact = (
        found(INFO, share, rule=kinds[kind])
        for share, kind in ((0.3, Kind.FAULT), (0.2, Kind.QUESTION), (0.1, Kind.FACT))
    )
    assert ranked([fact, fault, question]) == (question, fact, fault)
