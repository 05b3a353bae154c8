"""In which order faults, evidence and questions are listed, and how they are called."""

from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import NOTHING_TO_DO, Confidence, Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault
from traceanalyzer.model.short_names import marked_functions, plain_kernel, short_ops
from traceanalyzer.report.finding_order import by_fault, triage, triaged
from traceanalyzer.report.verdict import verdict_of
from traceanalyzer.report.words import format_span, in_words
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.rule.severity import ranked

HIGH, MEDIUM, LOW, INFO = Severity


def found(name: str, severity: Severity = HIGH, fault: str = "F1", **changes: Any) -> Finding:
    given = {"rule": "implicit-sync", "saving": samples.saving(), **changes}
    return samples.finding(0, by=name, severity=severity, fault=fault, **given)


def listed(findings: list[Finding], outcomes: tuple[Outcome, ...] = ()) -> list[str | None]:
    """Their names in order; the faults are as the findings say, one as severe as its first finding."""
    ids = list(dict.fromkeys(one.fault for one in findings))
    numbers = {name: [at for at, one in enumerate(findings, 1) if one.fault == name] for name in ids}
    faults = [Fault(str(name), "", None, findings[own[0] - 1].severity, tuple(own)) for name, own in numbers.items()]
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
    much, why, little = found("much"), found("why", INFO), found("little", LOW, "F2")
    given = [much, why, little, found("none", INFO, "F3", cost_share=0.5)]
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
    small = replace(found("small", Severity.INFO), pedantic=True, cost_ns=1)
    report = samples.report(findings=(replace(found("guess", LOW), pedantic=True), found("much"), small))
    assert [list(triage(report, pedantic=all_of).others) for all_of in (False, True)] == [[2], [1, 2, 3]]
    assert list(triage(report).pedantic) == [1, 3]


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


TITLE = next(rule.title for rule in all_rules() if rule.slug == "implicit-sync").rstrip(".")


def faulty(name: str, severity: Severity = HIGH, share: float = 0.3, rule: str = "implicit-sync") -> Finding:
    return samples.finding(0, by=name, severity=severity, saving=samples.saving(share), rule=rule)


def faults(*number: int, severity: Severity = HIGH, **more: frozenset[int]) -> FaultOf:
    many = max(number) + 1
    behind = {int(key.removeprefix("of_")): reasons for key, reasons in more.items()}
    return FaultOf(number, (samples.saving(),) * many, (severity,) * many, behind)


def names(findings: tuple[Finding, ...]) -> list[str | None]:
    return [one.by for one in findings]


def test_each_trace_has_the_faults_of_its_own_findings() -> None:
    """Of three traces with one finding, two of one fault, and one."""
    shares = {"first": 0.5, "second": 0.4, "too": 0.3, "last": 0.2}
    given = [faulty(name, share=share) for name, share in shares.items()]
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
        given = [faulty(f"{at}", one) for at, one in enumerate(severities)]
        _, ((fault,),) = by_fault(given, [faults(0, 0)])
        assert fault.severity is severity


@pytest.mark.parametrize("general", ["straggler", "host-gap"])
def test_the_specific_remedy_leads_its_fault(general: str) -> None:
    late, why = faulty("late", share=0.6, rule=general), faulty("why", share=0.1, rule="implicit-sync")
    late = replace(late, advice="Share that work among the ranks.")
    told, _ = by_fault([late, why], [faults(0, 0)])
    assert names(told) == ["why", "late"]
    told, _ = by_fault([late, replace(why, severity=INFO)], [faults(0, 0)])
    assert names(told) == ["late", "why"]
    told, _ = by_fault([replace(late, rule="straggler", advice="Compute it on the device."), why], [faults(0, 0)])
    assert names(told) == ["late", "why"]


@pytest.mark.parametrize(("severity", "first"), [(HIGH, "sync"), (MEDIUM, "batch")])
def test_launches_of_unknown_saving_stand_by_severity(severity: Severity, first: str) -> None:
    batch = replace(faulty("batch", rule="launch-bound"), saving=None, cost_share=0.7)
    own = FaultOf((0, 1), (None, samples.saving(0.1)), (HIGH, severity), {})
    told, _ = by_fault([batch, faulty("sync", severity, 0.1)], [own])
    assert names(told)[0] == first


def test_explained_finding_follows_its_explanation() -> None:
    """A reason in another fault changes nothing."""
    given = [faulty("large", share=0.6), faulty("small", share=0.2), faulty("other", share=0.1)]
    for reason, first in ((1, "small"), (2, "large")):
        told, (own,) = by_fault(given, [faults(0, 0, 1, of_0=frozenset({reason}))])
        assert next(one.by for one in told if one.by != "other") == first
        assert len(own) == 2


HEAD = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
FIX = "finding 1: 18.0 -> about 9.00 ms (-50 %), still limited by the CPU"


def about(share: float, rule: str = "loss-head") -> Finding:
    """A finding that asks about this share of GPU time."""
    found = replace(samples.findings()[0], rule=rule, severity=Severity.INFO, cost_ns=0, saving=None)
    return replace(found, evidence={"gpu_share": share})


def fix_of(*findings: Finding) -> str:
    """What the verdict says of fixes."""
    return verdict_of(HEAD, findings).fix


def test_question_follows_fixes_by_its_report_number() -> None:
    wrong = replace(samples.findings()[0], severity=Severity.HIGH, saving=samples.saving())
    doubt = "check finding 2 (loss-head): it concerns about 89 % of all GPU work"
    assert fix_of(wrong, about(0.894)) == f"{FIX}; {doubt}"
    assert fix_of(about(0.6), wrong).endswith("; check finding 1 (loss-head): it concerns about 60 % of all GPU work")


@pytest.mark.parametrize(("part", "first"), [(0.34, "hotspot"), (0.33, "unfused-pointwise")])
def test_op_with_a_third_of_the_step_is_ordered_by_share(part: float, first: str) -> None:
    """Beside what is sure to save, and before what saves less than the op takes."""
    wrong = replace(samples.findings()[0], severity=Severity.HIGH, saving=samples.saving())
    small = replace(about(0.0, "unfused-pointwise"), saving=samples.saving(0.2), cost_ns=MS)
    op = replace(about(0.0, "hotspot"), evidence={"part_share": part})
    order = [one.rule for one in ranked([small, op, wrong])]
    assert order[:2] == [wrong.rule, first]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("void at::native::reduce_kernel<512, f(K)>(int*, T<(K)2>)", "at::native::reduce_kernel<512, f(K)>"),
        ("void at::native::(anonymous namespace)::cat<(K)0>", "at::native::cat<(K)0>"),
        ("void (anonymous namespace)::elementwise<int>(int)", "elementwise<int>"),
        ("Memset (Device)", "Memset (Device)"),
        ("odd)", "odd)"),
        ("(all)", "(all)"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_what_tells_it_from_others(name: str, plain: str) -> None:
    assert plain_kernel(name) == plain


def test_a_span_names_its_unit_once() -> None:
    assert format_span(2_970_000, 3_730_000) == "2.97 to 3.73 ms"
    assert format_span(821_000, 1_020_000) == "821 µs to 1.02 ms"
    assert format_span(5_000_000, 60_000_000, "of") == "5.00 of 60.0 ms"
    assert format_span(-400, 500_000) == "-400 ns to 500 µs"


def test_causes_and_ops_are_in_words() -> None:
    assert in_words("idle:in-graph") == "inside a CUDA graph"
    assert in_words("idle:host-code") == "host code between ops"
    assert in_words("copy_h2d") == "copy to the device"
    engine = "autograd::engine::evaluate_function: "
    assert short_ops(f"{engine}MmBackward0, aten::mm, {engine}x") == "MmBackward0, aten::mm, x"


def test_a_function_is_told_from_a_word_of_the_sentence() -> None:
    said = "a.py(45): step takes 1 ms a step, at a/b.py(7): <lambda> and c.py(8): run, in d.py(9): h()"
    told = "a.py(45): step() takes 1 ms a step, at a/b.py(7): <lambda> and c.py(8): run(), in d.py(9): h()"
    assert marked_functions(said) == told
