"""Delays put into recorded jobs: the engine that puts them there, and a sample of what must be found."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.delays import Delay, Rank, end_of, shifted
from benchmarks.injected import KINDS, delayed, is_found, kinds_of
from benchmarks.meetings import paired
from benchmarks.recorded_job import EVENED, JOBS, LATE, RecordedJob, jobs_in, rewritten
from tests.job.ranks import Reductions
from tests.support.paths import SHARED
from tests.support.trace_selection import ALL
from traceanalyzer import diagnose, load_job

SAMPLE = (
    ("ddp/overlap", "compute", 1),
    ("ddp/exposed", "pause", 0),
    ("jobs/torchrec_a2a", "one op", 3),
    ("jobs/torchrec_a2a", "input", 1),
    ("jobs/torchrec_sleep", "link", 2),  # 2.3 times as long
    ("jobs/torchrec_sleep", "compute", 3),  # beside allocator calls of all ranks that save more
    ("jobs/lightllm_base", "compute", 6),
)
ONE_OF_EACH_KIND = (*SAMPLE[:2], SAMPLE[4])  # that takes no seconds
EVERY = [(job, kind, rank) for job in JOBS for kind in KINDS for rank in range(8)]


def built() -> dict[int, Rank]:
    """Two ranks that take turns at being late by 100 us, with a reduction of 100 us in each step."""
    made = Reductions({0: (500, 600) * 3, 1: (600, 500) * 3}).traces()
    ranks = {rank: Rank.of(json.loads(trace.to_json())["traceEvents"]) for rank, trace in made.items()}
    paired(ranks)
    return ranks


def test_nothing_moves_without_a_delay() -> None:
    for moved in shifted(built(), {}).values():
        assert not any(moved.start + moved.end + moved.by)


def test_who_came_early_has_the_time_to_spare() -> None:
    """Rank 0 comes first to even steps: of 150 us the others see 50 there, and all of it in odd ones.

    Between two steps the device is idle for 20 us, all but the way from a launch to its work to spare.
    """
    ranks = built()
    first = {at: 150.0 for at, one in enumerate(ranks[0].work) if at not in ranks[0].meeting}
    moved = shifted(ranks, {0: Delay(slower=first)})
    assert moved[0].end[-1] == moved[1].end[-1] == pytest.approx(3 * 50 + 3 * 150 - 5 * 17)


def test_work_stays_in_order_on_its_stream() -> None:
    ranks = built()
    for one in shifted(ranks, {1: Delay(pauses=[(ranks[1].cpu[0]["ts"] + 1.0, 400.0)])}).values():
        events = [e for e in rewritten(one.rank.work, one) if e["args"]["stream"] == 7]
        assert all(end_of(before) <= after["ts"] + 1e-3 for before, after in pairwise(events))
        assert all(e["dur"] >= 0 for e in events)


@pytest.fixture(scope="module")
def recorded() -> dict[str, RecordedJob]:
    return {}


def _job(recorded: dict[str, RecordedJob], name: str) -> RecordedJob:
    if name not in recorded:
        found = next(iter(jobs_in(SHARED, [name])), None)
        if found is None:
            pytest.skip(f"no shared traces in {SHARED.name}/")
        recorded[name] = found
    return recorded[name]


@pytest.mark.parametrize(
    ("name", "kind", "rank"),
    [
        pytest.param(*one, marks=() if one in ONE_OF_EACH_KIND else pytest.mark.slow)
        for one in (EVERY if ALL else SAMPLE)
    ],
)
def test_the_delayed_rank_comes_first(
    name: str, kind: str, rank: int, recorded: dict[str, RecordedJob], tmp_path: Path
) -> None:
    job = _job(recorded, name)
    if rank not in job.ranks or kind not in kinds_of(job) or (rank != LATE.get(name, rank) and name not in EVENED):
        pytest.skip("no such rank, or another is late as recorded")
    moved = delayed(job, rank, kind, 0.05)
    assert moved is not None
    report = diagnose(load_job(job.written(tmp_path, moved)))
    assert is_found(report, job, rank, kind)
    assert report.job is not None
    assert rank in report.job.culprits


def test_a_longer_delay_is_found_beside_a_pause(recorded: dict[str, RecordedJob], tmp_path: Path) -> None:
    job = _job(recorded, "jobs/torchrec_sleep")
    moved = delayed(job, 2, "compute", 0.15)
    assert moved is not None
    report = diagnose(load_job(job.written(tmp_path, moved)))
    assert is_found(report, job, 2, "compute")
    assert report.job is not None
    assert report.job.culprits == (2,)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("jobs/torchrec_a2a", marks=pytest.mark.slow),
        pytest.param("jobs/lightllm_base", marks=pytest.mark.slow),
        "ddp/overlap",
        pytest.param("ddp/exposed", marks=pytest.mark.slow),
        pytest.param("ddp/fsdp", marks=pytest.mark.slow),
    ],
)
def test_unchanged_jobs_accuse_nobody(name: str, recorded: dict[str, RecordedJob], tmp_path: Path) -> None:
    """Without the pauses of the rank that is late in jobs/torchrec_a2a."""
    report = diagnose(load_job(_job(recorded, name).written(tmp_path, None)))
    assert report.job is not None
    assert report.job.culprits == ()
