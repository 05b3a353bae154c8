"""The verdict's line on fixes, and what it says of steps and limits beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.verdict import verdict_of

HIGH, INFO = Severity.HIGH, Severity.INFO
TAKES = "a step takes about 9.00 instead of 18.0 ms (-50 %), still limited by the CPU"


def graded(*severities: Severity) -> list[Finding]:
    finding = replace(samples.findings()[0], saving=samples.saving(0.4))
    return [replace(finding, severity=severity) for severity in severities]


@pytest.mark.parametrize(
    ("found", "gone", "words"),
    [
        (2, (1, 2), f"finding 1 (scheduler-gap), which also fixes 2: {TAKES}"),
        (3, (1, 2, 3), f"finding 1 (scheduler-gap), which also fixes 2 and 3: {TAKES}"),
        (
            3,
            (1, 3),
            f"findings 1 and 2 (scheduler-gap), which also fix 3: {TAKES}",
        ),
    ],
)
def test_fixed_along_finding_has_no_place_in_the_order(found: int, gone: tuple[int, ...], words: str) -> None:
    fault = Fault("F1", "one cause", samples.saving(0.4), HIGH, gone)
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS), faults=(fault,))
    assert verdict_of(head, graded(*[HIGH] * found)).fix == words


def test_differing_rules_are_unnamed_and_doubt_is_stated() -> None:
    first, second, third = graded(HIGH, HIGH, HIGH)
    found = [
        replace(first, rule="launch-bound"),
        replace(second, rule="implicit-sync"),
        replace(third, rule="host-gap", saving=replace(samples.saving(0.4), low_share=0.004)),
    ]
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    assert (
        verdict_of(head, found).fix
        == f"findings 1 (launch-bound), 2 and 3: {TAKES}; the saving of finding 3 is not sure"
    )
    assert verdict_of(head, found[1:]).fix.startswith("findings 1 (implicit-sync) and 2 (host-gap): a step")
    assert verdict_of(head, found[2:]).fix.endswith("; this saving is not sure")


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.496, "finding 1 (scheduler-gap)"), (0.494, "findings 1 to 3 (scheduler-gap)")],
)
def test_what_saves_the_same_time_again_is_not_among_the_fixes(share: float, words: str) -> None:
    """Of 50 % together the first saves all but what no finding is reported for."""
    found = [
        replace(one, saving=samples.saving(own))
        for one, own in zip(graded(HIGH, HIGH, HIGH), (share, 0.3, 0.2), strict=True)
    ]
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    assert verdict_of(head, found).fix == f"{words}: {TAKES}"
    assert verdict_of(head, found[:2]).fix.endswith(TAKES)
    unknown = [replace(found[0], saving=None), *found[:2]]
    whose = "finding 2 (scheduler-gap)" if share == 0.496 else "findings 2 and 3 (scheduler-gap)"
    assert verdict_of(head, unknown).fix.endswith(f"; {whose}, without finding 1: {TAKES}")


def test_fixed_along_finding_is_not_unknown() -> None:
    first, second = graded(HIGH, HIGH)
    fault = Fault("F1", "one cause", samples.saving(0.4), HIGH, (1, 2))
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS), faults=(fault,))
    said = verdict_of(head, [first, replace(second, saving=None)]).fix
    assert said == f"finding 1 (scheduler-gap), which also fixes 2: {TAKES}"


def test_of_which_steps_the_recorded_time_is_the_mean_is_said() -> None:
    """Three steps of 25 ms are more than the window where the first was quicker."""
    for basis, mean in (
        ("2 of 3 steps replayed", " (mean of 2 of 3 steps)"),
        ("1 of 3 steps replayed", " (one step of 3)"),
        ("3 of 3 steps replayed", ""),
        ("12% of a step replayed", ""),
    ):
        said = verdict_of(samples.trace(step=samples.estimate(basis=basis)), graded(HIGH)).step
        assert said.startswith(f"25.0 ms recorded{mean}, 18.0 ms predicted")
    above = samples.estimate(high_ns=26 * MS)
    assert verdict_of(samples.trace(step=above), []).step.endswith("(17.0 to 26.0)")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("gpu", "cpu", ", then limited by the CPU"),
        ("cpu", "cpu", ", still limited by the CPU"),
        ("cpu", "gpu", ""),
    ],
)
def test_what_limits_the_fixed_step_is_told(before: str, after: str, words: str) -> None:
    """Two savings that the CPU cuts short are more apart than together."""
    head = samples.trace(
        step=samples.estimate(bound=before), together=samples.estimate(9 * MS, bound=after, gpu_ns=4 * MS)
    )
    assert verdict_of(head, graded(HIGH)).fix.endswith(f"(-50 %){words}")


def test_all_steps_that_are_left_out_are_counted() -> None:
    every = replace(samples.times(5), total_ns=700 * MS, max_ns=219 * MS)
    step = samples.estimate(basis="2 of 5 steps replayed; slowdown 1.2")
    said = verdict_of(samples.trace(step=step, steps=samples.steps(every=every)), graded(HIGH))
    assert said.step.endswith("; 3 of 5 steps, with 93 % of the recorded time, are left out")


def test_cpu_limit_without_fault_shows_gpu_waiting() -> None:
    costs = (
        Cost("aten::mm", "gpu", 9 * MS, 0.5),
        Cost("while data is loaded", "idle", 5 * MS, 0.28),
        Cost("while Python runs", "idle", 2 * MS, 0.11),
    )
    said = verdict_of(samples.trace(step=samples.estimate(gpu_ns=9 * MS)), graded(INFO), costs)
    assert (
        said.limit
        == "the CPU: the GPU waits for the CPU during 39 % of the predicted step, mostly while data is loaded"
    )
