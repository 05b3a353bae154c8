"""What slows a recorded job down, by hand: whose part is said, what counts as work, and the order of stages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.job.slowdown import Task, _recorded, of_job, slowdown, stages_of


def view_of(held: dict[int, int], starts: tuple[int, ...] = (10, 40), groups: tuple[str, ...] = ()) -> Any:
    """Ranks that meet in collectives of 10 ns from then on, of which each waits 4 ns; the first run is none."""
    size = len(starts)
    runs = SimpleNamespace(
        entry=np.arange(size + 1),
        start_ns=np.array([0, *starts]),
        end_ns=np.array([5, *(one + 10 for one in starts)]),
        group=np.array(groups or ("all",)),
    )
    waits = SimpleNamespace(
        entry=np.arange(1, size + 1), number=np.arange(size) + 7, waiting_ns=np.full(size, 4)
    )
    return SimpleNamespace(
        waits=dict.fromkeys(held, waits),
        runs=dict.fromkeys(held, runs),
        held_up_ns=lambda: {rank: np.array([ns, 0]) for rank, ns in held.items()},
    )


@pytest.mark.parametrize(("starts", "before"), [((10, 40), 20), ((10, 20), 0), ((10, 15), 0), ((10, 12), 0)])
def test_work_lies_between_two_collectives(starts: tuple[int, int], before: int) -> None:
    """Before the first it counts as none; a transfer lasts from the last rank's start."""
    assert list(_recorded(view_of({0: 1}, starts), 0)) == [
        [Task(("before", 7), 0.0)],
        [Task(("transfer", 7), 6.0, 7)],
        [Task(("before", 8), float(before))],
        [Task(("transfer", 8), 6.0, 8)],
    ]


def test_work_begins_when_all_collectives_before_have_ended() -> None:
    """The second lies within the first, which ends last."""
    view = view_of({0: 1}, (10, 12, 40))
    view.runs[0].end_ns[1] = 35
    tasks = [task for (task,) in _recorded(view, 0)]
    assert [task.ns for task in tasks if task.meets is None] == [0.0, 0.0, 5.0]


def test_sixteen_longest_delaying_ranks_have_parts() -> None:
    """Of twenty ranks; of equals those of lower number."""
    held = {rank: 100 if rank in (18, 3) else 5 for rank in range(20)}
    found = of_job(view_of(held))
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
def test_stages_are_ordered_by_who_sends_to_whom_first(
    groups: tuple[str, ...], stages: dict[int, int]
) -> None:
    assert stages_of(view_of({0: 1}, groups=groups)) == stages
