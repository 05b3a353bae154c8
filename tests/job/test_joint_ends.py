"""Communication that only the ranks together show, and how much of it is found without names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.renamed import jobs_in, measured_of
from tests.job.ranks import EARLY, ENDS, LATE, rank
from tests.support.paths import SHARED
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import ALL
from traceanalyzer.job.cross_rank_indexes import RankKernels, waiting_together
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork

RENAMED = ("jobs/deepseek_v3_train.", "jobs/lightllm_overlap/", "ranks/moe_a2a.fixed.", "ddp/exposed.")


@pytest.mark.parametrize("ahead", [0, 7_000_000])
def test_kernels_that_end_together_wait_for_each_other(ahead: int) -> None:
    other = rank([one + ahead for one in LATE], [one + ahead for one in ENDS])
    assert waiting_together({0: rank(EARLY, ENDS), 1: other}) == {"k"}


def test_last_executions_count_of_a_longer_recording() -> None:
    """Recordings end together: two executions more come first."""
    longer = rank([-9_000, -8_000, *EARLY], [-8_950, -7_950, *ENDS])
    assert waiting_together({0: longer, 1: rank(LATE, ENDS)}) == {"k"}


def test_kernels_that_take_as_long_wherever_they_start_compute() -> None:
    first, second = (rank(starts, [one + 90 for one in starts]) for starts in (EARLY, LATE))
    assert waiting_together({0: first, 1: second}) == frozenset()


def test_durations_that_differ_by_chance_compute() -> None:
    chance = np.random.default_rng(1)
    ranks = {
        number: rank(
            EARLY, [one + int(took) for one, took in zip(EARLY, chance.integers(50, 90, 5), strict=True)]
        )
        for number in range(4)
    }
    assert waiting_together(ranks) == frozenset()


def test_one_rank_alone_and_a_few_executions_tell_nothing() -> None:
    assert waiting_together({0: rank(EARLY, ENDS)}) == frozenset()
    few = {0: rank(EARLY[:3], ENDS[:3]), 1: rank(LATE[:3], ENDS[:3])}
    assert waiting_together(few) == frozenset()


def test_what_one_rank_shows_holds_of_all() -> None:
    known = RankKernels({}, frozenset({"k"}))
    assert waiting_together({0: known, 1: rank(EARLY, [one + 90 for one in EARLY])}) == {"k"}


def test_kernels_that_wait_are_found_among_copies_and_products() -> None:
    """A kernel of no known name on 20 blocks; before each comes a copy of 10 us and a product of 40 us."""
    ranks = {}
    for number, starts in enumerate((EARLY, LATE)):
        built = TraceBuilder(distributedInfo={"rank": number, "world_size": 2})
        for i, (start, end) in enumerate(zip(starts, ENDS, strict=True)):
            before = (ENDS[i] - 890) * 1_000
            built.memcpy(before, 10_000, 3 * i + 1)
            built.kernel(before + 20_000, 40_000, 3 * i + 2, name="sm90_xmma_gemm_f32f32")
            built.kernel(start * 1_000, (end - start) * 1_000, 3 * i + 3, name="exchanged", grid=(20, 1, 1))
        trace = built.load()
        ranks[number] = RankKernels.of(trace, Analysis(trace).index(DeviceWork))
    for found, starts in zip(ranks.values(), (EARLY, LATE), strict=True):
        assert set(found.runs) == {"exchanged"}
        began, took = found.runs["exchanged"]
        assert began.tolist() == [1_000 * one for one in starts]
        assert took.tolist() == [1_000 * (end - one) for one, end in zip(starts, ENDS, strict=True)]
    assert waiting_together(ranks) == {"exchanged"}


def _folder(name: str) -> Path:
    return SHARED / name.partition("/")[0]


@pytest.mark.parametrize("name", RENAMED)
def test_communication_is_found_though_its_kernels_are_renamed(name: str) -> None:
    if not _folder(name).is_dir():
        pytest.skip(f"no shared traces in {SHARED.name}/")
    alone, together = measured_of(jobs_in(_folder(name))[name], ("alone", "together"))
    assert together[0] >= 0.95 * together[1]
    assert alone[0] >= 0.8 * alone[1]
    for found in (alone, together):
        assert found[2] <= 0.01 * found[3]


@pytest.mark.skipif(not ALL, reason="all jobs: TRACEANALYZER_ALL=1")
def test_communication_of_all_jobs_is_found_though_renamed() -> None:
    folders = [SHARED / name for name in ("jobs", "ranks", "ranks2", "ddp") if (SHARED / name).is_dir()]
    for ranks in (ranks for folder in folders for ranks in jobs_in(folder).values()):
        (together,) = measured_of(ranks, ("together",))
        assert together[2] <= 0.01 * together[3]
