"""Faults in their order: which finding stands for each, how it is called, and what it is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.report.finding_order import by_fault
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.registry import all_rules

TITLE = next(rule.title for rule in all_rules() if rule.slug == "implicit-sync").rstrip(".")
HIGH, LOW, INFO = Severity.HIGH, Severity.LOW, Severity.INFO


def found(name: str, severity: Severity = HIGH, share: float = 0.3, rule: str = "implicit-sync") -> Finding:
    return samples.finding(0, by=name, severity=severity, saving=samples.saving(share), rule=rule)


def faults(*number: int, severity: Severity = HIGH, **more: frozenset[int]) -> FaultOf:
    many = max(number) + 1
    behind = {int(key.removeprefix("of_")): reasons for key, reasons in more.items()}
    return FaultOf(number, (samples.saving(),) * many, (severity,) * many, behind)


def names(findings: tuple[Finding, ...]) -> list[str | None]:
    return [one.by for one in findings]


def test_each_trace_has_the_faults_of_its_own_findings() -> None:
    """Of three traces with one finding, two of one fault, and one."""
    given = [
        found("first", share=0.5),
        found("second", share=0.4),
        found("too", share=0.3),
        found("last", share=0.2),
    ]
    told, of_traces = by_fault(given, [faults(0), faults(0, 0), faults(0)])
    by_number = {number: one.by for number, one in enumerate(told, 1)}
    assert [[[by_number[n] for n in fault.findings] for fault in own] for own in of_traces] == [
        [["first"]],
        [["second", "too"]],
        [["last"]],
    ]
    assert [own[0].title for own in of_traces] == [f"{TITLE}: {name}" for name in ("first", "second", "last")]


def test_a_fault_without_a_name_is_called_by_its_rule() -> None:
    unnamed = samples.finding(0, rule="no-such-rule", severity=HIGH, saving=samples.saving())
    _, ((fault,),) = by_fault([unnamed], [faults(0)])
    assert fault.title == "no-such-rule"


def test_fault_asks_for_nothing_if_no_finding_does() -> None:
    for severities, severity in (((HIGH, INFO), HIGH), ((LOW, INFO), HIGH), ((INFO, INFO), INFO)):
        given = [found(f"{at}", one) for at, one in enumerate(severities)]
        _, ((fault,),) = by_fault(given, [faults(0, 0)])
        assert fault.severity is severity


@pytest.mark.parametrize("general", ["straggler", "host-gap"])
def test_the_specific_remedy_leads_its_fault(general: str) -> None:
    late, why = found("late", share=0.6, rule=general), found("why", share=0.1, rule="implicit-sync")
    late = replace(late, advice="Share that work among the ranks.")
    told, _ = by_fault([late, why], [faults(0, 0)])
    assert names(told) == ["why", "late"]
    told, _ = by_fault([late, replace(why, severity=INFO)], [faults(0, 0)])
    assert names(told) == ["late", "why"]
    told, _ = by_fault(
        [replace(late, rule="straggler", advice="Compute it on the device."), why], [faults(0, 0)]
    )
    assert names(told) == ["late", "why"]


def test_explained_finding_follows_its_explanation() -> None:
    """A reason in another fault changes nothing."""
    given = [found("large", share=0.6), found("small", share=0.2), found("other", share=0.1)]
    for reason, first in ((1, "small"), (2, "large")):
        told, (own,) = by_fault(given, [faults(0, 0, 1, of_0=frozenset({reason}))])
        assert next(one.by for one in told if one.by != "other") == first
        assert len(own) == 2
