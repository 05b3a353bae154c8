"""Shares at which a report changes, and steps in which CPU and GPU wait for each other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.finding_order import is_minor, turn_of
from traceanalyzer.report.step_line import step_line
from traceanalyzer.report.verdict import verdict_of

HIGH, LOW, INFO = Severity.HIGH, Severity.LOW, Severity.INFO


def found(severity: Severity = INFO, share: float = 0.5, **changes: Any) -> Finding:
    own = {name: changes.pop(name) for name in ("low_share", "high_share") if name in changes}
    saving = replace(samples.saving(share), **own)
    return replace(samples.findings()[0], **{"severity": severity, "saving": saving, **changes})


@pytest.mark.parametrize(
    ("changes", "minor"),
    [
        ({"cost_share": 0.0099}, True),
        ({"cost_share": 0.01}, False),
        ({"cost_share": 0.0099, "severity": LOW}, False),
        ({"cost_share": 0.0, "cost_ns": 0}, False),
        ({"cost_share": 0.0099, "saving": samples.saving(0.0099)}, True),
        ({"cost_share": 0.0099, "saving": samples.saving(0.01)}, False),
        ({"cost_share": 0.0099, "saving": samples.saving(-0.01)}, False),
        ({"cost_share": 0.0999, "rule": "scheduler-gap"}, True),
        ({"cost_share": 0.1, "rule": "scheduler-gap"}, False),
        ({"cost_share": 0.0999, "rule": "scheduler-gap", "saving": samples.saving(0.01)}, False),
    ],
)
def test_too_small_problem_has_its_cost_and_saving(changes: Mapping[str, Any], minor: bool) -> None:
    """A tenth of the window where no rule owns it, else a hundredth; and a hundredth of the step."""
    given = {"severity": INFO, "saving": None, "rule": "implicit-sync", **changes}
    assert is_minor(replace(samples.findings()[0], **given)) is minor


@pytest.mark.parametrize(
    ("rule", "severity", "turn"),
    [
        ("implicit-sync", HIGH, 0),
        ("implicit-sync", Severity.MEDIUM, 0),
        ("implicit-sync", LOW, 1),
        ("implicit-sync", INFO, 2),
        ("launch-bound", HIGH, 1),
        ("scheduler-gap", HIGH, 1),
        ("cold-start", HIGH, 0),
        ("cold-start", Severity.MEDIUM, 1),
        ("no-such-rule", HIGH, 0),
    ],
)
def test_what_is_worth_little_or_names_the_rest_comes_later(rule: str, severity: Severity, turn: int) -> None:
    """As what takes all launches off the CPU, and what happens once in a window that shows more than that."""
    assert turn_of(samples.finding(0, rule=rule), severity) == turn


# -- the step ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_ms", "left_out", "total_ms", "said"),
    [
        (27, 0.25, 100, True),
        (27, 0.249, 100, False),
        (26.4, 0.25, 100, False),
        (26.4, 0.0, 125.1, True),
        (27, 0.0, 125, False),
    ],
)
def test_left_out_steps_are_shown_if_uneven_or_many(
    max_ms: float, left_out: float, total_ms: float, said: bool
) -> None:
    """The least takes 24 ms: up to a tenth more is even; four steps of 25 ms would take 100."""
    every = replace(samples.times(4), min_ns=24 * MS, max_ns=round(max_ms * MS), total_ns=round(total_ms * MS))
    step = samples.estimate(left_out_share=left_out, basis="3 of 4 steps replayed")
    line = step_line(samples.trace(step=step, steps=samples.steps(every=every)))
    assert line.endswith(" is left out") is said


def test_a_step_longer_than_recorded_is_said_beside_it() -> None:
    for ns, words in ((24_990_000, "recorded and 25.0 ms predicted"), (24_900_000, "recorded, 24.9 ms predicted")):
        assert words in step_line(samples.trace(step=samples.estimate(ns)))


# -- the limit --------------------------------------------------------------------------------------------


def limit(costs: tuple[Cost, ...], *, wrong: bool = True, **step: Any) -> str:
    head = samples.trace(step=samples.estimate(**step), together=samples.estimate(9 * MS))
    return verdict_of(head, [found(HIGH)] if wrong else [], costs).limit


@pytest.mark.parametrize(("gap_ms", "idle"), [(10, "56"), (17, "94"), (8, "")])
def test_gpu_that_mostly_runs_nothing_is_limited_by_no_op(gap_ms: int, idle: str) -> None:
    """Of a step of 18 ms, so many lie between pieces of queued work."""
    said = limit((Cost("aten::mm", "gpu", 1 * MS, 1 / 18),), bound="gpu", gpu_ns=MS, gap_ns=gap_ms * MS)
    named = "the GPU: it spends 6 % of the predicted step in aten::mm"
    assert said == (f"the GPU, idle during {idle} % of the predicted step though work is queued" if idle else named)


def test_a_gpu_in_a_step_of_no_time_is_idle_in_no_part_of_it() -> None:
    cost = Cost("aten::mm", "gpu", 0, 0.5)
    said = limit((cost,), unprofiled_ns=0, low_ns=0, high_ns=0, bound="gpu", gpu_ns=0, gap_ns=0)
    assert "though work is queued" not in said


@pytest.mark.parametrize(("device_us", "alike"), [(16_201, True), (16_200, False)])
def test_cpu_and_gpu_are_alike_if_gpu_is_nine_tenths_busy(device_us: int, alike: bool) -> None:
    said = limit((), bound="cpu", gpu_ns=1_000 * device_us - 5_000, gap_ns=5_000)
    assert said.startswith("CPU and GPU equally" if alike else "the CPU")


@pytest.mark.parametrize(("share", "said"), [(0.005, True), (0.0049, False)])
def test_a_cost_that_rounds_to_nothing_is_not_named(share: float, said: bool) -> None:
    costs = (Cost("aten::mm", "gpu", share * 18 * MS, share),)
    assert limit(costs, bound="gpu") == ("the GPU" + ": it spends 0 % of the predicted step in aten::mm" * said)
    alone = limit(costs, wrong=False, bound="gpu")
    assert ("the largest part of the predicted step is aten::mm (0 %)" in alone) is said


@pytest.mark.parametrize(
    ("largest", "words"),
    [
        (("while data is loaded", 0.2), "the GPU waits for the CPU during 39 % of the predicted step, mostly while"),
        (("while data is loaded", 0.19), "the GPU waits for the CPU during 38 % of the predicted step"),
        (("before launched kernels begin", 0.2), None),
    ],
)  # fmt: skip
def test_main_cause_has_over_half_of_the_idle_time(largest: tuple[str, float], words: str | None) -> None:
    name, share = largest
    rest = tuple(Cost(f"while other {at}", "idle", 0.095 * 18 * MS, 0.095) for at in range(2))
    said = limit((Cost(name, "idle", share * 18 * MS, share), *rest), bound="cpu", gpu_ns=9 * MS)
    if words is not None:
        assert said.startswith(f"the CPU: {words}")
        assert ("mostly" in said) is (share == 0.2)


@pytest.mark.parametrize(
    ("idle", "exchanging", "said"),
    [(0.24, 0.3, True), (0.25, 0.3, False), (0.2, 0.3, True), (0.2, 0.29, False), (0.0, 0.5, True)],
)
def test_exchange_waiting_needs_most_of_it_and_explanation(idle: float, exchanging: float, said: bool) -> None:
    """Of 18 ms the GPU works for 9, so that it waits for half of the step."""
    costs = (
        Cost("allreduce (exposed communication)", "communication", exchanging * 18 * MS, exchanging),
        Cost("while Python runs", "idle", idle * 18 * MS, idle),
    )
    words = "during 50 % of the predicted step, this GPU waits, mostly in collectives"
    assert (words in limit(costs, bound="cpu", gpu_ns=9 * MS)) is said
    assert words not in limit(costs, bound="gpu", gpu_ns=9 * MS)


@pytest.mark.parametrize(("launching_ms", "said"), [(19, True), (21, False)])
def test_gpu_wait_reason_is_shown_if_recording_agrees(launching_ms: int, said: bool) -> None:
    parts = {"compute": 50 * MS, "idle:data-loading": 20 * MS, "idle:dispatching": launching_ms * MS}
    time = samples.accounting(parts_ns=parts, idle_causes=())
    head = samples.trace(step=samples.estimate(gpu_ns=10 * MS), accounting=(time,))
    costs = (Cost("while data is loaded", "idle", 5 * MS, 0.21),)
    told = verdict_of(head, [samples.findings()[0]], costs).limit
    assert told.endswith("21 % of the predicted step" + ", mostly while data is loaded" * said)


# -- the fix ----------------------------------------------------------------------------------------------


def fix(*findings: Finding, **step: Any) -> str:
    return verdict_of(samples.trace(step=samples.estimate(**step)), findings).fix


OPEN = {"bound": "cpu", "bounds": ("gpu", "cpu"), "gpu_ns": 17 * MS}


@pytest.mark.parametrize(
    ("step", "share", "high", "said"),
    [
        ({}, 0.05, 0.2, True),
        ({}, 0.0499, 0.2, False),
        (OPEN, 0.005, 0.05, True),
        (OPEN, 0.0049, 0.05, False),
        (OPEN, 0.005, 0.0499, False),
    ],
)
def test_possible_gain_is_shown_from_a_twentieth(
    step: Mapping[str, Any], share: float, high: float, said: bool
) -> None:
    gain = found(share=share, low_share=0.02, high_share=high, rule="implicit-sync", cost_share=0.2)
    assert ("finding 1 may help" in fix(gain, **step)) is said


def test_two_largest_possible_gains_are_named_in_order() -> None:
    gains = [
        found(share=0.1, low_share=0.02, high_share=high, rule=rule, cost_share=0.2)
        for rule, high in (("host-gap", 0.2), ("launch-bound", 0.1), ("implicit-sync", 0.3))
    ]
    assert fix(*gains).endswith("; findings 1 and 3 may help")


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.15,), "check finding 1 (loss-head): it concerns about 15 % of all GPU work"),
        ((0.149,), ""),
        ((0.4, 0.6), "check finding 2 (loss-head): it concerns about 60 % of all GPU work"),
        ((0.6, 0.6), "check finding 1 (loss-head): it concerns about 60 % of all GPU work"),
    ],
)
def test_what_much_of_the_work_hangs_on_is_asked(shares: tuple[float, ...], said: str) -> None:
    asked = [found(saving=None, rule="loss-head", evidence={"gpu_share": share}) for share in shares]
    assert fix(*asked) == (f"no certain problem; {said}" if said else "no problem found")


def test_minor_cold_start_is_one_of_several_faults() -> None:
    cold = found(Severity.MEDIUM, rule="cold-start", saving=None, cost_share=0.05)
    head = samples.trace(step=samples.estimate())
    assert "cold start takes" not in verdict_of(head, [cold]).limit
    assert "cold start takes" in verdict_of(head, [replace(cold, severity=HIGH)]).limit


# -- ranks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "share", "waits"),
    [("communication", 0.5, False), ("communication", 0.49, True), ("copy", 0.5, False), ("idle", 0.9, True)],
)
def test_half_of_a_step_in_one_exchange_is_named_first(
    kind: Literal["communication", "copy", "idle"], share: float, waits: bool
) -> None:
    costs = (Cost("recv", kind, share * 18 * MS, share),)
    for wrong in (True, False):
        said = limit(costs, wrong=wrong, bound="wait")
        assert said.startswith("CPU and GPU alternate, each waiting for the other; ") is waits
        assert f"{100 * share:.0f} %" in said
    assert limit(costs, bound="wait", bounds=("gpu", "wait")).startswith("undecided, ")


@pytest.mark.parametrize(("step_ns", "whole"), [(18.17 * MS, "the predicted step"), (18.19 * MS, "all GPU work")])
def test_what_streams_do_at_once_is_told_of_all_work(step_ns: float, whole: str) -> None:
    """A step of 18 ms."""
    costs = (Cost("aten::mm", "gpu", step_ns / 2, 0.5), Cost("aten::add", "gpu", step_ns / 4, 0.25))
    assert limit(costs, bound="gpu") == f"the GPU: it spends 50 % of {whole} in aten::mm"
    said = limit(costs, wrong=False, bound="gpu")
    assert said == f"the GPU: the largest parts of {whole} are aten::mm (50 %), aten::add (25 %)"


def test_largest_cost_is_named_unless_idle_precedes_exchanges() -> None:
    mm, sent = Cost("aten::mm", "gpu", 7.74 * MS, 0.43), Cost("recv", "communication", 2.34 * MS, 0.13)
    idle = Cost("while data is loaded", "idle", 3 * MS, 0.15)
    assert limit((mm, sent), bound="wait").endswith("the other; the GPU spends 43 % of the predicted step in aten::mm")
    assert limit((mm, idle, sent), bound="wait").endswith("15 % of the predicted step, mostly while data is loaded")
