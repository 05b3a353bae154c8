"""Ranks replayed together, what one takes more than its peers, and what fixes save the whole job."""

import math
from typing import Any

import numpy as np
import pytest

from tests.replay.built import SLOWER, beyond, forecast_of, hour, job
from tests.replay.joint_ranks import block_of, rank_of
from tests.replay.programs import Loop, program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.calibration import STEP_RESIDUAL
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.job_saving import MOST_TOGETHER, Fixes, JobForecast, RankForecast, Side
from traceanalyzer.replay.peer_comparison import Excess, ExcessOverPeers, MatchPeers, StepBreakdown, segment_names
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.run import LEAST, job_step
from traceanalyzer.replay.schedule import Block, Schedule
from traceanalyzer.replay.steady_work import slowdown_by_kind, undisturbed_ns
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork


def rank(compute: float, transfer: float, meet: int = 7, *, collectives: int = 1) -> Block:
    """A step: one kernel, then collectives, all on one stream; the CPU takes 1 ns and waits for the device."""
    size = 1 + collectives
    none = np.empty(0, np.int64)
    meets = np.array([-1, *(meet + at for at in range(collectives))])
    schedule = Schedule(
        1.0, np.zeros(size), np.zeros(size, np.int64), np.array([compute, *[transfer] * collectives]),
        np.zeros(size), np.zeros(size), np.array([size]), np.array([1.0]), np.zeros(1), np.ones((1, 1), bool),
        none, none, 1, meets,
    )  # fmt: skip
    return block_of(schedule, meeting=True)


def test_a_job_takes_as_long_as_its_slowest_rank() -> None:
    step = job_step({0: rank(100.0, 10.0), 1: rank(300.0, 10.0), 2: rank(150.0, 10.0)}, 1)
    assert step.ns == pytest.approx(310.0)
    assert step.waiting_ns == pytest.approx({0: 200.0, 1: 0.0, 2: 150.0}, abs=1)
    assert step.last == {0: 0.0, 1: 1.0, 2: 0.0}


def test_ranks_that_are_slow_in_turn_add_up() -> None:
    """Rank 0 is late to the first collective, rank 1 to the second: neither alone takes as long as both together."""
    first = rank_of([300.0, 50.0])
    second = rank_of([100.0, 200.0])
    assert job_step({0: first, 1: second}, 1).ns == pytest.approx(300 + 10 + 200 + 10)


def test_a_rank_without_collectives_waits_for_nobody() -> None:
    step = job_step({0: rank(100.0, 10.0), 1: rank(300.0, 10.0, meet=-8)}, 1)
    assert step.waiting_ns == {0: 0.0, 1: 0.0}


def test_collectives_in_another_order_end_the_replay_too() -> None:
    """Two ranks that launch two collectives the other way round, as two groups on one stream would hang."""
    one, other = rank(10.0, 5.0, meet=3, collectives=2), rank(10.0, 5.0, meet=3, collectives=2)
    swapped = [other.stretches[at] for at in range(len(other.stretches))]
    meets = [at for at, stretch in enumerate(swapped) if stretch.meet >= 0]
    assert len(meets) == 2
    turned = rank_of([10.0, 0.0])
    assert job_step({0: one, 1: turned}, 1).ns > 0


def test_collective_takes_its_ranks_time_once_all_arrive() -> None:
    """They come at 100 and 300 ns; on one it takes 10, on the other 30, which begins the next of 13 steps later."""
    step = job_step({0: rank(100.0, 10.0), 1: rank(300.0, 30.0)}, 1)
    assert step.waiting_ns == pytest.approx({0: (200 + 12 * 220) / 13, 1: 0.0}, abs=0.1)
    assert step.ns == pytest.approx(330.0)


def test_waiting_on_a_collective_waits_for_all_ranks() -> None:
    """A kernel of 300 ns on the rank that comes first, at 100 ns, and of 5 on the one that comes at 300: the first step
    of the one ends at 610, so that in all later ones of 13 the other waits for it: 710 - 615."""

    def beside(compute: float, after: float) -> Block:
        zeros = np.zeros(3)
        schedule = Schedule(
            1.0, zeros, np.array([0, 0, 1]), np.array([compute, 10.0, after]), zeros, zeros, np.array([3]),
            np.array([1.0]), np.zeros(1), np.ones((1, 2), bool), np.array([2]), np.array([1]), 2, np.array([-1, 0, -1]),
        )  # fmt: skip
        return block_of(schedule, meeting=True)

    step = job_step({0: beside(100.0, 300.0), 1: beside(300.0, 5.0)}, 1)
    assert step.ns == pytest.approx(410)
    assert step.waiting_ns == pytest.approx({0: 200 / 13, 1: 12 * 95 / 13}, abs=0.1)
    assert step.last == pytest.approx({0: 12 / 13, 1: 1 / 13})


def test_ranks_wait_for_those_of_their_own_group_only() -> None:
    """Two groups of two, whose collectives end at 300 + 10 and at 50 + 10 ns."""
    groups = {0: (100.0, 0), 1: (300.0, 0), 2: (10.0, 1), 3: (50.0, 1)}
    step = job_step({one: rank_of([compute], meet) for one, (compute, meet) in groups.items()}, 1)
    assert step.ns == pytest.approx(310)
    assert step.waiting_ns == pytest.approx({0: 200, 1: 0, 2: 40, 3: 0}, abs=1)
    assert step.last == {0: 0.0, 1: 0.5, 2: 0.0, 3: 0.5}


def test_first_rank_waits_until_its_partner_is_free() -> None:
    """As in a pipeline: rank 1 meets rank 0 at 300 ns, and rank 2, which comes at 10, only at 300 + 10 + 50. From the
    second of 13 steps on rank 0 begins 60 ns before rank 1, and so waits 260 instead of 200.
    """
    step = job_step({0: rank_of([100.0]), 1: rank_of([300.0, 50.0]), 2: rank_of([10.0], first=1)}, 1)
    assert step.ns == pytest.approx(300 + 10 + 50 + 10)
    assert step.waiting_ns == pytest.approx({0: (200 + 12 * 260) / 13, 1: 0, 2: 350}, abs=1)
    assert step.last == {0: 0.0, 1: 1.0, 2: 0.0}


def test_what_ranks_wait_is_that_of_one_of_the_block_s_steps() -> None:
    """Rank 1 waits 200 ns in the first step and rank 0 150 ns in the second."""
    step = job_step({0: rank_of([300.0, 50.0]), 1: rank_of([100.0, 200.0])}, 2)
    assert step.ns == pytest.approx((300 + 10 + 200 + 10) / 2)
    assert step.waiting_ns == {0: 75.0, 1: 100.0}
    assert step.last == {0: 0.5, 1: 0.5}


JOB = {0: 500.0, 1: 990.0, 2: 400.0}


def test_job_step_is_that_of_the_awaited_rank() -> None:
    """At the least slowdown 1,020 ns and at the most 970 ns, each with the step's own error."""
    found = job(JOB)
    step = found.step
    assert (step.unprofiled_ns, step.traced_ns, step.bound) == (1_000, 2_002, "bound of 1")
    assert step.basis == "3 ranks replayed together: text of 1"
    assert step.low_ns == round(970 * (1 - STEP_RESIDUAL))
    assert step.high_ns == round(1_020 * (1 + STEP_RESIDUAL))
    own = found.of_rank(2)
    assert (own.unprofiled_ns, own.traced_ns, own.gpu_ns, own.gap_ns) == (1_000, 2_002, 20, 2)


def test_timed_job_step_has_no_interval() -> None:
    step = job({0: 1_000.0, 1: 1_000.0}, measured=True).step
    assert (step.low_ns, step.unprofiled_ns, step.high_ns, step.traced_ns) == (1_000, 1_000, 1_000, 2_001)
    assert step.basis == "alone"


def test_fixes_of_a_rank_that_nobody_waits_for_save_nothing() -> None:
    found = job(JOB, dict.fromkeys(JOB, 100.0))
    assert found.edited({0: (1,), 2: (3,)}).ns == pytest.approx(1_000)
    assert found.edited({1: (1,)}).ns == pytest.approx(510)  # then the others wait for rank 0
    assert found.edited({0: (1,), 1: (1,)}).ns == pytest.approx(410)
    assert found.edited({1: (), 7: (1,)}) is found.base  # nothing is fixed, or of a rank that is not replayed


@pytest.mark.parametrize(("alone_share", "beyond"), [(0.5, False), (0.02, True)])
def test_job_saving_is_as_wide_as_the_ranks(alone_share: float, beyond: bool) -> None:
    found = job(JOB, dict.fromkeys(JOB, 100.0))
    alone = Saving(1, 1, 1, alone_share, alone_share - 0.1, alone_share + 0.2, "", beyond)
    said = found.saving({1: (1,)}, alone)
    scale = min(math.sqrt(0.49 * 0.51 / (alone_share * (1 - alone_share))), 1.0)
    assert said.share == pytest.approx(0.49)
    assert (said.low_share, said.high_share) == (pytest.approx(0.49 - 0.1 * scale), pytest.approx(0.49 + 0.2 * scale))
    assert (said.step_ns, said.low_ns, said.high_ns) == tuple(
        round(1_000 * share) for share in (said.share, said.low_share, said.high_share)
    )
    assert said.beyond is beyond
    assert said.basis == "all 3 ranks replayed together without it"
    none = found.saving({0: (1,)}, alone)
    assert (none.share, none.low_share, none.high_share) == (0.0, -LEAST, LEAST)


def test_a_step_with_all_fixed_keeps_the_interval_in_proportion() -> None:
    found = job(JOB, dict.fromkeys(JOB, 100.0))
    fixed = found.fixed({1: (1,)})
    assert fixed.basis == "all 3 ranks replayed together with all findings fixed"
    assert (fixed.unprofiled_ns, fixed.low_ns, fixed.high_ns) == (
        510,
        round(found.step.low_ns * 0.51),
        round(found.step.high_ns * 0.51),
    )


def test_late_ranks_would_run_the_median_program() -> None:
    found = job({0: 500.0, 1: 990.0, 2: 400.0, 3: 450.0, 4: 800.0})
    assert found.as_peers([1]).unprofiled_ns == 810  # rank 4 is late still
    both = found.as_peers([1, 4])
    assert both.unprofiled_ns == 510
    assert both.basis.endswith("replayed together, with the program of rank 3 in place of theirs")
    assert found.as_peers([0, 1, 4]).basis.endswith("with the program of rank 3 in place of theirs")  # of two the later
    with pytest.raises(Unavailable, match="keep some as peers"):
        found.as_peers(list(range(5)))


def test_most_awaited_of_many_ranks_are_replayed() -> None:
    times = {rank: 900.0 - rank for rank in range(MOST_TOGETHER + 2)}
    found = job(times)
    assert sorted(found.blocks) == list(range(MOST_TOGETHER))
    said = f"the {MOST_TOGETHER} most awaited of {MOST_TOGETHER + 2} ranks"
    assert found.step.basis.startswith(f"{said} replayed together: ")
    assert found.fixed({0: (1,)}).basis.startswith(said)
    assert found.step.traced_ns == 2_000 + MOST_TOGETHER + 1  # of all ranks


def test_ranks_that_never_meet_are_no_job() -> None:
    def refused(*ranks: RankForecast) -> str:
        with pytest.raises(Unavailable) as error:
            JobForecast.of(dict(enumerate(ranks)), lambda fixes, side: {}, [0, 1])
        return str(error.value)

    assert "no steps that all ranks have" in refused(forecast_of(0, 500))
    assert "no steps that all ranks have" in refused(forecast_of(0, 500), forecast_of(1, 500, steps=2.0))
    assert "without a collective" in refused(forecast_of(0, 500), forecast_of(1, 500, meets=False))


@pytest.mark.parametrize("timed", [1, 2])
def test_untimed_pacing_rank_gives_the_step_an_interval(timed: int) -> None:
    """Rank 0 sets the pace: 1,000 ns, 1,020 at the least slowdown and 970 at the most."""
    took = {0: 990.0, 1: 400.0, 2: 500.0}

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([took[rank] + SLOWER[side]]) for rank in fixes}

    forecasts = {rank: forecast_of(rank, round(ns), measured=rank >= timed) for rank, ns in took.items()}
    step = JobForecast.of(forecasts, made, list(took)).step
    assert (step.low_ns, step.unprofiled_ns, step.high_ns) == (
        round(970 * (1 - STEP_RESIDUAL)),
        1_000,
        round(1_020 * (1 + STEP_RESIDUAL)),
    )


def test_each_rank_has_its_recorded_and_the_jobs_step() -> None:
    found = job(JOB)
    steps = [found.of_rank(rank) for rank in JOB]
    assert [(one.traced_ns, one.gpu_ns, one.gap_ns) for one in steps] == [(2_000, 0, 0), (2_001, 10, 1), (2_002, 20, 2)]
    assert [one.unprofiled_ns for one in steps] == [1_000] * 3


def test_what_no_replay_of_the_recording_has_stays() -> None:
    """Recorded are 2,001 ns, of which the ranks replayed as recorded take 1,010: the rest stays whatever is fixed."""

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return {rank: rank_of([200.0 if done else 1_000.0]) for rank, done in fixes.items()}

    known = JobForecast.of({rank: forecast_of(rank, 1_010) for rank in (0, 1)}, made, [0, 1])
    assert known.lacking_ns == known.step.unexplained_ns == 2_001 - 1_010
    assert known.step.unprofiled_ns == 2_001
    assert known.step.low_ns < 1_010
    alone = Saving(0, 0, 0, 0.5, 0.4, 0.6, "alone")
    assert known.saving({0: (0,), 1: (0,)}, alone).share == pytest.approx(800 / 2_001)


US = 1_000


def more(cpu_ns: dict[str, float], **fields: Any) -> Excess:
    """100 ns of each name are the peers', who compute for 1,000 ns a step, and wait for 10,000 of 20,000."""
    usual: dict[str, Any] = {
        "compute_ns": 1_000.0, "peers_compute_ns": 1_000.0, "same_kernels": True, "pause": "", "pause_left": 1.0,
        "waits_ns": 10_000.0, "step_ns": 20_000.0,
    }  # fmt: skip
    return Excess(0, cpu_ns, dict.fromkeys(cpu_ns, 100.0), **usual | fields)


@pytest.mark.parametrize(
    ("compute_ns", "share", "computes_more"),
    [(1_000, 0.1, False), (400, 0.1, False), (1_100, 0.105, False), (1_101, 0.10505, True)],
)
def test_rank_computing_less_is_late_by_cpu(compute_ns: float, share: float, computes_more: bool) -> None:
    found = more({"save": 1_500.0, "print": 500.0}, compute_ns=compute_ns)
    assert found.late_share == pytest.approx(share)
    assert found.computes_more is computes_more


def paused() -> Loop:
    """Each step has ops with 10 us between them, and one pause of 700 us; the first op is another."""
    loop = Loop()
    for number, at in enumerate([10_000, 40_000, 70_000, 790_000, 820_000]):
        loop.op("aten::mm" if number else "aten::sort", at, 3_000)
    return loop


def test_only_the_longest_gap_of_a_name_is_a_pause() -> None:
    trace = paused().load()
    built = program(trace)
    name = "before aten::mm"
    found = ExcessOverPeers.of(more({name: 250_000.0}, pause=name, pause_left=0.2), trace, built)
    left = found.edit.left
    assert sorted(set(left.tolist())) == [0.2, 1.0]
    assert built.segments.cpu_ns[left < 1].tolist() == [700_000.0] * 3
    assert (found.edit.work_left, found.edit.kind) == (1.0, "drop")


def test_largest_excess_is_shown_and_all_becomes_as_peers() -> None:
    """Two names; the rows are of the first alone. A quarter of the compute goes."""
    trace = paused().load()
    built = program(trace)
    said = more({"aten::sort": 900.0, "aten::mm": 300.0}, compute_ns=4_000.0, peers_compute_ns=3_000.0)
    found = ExcessOverPeers.of(said, trace, built)
    names, rows = segment_names(trace, built)
    own = [found.edit.left[names.one_of(name)] for name in ("aten::sort", "aten::mm")]
    assert [set(one.tolist()) for one in own] == [{0.1}, {0.25}]
    assert trace.cpu["name"].iloc[found.rows].tolist() == ["aten::sort"] * 3
    assert len(rows) == len(found.edit.left)
    assert (found.edit.work_left, found.edit.kind) == (0.75, "balance")


def test_without_compute_of_the_peers_nothing_of_the_rank_s_goes() -> None:
    trace = paused().load()
    found = ExcessOverPeers.of(more({"aten::sort": 900.0}, peers_compute_ns=0.0), trace, program(trace))
    assert (found.edit.work_left, found.edit.kind) == (1.0, "drop")


def test_what_peers_do_not_do_at_all_goes_with_what_it_launches() -> None:
    trace = paused().load()
    built = program(trace)
    names, _ = segment_names(trace, built)
    share = np.ones(len(built.segments.gap))
    share[names.one_of("aten::sort")] = 0.02
    share[names.one_of("aten::mm")] = 0.5
    edited = EditedProgram(built)
    before = edited.cpu_ns.copy()
    MatchPeers(share, 0.5).apply(edited)
    assert (~edited.alive).sum() == 3
    assert set(edited.dur_ns.tolist()) == {1_500.0}
    half = names.one_of("aten::mm")
    assert edited.cpu_ns[half].tolist() == (before[half] / 2).tolist()
    assert not edited.kept[share <= 0.02].any()


@pytest.mark.parametrize(("pause_us", "told"), [(301, True), (300, False)])
def test_a_pause_is_more_that_is_longer_than_thrice_the_peers(pause_us: int, told: bool) -> None:
    usual = [hour({}, pause_ns=100.0 * US)] * 2
    assert bool(beyond(hour({}, pause_ns=float(pause_us * US)), *usual)) is told


def test_compute_that_no_peer_has_makes_a_rank_no_slower() -> None:
    assert beyond(hour({}), hour({}, 0.0), hour({}, 0.0)) == {}


def test_communication_is_none_of_the_hours_that_are_compared() -> None:
    loop = paused()
    loop.op("aten::mm", 850_000, 3_000)
    for begin in loop.begins:
        number = 900 + begin // 1_000_000
        loop.trace.launch("cudaLaunchKernel", begin + 880 * US, 5 * US, number)
        loop.trace.kernel(begin + 900 * US, 70 * US, number, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)")
    analysis = Analysis(loop.load())
    hours = StepBreakdown.of(analysis.trace, analysis.index(DeviceWork), program(analysis.trace))
    assert hours.compute_ns == 6 * 3_000
    assert list(hours.kernels.values()) == [6.0]
    assert (hours.pause, hours.pause_ns) == ("before aten::mm", 700_000.0)
    assert hours.calls["aten::mm"] == 5 * 3  # each op is cut in three by its launch


def kernels(*alike: tuple[int, float, float]) -> tuple[Any, Any, np.ndarray]:
    """(trace, work, ns) of kernels by grid, duration in us and share of it beside communication; one each 100 us."""
    trace = TraceBuilder()
    for number, (grid, dur, _) in enumerate(alike):
        trace.launch("cudaLaunchKernel", number * 100 * US, 5 * US, number + 1)
        trace.kernel((number * 100 + 10) * US, round(dur * US), number + 1, grid=(grid, 1, 1))
    analysis = Analysis(trace.load())
    took = np.array([dur * US for _, dur, _ in alike])
    beside = took * np.array([share for _, _, share in alike])
    return analysis.trace, analysis.index(DeviceWork), np.stack((took, beside))


@pytest.mark.parametrize(
    ("alike", "ratios"),
    [
        ([(1, 10, 0.0), (1, 20, 1.0)], [2.0, 2.0]),
        ([(1, 10, 0.019), (1, 20, 0.91)], [2.0, 2.0]),
        ([(1, 10, 0.02), (1, 20, 0.91)], [1.35, 1.35]),  # neither alone nor beside
        ([(1, 10, 0.0), (1, 20, 0.9)], [1.35, 1.35]),
        ([(1, 10, 0.0), (1, 8, 1.0)], [1.0, 1.0]),  # nothing runs quicker for that
        ([(1, 10, 0.0), (1, 80, 1.0)], [3.0, 3.0]),
        ([(1, 10, 0.0), (2, 20, 1.0)], [1.35, 1.35]),  # of another grid
        # What never ran alone is slower by the mean of the others, weighed by their time beside communication.
        ([(1, 10, 0.0), (1, 20, 1.0), (2, 20, 0.0), (2, 60, 1.0), (3, 50, 1.0)], [2.0, 2.0, 3.0, 3.0, 2.75]),
        ([(1, 10, -0.1), (1, 20, 1.0)], [1.35, 1.35]),  # no compute
    ],
)
def test_slowdown_beside_communication(alike: list[tuple[int, float, float]], ratios: list[float]) -> None:
    """Each three times."""
    trace, work, (took, beside) = kernels(*[one for one in alike for _ in range(3)])
    found = slowdown_by_kind(trace, work, np.arange(len(took)), took, beside)
    assert found[::3].tolist() == pytest.approx(ratios)


def test_kernels_lengthen_only_next_to_own_device_waits() -> None:
    """A collective of 100 us that waits for the first 40; kernels of 20 us on both devices then and later."""
    trace = TraceBuilder()
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)"
    trace.launched((0, 1 * US), (1_000 * US, 100 * US), 1, name=nccl, stream=20)
    for number, (start, device) in enumerate([(1_010, 0), (1_010, 1), (1_070, 0), (1_030, 0)], 2):
        trace.launched((number * 2 * US, 1 * US), (start * US, 20 * US), number, device=device, stream=number)
    analysis = Analysis(trace.load())
    work = analysis.index(DeviceWork)
    own, one = np.flatnonzero(work.end_ns - work.start_ns == 100 * US), np.ones(1, bool)
    waits = CollectiveWaits(own, np.array([40 * US]), own * 0, own * 0, one)
    took = undisturbed_ns(analysis.trace, work, np.arange(5), waits)
    whole, half = 20 - 20 * (1 - 1 / 1.35), 20 - 10 * (1 - 1 / 1.35)
    by_stream = dict(zip(work.stream.tolist(), (took / US).tolist(), strict=True))
    assert by_stream == pytest.approx({20: 100, 2: whole, 3: 20, 4: 20, 5: half})


def pausing(*pauses_us: int) -> StepBreakdown:
    """Steps of ten ops with a wait for data between the fifth and the sixth, and 10 us between the others."""
    trace, now, number = TraceBuilder(), 0, 0
    for step, pause in enumerate(pauses_us):
        begin = now
        for op in range(10):
            if op == 5:
                trace.annotation("enumerate(DataLoader)#_Iter.__next__", now, pause * US)
                now += pause * US
            number += 1
            trace.op("aten::mm", now, 20 * US)
            trace.launched((now + 5 * US, 5 * US), (now + 12 * US, 5 * US), number)
            now += 30 * US
        trace.step(step, begin, now - begin)
    analysis = Analysis(trace.load())
    return StepBreakdown.of(analysis.trace, analysis.index(DeviceWork), analysis.index(Program))


def test_the_pause_of_a_step_is_that_of_the_median_step() -> None:
    """A loader that stalls every third step for 5 ms waits in the others as its peers do."""
    usual, some = pausing(200, 200, 200, 200, 200, 200), pausing(200, 200, 5_000, 200, 200, 5_000)
    assert (usual.pause, usual.pause_ns) == ("enumerate(DataLoader)#_Iter.__next__", 200 * US)
    assert (some.pause, some.pause_ns) == (usual.pause, usual.pause_ns)
    assert some.cpu_ns[some.pause] == (3 * 200 + 2 * 5_000) * US / 5  # the first step is not replayed
