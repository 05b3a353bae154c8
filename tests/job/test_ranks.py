"""Ranks that are asked: what one cannot answer is missing of it alone."""

from __future__ import annotations

from pathlib import Path

from tests.job.ranks import US, Reductions, job_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose, load_job
from traceanalyzer.job.cross_rank_indexes import introduce
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis

UNEVEN = {0: (500, 500, 500, 500), 1: (900, 900, 900, 900), 2: (500, 500, 500, 500)}


def cpu_only(rank: int, path: Path) -> Path:
    """A rank whose GPU was not recorded."""
    trace = TraceBuilder(distributedInfo={"rank": rank, "world_size": 4})
    for step in range(4):
        trace.step(step, 1_000_000 * (step + 1), 900 * US)
        trace.op("aten::mm", 1_000_000 * (step + 1) + US, 800 * US)
    return trace.write(path)


def test_rank_without_collectives_is_named_not_hiding_the_job(tmp_path: Path) -> None:
    job_of(Reductions(UNEVEN), tmp_path)
    cpu_only(3, tmp_path / "rank3.json")
    whole = diagnose(load_job(tmp_path))
    (tmp_path / "rank3.json").unlink()
    others = diagnose(load_job(tmp_path))
    assert whole.job is not None
    assert others.job is not None
    assert "collective in common" in (whole.job.unavailable or {})["rank 3"]
    assert whole.job.step == others.job.step
    assert [one.rank for one in whole.traces] == [0, 1, 2, 3]
    assert [one.rank for one in whole.job.ranks] == [0, 1, 2]


def test_ranks_that_cannot_answer_are_left_out(tmp_path: Path) -> None:
    job_of(Reductions(UNEVEN), tmp_path)
    cpu_only(3, tmp_path / "rank3.json")
    view = introduce(Here({rank: Analysis(trace) for rank, trace in load_job(tmp_path).items()}))
    assert view is not None
    assert set(view.waits) == {0, 1, 2}
