"""What the verdict asks: only the user knows how much of a padded batch is padding, or which labels are ignored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.report.verdict import verdict_of
from traceanalyzer.rule.severity import ranked

HEAD = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
FIX = (
    "finding 1 (scheduler-gap): a step takes about 9.00 instead of 18.0 ms (-50 %), still limited by the CPU"
)


def about(share: float, rule: str = "loss-head") -> Finding:
    """A finding that asks about this share of GPU time."""
    found = replace(samples.findings()[0], rule=rule, severity=Severity.INFO, cost_ns=0, saving=None)
    return replace(found, evidence={"gpu_share": share})


def fix_of(*findings: Finding) -> str:
    """What the verdict says of fixes."""
    return verdict_of(HEAD, findings).fix


def test_question_follows_fixes_by_its_report_number() -> None:
    wrong = replace(samples.findings()[0], severity=Severity.HIGH, saving=samples.saving())
    assert (
        fix_of(wrong, about(0.894))
        == f"{FIX}; check finding 2 (loss-head): it concerns about 89 % of all GPU work"
    )
    assert fix_of(about(0.6), wrong).endswith(
        "; check finding 1 (loss-head): it concerns about 60 % of all GPU work"
    )


def test_the_question_that_most_hangs_on_is_asked_alone() -> None:
    said = fix_of(about(0.4), about(0.5, "loss-head"), about(0.45))
    assert (
        said
        == "nothing found that needs a fix; check finding 2 (loss-head): it concerns about 50 % of all GPU work"
    )
    assert fix_of(about(0.4), about(0.4, "loss-head")).endswith(
        "check finding 1 (loss-head): it concerns about 40 % of all GPU work"
    )


def test_small_questions_and_facts_are_not_asked() -> None:
    assert fix_of(about(0.29), about(0.9, "hotspot")) == "nothing found that needs a fix"
    assert "check finding 1" in fix_of(about(0.3))


def test_without_faults_questions_and_facts_come_first() -> None:
    other = replace(about(0.9), rule="launch-bound", cost_ns=MS, cost_share=0.95)
    assert [one.rule for one in ranked([other, about(0.4), about(0.5, "hotspot")])] == [
        "hotspot",
        "loss-head",
        "launch-bound",
    ]


@pytest.mark.parametrize(("part", "first"), [(0.34, "hotspot"), (0.33, "unfused-pointwise")])
def test_op_with_a_third_of_the_step_is_ordered_by_share(part: float, first: str) -> None:
    """Beside what is sure to save, and before what saves less than the op takes."""
    wrong = replace(samples.findings()[0], severity=Severity.HIGH, saving=samples.saving())
    small = replace(about(0.0, "unfused-pointwise"), saving=samples.saving(0.2), cost_ns=MS)
    op = replace(about(0.0, "hotspot"), evidence={"part_share": part})
    order = [one.rule for one in ranked([small, op, wrong])]
    assert order[:2] == [wrong.rule, first]


@pytest.mark.parametrize(("longest", "said"), [(110, False), (111, True)])
def test_steps_of_equal_device_time_do_not_differ(longest: int, said: bool) -> None:
    """Of which steps the CPU's part was replayed is nobody's concern then."""
    every = replace(samples.times(), min_ns=100 * MS, max_ns=longest * MS)
    step = samples.estimate(left_out_share=0.66, basis="1 of 3 steps replayed")
    told = verdict_of(samples.trace(step=step, steps=samples.steps(every=every)), []).step
    assert ("; 2 of 3 steps, with " in told) is said
