"""Folders of jobs as tools lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builder import TraceBuilder
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read.folders import rank_of_name
from traceanalyzer.read.load import load_job


def trace(rank: int | None = None) -> TraceBuilder:
    made = TraceBuilder() if rank is None else TraceBuilder(distributedInfo={"rank": rank, "world_size": 4})
    made.op("aten::mm", 1_000, 10_000)
    made.launch("cudaLaunchKernel", 2_000, 3_000, 1)
    made.kernel(20_000, 10_000, 1)
    return made


def write(path: Path, rank: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    trace(rank).write(path)


def test_of_several_iterations_the_last_is_read(tmp_path: Path) -> None:
    for iteration in (9, 10):
        for rank in (0, 1):
            write(tmp_path / f"iteration_{iteration}" / f"rank{rank}_trace.json", rank)
    job = load_job(tmp_path)
    assert sorted(job) == [0, 1]
    assert all("iteration_10" in one.meta.source for one in job.values())
    assert [Path(one.path).parent.name for one in job.skipped] == ["iteration_9", "iteration_9"]


def test_a_folder_for_each_rank_is_one_job(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        write(tmp_path / f"rank{rank}" / "trace.json")
    job = load_job(tmp_path)
    assert {rank: Path(one.meta.source).parent.name for rank, one in job.items()} == {
        0: "rank0",
        1: "rank1",
        10: "rank10",
    }


def test_names_tell_ranks_that_traces_do_not_declare(tmp_path: Path) -> None:
    for rank in (3, 7):
        write(tmp_path / f"worker_rank-{rank}.123.pt.trace.json")
    assert sorted(load_job(tmp_path)) == [3, 7]


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableTrace):
        load_job(tmp_path)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("/a/rank3_trace.json.gz", 3),
        ("/a/rank-12.json", 12),
        ("/a/rank_0/trace.json", 0),
        ("/a/host.rank=5.json", 5),
        ("/a/prank3.json", None),
        ("/a/trace.json", None),
    ],
)
def test_ranks_of_names(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank
