"""What a finding is worth to a job whose ranks wait for each other."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.job.ranks import Reductions, job_of
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer import Report, diagnose, load_job
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.report.pace import at_pace, together_at_pace
from traceanalyzer.report.slowest import slowest_of


def head(rank: int, step_ns: int, waiting_ns: int | None) -> TraceReport:
    """One rank that communicates."""
    time = samples.accounting(parts_ns={"compute": 50 * MS, "communication": 50 * MS})
    step = samples.estimate(step_ns)
    return samples.trace(rank, step=step, together=step, waiting_ns=waiting_ns, accounting=(time,))


def saves(rank: int) -> Finding:
    return replace(samples.findings(rank)[0], saving=samples.saving(), severity=Severity.HIGH)


def waits(rank: int) -> Finding:
    return replace(
        samples.findings(rank)[0], rule="exposed-communication", cause="waiting", severity=Severity.LOW
    )


def test_of_ranks_that_take_about_as_long_the_slowest_is_the_one_that_waits_least() -> None:
    first, second = head(0, 18_600_000, 8 * MS), head(1, 18_200_000, 0)
    assert slowest_of([first, second]) is second
    assert slowest_of([replace(first, waiting_ns=None), second]).rank == 0  # type: ignore[union-attr]
    assert slowest_of([first, replace(second, step=samples.estimate(16 * MS))]) is first


def test_what_a_waiting_rank_would_save_is_nothing_to_the_job() -> None:
    heads = [head(0, 6 * MS, 12 * MS), head(1, 18 * MS, 0)]
    own, others = at_pace(heads, [saves(1), saves(0)])
    assert own == saves(1)
    assert others.severity is Severity.INFO
    assert others.advice.startswith("Rank 1 sets the pace")
    near = [head(0, 17 * MS, 12 * MS), heads[1]]
    assert at_pace(near, [saves(0)]) == (saves(0),)
    alone = [replace(one, waiting_ns=None) for one in heads]
    assert at_pace(alone, [saves(0)]) == (saves(0),)


def test_waiting_that_the_profiler_alone_makes_is_no_fault() -> None:
    heads = [head(0, 18_400_000, 12 * MS), head(1, 18 * MS, 0)]
    (found,) = at_pace(heads, [waits(0)])
    assert found.severity is Severity.INFO
    assert found.message.endswith("Without the profiler this rank probably comes no earlier than the others")
    assert at_pace([head(0, 9 * MS, 12 * MS), heads[1]], [waits(0)]) == (waits(0),)


def test_fixes_that_are_worth_nothing_bring_the_step_nowhere() -> None:
    one = replace(head(0, 6 * MS, 12 * MS), together=samples.estimate(3 * MS))
    assert together_at_pace(one, [replace(saves(0), severity=Severity.INFO), saves(1)]).together == one.step
    assert together_at_pace(one, [saves(0)]) is one


def test_a_job_is_said_to_wait_for_its_slowest_rank(tmp_path: Path) -> None:
    report = diagnose(job_of(Reductions({0: (1_000,) * 5, 1: (3_000,) * 5}), tmp_path))
    assert [trace.waiting_ns for trace in report.traces] == [pytest.approx(2 * MS), 0]
    alone = [trace.step.unprofiled_ns for trace in report.traces if trace.step is not None]
    assert alone == pytest.approx([1_120_000, 3_120_000], rel=0.03)
    late = [found for found in report.findings if found.cause == "waiting"]
    assert [(found.rank, found.evidence["late"]) for found in late] == [(0, {"rank 1": 10 * MS})]
    assert "10.0 ms of 10.5 ms this rank waits for rank 1" in late[0].message
    assert "all ranks at once" not in late[0].advice


Shared = Callable[[str], Path]


def job(shared: Shared, name: str) -> Report:
    return diagnose(load_job(*(shared(f"{name}.rank{rank}") for rank in (0, 1))), select=["hotspot"])


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"ranks/{name}"
            for name in ("moe_a2a.bad", "moe_a2a.fixed", "imbalance.bad", "hiccup.bad", "no_sync.bad")
        ),
        *(f"ddp/{name}" for name in ("exposed", "one_bucket", "overlap", "straggler_gpu")),
        "ranks/tensor_parallel.fixed",
    ],
)
def test_the_slowest_rank_takes_as_long_as_the_job_did_without_the_profiler(
    name: str, shared: Shared
) -> None:
    slowest = slowest_of(job(shared, name).traces)
    assert slowest is not None
    assert slowest.step is not None
    meta = json.loads(Path(str(shared(f"{name}.rank0")).replace(".json.gz", ".meta.json")).read_text())
    times = meta["unprofiled_step_ms"]
    true_ns = 1e6 * (statistics.median(times) if isinstance(times, list) else times)
    assert slowest.step.unprofiled_ns == pytest.approx(true_ns, rel=0.06)
    assert slowest.step.low_ns <= true_ns <= slowest.step.high_ns


@pytest.mark.parametrize(
    ("name", "rank", "alone_ms"),
    [("ranks/hiccup.bad", 1, 8.1), ("ddp/straggler_gpu", 0, 11.1), ("ranks/imbalance.fixed", 1, 10.0)],
)
def test_what_streams_waited_for_goes_with_the_waiting(
    name: str, rank: int, alone_ms: float, shared: Shared
) -> None:
    """Gradients are unpacked bucket by bucket, each when its all-reduce has ended: no gap is left in their place."""
    step = job(shared, name).traces[rank].step
    assert step is not None
    assert step.unprofiled_ns / 1e6 == pytest.approx(alone_ms, abs=0.2)
