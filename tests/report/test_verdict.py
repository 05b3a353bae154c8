"""The first lines of a report: step, limit, and what the fixes give."""

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault, Verdict
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.verdict import verdict_of

ABOUT = "18.0 -> about 9.00 ms (-50 %), still limited by the CPU"


def graded(*severities: Severity, rank: int | None = None) -> list[Finding]:
    """Findings of these severities, in this order, all replayed."""
    finding = replace(samples.findings(rank)[0], saving=samples.saving(0.4))
    return [replace(finding, severity=severity) for severity in severities]


HIGH, INFO = Severity.HIGH, Severity.INFO


def test_replayed_step_has_range_bound_and_fix_result() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    assert verdict_of(head, graded(HIGH, HIGH, HIGH)) == Verdict(
        "25.0 ms recorded, 18.0 ms predicted without the profiler (17.0 to 19.0)",
        "the CPU",
        f"findings 1 to 3: {ABOUT}",
    )
    units = samples.estimate(900_000, low_ns=800_000, high_ns=1_100_000)
    assert verdict_of(replace(head, step=units), []).step.endswith("(800 µs to 1.10 ms)")
    units = samples.estimate(1_000_000, low_ns=900_000, high_ns=1_100_000)
    assert verdict_of(replace(head, step=units), []).step.endswith("(900 µs to 1.10 ms)")


@pytest.mark.parametrize(
    ("bound", "gpu_ns", "said"), [("cpu", 8_000_000, True), ("cpu", 8_100_000, False), ("gpu", 8_000_000, False)]
)
def test_what_limits_the_step_then_is_said_where_it_is_the_cpu(bound: str, gpu_ns: int, said: bool) -> None:
    """Of 9 ms the device works 8.0 or 8.1: a tenth of a step may be none."""
    together = samples.estimate(9 * MS, bound=bound, gpu_ns=gpu_ns)
    head = samples.trace(step=samples.estimate(), together=together)
    assert ("limited by the CPU" in verdict_of(head, graded(HIGH)).fix) is said


def test_finding_without_saving_is_named_next_to_the_fix() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    first, second = graded(HIGH, HIGH)
    fix = verdict_of(head, [first, replace(second, saving=None)]).fix
    assert fix == f"finding 1: {ABOUT}; what finding 2 would save cannot be predicted"


def test_the_lines_of_a_verdict_are_also_one_sentence() -> None:
    verdict = Verdict("25.0 ms recorded", "", "nothing")
    assert verdict.lines == {"Step": "25.0 ms recorded", "Fix": "nothing"}
    assert verdict.sentence == "Step: 25.0 ms recorded; Fix: nothing"


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("gpu", "the GPU"),
        ("wait", "CPU and GPU alternate, each waiting for the other"),
        ("communication", "communication"),
    ],
)
def test_every_bound_has_words(bound: str, words: str) -> None:
    said = verdict_of(samples.trace(step=samples.estimate(bound=bound)), []).limit
    assert said.startswith(f"{words}{';' if bound == 'wait' else ':'} the recorded time goes to ")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (("gpu", "cpu"), "the GPU or the CPU"),
        (("communication", "cpu"), "communication or the CPU"),
        (("gpu", "wait"), "the GPU, or CPU and GPU in turn"),
    ],
)
def test_a_bound_that_the_trace_leaves_open_is_told_so(bounds: tuple[str, str], words: str) -> None:
    step = samples.estimate(bound="cpu", bounds=bounds, gpu_ns=171 * MS // 10)
    said = verdict_of(samples.trace(step=step, together=samples.estimate(9 * MS)), graded(HIGH))
    assert said.limit == (
        f"undecided, {words}: 17.1 ms of GPU work a step, the GPU idle for 0 to 10 % of it; "
        "rerun with --step-ms UNPROFILED_MS"
    )
    healthy = verdict_of(samples.trace(step=step), [], [Cost("aten::mm", "gpu", 9 * MS, 0.5)])
    assert healthy.fix == "no certain problem"


def test_what_is_no_fault_and_may_save_much_is_named() -> None:
    """Where the limit is open what may save much at most, else what surely does."""
    step = samples.estimate(bound="cpu", bounds=("gpu", "cpu"), gpu_ns=17 * MS)
    shares = zip(graded(INFO, INFO), (0.0, 0.2), strict=True)
    unsure = [replace(one, saving=samples.saving(share)) for one, share in shares]
    said = verdict_of(samples.trace(step=step), unsure).fix
    assert said == "no certain problem; finding 2 may help"
    clear = samples.trace(step=replace(step, bounds=("cpu",)))
    assert verdict_of(clear, unsure).fix.endswith("; finding 2 may help")
    doubtful = [replace(one, saving=replace(samples.saving(0.2), low_share=0.0)) for one in unsure]
    assert "may help" not in verdict_of(clear, doubtful).fix
    both = verdict_of(samples.trace(step=step), [*doubtful, *graded(HIGH)])
    assert both.fix.endswith("; findings 1 and 2 may also help")
    assert "may save" not in verdict_of(samples.trace(step=step), unsure[:1]).fix


@pytest.mark.parametrize("hidden", ["minor", "joined"])
def test_what_is_not_listed_is_not_named(hidden: str) -> None:
    """A report named finding 5, which no reader found on it."""
    step = samples.estimate(bound="cpu", bounds=("gpu", "cpu"), gpu_ns=17 * MS)
    reaching = replace(samples.saving(0.009), high_share=0.2)
    info = replace(graded(INFO)[0], saving=reaching, cost_share=0.009 if hidden == "minor" else 0.2)
    faults = (Fault("F1", "one cause", samples.saving(), HIGH, (1, 2)),) if hidden == "joined" else ()
    head = samples.trace(step=step, together=samples.estimate(9 * MS), faults=faults)
    assert "may save" not in verdict_of(head, [*graded(HIGH), info]).fix
    told = verdict_of(replace(head, faults=()), [*graded(HIGH), replace(info, cost_share=0.2)])
    assert "finding 2 may also help" in told.fix


def test_a_device_as_busy_as_the_cpu_is_no_less_the_bound() -> None:
    step = samples.estimate(bound="cpu", bounds=("cpu",), gpu_ns=17 * MS)
    assert verdict_of(samples.trace(step=step), []).limit.startswith("CPU and GPU equally: ")


def test_findings_whose_fix_cannot_be_replayed_are_no_fixes() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    first, second = graded(HIGH, HIGH)
    begin = "begin with finding 1 (scheduler-gap)"
    unknown = replace(first, saving=None)
    assert verdict_of(head, [unknown, second]).fix == f"{begin}, whose saving cannot be predicted"
    assert verdict_of(head, [unknown, second, unknown, second]).fix == (
        f"{begin}; what findings 1 and 3 would save cannot be predicted; "
        f"findings 2 and 4, without findings 1 and 3: {ABOUT}"
    )
    assert verdict_of(head, [unknown, second, second]).fix == (
        f"{begin}, whose saving cannot be predicted; findings 2 and 3, without finding 1: {ABOUT}"
    )
    same = replace(head, together=head.step)
    assert verdict_of(same, [unknown]).fix == begin


def test_parts_that_round_to_nothing_are_left_out() -> None:
    time = samples.accounting(parts_ns={"compute": 997 * MS, "memset": MS, "idle:tail": 2 * MS})
    assert verdict_of(samples.trace(accounting=(time,)), []).limit == "the recorded time goes to compute (100 %)"


def test_where_nothing_is_wrong_the_largest_costs_are_told() -> None:
    assert verdict_of(samples.trace(), graded(INFO)) == Verdict(
        "25.0 ms recorded (median of 4 steps)",
        "the recorded time goes to idle time, data loading (50 %), compute (35 %), "
        "idle time, waiting for launches (12 %)",
        "no problem found",
    )


def test_a_trace_without_a_device_is_not_judged() -> None:
    bare = samples.empty().traces[0]
    said = verdict_of(replace(bare, steps=samples.steps()), [])
    assert said.step == "25.0 ms recorded (median of 4 steps)"
    assert said.limit == "not judged: the trace holds no GPU work"
    assert "ProfilerActivity.CUDA" in said.fix


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
    facts = [replace(one, saving=one.saving if one.severity is HIGH else None) for one in graded(*severities)]
    assert verdict_of(head, facts).fix == f"findings {words}: {ABOUT}"


def test_findings_of_other_ranks_are_theirs() -> None:
    head = samples.trace(1, step=samples.estimate(), together=samples.estimate(9 * MS))
    said = verdict_of(head, [*graded(HIGH, rank=0), *graded(HIGH, rank=1)]).fix
    assert said == f"finding 2: {ABOUT}"


COSTS = (  # beyond the largest three: only the sum of idle time has it
    Cost("aten::mm", "gpu", 10.8e6, 0.6),
    Cost("while data is loaded", "idle", 3.67e6, 0.204),
    Cost("aten::add", "gpu", 9e4, 0.0045),
    Cost("while Python runs", "idle", 8e4, 0.004),
)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("gpu", "the GPU: it spends 60 % of the predicted step in aten::mm"),
        ("cpu", "the CPU: the GPU waits for the CPU during 21 % of the predicted step, mostly while data is loaded"),
    ],
)
def test_largest_cost_of_the_binding_side_is_named(bound: str, words: str) -> None:
    step = samples.estimate(bound=bound, gpu_ns=108 * MS // 10)
    head = samples.trace(step=step, together=samples.estimate(9 * MS))
    assert verdict_of(head, graded(HIGH), COSTS).limit == words


def test_where_nothing_is_wrong_ops_and_reasons_are_told() -> None:
    fact = replace(graded(INFO)[0], saving=None)
    said = verdict_of(samples.trace(step=samples.estimate(bound="gpu")), [fact], COSTS)
    assert (
        said.limit
        == "the GPU: the largest parts of the predicted step are aten::mm (60 %), idle time while data is loaded "
        "(20 %)"
    )
    assert said.fix == "no problem found"


def test_a_cold_start_says_nothing_of_the_usual_step() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    cold = replace(graded(HIGH)[0], rule="cold-start", saving=None, cost_share=0.72)
    said = verdict_of(head, [cold, *graded(HIGH)], COSTS)
    assert said == Verdict(
        "not known because of the cold start; the whole recording takes 100 ms",
        "a cold start takes 72 % of the window; normal steps do not contain it",
        "record again after a warm-up",
    )


def test_communication_that_bounds_the_gpu_is_named() -> None:
    costs = (Cost("allreduce with other ranks", "communication", 9e6, 0.5), *COSTS)
    head = samples.trace(step=samples.estimate(bound="gpu"), together=samples.estimate(9 * MS))
    said = verdict_of(head, graded(HIGH), costs).limit
    assert said == "the GPU: it spends 50 % of the predicted step in allreduce with other ranks"


def test_choice_with_large_step_share_is_shown_without_faults() -> None:
    head = samples.trace(step=samples.estimate())
    choice = replace(graded(INFO)[0], rule="recomputation")
    assert verdict_of(head, [choice]).fix.endswith(
        "1 (recomputation) may be deliberate and costs 40 % of the predicted step"
    )
    assert verdict_of(head, [replace(choice, rule="float64-math", cause="throughout")]).fix.endswith(
        "1 (float64-math) may be deliberate and costs 40 % of the predicted step"
    )
    assert "may be deliberate" not in verdict_of(head, graded(INFO)).fix
    assert "may be deliberate" not in verdict_of(head, [replace(choice, severity=HIGH)]).fix


def test_choice_costlier_than_any_fault_comes_first() -> None:
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    fault = graded(HIGH)[0]
    choice = replace(graded(INFO)[0], rule="float64-math", cause="throughout", rank=fault.rank)
    dear = replace(choice, saving=replace(samples.saving(), share=0.6))
    first = "first decide on finding 2 (float64-math), which may be deliberate and costs 60 % of the predicted step"
    assert verdict_of(head, [fault, dear]).fix.startswith(f"{first}; then finding 1: ")
    assert "first decide on" not in verdict_of(head, [fault, choice]).fix


@pytest.mark.parametrize(("low_share", "said"), [(0.05, True), (0.0499, False), (-0.1, False)])
def test_choice_is_shown_if_its_least_cost_is_large(low_share: float, said: bool) -> None:
    saving = replace(samples.saving(), low_share=low_share)
    choice = replace(graded(INFO)[0], rule="recomputation", saving=saving)
    fix = verdict_of(samples.trace(step=samples.estimate()), [choice]).fix
    assert ("(recomputation) may be deliberate" in fix) is said


def test_busy_device_with_one_idle_stream_is_not_idle() -> None:
    """The device is idle for 5 % as recorded; its busiest stream may be for 10 %."""
    busy = replace(samples.accounting(), parts_ns={"compute": 95 * MS, "idle:python": 5 * MS})
    step = samples.estimate(bound="cpu", bounds=("gpu", "cpu"), gpu_ns=12 * MS)
    said = verdict_of(samples.trace(step=step, accounting=(busy,)), graded(HIGH))
    assert ": 12.0 ms of work a step on the busiest stream, idle for 29 to 37 % of the step" in said.limit
    idle = replace(busy, device=1, parts_ns={"compute": 65 * MS, "idle:python": 35 * MS})
    said = verdict_of(samples.trace(step=step, accounting=(busy, idle)), graded(HIGH))
    assert "the GPU idle for 29 to 37 % of" in said.limit


def test_problems_of_low_confidence_are_no_clean_bill() -> None:
    head = samples.trace(step=samples.estimate())
    hidden = [replace(one, pedantic=True) for one in graded(HIGH, INFO, HIGH)]
    assert verdict_of(head, hidden).fix == "no certain problem; --pedantic shows 2 of low confidence"
    assert verdict_of(head, [*graded(HIGH), *hidden]).fix == "begin with finding 1 (scheduler-gap)"
