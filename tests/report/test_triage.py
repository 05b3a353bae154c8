"""In which order faults and their evidence are listed, so that the numbers of what is listed have no holes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.report import report_samples as samples
from traceanalyzer.model.finding import NOTHING_TO_DO, Confidence, Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault
from traceanalyzer.report.finding_order import triage, triaged

HIGH, MEDIUM, LOW, INFO = Severity


def found(name: str, severity: Severity = HIGH, fault: str = "F1", **changes: Any) -> Finding:
    given = {"rule": "implicit-sync", "saving": samples.saving(), **changes}
    return samples.finding(0, by=name, severity=severity, fault=fault, **given)


def listed(findings: list[Finding], outcomes: tuple[Outcome, ...] = ()) -> list[str | None]:
    """Their names in order; the faults are as the findings say, one as severe as its first finding."""
    ids = list(dict.fromkeys(one.fault for one in findings))
    numbers = {name: [at for at, one in enumerate(findings, 1) if one.fault == name] for name in ids}
    faults = [
        Fault(str(name), "", None, findings[own[0] - 1].severity, tuple(own)) for name, own in numbers.items()
    ]
    told, (renamed,) = triaged(findings, [faults], outcomes)
    assert [one.id for one in renamed] == [f"F{number}" for number in range(1, len(ids) + 1)]
    assert {one.id: one.findings for one in renamed} == {
        one.id: tuple(at for at, of in enumerate(told, 1) if of.fault == one.id) for one in renamed
    }
    return [one.by for one in told]


def test_no_fault_stands_before_one_that_it_came_behind() -> None:
    given = [found("little", LOW), found("much", HIGH, "F2"), found("none", INFO, "F3", cost_share=0.5)]
    assert listed(given) == ["little", "much", "none"]


def test_ten_faults_are_in_order_of_their_numbers() -> None:
    given = [found(f"{at}", fault=f"F{at}") for at in range(1, 10)]
    given.insert(2, found("2, too", fault="F2"))
    given.append(found("10", LOW, "F10"))
    assert listed(given) == [*map(str, range(1, 10)), "2, too", "10"]


def test_evidence_without_request_precedes_other_faults() -> None:
    given = [
        found("much"),
        found("why", INFO),
        found("little", LOW, "F2"),
        found("none", INFO, "F3", cost_share=0.5),
    ]
    assert listed(given) == ["much", "little", "why", "none"]


def test_doubtful_findings_come_last_and_are_hidden() -> None:
    """A sure finding of their fault shows them."""
    low = {"confidence": Confidence.LOW}
    given = [found("guess", LOW, **low), found("much", HIGH, "F2"), found("none", INFO, "F3", cost_share=0.5)]
    assert listed(given) == ["much", "none", "guess"]
    for fault, hidden in (("F1", ["guess"]), ("F2", [])):
        guess, much = found("guess", LOW, fault, **low), given[1]
        of_guess = [Fault("F1", "", None, LOW, (1,)), Fault("F2", "", None, HIGH, (2,))]
        of_both = [Fault("F2", "", None, HIGH, (1, 2))]
        told, _ = triaged([guess, much], [of_guess if fault == "F1" else of_both], ())
        assert [one.by for one in told if one.pedantic] == hidden
    told, _ = triaged([found("large guess", MEDIUM, **low)], [[Fault("F1", "", None, MEDIUM, (1,))]], ())
    assert not told[0].pedantic


def test_pedantic_hides_no_finding() -> None:
    report = samples.report(findings=(replace(found("guess", LOW), pedantic=True), found("much")))
    assert [list(triage(report, pedantic=all_of).others) for all_of in (False, True)] == [[2], [1, 2]]
    assert list(triage(report).pedantic) == [1]


def test_settled_findings_come_last_but_with_their_fault() -> None:
    settled = found("settled", INFO, cost_share=0.5, advice=NOTHING_TO_DO)
    other = found("other", INFO, "F2", cost_share=0.5)
    assert settled.settled
    assert listed([settled, other]) == ["other", "settled"]
    assert listed([settled, found("too", INFO, cost_share=0.5), other]) == ["settled", "other", "too"]


def test_profiler_findings_are_apart_if_they_ask_nothing() -> None:
    recording = (Outcome("lane-offset", Status.FOUND, group="recording"),)
    own = found("own", INFO, "F1", rule="lane-offset", cost_share=0.5)
    minor = found("minor", INFO, "F2", cost_share=0.001, saving=None)
    other = found("other", INFO, "F3", cost_share=0.5)
    assert listed([own, minor, other], outcomes=recording) == ["other", "own", "minor"]
    low = replace(own, severity=LOW)
    report = samples.report(findings=(low, own, minor, replace(own, fault="F3"), other), outcomes=recording)
    parts = triage(report)
    assert (list(parts.others), list(parts.minor), list(parts.profilers_own)) == ([1, 2, 4, 5], [3], [])
    parts = triage(samples.report(findings=(own, minor, other), outcomes=recording))
    assert (list(parts.others), list(parts.minor), list(parts.profilers_own)) == ([3], [2], [1])


def test_fault_names_its_findings_by_new_numbers_in_order() -> None:
    """Of the evidence what is worth more stands first: the second finding is now the last."""
    given = [found("much"), found("little", LOW), found("more", MEDIUM), found("other", LOW, "F2")]
    assert listed(given) == ["much", "more", "other", "little"]
