"""S = T / T_ideal of built, published and recorded jobs."""

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.job.ranks import job, view_of
from tests.support.paths import SHARED
from traceanalyzer.job.slowdown import Program, Slowdown, Task, of_job, recorded_rank, slowdown, stages_of

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
        rank: [[Task("compute", 10.0)], [Task("move", 42.0 if rank == 3 else 2.0, "sum")]] for rank in range(4)
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
        for start, took, kind, ns, meets in zip(own.start_ts, own.duration, own.kind, own.ns, own.meets, strict=True):
            task = Task(kind, ns, meets or None)
            if meets and before == (start, took, True):
                places[-1].append(task)
            else:
                places.append([task])
            before = start, took, bool(meets)
        yield int(own["rank"].iloc[0]), places


def recorded_view(held: dict[int, int], starts: tuple[int, ...] = (10, 40), groups: tuple[str, ...] = ()) -> Any:
    """Ranks that meet in collectives of 10 ns from then on, of which each waits 4 ns; the first run is none."""
    size = len(starts)
    runs = SimpleNamespace(
        entry=np.arange(size + 1),
        start_ns=np.array([0, *starts]),
        end_ns=np.array([5, *(one + 10 for one in starts)]),
        group=np.array(groups or ("all",)),
    )
    waits = SimpleNamespace(entry=np.arange(1, size + 1), number=np.arange(size) + 7, waiting_ns=np.full(size, 4))
    return SimpleNamespace(
        waits=dict.fromkeys(held, waits),
        runs=dict.fromkeys(held, runs),
        held_up_ns=lambda: {rank: np.array([ns, 0]) for rank, ns in held.items()},
    )


@pytest.mark.parametrize(("starts", "before"), [((10, 40), 20), ((10, 20), 0), ((10, 15), 0), ((10, 12), 0)])
def test_work_lies_between_two_collectives(starts: tuple[int, int], before: int) -> None:
    """Before the first it counts as none; a transfer lasts from the last rank's start."""
    assert list(recorded_rank(recorded_view({0: 1}, starts), 0)) == [
        [Task(("before", 7), 0.0)],
        [Task(("transfer", 7), 6.0, 7)],
        [Task(("before", 8), float(before))],
        [Task(("transfer", 8), 6.0, 8)],
    ]


def test_work_begins_when_all_collectives_before_have_ended() -> None:
    """The second lies within the first, which ends last."""
    view = recorded_view({0: 1}, (10, 12, 40))
    view.runs[0].end_ns[1] = 35
    tasks = [task for (task,) in recorded_rank(view, 0)]
    assert [task.ns for task in tasks if task.meets is None] == [0.0, 0.0, 5.0]


def test_sixteen_longest_delaying_ranks_have_parts() -> None:
    """Of twenty ranks; of equals those of lower number."""
    held = {rank: 100 if rank in (18, 3) else 5 for rank in range(20)}
    found = of_job(recorded_view(held))
    assert found is not None
    assert list(found.by_rank) == [*range(15), 18]
    none: Any = SimpleNamespace(waits={}, runs={}, held_up_ns=dict)
    assert of_job(none) is None


def test_rank_part_is_the_rest_if_only_it_took_its_time() -> None:
    """Compute of 100, 100 and 400 ns, ideal 200; transfers of 10, 10 and 40, ideal 10: 440 or 240 for 210."""
    programs = {
        rank: [[Task("mm", ns)], [Task("reduce", moved, 1)]]
        for rank, ns, moved in ((0, 100.0, 10.0), (1, 100.0, 10.0), (2, 400.0, 40.0))
    }
    found = slowdown([programs], {0: 0, 1: 0, 2: 1}, (0, 2))
    assert found.s == pytest.approx(440 / 210)
    assert found.by_rank == pytest.approx({0: 1.0, 2: 440 / 210})
    assert found.by_stage == pytest.approx({0: 1.0, 1: 440 / 210})


def test_steps_count_by_mean_and_transfers_have_one_ideal() -> None:
    """Two steps of one rank of 100 and 300 ns: 200 on average, as ideal; sends at once end with the longer."""
    steps = [{0: [[Task("mm", ns)]]} for ns in (100.0, 300.0)]
    assert slowdown(steps, {}).s == pytest.approx(1.0)
    beside = [{0: [[Task("send", 30.0, "a"), Task("receive", 50.0, "b")]]}]
    twice = [{0: [[Task("mm", 50.0)], [Task("send", 30.0, "a"), Task("receive", 50.0, "b")]]}]
    assert slowdown([*beside, *twice], {}).s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("groups", "stages"),
    [
        (("all", "0 to 1", "1 to 2"), {0: 0, 1: 1, 2: 2}),
        (("1 to 0", "0 to 1"), {0: 1, 1: 0}),  # who sends first
        (("2 to 3", "0 to 2", "1 to 2"), {0: 0, 1: 0, 2: 1, 3: 2}),
        (("all", "all"), {}),
    ],
)
def test_stages_are_ordered_by_first_sender(groups: tuple[str, ...], stages: dict[int, int]) -> None:
    assert stages_of(recorded_view({0: 1}, groups=groups)) == stages
