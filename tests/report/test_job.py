"""Recorded jobs of two ranks: the step without the profiler, who holds up whom, and what the fixes save the job."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job.ranks import Reductions
from tests.support.cached_reports import reported_pair
from traceanalyzer import diagnose, load_job
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.step_times import RECORDING
from traceanalyzer.model.units import format_ns

Shared = Callable[[str], Path]


def measured_ns(shared: Shared, name: str) -> float:
    meta = json.loads(Path(str(shared(f"{name}.rank0")).replace(".json.gz", ".meta.json")).read_text())
    times = meta["unprofiled_step_ms"]
    return 1e6 * (statistics.median(times) if isinstance(times, list) else times)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ranks/moe_a2a.bad",
            "ranks/imbalance.bad",
            "ranks/hiccup.bad",
            "ranks/no_sync.fixed",
            "ranks/pipeline.fixed",
        ),
        *("ddp/exposed", "ddp/overlap", "ddp/straggler_gpu", "ranks2/healthy.bad", "ranks2/unused.bad"),
        *(
            "ranks2/sync_bn.bad",
            "ranks2/slow_gpu.bad",
            "ranks2/small_buckets.bad",
            "ranks2/gather_logits.fixed",
        ),
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


@pytest.mark.parametrize(
    ("name", "rule", "rank"),
    [
        ("ranks/hiccup.bad", "host-gap", 0),
        ("ranks/imbalance.bad", "load-imbalance", 1),
        ("ranks2/slow_gpu.bad", "load-imbalance", 1),
        ("ranks2/rank0_metrics.bad", "straggler", 0),
    ],
)
def test_the_rank_that_holds_up_the_others_comes_first(
    name: str, rule: str, rank: int, shared: Shared
) -> None:
    report = reported_pair(shared, name)
    first = report.findings[0]
    assert (first.rule, first.rank, first.ranks) == (rule, rank, (rank,))
    assert report.job is not None
    assert report.job.culprits == (rank,)
    assert first.saving is not None
    true = 1 - measured_ns(shared, name.replace(".bad", ".fixed")) / measured_ns(shared, name)
    assert first.saving.low_share - 0.02 <= true <= first.saving.high_share + 0.02


@pytest.mark.parametrize("name", ["ranks2/healthy.bad", "ranks/hiccup.fixed", "ranks2/slow_gpu.fixed"])
def test_ranks_that_wait_under_the_profiler_alone_accuse_nobody(name: str, shared: Shared) -> None:
    report = reported_pair(shared, name)
    assert report.job is not None
    assert report.job.culprits == ()
    assert not [one for one in report.findings if one.severity in (Severity.HIGH, Severity.MEDIUM)]


def test_irremovable_wait_is_not_called_the_profilers(shared: Shared) -> None:
    report = reported_pair(shared, "ranks2/slow_gpu.fixed")
    assert report.job is not None
    assert "do the same work, so do not trust this wait" in report.job.summary.limit


def test_the_recorded_step_of_a_job_is_the_longest_of_its_ranks(shared: Shared) -> None:
    report = reported_pair(shared, "ranks2/barrier.bad")
    assert report.job is not None
    longest = max(statistics.median(one.dur_ns) for one in report.job.ranks)
    assert report.job.summary.step.startswith(f"{format_ns(round(longest))} recorded, ")


def test_shares_of_a_hotspot_are_of_the_jobs_step(shared: Shared) -> None:
    """Rank 1 takes 1.2 ms without waiting, the job 5.3 ms."""
    report = reported_pair(shared, "ranks/moe_a2a.bad")
    assert report.job is not None
    assert report.job.step is not None
    step_ns = report.job.step.unprofiled_ns
    for one in report.findings:
        if one.rule == "hotspot":
            assert one.evidence["part_share"] == pytest.approx(one.evidence["gpu_ns"] / step_ns)


@pytest.mark.parametrize(
    ("name", "rule", "share"),
    [
        ("ranks2/small_buckets.bad", "small-buckets", 0.28),
        ("ranks2/fp32_grads.bad", "small-buckets", 0.19),
        ("ranks/tensor_parallel.bad", "exposed-communication", 0.34),
        ("ranks2/gather_logits.bad", "exposed-communication", 0.10),
    ],
)
def test_finding_of_all_ranks_is_one_with_the_jobs_saving(
    name: str, rule: str, share: float, shared: Shared
) -> None:
    report = reported_pair(shared, name)
    found = [one for one in report.findings if one.rule == rule and one.severity is not Severity.INFO]
    assert len(found) == 1
    assert found[0].ranks == (0, 1)
    assert found[0].saving is not None
    assert abs(found[0].saving.share - share) <= 0.1


def test_a_pause_is_one_fault_whoever_names_it(shared: Shared) -> None:
    """As what its peers do not do, and as a gap without an op."""
    first, second = reported_pair(shared, "ranks/hiccup.bad").findings[:2]
    assert (first.rule, second.rule) == ("host-gap", "straggler")
    assert first.fault == second.fault


def test_work_on_the_host_is_said_with_the_copies_that_it_needs(shared: Shared) -> None:
    """One change does away with both: metrics of the logits, which rank 0 copies to the host."""
    report = reported_pair(shared, "ranks2/rank0_metrics.bad")
    first = report.findings[0]
    assert (first.rule, first.cause, first.evidence["copied_bytes"]) == ("straggler", "host-work", 3 << 20)
    assert "it copies 3.00 MiB to the host for that" in first.message
    assert first.advice.startswith("Compute it on the device")
    evidence = {one.rule for one in report.findings[1:] if one.fault == first.fault}
    assert evidence >= {"exposed-copy", "host-hotspot"}
    for name in ("ranks/hiccup.bad", "ranks2/loader.bad"):
        (other,) = (one for one in reported_pair(shared, name).findings if one.rule == "straggler")
        assert "copied" not in other.message


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
    assert both.message.startswith(
        "on rank 1, allreduce runs 6 times a step"
    )  # rank 0 has less than half of it


def test_widened_gradients_are_reported_with_their_bytes(shared: Shared) -> None:
    """Ten of 9,437,184 floats a step, and their biases: twice the bytes of the gradients in bfloat16."""
    report = reported_pair(shared, "ranks2/fp32_grads.bad")
    first = report.findings[0]
    assert first.message == (
        "after the backward pass, 180 MiB of gradients are converted to a wider type (360 MiB) and reduced one by one, "
        "in 20 all-reduces a step; DistributedDataParallel's default, bucket_cap_mb=25, "
        "would make 8 buckets of them (a bucket holds whole gradients, however large)"
    )
    assert report.job is not None
    assert report.job.step is not None
    longest = max(max(one.dur_ns[1:]) for one in report.job.ranks)
    assert report.job.step.traced_ns <= longest  # the last mark, which waits for the whole queue, is 9.7 ms


def test_what_is_reduced_one_by_one_goes_with_its_read_backs(shared: Shared) -> None:
    reduced, read = reported_pair(shared, "ranks/loss_reduce.bad").findings[:2]
    assert (reduced.rule, read.rule) == ("needless-collectives", "implicit-sync")
    assert reduced.fault == read.fault


def test_a_search_for_unused_parameters_is_named(shared: Shared) -> None:
    (found,) = (
        one
        for one in reported_pair(shared, "ranks2/unused.bad").findings
        if one.rule == "find-unused-parameters"
    )
    assert "find_unused_parameters=False" in found.advice
    assert found.ranks == (0, 1)
    assert not [
        one for one in reported_pair(shared, "ranks2/unused.fixed").findings if one.rule == found.rule
    ]


@pytest.mark.parametrize(
    ("told_ms", "step_ms"),
    [
        ((1.11, 1.13), 1.12),
        ((1.12, None), None),
        ((1.12, 90.0), None),
        ((0.0, 1.12), None),
        ((1.15, 1.11), 1.13),
    ],
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
