"""Jobs of several ranks, recorded and made by hand."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.job.ranks import Reductions
from tests.report import report_samples as samples
from tests.support.cached_reports import reported_pair
from traceanalyzer import diagnose, load_job
from traceanalyzer.job.ranks import Ranks
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.step_times import RECORDING, Saving
from traceanalyzer.report.job_findings import OfJob, of_job, outcomes_of
from traceanalyzer.report.rank_report import Brief, OfRank
from traceanalyzer.rule.faults import FaultOf

Shared = Callable[[str], Path]


def measured_ns(shared: Shared, name: str) -> float:
    meta = json.loads(Path(str(shared(f"{name}.rank0")).replace(".json.gz", ".meta.json")).read_text())
    times = meta["unprofiled_step_ms"]
    return 1e6 * (statistics.median(times) if isinstance(times, list) else times)


@pytest.mark.parametrize(
    "name",
    [
        *(f"ranks/{name}.bad" for name in ("moe_a2a", "imbalance", "hiccup")),
        *(f"ranks/{name}.fixed" for name in ("no_sync", "pipeline")),
        *(f"ddp/{name}" for name in ("exposed", "overlap", "straggler_gpu")),
        *(f"ranks2/{name}.bad" for name in ("healthy", "unused", "sync_bn", "slow_gpu", "small_buckets")),
        "ranks2/gather_logits.fixed",
    ],
)
def test_a_job_takes_as_long_as_it_did_without_the_profiler(name: str, shared: Shared) -> None:
    """All of these were seen when the slowdown of ranks was fitted."""
    report = reported_pair(shared, name)
    assert report.job is not None
    assert report.job.step is not None
    true_ns = measured_ns(shared, name)
    assert report.job.step.unprofiled_ns == pytest.approx(true_ns, rel=0.2)
    assert report.job.step.low_ns <= 1.05 * true_ns
    assert report.job.step.high_ns >= 0.95 * true_ns


def test_shares_of_a_hotspot_are_of_the_jobs_step(shared: Shared) -> None:
    """Rank 1 takes 1.2 ms without waiting, the job 5.3 ms."""
    report = reported_pair(shared, "ranks/moe_a2a.bad")
    assert report.job is not None
    assert report.job.step is not None
    step_ns = report.job.step.unprofiled_ns
    for one in report.findings:
        if one.rule == "hotspot":
            assert one.evidence["part_share"] == pytest.approx(one.evidence["gpu_ns"] / step_ns)


def test_a_pause_is_one_fault_whoever_names_it(shared: Shared) -> None:
    """As what its peers do not do, and as a gap without an op."""
    first, second = reported_pair(shared, "ranks/hiccup.bad").findings[:2]
    assert (first.rule, second.rule) == ("host-gap", "straggler")
    assert first.fault == second.fault


def test_loader_delaying_one_rank_has_one_waiting_number(shared: Shared) -> None:
    """The findings count the waits of steps, as the table of ranks does: 5.91 ms a step with those outside of them."""
    report = reported_pair(shared, "ranks2/loader.bad")
    loader, first = report.findings[:2]
    assert (loader.rule, loader.fault) == ("dataloader-stall", first.fault)
    assert report.job is not None
    held_ns = max(one.holding_up_ns for one in report.job.ranks)
    assert (first.rule, first.evidence["waits_ns"]) == ("straggler", pytest.approx(held_ns, abs=1))
    assert "inside the DataLoader's __next__" in first.message
    assert first.advice.startswith("Load in other processes, DataLoader(num_workers=4 or more)")
    both = next(one for one in report.findings if one.ranks == (0, 1) and one.cause == "transfer")
    assert both.message.startswith("on rank 1, allreduce runs 6 times a step")  # rank 0 has less than half of it


def test_what_is_reduced_one_by_one_goes_with_its_read_backs(shared: Shared) -> None:
    reduced, read = reported_pair(shared, "ranks/loss_reduce.bad").findings[:2]
    assert (reduced.rule, read.rule) == ("needless-collectives", "implicit-sync")
    assert reduced.fault == read.fault


@pytest.mark.parametrize(
    ("told_ms", "step_ms"),
    [((1.11, 1.13), 1.12), ((1.12, None), None), ((1.12, 90), None), ((0, 1.12), None), ((1.15, 1.11), 1.13)],
)
def test_fully_timed_job_step_is_as_recorded(
    told_ms: tuple[float | None, float | None], step_ms: float | None, tmp_path: Path
) -> None:
    """Steps of 1 ms of compute, 100 us of transfer and 20 us between them; 90 ms cannot be one of them."""
    paths = []
    for (rank, trace), ms in zip(
        Reductions(dict.fromkeys((0, 1), (1_000,) * 5)).traces().items(), told_ms, strict=True
    ):
        trace.header |= {} if ms is None else {RECORDING: {"before_ms": [ms, ms], "after_ms": []}}
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    steps = [one.step for one in diagnose(load_job(*paths)).traces]
    known_ns = 1_100_000 if step_ms is None else round(1e6 * step_ms)  # predicted, where it was not timed
    assert [one.unprofiled_ns for one in steps if one] == [known_ns] * 2


HIGH, MEDIUM, LOW, INFO = Severity


class Told(Ranks):
    """Ranks that have these findings, and note how many occurrences of which are asked for."""

    def __init__(self, findings: Mapping[int, Sequence[Finding]]) -> None:
        self.findings, self.all, self.asked = findings, tuple(findings), {}

    def each(self, ask: Any, given: Mapping[Any, Any], shared: Any = None) -> dict[Any, Any]:
        self.asked = dict(given)
        return {rank: {number: self.findings[rank][number] for number in own} for rank, own in given.items()}

    def once(self, ask: Any, files: Sequence[str], shared: Any = None) -> dict[str, Any]:
        raise AssertionError("no file is read again")


@dataclass
class Forecast:
    """Saves a share of the job's step by the number of findings that are fixed, and notes which."""

    shares: Mapping[int, float]
    asked: list[dict[int, tuple[int, ...]]] = field(default_factory=list)

    def saving(self, fixes: Mapping[int, tuple[int, ...]], alone: Saving) -> Saving:
        self.asked.append(dict(fixes))
        share = self.shares[sum(map(len, fixes.values()))]
        return replace(samples.saving(share), low_share=share)


def found(
    rank: int, by: str = "aten::mm", severity: Severity = HIGH, share: float | None = 0.2, **changes: Any
) -> Finding:
    saving = None if share is None else samples.saving(share)
    given = {"message": "The GPU waits.", "advice": "Fix it.", **changes}
    return samples.finding(0, rank=rank, by=by, severity=severity, saving=saving, **given)


def brief(rank: int, at: int, finding: Finding, fixable: bool, fault: int) -> Brief:
    share = None if finding.saving is None else finding.saving.share
    costs = finding.severity, finding.cost_share, finding.cost_per_step_ns, share
    return Brief(rank, at, finding.rule, finding.cause, finding.by, *costs, fixable, fault)


def joined(
    ranks: Mapping[int, Sequence[Finding]],
    forecast: Forecast | None = None,
    *,
    faults: Mapping[int, Sequence[int]] | None = None,
    savings: float = 0.3,
    fixable: bool = True,
) -> tuple[OfJob, Told]:
    told = Told(ranks)
    said = []
    for rank, findings in ranks.items():
        number = tuple((faults or {}).get(rank, range(len(findings))))
        many = max(number, default=-1) + 1
        briefs = tuple(brief(rank, at, one, fixable, number[at]) for at, one in enumerate(findings))
        own = FaultOf(number, tuple(samples.saving(savings + 0.1 * at) for at in range(many)), (HIGH,) * many)
        said.append(OfRank(samples.trace(rank), briefs, own, (), ()))
    given: Any = forecast
    return of_job(told, said, given), told


def test_the_rank_that_has_it_worst_speaks_for_all() -> None:
    """By severity, then by what it saves; the first of equal ones."""
    for severities, shares, rank in (
        ((LOW, HIGH), (0.5, 0.2), 1),
        ((HIGH, HIGH), (0.2, 0.5), 1),
        ((HIGH, HIGH), (0.2, 0.2), 0),
    ):
        given = {
            at: [found(at, severity=one, share=share)]
            for at, (one, share) in enumerate(zip(severities, shares, strict=True))
        }
        (one,) = joined(given)[0].findings
        assert (one.rank, one.ranks) == (rank, (0, 1))


@pytest.mark.parametrize(("ranks", "most"), [(1, 1_000), (4, 250), (200, 10)])
def test_a_finding_of_many_ranks_lists_less_of_each(ranks: int, most: int) -> None:
    _, told = joined({rank: [found(rank)] for rank in range(ranks)})
    assert told.asked == {0: {0: most}}


def test_cost_is_per_rank_and_subject_if_they_differ() -> None:
    first = [found(0, cost_per_step_ns=10), found(0, cost_per_step_ns=5)]
    (one,) = joined({0: first, 3: [found(3, cost_per_step_ns=7)]})[0].findings
    assert (one.ranks, one.cost_by_rank_ns) == ((0, 3), (15, 7))
    assert one.message.startswith("on rank 0, The GPU waits")
    even = {rank: [found(rank, cost_per_step_ns=7)] for rank in (0, 3)}
    (one,) = joined(even)[0].findings
    assert one.message.startswith("The GPU waits")


def test_causes_stay_apart_and_a_group_is_fixed_together() -> None:
    forecast = Forecast({1: 0.04, 2: 0.2})
    given = {0: [found(0), found(0, by="aten::add")], 1: [found(1), found(1, cause="early")]}
    job, _ = joined(given, forecast)
    assert [(one.by, one.cause, one.ranks) for one in job.findings] == [
        ("aten::mm", "late", (0, 1)),
        ("aten::add", "late", (0,)),
        ("aten::mm", "early", (1,)),
    ]
    assert forecast.asked == [{0: (0,), 1: (0,)}, {0: (1,)}, {1: (1,)}]
    assert [one.severity for one in job.findings] == [HIGH, MEDIUM, MEDIUM]
    assert job.fixes == {0: (0, 1), 1: (0, 1)}


def test_only_what_has_an_edit_is_replayed() -> None:
    forecast = Forecast({1: 0.04})
    job, _ = joined({0: [found(0)]}, forecast, fixable=False)
    assert not forecast.asked
    assert job.findings[0].severity is HIGH


@pytest.mark.parametrize(
    ("alone", "in_job", "paced"), [(0.03, 0.001, True), (0.0299, 0.001, False), (0.2, 0.001, True), (0.2, 0.005, False)]
)
def test_large_rank_saving_without_job_saving_comes_later(alone: float, in_job: float, paced: bool) -> None:
    job, _ = joined({0: [found(0, share=alone)]}, Forecast({1: in_job}))
    assert job.findings[0].advice.startswith("Other ranks are slower: ") is paced
    assert job.findings[0].advice.endswith("Fix it.")
    assert (job.findings[0].severity is INFO) is (in_job < 0.005)
    assert bool(job.fixes) is (in_job >= 0.005)


def test_faultless_rank_is_not_paced_by_possible_savings() -> None:
    job, _ = joined({0: [found(0, severity=INFO)]}, Forecast({1: 0.2}))
    assert job.findings[0].severity is INFO
    assert not job.findings[0].advice.startswith("Other ranks")


def test_waiting_is_no_fault_of_a_replayed_job() -> None:
    given = {0: [found(0, share=None, cause="waiting")]}
    assert joined(given, Forecast({}))[0].findings[0].severity is INFO
    assert joined(given)[0].findings[0].severity is HIGH


def test_fault_saves_the_job_its_findings_together() -> None:
    """0.04 by each of two, 0.15 by both; on the second rank it is the second fault of two."""
    forecast = Forecast({1: 0.04, 2: 0.15})
    given = {1: [found(1, by="alone"), found(1, by="first"), found(1, by="second")]}
    job, _ = joined(given, forecast, faults={1: (0, 1, 1)})
    assert job.faults.number == (0, 1, 1)
    assert [one and one.share for one in job.faults.savings] == [0.04, 0.15]
    assert job.faults.severities == (MEDIUM, HIGH)
    assert {1: (1, 2)} in forecast.asked


def test_a_fault_is_that_of_the_rank_which_its_finding_is_about() -> None:
    """Without a replay of the job it is worth what it is worth there: 0.3 of the first fault, 0.4 of the second."""
    given = {0: [found(0, by="other")], 1: [found(1, by="a", share=0.5), found(1, by="b"), found(1, by="c")]}
    job, _ = joined(given, faults={1: (0, 1, 1)})
    assert job.faults.number == (0, 1, 2, 2)
    assert [one and round(one.share, 3) for one in job.faults.savings] == [0.2, 0.5, 0.4]


def test_fault_severity_is_the_worst_and_none_is_replayed() -> None:
    given = {0: [found(0, by="a", severity=LOW), found(0, by="b", severity=MEDIUM)]}
    assert joined(given, faults={0: (0, 0)})[0].faults.severities == (MEDIUM,)
    forecast = Forecast({1: 0.0, 2: 0.2})
    quiet = {0: [found(0, by="a"), found(0, by="b")]}
    job, _ = joined(quiet, forecast, faults={0: (0, 0)})
    assert job.faults.severities == (INFO,)
    assert {0: (0, 1)} not in forecast.asked
    assert job.fixes == {}


def test_outcomes_are_the_jobs_if_all_ranks_agree() -> None:
    def of(rank: int, why: str) -> list[Outcome]:
        clear = Outcome("host-gap", Status.CLEAR, None, rank)
        return [clear, Outcome("straggler", Status.NOT_APPLICABLE, why, rank)]

    assert outcomes_of([of(0, "no steps"), of(1, "no steps")]) == (
        Outcome("host-gap", Status.CLEAR, None, None),
        Outcome("straggler", Status.NOT_APPLICABLE, "no steps", None),
    )
    assert [(one.rank, one.why) for one in outcomes_of([of(0, "no steps"), of(1, "no shapes")])] == [
        (None, None),
        (0, "no steps"),
        (1, "no shapes"),
    ]
