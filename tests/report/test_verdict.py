"""The first sentence of a report: pace, bound, and what the fixes give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.verdict import verdict_of


def graded(*severities: Severity, rank: int | None = None) -> list[Finding]:
    """Findings of these severities, in this order, all replayed."""
    finding = replace(samples.findings(rank)[0], saving=samples.saving())
    return [replace(finding, severity=severity) for severity in severities]


HIGH, INFO = Severity.HIGH, Severity.INFO


def test_a_replayed_step_is_told_with_its_range_its_bound_and_what_the_fixes_give() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    assert verdict_of(head, graded(HIGH, HIGH, HIGH, INFO)) == (
        "18.0 ms a step without the profiler (17.0 to 19.0 ms), 25.0 ms with it; bound by the CPU; "
        "fixing 1 to 3 (scheduler-gap first) brings it to about 9.00 ms"
    )


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("gpu", "the GPU"),
        ("wait", "the CPU and the GPU waiting for one another"),
        ("communication", "communication"),
    ],
)
def test_every_bound_has_words(bound: str, words: str) -> None:
    assert f"bound by {words};" in verdict_of(samples.trace(step=samples.estimate(bound=bound)), [])


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (("gpu", "cpu"), "the GPU or the CPU"),
        (("communication", "cpu"), "communication or the CPU"),
        (("gpu", "wait"), "the GPU, or by the CPU and the GPU waiting for one another"),
    ],
)
def test_a_bound_that_the_trace_leaves_open_is_told_so(bounds: tuple[str, str], words: str) -> None:
    step = samples.estimate(bound="cpu", bounds=bounds, gpu_ns=171 * MS // 10)
    said = verdict_of(samples.trace(step=step, together=samples.estimate(9 * MS)), graded(HIGH))
    assert (
        f"bound by {words}, which the trace alone cannot tell: the GPU is idle for 0 to 10 % of it "
        "(a measured step says how much: --step-ms); fixing 1" in said
    )
    assert "nothing found that surely needs a fix" in verdict_of(
        samples.trace(step=step), [], [Cost("aten::mm", "gpu", 9 * MS, 0.5)]
    )


def test_a_device_as_busy_as_the_cpu_is_no_less_the_bound() -> None:
    step = samples.estimate(bound="cpu", bounds=("cpu",), gpu_ns=17 * MS)
    assert "bound by the CPU and the GPU alike" in verdict_of(samples.trace(step=step), [])


def test_fixes_that_save_nothing_say_so() -> None:
    head = samples.trace(step=samples.estimate(18 * MS), together=samples.estimate(18 * MS - 50_000))
    assert verdict_of(head, graded(HIGH, HIGH)).endswith(
        "fixing 1 and 2 (scheduler-gap first) saves next to nothing"
    )


def test_findings_whose_fix_cannot_be_replayed_are_no_fixes() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    first, second = graded(HIGH, HIGH)
    assert verdict_of(head, [replace(first, saving=None), second]).endswith(
        "begin with 1 (scheduler-gap); fixing 2 (scheduler-gap) brings it to about 9.00 ms"
    )
    same = replace(head, together=head.step)
    assert verdict_of(same, [replace(first, saving=None)]).endswith("; begin with finding 1 (scheduler-gap)")


def test_parts_that_round_to_nothing_are_left_out() -> None:
    time = samples.accounting(parts_ns={"compute": 997 * MS, "memset": MS, "idle:tail": 2 * MS})
    assert verdict_of(samples.trace(accounting=(time,)), []).endswith("the time goes to compute (100 %)")


def test_without_a_replay_the_step_is_the_recorded_one() -> None:
    assert (
        verdict_of(samples.trace(), graded(HIGH))
        == "25.0 ms a step, as recorded; begin with finding 1 (scheduler-gap)"
    )
    steady = samples.steps(cold=samples.times(1, 900 * MS), steady=samples.times(3, 20 * MS))
    assert verdict_of(samples.trace(steps=steady), graded(HIGH)).startswith("20.0 ms a step, as recorded")


def test_where_nothing_is_wrong_the_largest_costs_are_told() -> None:
    assert verdict_of(samples.trace(), graded(INFO)) == (
        "25.0 ms a step, as recorded; nothing found to fix; "
        "the time goes to idle time, data loading (50 %), compute (35 %), idle time, launch-bound (12 %)"
    )


def test_a_trace_without_a_device_says_so() -> None:
    bare = samples.empty().traces[0]
    assert verdict_of(bare, []) == "no work of a GPU is in the trace"
    stepped = replace(bare, steps=samples.steps())
    assert verdict_of(stepped, []) == "25.0 ms a step, as recorded; no work of a GPU is in the trace"


@pytest.mark.parametrize(
    ("severities", "words"),
    [
        ([HIGH, HIGH], "1 and 2"),
        ([HIGH, INFO, HIGH], "1 and 3"),
        ([HIGH, HIGH, INFO, HIGH, HIGH], "1, 2, 4 and 5"),
        ([HIGH, HIGH, HIGH, INFO, HIGH], "1 to 3 and 5"),
        ([HIGH, INFO, HIGH, INFO, HIGH], "1, 3 and 5"),
    ],
)
def test_numbers_are_those_of_the_findings(severities: list[Severity], words: str) -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    assert verdict_of(head, graded(*severities)).endswith(
        f"fixing {words} (scheduler-gap first) brings it to about 9.00 ms"
    )


def test_findings_of_other_ranks_are_theirs() -> None:
    head = samples.trace(1, step=samples.estimate(), together=samples.estimate(9 * MS))
    assert "fixing 2 (scheduler-gap) brings" in verdict_of(
        head, [*graded(HIGH, rank=0), *graded(HIGH, rank=1)]
    )


COSTS = (
    Cost("aten::mm", "gpu", 12e6, 0.6),
    Cost("while data is loaded", "idle", 4e6, 0.2),
    Cost("aten::add", "gpu", 1e3, 0.0001),
)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("gpu", "bound by the GPU: 60 % of the step is aten::mm; "),
        ("cpu", "bound by the CPU: for 20 % of the step the GPU is idle while data is loaded; "),
    ],
)
def test_the_largest_cost_of_the_side_that_bounds_the_step_is_named(bound: str, words: str) -> None:
    head = samples.trace(step=samples.estimate(bound=bound), together=samples.estimate(9 * MS))
    assert words + "fixing 1 (scheduler-gap) brings" in verdict_of(head, graded(HIGH), COSTS)


def test_where_nothing_is_wrong_ops_and_reasons_are_told() -> None:
    said = verdict_of(samples.trace(step=samples.estimate(bound="gpu")), graded(INFO), COSTS)
    assert said.endswith(
        "bound by the GPU; nothing found to fix; the time goes to aten::mm (60 %), idle while data is loaded (20 %)"
    )


def test_a_cold_start_says_nothing_of_the_usual_step() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    cold = replace(graded(HIGH)[0], rule="cold-start", saving=None, cost_share=0.72)
    said = verdict_of(head, [cold, *graded(HIGH)], COSTS)
    assert said == "100 ms, as recorded: 72 % of it is a cold start, which the usual step does not pay; " + (
        "record again after a warm-up"
    )


def test_communication_that_bounds_the_gpu_is_named() -> None:
    costs = (Cost("allreduce with other ranks", "communication", 9e6, 0.5), *COSTS)
    head = samples.trace(step=samples.estimate(bound="gpu"), together=samples.estimate(9 * MS))
    assert "bound by the GPU: 50 % of the step is allreduce with other ranks; " in verdict_of(
        head, graded(HIGH), costs
    )


def test_a_choice_that_takes_much_of_the_step_is_said_though_nothing_is_to_fix() -> None:
    head = samples.trace(step=samples.estimate())
    choice = replace(graded(INFO)[0], rule="recomputation")
    assert verdict_of(head, [choice]).endswith(
        f"finding 1 (recomputation) is a choice that takes {100 * samples.saving().share:.0f} % of it"
    )
    little = replace(choice, saving=replace(samples.saving(), low_share=0.01))
    for other in (little, graded(INFO)[0]):
        assert "is a choice" not in verdict_of(head, [other])
