"""S = T / T_ideal: of built jobs, and of two large ones whose published numbers are reproduced from their op tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pandas as pd
import pytest

from tests.job.ranks import job, view_of
from tests.support.paths import SHARED
from traceanalyzer.job.slowdown import Program, Slowdown, Task, of_job, slowdown, stages_of

FOLDER = SHARED / "jobs" / "straggler_analysis"
PIPES = {"forward-send": 0, "forward-recv": -1, "backward-send": 0, "backward-recv": 1}  # stage that sends
SHARED_BY_STAGE = ("params-all-gather", "grads-reduce-scatter")


def test_even_ranks_are_not_slowed_and_one_late_rank_is_why() -> None:
    even = {rank: [[Task("compute", 10.0)], [Task("move", 2.0, "sum")]] for rank in range(4)}
    assert slowdown([even], {}).s == pytest.approx(1.0)
    late: Mapping[int, Program] = {**even, 2: [[Task("compute", 30.0)], [Task("move", 2.0, "sum")]]}
    found = slowdown([late], {}, (1, 2))
    assert found.s == pytest.approx(32 / 17)
    assert found.by_rank == {1: pytest.approx(1.0), 2: pytest.approx(32 / 17)}


def test_a_transfer_takes_the_median_of_its_ranks_on_even_ones() -> None:
    """One rank of four sees 42 instead of 2, after 10 of compute that all take."""
    ranks: Mapping[int, Program] = {
        rank: [[Task("compute", 10.0)], [Task("move", 42.0 if rank == 3 else 2.0, "sum")]]
        for rank in range(4)
    }
    assert slowdown([ranks], {}).s == pytest.approx((10 + 42) / (10 + 2))


def test_tasks_that_wait_for_each_other_end() -> None:
    circle: Mapping[int, Program] = {
        0: [[Task("a", 1.0, "a")], [Task("b", 1.0, "b")]],
        1: [[Task("b", 1.0, "b")], [Task("a", 1.0, "a")]],
    }
    assert slowdown([circle], {}).s >= 0


def test_recorded_ranks_by_what_they_do_between_collectives() -> None:
    found = of_job(view_of(job(4, {})))
    assert found is not None
    assert 1.0 <= found.s < 1.1
    assert sorted(found.by_rank) == [0, 1, 2, 3]
    assert found.by_stage == {}


def test_a_pipeline_is_ordered_by_who_sends_first() -> None:
    runs = job(3, {}, what="sendrecv", group="1 to 0") | job(2, {}, what="sendrecv", group="0 to 2", first=3)
    assert stages_of(view_of(runs)) == {0: 1, 1: 0, 2: 2}


@pytest.mark.parametrize(("name", "s"), [("ST", 1.18), pytest.param("SE", 1.54, marks=pytest.mark.slow)])
def test_published_jobs(name: str, s: float) -> None:
    if not FOLDER.exists():
        pytest.skip("no shared traces")
    published = json.loads((FOLDER / f"result-{name}.json").read_text())
    found = published_job(name)
    assert found.s == pytest.approx(s, abs=0.02)
    assert found.s == pytest.approx(published["blocking_slowdown"], abs=0.02)
    for stage, own in published["blocking_decompose_by_stage"].items():
        assert found.by_stage[int(stage)] == pytest.approx(own, abs=0.02)


def published_job(name: str) -> Slowdown:
    """From the table of ops: start and duration by rank, step and kind."""
    ops = pd.read_parquet(FOLDER / f"trace-{name}.parquet")
    ops = ops[ops.optype != "first-op"].reset_index(drop=True)
    ops["kind"] = ops.optype.astype(str)
    ops["end"] = ops.start_ts.astype(float) + ops.duration.astype(float)
    ops["meets"] = list(meetings(ops))
    last = ops.groupby("meets").start_ts.transform("max")
    ops["ns"] = 1e9 * ops.duration.where(ops.meets == "", (ops.end - last).clip(lower=0))
    ops["kind"] = ops.kind.str.replace(r"-(send|recv)$", "", regex=True)
    steps = [dict(programs(step)) for _, step in ops.groupby("step")]
    return slowdown(steps, dict(zip(ops["rank"], ops.stage, strict=True)))


def meetings(ops: pd.DataFrame) -> Iterator[str]:
    """Which transfer each op is, empty of compute; by step, pipeline, stage and number."""
    columns = (ops.kind, ops.step, ops.dp_rank, ops.stage, ops.seq_id, ops.mc)
    for kind, step, replica, stage, number, chunk in zip(*columns, strict=True):
        if kind in PIPES:
            yield f"{step} {kind.split('-')[0]} {replica} {stage + PIPES[kind]} {number}"
        elif kind in SHARED_BY_STAGE:
            yield f"{step} {kind} {stage} {number} {chunk}"
        elif kind == "embedding-grads-all-reduce":
            yield f"{step} {kind} {replica} {number}"
        else:
            yield f"{step} {kind}" if kind == "optimizer-clip-main-grad" else ""


def programs(step: pd.DataFrame) -> Iterator[tuple[int, Program]]:
    """A rank's ops in order; a send and a receive that begin and end together are one place."""
    for _, own in step.sort_values(["start_ts", "duration"], kind="stable").groupby("rank"):
        places: list[list[Task]] = []
        before = None
        for start, took, kind, ns, meets in zip(
            own.start_ts, own.duration, own.kind, own.ns, own.meets, strict=True
        ):
            task = Task(kind, ns, meets or None)
            if meets and before == (start, took, True):
                places[-1].append(task)
            else:
                places.append([task])
            before = start, took, bool(meets)
        yield int(own["rank"].iloc[0]), places
