"""A job of which one rank has nothing in common with the others, and what is decided of ranks before a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.job.ranks import Reductions, job_of
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.report.test_diagnose import busy_trace
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.job.ranks import Here, JobView, Ranks
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption, Unavailable
from traceanalyzer.model.finding import Severity, Status
from traceanalyzer.model.trace import Job
from traceanalyzer.replay import sample
from traceanalyzer.report import diagnosis, job_replay, rank_report
from traceanalyzer.report.diagnosis import analyses_of, left_together, report_of_ranks, view_of
from traceanalyzer.report.job_replay import hours, replay_order, replayed_together, sample_alike, sampled
from traceanalyzer.report.job_summary import collectives_of_job
from traceanalyzer.timeline.device_work import DeviceWork

US = 1_000


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Rank 1 computes for 3 ms and rank 0 for 1; rank 2 of four reduces nothing."""
    two = job_of(Reductions({0: (1_000,) * 5, 1: (3_000,) * 5}), tmp_path)
    return Job({**two, 2: busy_trace(10, distributedInfo={"rank": 2, "world_size": 4})})


def test_rank_that_shares_nothing_has_its_own_step_and_fixes(job: Job) -> None:
    report = diagnose(job)
    assert report.job is not None
    assert report.job.step is not None
    first, second, alone = report.traces
    assert first.step is not None
    assert alone.step is not None
    assert (first.together, second.together) == (report.job.together,) * 2
    assert report.job.together is not None
    assert report.job.together.unprofiled_ns == pytest.approx(1_100 * US, rel=0.01)
    assert first.step.unprofiled_ns == report.job.step.unprofiled_ns == pytest.approx(3_100 * US, rel=0.01)
    assert second.step is not None
    assert (first.step.gpu_ns, second.step.gpu_ns) == (1_100 * US, 3_100 * US)
    assert alone.step.traced_ns == 4 * MS
    assert alone.together is not None
    assert alone.together.basis != report.job.together.basis
    assert list(report.job.unavailable or {}) == ["rank 2"]
    assert (report.job.missing, report.job.culprits) == ((3,), (1,))
    told = {rank: [one.rank for one in trace.faults_findings] for rank, trace in enumerate(_with(report))}
    assert told == {rank: [rank] * len(found) for rank, found in told.items()}


def _with(report: Any) -> list[Any]:
    """The traces with the first finding of each of their faults."""
    return [
        SimpleNamespace(faults_findings=[report.findings[one.findings[0] - 1] for one in trace.faults])
        for trace in report.traces
    ]


def test_only_ranks_of_the_job_can_be_as_their_peers(job: Job) -> None:
    analyses = dict(analyses_of(job))
    with pytest.raises(BadOption, match="rank 2 is not among the traces"):
        report_of_ranks(Here(analyses), view_of(analyses), rank_report.Asked(), [1, 2])
    with pytest.raises(BadOption, match="needs the traces of several ranks"):
        report_of_ranks(Here({2: analyses[2]}), None, rank_report.Asked(), [2])


def test_only_waiting_ranks_with_traces_know_others(job: Job) -> None:
    analysed = dict(analyses_of(job))
    assert view_of(analysed) is not None
    assert view_of({rank: analysed[rank] for rank in (0, 1)}) is not None
    assert view_of({0: analysed[0]}) is None
    with pytest.raises(Unavailable):
        analysed[2].index(JobView)


def test_collectives_are_of_common_ranks_others_are_named(job: Job) -> None:
    analysed = dict(analyses_of(job))
    told = collectives_of_job(Here(analysed), view_of(analysed))
    assert [(one.ranks, one.count) for one in told.collectives] == [((0, 1), 5)]
    assert (sorted(told.clocks), told.alone) == ([0, 1], (2,))
    assert told.slowdown is not None
    assert told.slowdown.s > 1
    with pytest.raises(Unavailable, match="no collective in common"):
        collectives_of_job(Here({2: analysed[2]}), None)


def test_omitted_rules_appear_once_per_job_or_trace(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(slug="my-rule", file="my_rule.py", error="SyntaxError")
    monkeypatch.setattr(diagnosis, "broken_files", lambda: [broken])

    def told(traces: Job) -> list[tuple[int | None, Status, str | None]]:
        outcomes = diagnose(traces, select=["host-gap"]).outcomes
        return [(one.rank, one.status, one.why) for one in outcomes if one.rule == "my-rule"]

    why = "my_rule.py is left out: SyntaxError"
    assert told(job) == [(None, Status.FAILED, why)]
    assert told(Job({2: job[2], 5: job[2]})) == [(2, Status.FAILED, why), (5, Status.FAILED, why)]


def test_a_finding_without_a_saving_leaves_nothing_to_give() -> None:
    head = samples.trace(0, step=samples.estimate(), together=samples.estimate(9 * MS))
    high = replace(samples.findings(0)[0], severity=Severity.HIGH, saving=None)
    assert left_together(head, [high]).together == head.step
    assert left_together(head, [replace(high, saving=samples.saving())]) is head


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ((8 * MS, None), "outside the trace"),
        ((None, 0), "outside the trace"),
        ((3 * MS, 3 * MS), "ends before it starts"),
    ],
)
def test_empty_window_is_refused_by_file_name(window: tuple[int | None, int | None], words: str) -> None:
    trace = busy_trace()
    with pytest.raises(BadOption, match=words) as error:
        diagnose(trace, window=window)
    assert error.value.where == trace.meta.source
    for least in ((8 * MS - 1, None), (None, 1), (3 * MS, 3 * MS + 1)):
        assert diagnosis.restricted(trace, least).window.asked_ns is not None


# -- what ranks are asked before they are replayed ---------------------------------------------------------


def test_ranks_replay_by_outliers_delays_then_time() -> None:
    """In turn: who held up the others longest, and who takes longest."""
    steps = {0: 10, 1: 40, 2: 30, 3: 40, 4: 20}
    forecasts: Any = {rank: SimpleNamespace(step=SimpleNamespace(unprofiled_ns=ns)) for rank, ns in steps.items()}
    held = {0: 7.0, 1: 0.0, 2: 9.0, 3: 0.0, 4: 8.0}
    assert replay_order([], forecasts, held) == [2, 1, 4, 3, 0]
    assert replay_order([0, 4], forecasts, held) == [4, 0, 2, 1, 3]


@dataclass
class Asked(Ranks):
    """Ranks that answer these one after the other, and note what they are asked."""

    answers: list[dict[Any, Any]]
    asked: list[tuple[str, Any]] = field(default_factory=list)
    given: list[Mapping[Any, Any]] = field(default_factory=list)

    def each(self, ask: Any, given: Mapping[Any, Any], shared: Any = None) -> dict[Any, Any]:
        self.asked.append((ask.__name__, shared))
        self.given.append(given)
        return self.answers.pop(0) if self.answers else {}

    def once(self, ask: Any, files: Sequence[str], shared: Any = None) -> dict[str, Any]:
        raise AssertionError("no file is read again")


def steps(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("chosen", "alike"),
    [({0: steps(3, 2, 4), 1: steps(2, 3)}, [2, 3]), ({0: steps(2, 3)}, None), ({0: steps(2), 1: steps(3)}, None)],
)
def test_ranks_are_replayed_by_the_steps_that_all_of_them_have(
    chosen: dict[int, frozenset[int]], alike: list[int] | None
) -> None:
    """Not where one of two has none that stand for it."""
    ranks = Asked([chosen])
    sample_alike(ranks, {0: None, 1: None})
    told = [{rank: one.number.tolist() for rank, one in given.items()} for given in ranks.given[1:]]
    assert told == ([] if alike is None else [{0: alike, 1: alike}])


def test_others_wait_by_mean_step_and_step_is_a_median() -> None:
    """A kernel before the steps, four steps of 1, 1, 1 and 5 ms with one each, and one that launches nothing."""
    trace = TraceBuilder()
    at = 100 * US
    for number, length in enumerate((0, 1_000, 1_000, 1_000, 5_000, 1_000)):
        if number:
            trace.step(number, at, length * US)
        if number < 5:
            trace.op("aten::mm", at + US, 20 * US)
            trace.launched((at + 5 * US, 5 * US), (at + 12 * US, 50 * US), number + 1)
        at += max(length, 100) * US
    analysis = Analysis(trace.load())
    entry = np.arange(len(analysis.index(DeviceWork).row))
    held = np.array([1_000.0, 10.0, 20.0, 30.0, 40.0])
    _, waits_ns, took_ns = hours(analysis, (entry, held), None)
    assert waits_ns == 25.0
    assert took_ns == pytest.approx(1_000 * US, rel=0.06)


@pytest.mark.parametrize(("pipelined", "told"), [(False, [0, 1]), (True, [1])])
def test_uneven_compute_is_normal_only_in_pipeline_stages(
    monkeypatch: pytest.MonkeyPatch, pipelined: bool, told: list[int]
) -> None:
    """And a job is not replayed without a rank that cannot be: it says why."""
    knowing: list[list[int]] = []

    class Told(Asked):
        def each(self, ask: Any, given: Mapping[Any, Any], shared: Any = None) -> dict[Any, Any]:
            if ask.__name__ == "know":
                knowing.append(list(given))
            return super().each(ask, given, shared)

    more = {rank: SimpleNamespace(computes_more=rank == 0) for rank in (0, 1)}
    monkeypatch.setattr(job_replay, "excess_by_rank", lambda *_: more)
    view: Any = SimpleNamespace(
        waits={rank: SimpleNamespace(entry=None) for rank in (0, 1)},
        held_up_ns=lambda: {rank: np.zeros(1) for rank in (0, 1)},
        pipelined=pipelined,
    )
    ranks = Told([{}, dict.fromkeys((0, 1), (None, 0.0, 1.0)), {}, {1: "rank 1 has no steps"}])
    with pytest.raises(Unavailable, match="rank 1 has no steps"):
        replayed_together(ranks, view, 1.0)
    assert knowing == [told]
    assert ranks.asked[-1] == ("forecast", 1.0)


@pytest.mark.parametrize(("most_rows", "numbers"), [(1_000, {0}), (20, set())])
def test_a_step_that_is_replayed_in_part_stands_for_no_rank(
    monkeypatch: pytest.MonkeyPatch, most_rows: int, numbers: set[int]
) -> None:
    monkeypatch.setattr(sample, "_MAX_ROWS_OF_ONE", most_rows)
    trace = TraceBuilder()
    trace.step(0, 0, MS)
    for number in range(30):
        at = 30 * number * US
        trace.op("aten::mm", at + US, 20 * US)
        trace.launched((at + 5 * US, 5 * US), (at + 12 * US, 10 * US), number + 1)
    assert sampled(Analysis(trace.load()), None, None) == numbers
