"""First lines of a report: step, fixes, the slowest rank."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.job.ranks import Reductions, job_of
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.support.paths import REPOSITORY
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault, RankReport, TraceReport, Verdict
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.diagnosis import left_together
from traceanalyzer.report.job_summary import culprits_of, job_verdict, rank_of, slowest_of
from traceanalyzer.report.rank_report import as_recorded
from traceanalyzer.report.step_line import step_line
from traceanalyzer.report.verdict import verdict_of


def test_profiler_overhead_is_stated_and_not_negative() -> None:
    for unprofiled in (25 * MS, 26 * MS):
        step = samples.estimate(unprofiled)
        said = step_line(samples.trace(step=step))
        assert said.startswith("25.0 ms recorded and 25.0 ms predicted without the profiler (2")


def test_a_measured_step_is_said_to_be_the_users() -> None:
    step = samples.estimate(low_ns=18 * MS, high_ns=18 * MS)
    assert step_line(samples.trace(step=step)) == ("25.0 ms recorded, 18.0 ms without the profiler, as you measured it")


@pytest.mark.parametrize(
    ("basis", "others"),
    [
        ("5 of 6 steps", "the longest of 8 steps, 48.0 ms, is left out"),
        ("4 of 8 steps", "4 of 8 steps, with 50 % of the recorded time, are left out"),
        ("the window", "long steps are left out, 30 % of the time"),
    ],
)
def test_what_is_left_out_is_said(basis: str, others: str) -> None:
    every = replace(samples.times(8), max_ns=2 * samples.times(8).min_ns)
    step = samples.estimate(left_out_share=0.3, basis=basis)
    told = step_line(samples.trace(step=step, steps=samples.steps(every=every)))
    assert told.endswith(f"; {others}")


def test_without_a_replay_the_step_is_the_recorded_one() -> None:
    assert step_line(samples.trace()) == "25.0 ms recorded (median of 4 steps)"
    steady = samples.steps(cold=samples.times(1, 900 * MS), steady=samples.times(3, 20 * MS))
    assert step_line(samples.trace(steps=steady)) == "20.0 ms recorded (median of 3 steps)"
    unmarked = samples.trace(steps=samples.steps(marked=False))
    assert step_line(unmarked) == "not known, since no step is marked; the recording takes 100 ms"


@pytest.mark.parametrize(
    ("compute_ms", "beside_ms", "gpu"), [(91, 0, True), (1, 90, True), (90, 0, False), (80, 0, False)]
)
def test_always_busy_profiled_device_is_the_bound(compute_ms: int, beside_ms: int, gpu: bool) -> None:
    parts = {"compute": compute_ms * MS, "compute_over_communication": beside_ms * MS, "communication": 7 * MS}
    busy = replace(samples.accounting(), parts_ns=parts)
    open_step = samples.estimate(bounds=("gpu", "cpu"))
    found = as_recorded(open_step, [busy])
    assert found is not None
    assert (found.bound, found.bounds) == (("gpu", ("gpu",)) if gpu else ("cpu", ("gpu", "cpu")))
    assert as_recorded(open_step, [busy, samples.accounting()]) == open_step
    assert as_recorded(open_step, []) == open_step
    known = samples.estimate(bounds=("cpu",))
    assert as_recorded(known, [busy]) == known
    assert as_recorded(None, [busy]) is None


HIGH, INFO = Severity.HIGH, Severity.INFO
TAKES = "18.0 -> about 9.00 ms (-50 %), still limited by the CPU"


def graded(*severities: Severity) -> list[Finding]:
    finding = replace(samples.findings()[0], saving=samples.saving(0.4))
    return [replace(finding, severity=severity) for severity in severities]


@pytest.mark.parametrize(
    ("found", "gone", "words"),
    [
        (2, (1, 2), f"finding 1 (it also fixes 2): {TAKES}"),
        (3, (1, 2, 3), f"finding 1 (it also fixes 2 and 3): {TAKES}"),
        (3, (1, 3), f"findings 1 and 2 (they also fix 3): {TAKES}"),
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
    assert verdict_of(head, found).fix == f"findings 1 to 3: {TAKES}; 3 is uncertain"
    assert verdict_of(head, found[1:]).fix.startswith("findings 1 and 2: 18.0")
    assert verdict_of(head, found[2:]).fix.endswith("; uncertain")


@pytest.mark.parametrize(
    ("share", "words", "adds"), [(0.496, "finding 1", "; then 2 and 3 add nothing"), (0.494, "findings 1 to 3", "")]
)
def test_what_saves_the_same_time_again_is_not_among_the_fixes(share: float, words: str, adds: str) -> None:
    """Of 50 % together the first saves all but what no finding is reported for."""
    found = [
        replace(one, saving=samples.saving(own))
        for one, own in zip(graded(HIGH, HIGH, HIGH), (share, 0.3, 0.2), strict=True)
    ]
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS))
    assert verdict_of(head, found).fix == f"{words}: {TAKES}{adds}"
    unknown = [replace(found[0], saving=None), *found[:2]]
    whose, adds = ("finding 2", "; then 3 adds nothing") if adds else ("findings 2 and 3", "")
    assert verdict_of(head, unknown).fix.endswith(f"; {whose}, without finding 1: {TAKES}{adds}")


def test_fixed_along_finding_is_not_unknown() -> None:
    first, second = graded(HIGH, HIGH)
    fault = Fault("F1", "one cause", samples.saving(0.4), HIGH, (1, 2))
    head = samples.trace(step=samples.estimate(), together=samples.estimate(9 * MS), faults=(fault,))
    said = verdict_of(head, [first, replace(second, saving=None)]).fix
    assert said == f"finding 1 (it also fixes 2): {TAKES}"


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
    [("gpu", "cpu", ", then limited by the CPU"), ("cpu", "cpu", ", still limited by the CPU"), ("cpu", "gpu", "")],
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


def head(rank: int, step_ns: int, waiting_ns: int | None) -> TraceReport:
    """One rank that communicates."""
    time = samples.accounting(parts_ns={"compute": 50 * MS, "communication": 50 * MS})
    step = samples.estimate(step_ns)
    return samples.trace(rank, step=step, together=step, waiting_ns=waiting_ns, accounting=(time,))


def saves(rank: int) -> Finding:
    return replace(samples.findings(rank)[0], saving=samples.saving(), severity=Severity.HIGH)


def test_near_equal_slowest_rank_waits_least() -> None:
    first, second = head(0, 18_600_000, 8 * MS), head(1, 18_200_000, 0)
    assert slowest_of([first, second]) is second
    assert slowest_of([replace(first, waiting_ns=None), second]).rank == 0  # type: ignore[union-attr]
    assert slowest_of([first, replace(second, step=samples.estimate(16 * MS))]) is first


def test_longest_rank_is_slowest_if_a_wait_is_unmeasured() -> None:
    """That it waits for nothing is not known."""
    every = [head(0, 18_600_000, 8 * MS), head(1, 18_200_000, 3 * MS), head(2, 18_300_000, None)]
    assert slowest_of(every) is every[0]
    assert slowest_of(every[:2]) is every[1]


@pytest.mark.parametrize(("step_ns", "slowest"), [(19_000_000, 1), (18_999_999, 0)])
def test_ranks_are_alike_within_a_twentieth_of_the_longest(step_ns: int, slowest: int) -> None:
    every = [head(0, 20 * MS, 2 * MS), head(1, step_ns, MS)]
    assert slowest_of(every) is every[slowest]
    assert slowest_of(every[::-1]) is every[slowest]


def test_equal_or_separate_ranks_have_no_slowest() -> None:
    first, second = head(0, 20 * MS, 0), head(1, 18 * MS, 0)
    assert slowest_of([first]) is None
    assert slowest_of([first, replace(second, step=first.step)]) is None
    assert slowest_of([first, replace(second, step=None)]) is None
    for parts, known in (
        ({"compute": 100 * MS, "communication": 0}, False),
        ({"compute": 100 * MS}, False),
        ({"compute_over_communication": MS}, True),
    ):
        other = replace(second, accounting=(samples.accounting(parts_ns=parts),))
        assert (slowest_of([first, other]) is first) is known
        assert (slowest_of([other, first]) is first) is known
    unmeasured = [head(rank, ms * MS, None) for rank, ms in enumerate((18, 20, 20))]
    assert slowest_of(unmeasured) is unmeasured[1]


def test_rank_that_is_not_slowest_is_replayed_separately() -> None:
    first, second = head(0, 20 * MS, 0), head(1, 18 * MS, 0)
    names = [rank_of(one, first) for one in (first, second)]
    assert names == ["rank 0, the slowest", "rank 1, replayed alone"]
    assert rank_of(second, None) == "rank 1"


def test_fixes_that_are_worth_nothing_bring_the_step_nowhere() -> None:
    one = replace(head(0, 6 * MS, 12 * MS), together=samples.estimate(3 * MS))
    assert left_together(one, [replace(saves(0), severity=Severity.INFO), saves(1)]).together == one.step
    assert left_together(one, [saves(0)]) is one


def test_a_job_is_said_to_wait_for_its_slowest_rank(tmp_path: Path) -> None:
    report = diagnose(job_of(Reductions({0: (1_000,) * 5, 1: (3_000,) * 5}), tmp_path))
    assert [trace.waiting_ns for trace in report.traces] == [pytest.approx(2 * MS), 0]
    together = [trace.step.unprofiled_ns for trace in report.traces if trace.step is not None]
    assert together == pytest.approx([3_120_000, 3_120_000], rel=0.03)
    assert report.job is not None
    assert [rank.alone_ns for rank in report.job.ranks] == pytest.approx([1_120_000, 3_120_000], rel=0.03)
    assert [rank.waiting_ns for rank in report.job.ranks] == [pytest.approx(2 * MS), 0]
    assert [rank.holding_up_ns for rank in report.job.ranks] == [0, pytest.approx(2 * MS)]
    late = [found for found in report.findings if found.cause == "waiting"]
    assert [(found.rank, found.evidence["late"]) for found in late] == [(0, {"rank 1": 10 * MS})]
    assert "this rank computes nothing for 2.00 ms a step, while it waits for rank 1" in late[0].message
    assert "all ranks at once" not in late[0].advice


STEP = samples.estimate(bound="gpu")


def ranks(count: int, holds_ms: dict[int, float] | None = None, alone_ms: float = 10) -> list[RankReport]:
    """Ranks with steps of 19, 20, 21 ... ms, the first of which takes 90; of some, what the others wait for them."""
    held = holds_ms or {}
    whole = max(sum(held.values()), 1)
    return [
        RankReport(
            rank,
            0,
            None,
            dur_ns=(90 * MS, (19 + rank) * MS, (19 + rank) * MS),
            holding_up_ns=round(held.get(rank, 0) * MS),
            last_share=held.get(rank, 0) / whole,
            alone_ns=round((18 if rank in held else alone_ms) * MS),
            predicted_waiting_ns=0 if rank in held else MS,
        )
        for rank in range(count)
    ]


def lines(
    of: Sequence[RankReport],
    *,
    step: StepEstimate | None = STEP,
    together: StepEstimate | None = None,
    culprits: Sequence[int] = (),
    findings: Sequence[Finding] = (),
    parts_ns: Mapping[str, int] | None = None,
) -> Verdict:
    accounting = (samples.accounting(parts_ns=parts_ns),) if parts_ns else ()
    heads = [samples.trace(0, accounting=accounting) if accounting else samples.trace(0)]
    return job_verdict(heads, of, step, together, culprits, findings)


@pytest.mark.parametrize(
    ("culprits", "words"),
    [
        ((3,), "the other ranks wait 2.00 ms a step for rank 3"),
        ((3, 1), "the other ranks wait 3.00 ms a step for ranks 1 and 3"),
        ((5, 3, 1), "the other ranks wait 3.00 ms a step for ranks 1, 3 and 5"),
        ((5, 3, 2, 1), "the other ranks wait 3.00 ms a step for ranks 2, 3, 5 and 1 more"),
        ((2,), "the other ranks wait for rank 2"),
    ],
)
def test_ranks_that_the_others_wait_for_are_named(culprits: tuple[int, ...], words: str) -> None:
    """The three that cost most, and the longest of their waits."""
    made = [replace(one, alone_ns=10 * MS) for one in ranks(8, {1: 3, 2: 0, 3: 2, 5: 1})]
    assert lines(made, culprits=culprits).limit == f"rank 1 is the slowest, limited by its GPU; {words}"
    assert lines(made, culprits=culprits, step=None).limit == words


@pytest.mark.parametrize(("alone_ms", "said"), [(16.0, False), (16.01, True)])
def test_wait_with_little_saving_shows_what_others_take(alone_ms: float, said: bool) -> None:
    """Of a step of 18 ms they wait 4: half of that is saved, or less."""
    limit = lines(ranks(3, {1: 4}, alone_ms), culprits=[1]).limit
    assert ("; without this wait they would still take up to 16.0 ms" in limit) is said


def test_culprit_time_differs_from_the_others_time() -> None:
    assert "without this wait" not in lines(ranks(3, {1: 4, 2: 4}, 12), culprits=[1, 2]).limit


@pytest.mark.parametrize(
    ("count", "holds_ms", "words"),
    [
        (2, {1: 3.0}, "rank 0 waits 3.00 ms a step for rank 1; both do"),
        (3, {1: 3.0}, "the other ranks wait 3.00 ms a step for rank 1; all do"),
        (3, {1: 3.0, 2: 2.0}, "the other ranks wait 3.00 ms a step for rank 1; all do"),
        (3, {1: 3.0, 2: 2.1}, None),
        (3, {1: 0.63}, "the other ranks wait 630 µs a step for rank 1; all do"),
        (3, {1: 0.629}, None),
    ],
)
def test_unexplained_wait_is_shown_if_one_ranks_and_large(
    count: int, holds_ms: dict[int, float], words: str | None
) -> None:
    """From 60 % of all waiting on, and 3 % of the longest step, 21 ms of three ranks."""
    limit = lines(ranks(count, holds_ms)).limit
    if words is None:
        assert limit == "the GPU of each rank; no single rank delays the others"
    else:
        told = f"in the recording, {words} the same work, so do not trust this wait"
        assert f"rank 1 is the slowest, limited by its GPU; {told}" in limit


@pytest.mark.parametrize(
    ("parts_ms", "limit"),
    [
        (
            {"compute": 40, "communication_transfer": 33, "communication_waiting": 27},
            "communication: 6.60 ms of transfer and 5.40 ms of waiting in each recorded step, without compute",
        ),
        ({"compute": 20, "communication": 60, "idle:tail": 20}, "communication: 12.0 ms in each recorded"),
        ({"compute": 51, "communication_transfer": 49}, "the GPU of each rank"),
    ],
)
def test_exposed_communication_is_the_limit_where_it_takes_most(parts_ms: dict[str, int], limit: str) -> None:
    parts_ns = {name: ms * MS for name, ms in parts_ms.items()}
    assert lines(ranks(3), parts_ns=parts_ns).limit.startswith(limit)


def test_the_recorded_step_is_the_longest_median_of_the_ranks() -> None:
    made = ranks(3)
    assert lines(made).step == "21.0 ms recorded, 18.0 ms predicted without the profiler (17.0 to 19.0)"
    assert lines(made, step=None).step == "21.0 ms recorded"
    measured = replace(STEP, low_ns=18 * MS, high_ns=18 * MS)
    timed = lines(made, step=measured).step
    assert timed == "21.0 ms recorded, 18.0 ms without the profiler, as you measured it"
    bare = [replace(one, dur_ns=()) for one in made]
    assert lines(bare).step.startswith("25.0 ms recorded, ")
    assert lines(bare, step=None).step == ""


def ranked(*severities: Severity, **changes: float) -> list[Finding]:
    saving = replace(samples.saving(), **changes)
    return [replace(samples.findings(0)[0], severity=one, saving=saving) for one in severities]


@pytest.mark.parametrize(
    ("severities", "together_us", "fix"),
    [
        ((HIGH,), 9_000, "finding 1: 18.0 -> about 9.00 ms"),
        ((INFO, HIGH), 9_000, "finding 2: 18.0 -> about 9.00 ms"),
        ((HIGH, INFO, HIGH), 9_000, "finding 1 first; with 1 and 3 fixed: 18.0 -> about 9.00 ms"),
        ((HIGH,), 17_910, "finding 1: 18.0 -> about 17.9 ms"),
        ((HIGH,), 17_911, "finding 1"),
        ((HIGH, HIGH), None, "finding 1 first"),
    ],
)
def test_fix_saving_is_shown_above_zero(severities: tuple[Severity, ...], together_us: int | None, fix: str) -> None:
    together = None if together_us is None else samples.estimate(1_000 * together_us)
    assert lines(ranks(2), together=together, findings=ranked(*severities)).fix == fix


@pytest.mark.parametrize(("high", "said"), [(0.05, True), (0.0499, False)])
def test_where_nothing_is_certain_what_may_save_most_is_named(high: float, said: bool) -> None:
    found = [*ranked(INFO, high_share=0.01), *ranked(INFO, INFO, high_share=high)]
    fix = lines(ranks(2), findings=found).fix
    assert fix == ("no certain problem; finding 2 may help" if said else "no problem found")
    assert lines(ranks(2)).fix == "no problem found"


def test_culprits_are_of_findings_that_compare_ranks_each_once() -> None:
    late = replace(samples.findings(3)[0], rule="straggler", ranks=(3, 5), severity=HIGH)
    found = [
        late,
        replace(late, rank=1, ranks=(1, 3)),
        replace(late, rank=7, ranks=(7,), severity=INFO),
        replace(late, rank=8, ranks=(8,), rule="host-gap"),
        replace(late, rank=None, ranks=(9,)),
    ]
    assert culprits_of(found) == (3, 5, 1)


def test_a_window_inside_a_step_has_no_step_time() -> None:
    (trace,) = diagnose(REPOSITORY / "fixtures/exposed-copy/bad.json.gz", window=(4 * MS, 5 * MS)).traces
    assert (trace.step, trace.together, dict(trace.parts)) == (None, None, {})
    assert trace.summary.step == "not known: the window of 1.00 ms has no whole step"
