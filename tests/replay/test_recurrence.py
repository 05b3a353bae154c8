"""The replay's loop, a few numbers per wait, against a loop over every piece of work."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.replay.recurrence import Block
from traceanalyzer.replay.schedule import Schedule

NEVER = -1e18


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Up to 30 pieces of work on up to three streams, with waits and edges anywhere."""
    size, streams = draw(st.integers(0, 30)), draw(st.integers(1, 3))
    times = st.integers(0, 50)

    def some(count: int, values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=count, max_size=count))

    launch = np.cumsum(some(size, st.integers(0, 20))).astype(np.float64)
    waits = sorted(draw(st.lists(st.integers(0, size), max_size=6)))
    end = float(launch[-1]) if size else 0.0
    at = [float(launch[after - 1]) if after else 0.0 for after in waits]
    masks = [some(streams, st.integers(0, 1)) for _ in waits]
    masks = [mask if any(mask) else [1] * streams for mask in masks]
    stream = np.array(some(size, st.integers(0, streams - 1)), np.int64)
    pairs = draw(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=5))
    pairs = [(a, b) for a, b in pairs if b < a < size]
    return Schedule(
        cpu_ns=end + draw(times),
        launch_ns=launch,
        stream=stream,
        dur_ns=np.array(some(size, times), np.float64),
        gap_ns=np.array(some(size, st.integers(0, 3)), np.float64),
        latency_ns=np.array(some(size, st.integers(0, 10)), np.float64),
        wait_after=np.array(waits, np.int64),
        wait_ns=np.array(at),
        wait_tail_ns=np.array(some(len(waits), st.integers(0, 5)), np.float64),
        wait_streams=np.array(masks, bool).reshape(-1, streams),
        edge_to=np.array([a for a, _ in pairs], np.int64),
        edge_from=np.array([b for _, b in pairs], np.int64),
        streams=streams,
    )


def one_by_one(schedule: Schedule, blocks: int) -> list[float]:
    """When each block and its work are done, by the definition."""
    late, done, finishes = 0.0, [NEVER] * schedule.streams, []
    for _ in range(blocks):
        ends: list[float] = []
        for work in range(len(schedule.stream) + 1):
            for wait in np.flatnonzero(schedule.wait_after == work):
                waited_for = max(done[s] for s in np.flatnonzero(schedule.wait_streams[wait]))
                late = max(late, waited_for + schedule.wait_tail_ns[wait] - schedule.wait_ns[wait])
            if work == len(schedule.stream):
                break
            stream = schedule.stream[work]
            start = max(
                schedule.launch_ns[work] + late + schedule.latency_ns[work],
                done[stream] + schedule.gap_ns[work],
                *(ends[source] for source in schedule.edge_from[schedule.edge_to == work]),
            )
            done[stream] = start + schedule.dur_ns[work]
            ends.append(done[stream])
        late += schedule.cpu_ns
        finishes.append(max(late, *done))
    return finishes


@given(schedules(), st.integers(1, 4))
def test_stretches_are_as_good_as_single_pieces(schedule: Schedule, blocks: int) -> None:
    finishes = one_by_one(schedule, blocks + 1)
    mean = (finishes[-1] - finishes[0]) / blocks
    assert Block.of(schedule).period_ns(blocks, settled=-1.0) == pytest.approx(mean, abs=1e-6)


@given(schedules(), st.integers(0, 3))
def test_a_block_is_the_same_after_its_way_between_processes(schedule: Schedule, meets: int) -> None:
    meet = np.full(len(schedule.stream), -1, np.int64)
    meet[:: meets + 1] = np.arange(len(meet[:: meets + 1]))
    block = Block.of(replace(schedule, meet=meet), meeting=True)
    assert pickle.loads(pickle.dumps(block)) == block


@given(schedules())
def test_a_step_takes_as_long_as_its_busier_side(schedule: Schedule) -> None:
    period = Block.of(schedule).period_ns(40, settled=-1.0)
    drained = 40 * period + 1e-6
    assert drained >= 40 * schedule.cpu_ns - 1e-6
    assert drained >= 39 * schedule.taken_ns.max(initial=0.0) - 1e-6 - 100


def regular(size: int, every: float, dur: float, cpu: float) -> Schedule:
    """One stream, nothing waits."""
    ones = np.ones(size)
    none = np.empty(0, np.int64)
    return Schedule(
        cpu, every * np.arange(size), np.zeros(size, np.int64), dur * ones, 0 * ones, 0 * ones,
        none, np.empty(0), np.empty(0), np.empty((0, 1), bool), none, none, 1,
    )  # fmt: skip


def test_a_step_without_work_takes_its_cpu_time() -> None:
    assert Block.of(regular(0, 1, 1, 500.0)).period_ns(3, 1e-3) == 500.0


def test_the_cpu_is_never_further_ahead_than_the_queue_is_long() -> None:
    """3,000 launches of 1 ns before 10 ns each, and then a pause of 20,000: the queue of 1,022 cannot bridge it."""
    schedule = regular(3000, 1.0, 10.0, 23_000.0)
    free = 3000 * 10.0
    period = Block.of(schedule).period_ns(12, 1e-3)
    assert free + 20_000 - 1_022 * 10 - 128 * 10 <= period <= free + 20_000 - 1_022 * 10 + 3_000


def test_a_settled_step_ends_the_loop_early() -> None:
    assert Block.of(regular(10, 5.0, 50.0, 100.0)).period_ns(1000, 1e-3) == pytest.approx(500.0)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_unsettled_step_is_the_mean_of_all_but_the_first(blocks: int) -> None:
    """The first takes 30 ns longer than the CPU: its last work begins when the CPU is done."""
    schedule = regular(3, 50.0, 30.0, 100.0)
    assert Block.of(schedule).period_ns(blocks, -1.0) == pytest.approx(100.0)
    assert Block.of(schedule).period_ns(blocks, 1e-3) == pytest.approx(100.0)
