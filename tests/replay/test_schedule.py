"""The replay's loop: queue, edges and gaps by hand, and against a loop over every piece of work."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.built import forecast_of, job
from tests.replay.joint_ranks import block_of, rank_of
from traceanalyzer.replay.job_saving import Fixes, JobForecast, RankForecast, Side
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.sample import Sample
from traceanalyzer.replay.schedule import Block, Schedule, State, edited_edges, edited_gaps


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
    monkeypatch.setattr("traceanalyzer.replay.schedule._QUEUE", 2)
    monkeypatch.setattr("traceanalyzer.replay.schedule._STRETCH", 2)


@pytest.mark.parametrize("longer", [0, 1])
@pytest.mark.usefixtures("two_at_once")
def test_a_full_queue_lets_the_cpu_wait_for_the_later_stream(longer: int) -> None:
    """Pairs of 100 ns here and 10 ns there: the second pair is launched at 99 and 100, the third at 199 and 200."""
    dur = [100 if at % 2 == longer else 10 for at in range(6)]
    state = State(block_of(scheduled(range(6), [0, 1] * 3, dur, 6)))
    first = 100 + longer  # the second of a pair is launched 1 ns later
    assert state.run() == pytest.approx(3 * 100 + longer)
    assert state.late == pytest.approx(first + 100 - 5 + 6)
    assert state.run() == pytest.approx(6 * 100 + longer)


@pytest.mark.usefixtures("two_at_once")
def test_a_queue_with_room_lets_the_cpu_go_on() -> None:
    """Every launch comes 500 ns after the one before; the work takes 100."""
    state = State(block_of(scheduled(range(0, 3_000, 500), [0, 1] * 3, [100] * 6, 3_000)))
    assert (state.run(), state.late) == (3_000, 3_000)
    assert (state.run(), state.late) == (6_000, 6_000)


def test_work_waits_for_the_named_end_not_for_later_work() -> None:
    state = State(block_of(scheduled([0, 0, 0], [0, 0, 1], [10, 100, 5], 1, [(2, 0)])))
    state.run()
    assert state.done == [110, 15]
    state = State(block_of(scheduled([0, 0, 0], [0, 0, 1], [10, 100, 5], 1, [(2, 1)])))
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
    program: Any = SimpleNamespace(program=SimpleNamespace(work=work), stream=np.array([0, 0, 0, 1]), gap_ns=edited)
    found: list[float] = edited_gaps(program, np.array(kept)).tolist()
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
    assert [one.tolist() for one in edited_edges(program, position)] == [[2, 3], [1, 1]]
    program.kept[2] = False  # the call has gone, and both ends are there
    assert [one.tolist() for one in edited_edges(program, position)] == [[2, 3], [1, 1]]


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
        edge_to=np.array([3]), edge_from=np.array([2]), edge_call_ns=np.array([15]), stream=np.array([0, 1, 1, 0, 2, 0])
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
    to, source = edited_edges(program, position)
    assert list(zip(position[to].tolist(), position[source].tolist(), strict=True)) == edges


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
    assert block_of(schedule).period_ns(blocks, settled=-1.0) == pytest.approx(mean, abs=1e-6)


@given(schedules(), st.integers(0, 3))
def test_a_block_is_the_same_after_its_way_between_processes(schedule: Schedule, meets: int) -> None:
    meet = np.full(len(schedule.stream), -1, np.int64)
    meet[:: meets + 1] = np.arange(len(meet[:: meets + 1]))
    block = block_of(replace(schedule, meet=meet), meeting=True)
    assert pickle.loads(pickle.dumps(block)) == block


@given(schedules())
def test_a_step_takes_as_long_as_its_busier_side(schedule: Schedule) -> None:
    period = block_of(schedule).period_ns(40, settled=-1.0)
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
    assert block_of(regular(0, 1, 1, 500.0)).period_ns(3, 1e-3) == 500.0


def test_the_cpu_is_never_further_ahead_than_the_queue_is_long() -> None:
    """3,000 launches of 1 ns before 10 ns each, and then a pause of 20,000: the queue of 1,022 cannot bridge it."""
    schedule = regular(3000, 1.0, 10.0, 23_000.0)
    free = 3000 * 10.0
    period = block_of(schedule).period_ns(12, 1e-3)
    assert free + 20_000 - 1_022 * 10 - 128 * 10 <= period <= free + 20_000 - 1_022 * 10 + 3_000


def test_a_settled_step_ends_the_loop_early() -> None:
    assert block_of(regular(10, 5.0, 50.0, 100.0)).period_ns(1000, 1e-3) == pytest.approx(500.0)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_unsettled_step_is_the_mean_of_all_but_the_first(blocks: int) -> None:
    """The first takes 30 ns longer than the CPU: its last work begins when the CPU is done."""
    schedule = regular(3, 50.0, 30.0, 100.0)
    assert block_of(schedule).period_ns(blocks, -1.0) == pytest.approx(100.0)
    assert block_of(schedule).period_ns(blocks, 1e-3) == pytest.approx(100.0)


def sample(steps: int, part: float = 1.0, of_steps: int = 9, left_out: float = 0.0) -> Sample:
    none = np.zeros(steps, np.int64)
    return Sample(np.arange(steps), none, none, part, of_steps, left_out=left_out)


@pytest.mark.parametrize(("steps", "part", "least"), [(1, 1.0, 60), (2, 1.0, 30), (1, 0.5, 120)])
def test_a_step_takes_what_its_busiest_stream_computes(steps: int, part: float, least: float) -> None:
    """60 ns on the first stream, 50 on the second, beside which 99 communicate."""
    work = SimpleNamespace(
        communication=np.array([False, False, True, False]),
        dur_ns=np.array([40.0, 50.0, 99.0, 20.0]),
        stream=np.array([0, 1, 1, 0]),
    )
    program: Any = SimpleNamespace(work=work, sample=sample(steps, part))
    assert Program.least_gpu_ns.fget(program) == least  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (sample(1, of_steps=1), "1 of 1 step"),
        (sample(1), "1 of 9 steps"),
        (sample(1, 0.25), "25 % of a step"),
        (sample(3, left_out=0.249), "3 of 9 steps"),
        (
            sample(3, left_out=0.25),
            "3 of 9 steps; of the time after the first step, 25 % is in steps that are not replayed",
        ),
    ],
)
def test_what_was_replayed_in_words(one: Sample, text: str) -> None:
    assert one.text == text


def test_rank_meets_others_if_any_of_its_work_does() -> None:
    def of(meet: list[int]) -> RankForecast:
        program = SimpleNamespace(sample=sample(1, 0.25), work=SimpleNamespace(meet=np.array(meet)))
        known: Any = SimpleNamespace(program=program, step=None)
        return RankForecast.of(known)

    assert [of(meet).meets for meet in ([-1, 0], [-1, -1], [])] == [True, False, False]
    assert (of([0]).steps, of([0]).text) == (0.25, "25 % of a step")


def test_job_steps_before_and_after_a_fix_divide_alike() -> None:
    """Blocks of four steps: 1,000 ns become 250 ns a step, and where rank 1 is fixed 510 become 127.5."""
    found = job({0: 500.0, 1: 990.0, 2: 400.0}, {1: 100.0}, steps=4.0)
    assert found.base.ns == pytest.approx(250)
    assert found.edited({1: (1,)}).ns == pytest.approx(127.5)
    assert found.as_peers([1]).unprofiled_ns == round(127.5)


def test_the_typical_slowdown_may_be_the_end_of_the_interval() -> None:
    """At the low and at the high slowdown the step is shorter than at the typical one."""
    took = {"typical": 990.0, "low": 890.0, "high": 790.0, "recorded": 1_990.0}

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([took[side]]) for rank in fixes}

    step = JobForecast.of({rank: forecast_of(rank, 990) for rank in range(2)}, made, [0, 1]).step
    assert step.low_ns < 800
    assert step.high_ns > step.unprofiled_ns == 1_000


def test_peers_are_ranks_that_are_replayed() -> None:
    """Of 18 ranks the last two are not: without the first sixteen nobody is left."""
    found = job({rank: 900.0 - rank for rank in range(18)})
    assert "the program of rank 15 in place" in found.as_peers(list(range(15))).basis


def test_ranks_that_the_job_lacks_leave_their_place_to_others() -> None:
    took = dict.fromkeys(range(17), 500.0)

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([took[rank]]) for rank in fixes}

    forecasts = {rank: forecast_of(rank, 500) for rank in took}
    found = JobForecast.of(forecasts, made, [99, *range(17)])
    assert sorted(found.blocks) == list(range(16))
