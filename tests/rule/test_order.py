"""In which order findings are listed, and how severe they are."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.peer_comparison import LATE_SHARE
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.rule import faults
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.registry import Kind, all_rules
from traceanalyzer.rule.severity import (
    blocking_severity,
    fault_severity,
    graded,
    job_severity,
    lengthens_step,
    ranked,
    severity_of,
)
from traceanalyzer.rule.views import IdleTime, Work

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
    return SimpleNamespace(order=order, hits=SimpleNamespace(cause="", info=info, of_format=False, edits=lambda: edits))


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
    made = faults.preceded_by([made for made, _ in members], [one for _, one in members], prints, worth)
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


@pytest.mark.parametrize(("launches", "info", "first"), [(0.2, False, True), (0.19, False, False), (0.9, True, False)])
def test_graph_worth_twice_as_much_precedes_a_chain(launches: float, info: bool, first: bool) -> None:
    chain = pending(Claims.PATTERN, Fuse), found(MEDIUM, 0.1, 0.1)
    graph = pending(Claims.LAUNCHES, info=info), found(HIGH, launches, launches)
    assert preceding(chain, graph) == ({0: [1]} if first else {})


def test_findings_group_by_links_numbered_by_the_first() -> None:
    assert faults._groups(6, [(3, 1), (4, 5), (5, 3)]) == [0, 1, 2, 1, 1, 1]
    assert faults._groups(0, []) == []


def test_step_compiler_fuses_chains_no_other_fix_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that are only worth knowing."""
    made = [
        pending(Claims.WORK, Compile),
        pending(Claims.PATTERN, Fuse),
        pending(Claims.PATTERN, Fuse, info=True),
        pending(Claims.PATTERN, Fuse),
        pending(Claims.EVENT),
    ]
    monkeypatch.setattr(faults, "_removed_together", lambda *_: ([(3, 4)], set()))
    monkeypatch.setattr(
        faults.Footprint, "of", lambda *_: SimpleNamespace(work_ns=np.zeros(1), replaces=lambda _: False)
    )
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


SHARES = (0.0, 0.004, 0.005, 0.02, 0.03, 0.05, 0.09, MIN_OPEN_SHARE, 0.5, 1.0)
MOST = (Severity.HIGH, Severity.MEDIUM, Severity.INFO)


def test_the_next_lower_severity_takes_less_and_info_has_none() -> None:
    assert [one.below for one in Severity] == [*list(Severity)[1:], Severity.INFO]
    assert [one.at_most(one.below) for one in Severity] == [one.below for one in Severity]
    assert all(Severity.of(one.least_share) is one for one in Severity)
    assert [Severity.of(one.least_share - 1e-9) for one in list(Severity)[:-1]] == list(Severity)[1:]


@pytest.mark.parametrize("view", [IdleTime, Work])
def test_severity_without_saving_is_limited_by_bounds(view: type) -> None:
    """What it cost, what its rule allows, and for idle time how long the device idles without the profiler: where that
    is less than the replay's error, low at most."""
    occurrences: Any = analysed(FIXTURES / "scheduler-gap" / "bad.json.gz").index(view)
    for cost, idle, most in product(SHARES, (None, *SHARES), MOST):
        hits = hits_of(max_severity=most, occurrences=occurrences)
        bounds = [Severity.of(cost), most]
        if view is IdleTime and idle is not None and idle < MIN_OPEN_SHARE:
            bounds += [Severity.of(idle), Severity.LOW]
        lowest = max(bounds, key=lambda one: one.rank)
        assert severity_of(hits, cost, None, idle) is lowest, (cost, idle, most)


@pytest.mark.parametrize(("share", "severity"), [(0.05, Severity.MEDIUM), (0.0499, Severity.INFO)])
def test_what_is_normal_is_less_than_the_normal_share(share: float, severity: Severity) -> None:
    """Of what it costs, or of what its fix saves."""
    hits = hits_of(normal_share=0.05, max_severity=Severity.HIGH, occurrences=())
    assert severity_of(hits, share, None, None) is severity
    assert severity_of(hits, 0.0, saved(share, share), None) is severity


def hits_of(**fields: Any) -> Any:
    """What severity looks at of hits."""
    usual = {"info": False, "normal_share": 0.0, "max_severity": Severity.HIGH, "measured_share": None}
    usual["evidence"] = {}
    return SimpleNamespace(**{**usual, "occurrences": (), **fields})


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"measured_share": 0.3}, Severity.HIGH),
        ({"measured_share": 0.04}, Severity.MEDIUM),
        ({"measured_share": 0.3, "max_severity": Severity.MEDIUM}, Severity.MEDIUM),
        ({"measured_share": 0.3, "info": True}, Severity.INFO),
    ],
)
def test_a_measured_share_decides_the_severity(fields: dict[str, Any], severity: Severity) -> None:
    """Whatever it cost in the trace, and whatever a fix is predicted to save."""
    assert severity_of(hits_of(**fields), 0.0, saved(0.01, 0.0), None) is severity


def saved(share: float, low: float) -> Saving:
    return Saving(1, 1, 1, share, low, share, "replayed")


@pytest.mark.parametrize(
    ("share", "low", "severity"),
    [
        (0.2, 0.03, Severity.HIGH),  # the low end reaches the class below
        (0.2, 0.029, Severity.MEDIUM),
        (0.2, 0.004, Severity.LOW),
        (0.2, 0.0, Severity.LOW),  # cannot be told from nothing
        (0.2, -0.1, Severity.LOW),
        (0.05, 0.005, Severity.MEDIUM),
        (0.05, 0.004, Severity.LOW),
        (0.05, 0.0, Severity.LOW),
        (0.02, 0.001, Severity.LOW),
        (0.02, 0.0, Severity.INFO),
        (0.004, 0.003, Severity.INFO),
    ],
)
def test_a_saving_counts_at_both_its_ends(share: float, low: float, severity: Severity) -> None:
    """Whatever it cost."""
    assert graded(0.5, saved(share, low)) is severity
    hits = hits_of(normal_share=0.0, max_severity=Severity.INFO, occurrences=())
    assert severity_of(hits, 0.0, saved(share, low), 0.0) is severity
    hits.info = True
    assert severity_of(hits, 0.5, saved(share, low), None) is Severity.INFO
    assert graded(0.05, None) is Severity.MEDIUM


@pytest.mark.parametrize(("share", "longer"), [(-0.004, False), (-0.005, True), (0.2, False)])
def test_a_fix_that_makes_the_step_longer_is_info(share: float, longer: bool) -> None:
    assert lengthens_step(saved(share, share)) is longer
    assert not lengthens_step(None)


def test_fault_severity_is_its_worst_or_its_sum() -> None:
    low, medium = Severity.LOW, Severity.MEDIUM
    assert fault_severity([low, medium], 0.001, saved(0.01, 0.01)) is medium
    assert fault_severity([low, low], 0.001, saved(0.2, 0.2)) is Severity.HIGH
    assert fault_severity([low, low], 0.04, None) is medium


def finding(severity: Severity, cause: str = "", late: float | None = None) -> Any:
    evidence = {} if late is None else {LATE_SHARE: late}
    return SimpleNamespace(severity=severity, cause=cause, cost_share=0.2, evidence=evidence)


@pytest.mark.parametrize(
    ("severity", "cause", "saving", "expected"),
    [
        (Severity.HIGH, "", saved(0.02, 0.02), Severity.LOW),
        (Severity.LOW, "", saved(0.2, 0.2), Severity.HIGH),
        (Severity.INFO, "", saved(0.2, 0.2), Severity.INFO),
        (Severity.HIGH, "waiting", saved(0.04, 0.04), Severity.MEDIUM),
        (Severity.HIGH, "waiting", None, Severity.INFO),
        (Severity.HIGH, "transfer", None, Severity.HIGH),
    ],
)
def test_job_finding_severity_is_the_jobs_saving(
    severity: Severity, cause: str, saving: Saving | None, expected: Severity
) -> None:
    """Without a saving waiting is others' doing."""
    assert job_severity(finding(severity, cause), saving) is expected


@pytest.mark.parametrize(
    ("severity", "late", "expected"),
    [
        (Severity.INFO, 0.03, Severity.LOW),
        (Severity.INFO, 0.0299, Severity.INFO),
        (Severity.INFO, None, Severity.INFO),
        (Severity.HIGH, 0.5, Severity.HIGH),
    ],
)
def test_what_others_wait_for_long_is_low_at_least(severity: Severity, late: float | None, expected: Severity) -> None:
    assert blocking_severity(finding(severity, late=late)) is expected


@pytest.mark.parametrize(("evidence", "expected"), [({}, Severity.HIGH), ({"guessed_rate": True}, Severity.LOW)])
def test_guessed_rates_of_a_device_give_a_job_no_more_than_low(evidence: dict[str, Any], expected: Severity) -> None:
    guessed = finding(Severity.LOW)
    guessed.evidence |= evidence
    assert job_severity(guessed, saved(0.2, 0.2)) is expected
