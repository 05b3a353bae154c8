"""The replay's queue, edges and gaps where little room is left: each instant worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.replay import recurrence
from traceanalyzer.replay.recurrence import Block, State
from traceanalyzer.replay.schedule import Schedule, _edges, _gaps


def scheduled(
    launch: Sequence[float],
    stream: Sequence[int],
    dur: Sequence[float],
    cpu: float,
    edges: Sequence[tuple[int, int]] = (),
) -> Schedule:
    """Work of two streams, without gaps, latencies and waits; edges from the second to the first."""
    none, zeros = np.empty(0, np.int64), np.zeros(len(launch))
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return Schedule(
        cpu, np.array(launch, float), np.array(stream), np.array(dur, float), zeros, zeros,
        none, np.empty(0), np.empty(0), np.empty((0, 2), bool), ends[:, 0], ends[:, 1], 2,
    )  # fmt: skip


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two launches may be outstanding, and are looked at by twos."""
    monkeypatch.setattr(recurrence, "_QUEUE", 2)
    monkeypatch.setattr(recurrence, "_STRETCH", 2)


@pytest.mark.parametrize("longer", [0, 1])
@pytest.mark.usefixtures("two_at_once")
def test_a_full_queue_lets_the_cpu_wait_for_the_later_stream(longer: int) -> None:
    """Pairs of 100 ns here and 10 ns there: the second pair is launched at 99 and 100, the third at 199 and 200."""
    dur = [100 if at % 2 == longer else 10 for at in range(6)]
    state = State(Block.of(scheduled(range(6), [0, 1] * 3, dur, 6)))
    first = 100 + longer  # the second of a pair is launched 1 ns later
    assert state.run() == pytest.approx(3 * 100 + longer)
    assert state.late == pytest.approx(first + 100 - 5 + 6)
    assert state.run() == pytest.approx(6 * 100 + longer)


@pytest.mark.usefixtures("two_at_once")
def test_a_queue_with_room_lets_the_cpu_go_on() -> None:
    """Every launch comes 500 ns after the one before; the work takes 100."""
    state = State(Block.of(scheduled(range(0, 3_000, 500), [0, 1] * 3, [100] * 6, 3_000)))
    assert (state.run(), state.late) == (3_000, 3_000)
    assert (state.run(), state.late) == (6_000, 6_000)


def test_work_waits_for_the_named_end_not_for_later_work() -> None:
    state = State(Block.of(scheduled([0, 0, 0], [0, 0, 1], [10, 100, 5], 1, [(2, 0)])))
    state.run()
    assert state.done == [110, 15]
    state = State(Block.of(scheduled([0, 0, 0], [0, 0, 1], [10, 100, 5], 1, [(2, 1)])))
    state.run()
    assert state.done == [110, 115]


def left(kept: Sequence[int], gap: Sequence[float], set_gap: dict[int, float] | None = None) -> list[float]:
    """Gaps of what is left of a kernel, a kernel and a copy on one stream, and of a kernel of another."""
    traced = np.array([*gap, 1.0])
    work: Any = SimpleNamespace(
        before=np.array([-1, 0, 1, -1]),
        category=np.array([0, 0, 1, 0]),
        pair_gap_ns=np.array([[200.0, 300.0], [900.0, 800.0]]),
        gap_ns=traced,
    )
    edited = traced.copy()
    for at, ns in (set_gap or {}).items():
        edited[at] = ns
    program: Any = SimpleNamespace(
        program=SimpleNamespace(work=work), stream=np.array([0, 0, 0, 1]), gap_ns=edited
    )
    found: list[float] = _gaps(program, np.array(kept)).tolist()
    return found


def test_copy_next_to_a_kernel_has_the_usual_distance() -> None:
    assert left([0, 1, 2, 3], [50, 60, 500]) == [50, 60, 500, 1]
    assert left([0, 2, 3], [50, 60, 500]) == [50, 300, 1]
    assert left([0, 2, 3], [50, 60, 100]) == [50, 100, 1]  # no farther than it was
    assert left([0, 2, 3], [50, 60, 500], {2: 400}) == [50, 400, 1]  # an edit has said how far
    assert left([1, 2, 3], [50, 60, 500]) == [60, 500, 1]  # the first has nothing before it any more


def test_edge_stays_if_both_ends_do_and_points_forward() -> None:
    """Of five pieces, each on its own stream, the fourth is gone, and an edit launches the third before the others."""
    work: Any = SimpleNamespace(
        edge_to=np.array([1, 2, 4, 3, 4]),
        edge_from=np.array([0, 1, 3, 0, 0]),
        edge_call_ns=np.array([0, 0, 10, 10, 20]),
        stream=np.arange(5),
    )
    timeline = SimpleNamespace(at=lambda instants: instants // 10)
    program: Any = SimpleNamespace(
        program=SimpleNamespace(work=work, timeline=timeline),
        alive=np.arange(5) != 3,
        stream=np.arange(5),
        kept=np.ones(3, bool),
    )
    position = np.array([2, 0, 1, 4])
    assert [one.tolist() for one in _edges(program, position)] == [[2, 3], [1, 1]]
    program.kept[2] = False  # the call has gone, and both ends are there
    assert [one.tolist() for one in _edges(program, position)] == [[2, 3], [1, 1]]


@pytest.mark.parametrize(
    ("gone", "moved", "dropped", "edges"),
    [
        ([], [], [], [(3, 2)]),
        ([3], [], [], [(5, 2)]),  # the next of its stream waits
        ([3, 5], [], [], []),
        ([2], [], [], [(3, 1)]),  # what was before it there is waited for
        ([1, 2], [], [], []),
        ([2, 3], [], [], [(5, 1)]),
        ([], [3], [], [(5, 2)]),
        ([], [2], [], [(3, 1)]),
        ([3], [], [1], []),  # with the call that makes it wait
        ([], [2], [1], []),
        ([4], [], [1], [(3, 2)]),
    ],
)
def test_a_wait_outlives_what_waited_and_what_was_waited_for(
    gone: list[int], moved: list[int], dropped: list[int], edges: list[tuple[int, int]]
) -> None:
    """Streams 0, 1, 1, 0, 2, 0: the fourth piece waits for the third, by a call in the second segment."""
    work: Any = SimpleNamespace(
        edge_to=np.array([3]),
        edge_from=np.array([2]),
        edge_call_ns=np.array([15]),
        stream=np.array([0, 1, 1, 0, 2, 0]),
    )
    timeline = SimpleNamespace(at=lambda instants: instants // 10)
    stream = work.stream.copy()
    stream[moved] = 3
    program: Any = SimpleNamespace(
        program=SimpleNamespace(work=work, timeline=timeline),
        alive=~np.isin(np.arange(6), gone),
        stream=stream,
        kept=~np.isin(np.arange(3), dropped),
    )
    position = np.flatnonzero(program.alive)
    to, source = _edges(program, position)
    assert list(zip(position[to].tolist(), position[source].tolist(), strict=True)) == edges
