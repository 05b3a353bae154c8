"""Decisions of the replay, each by an example at either side of it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.replay.built import MS, US, beyond, hour
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.calibration import RESIDUAL
from traceanalyzer.replay.peer_comparison import late_share
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.segments import without_queueing, without_waits
from traceanalyzer.replay.slowdown import Slowed
from traceanalyzer.replay.steady_work import undisturbed_ns, work_gaps
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork


@pytest.mark.parametrize(
    ("more_ns", "held_ns", "share"),
    [(5e6, 8e6, 0.25), (9e6, 8e6, 0.4), (-1.0, 8e6, 0.0), (5e6, -1.0, 0.0), (5e7, 4e7, 1.0)],
)
def test_others_wait_for_a_ranks_excess_and_no_longer(more_ns: float, held_ns: float, share: float) -> None:
    assert late_share(more_ns, held_ns, 20e6) == pytest.approx(share)


def test_work_moved_to_other_ranks_is_the_least_certain() -> None:
    forecast: Any = SimpleNamespace(wider=1.0)
    left: Any = SimpleNamespace(waits=np.ones(0, bool))
    split, work = (
        Forecast._residuals(forecast, [SimpleNamespace(kind=kind)], left)  # type: ignore[list-item]
        for kind in ("balance", "work")
    )
    assert work == RESIDUAL["measured"]
    assert split == (0.37, max(0.37, RESIDUAL["measured"][1]))


@pytest.mark.parametrize(("calls", "share"), [(0, 0.0), (100_000, 0.7)])
def test_recording_python_calls_takes_at_most_most_of_a_gap(calls: int, share: float) -> None:
    none, every = np.zeros(1, bool), np.ones(1, bool)
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1000)
    slowed = Slowed.of(trace.load(), np.array([1e6]), every, none, none, none, none, np.array([float(calls)]))
    assert slowed.python_overhead.tolist() == [share]


def test_gaps_within_one_graph_stay_and_others_get_the_median() -> None:
    every = np.zeros(3, np.int64)
    work: Any = SimpleNamespace(
        shared=np.ones(3, bool),
        call=np.array([0, 0, 1]),
        start_ns=np.array([0, 4_000, 14_000]),
        end_ns=np.array([1_000, 5_000, 15_000]),
        call_end_ns=np.full(3, 20_000),  # nothing had to wait in the queue
    )
    gap, _ = work_gaps(work, every, np.arange(3), np.array([-1, 0, 1]), np.array([0, 3_000, 9_000]))
    assert gap.tolist() == [3_000, 3_000, 3_000]


def test_new_neighbours_are_as_far_apart_as_in_a_stream() -> None:
    """Three gaps of 1 us in the stream, then five of 0.4 us in a graph."""
    gaps = np.array([0, *[1_000] * 3, *[400] * 5])
    end = np.arange(1, 10) * 10_000 + np.cumsum(gaps)
    start = end - 10_000
    work: Any = SimpleNamespace(
        shared=np.arange(9) > 3,
        call=np.array([0, 1, 2, 3, *[4] * 5]),
        start_ns=start + 50_000,
        end_ns=end + 50_000,
        call_end_ns=np.zeros(9, np.int64),
    )
    gap, pair = work_gaps(work, np.zeros(9, np.int64), np.arange(9), np.arange(-1, 8), gaps)
    assert gap[1:].tolist() == gaps[1:].tolist()
    assert pair.tolist() == [[1_000]]


@pytest.mark.parametrize(
    ("outstanding", "traced", "taken"),
    [
        ((0, 3, 901), (5_000, 6_000, 400_000), (5_000, 6_000, 5_500)),
        ((0, 3, 900), (5_000, 6_000, 400_000), (5_000, 6_000, 400_000)),
        ((901, 901, 901), (70_000, 80_000, 400_000), (60_000, 60_000, 60_000)),
    ],
)
def test_full_queue_launches(outstanding: Sequence[int], traced: Sequence[int], taken: Sequence[int]) -> None:
    """Three launches with 0.8 ms of Python between them, of which the last has to wait for a place in the queue."""
    timeline: Any = SimpleNamespace(at=lambda instants: instants // 10**6, row=np.array([4, -1, 5, -1, 6]))
    calls = {"call_start_ns": np.array([0, 2, 4]) * 10**6, "call": np.array([4, 5, 6])}
    work: Any = SimpleNamespace(outstanding=np.array(outstanding), **calls)
    cpu = np.full(5, 800_000.0)
    cpu[::2] = traced
    left = without_queueing(cpu, work, SimpleNamespace(entry=np.arange(3)), timeline)  # type: ignore[arg-type]
    assert (left[::2].tolist(), left[1::2].tolist()) == (list(taken), [800_000.0] * 2)


@pytest.mark.parametrize(("beside_us", "left_us"), [(20, 10), (30, 10), (50, 50 / 3)])
def test_waiting_slows_an_overlapping_kernel_threefold_at_most(beside_us: int, left_us: float) -> None:
    assert beside_waiting(beside_us) == pytest.approx([left_us * 1_000] * 3)


def beside_waiting(beside_us: int) -> list[float]:
    """Time without the waiting of three kernels beside a collective that only waits; three of 10 us run alone."""
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 1_000, 1)
    trace.kernel(1_000_000, 1_000_000, 1, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)", stream=20)
    for number, (at, dur) in enumerate([(100, 10), (1_200, beside_us)] * 3, start=2):
        trace.launched((number * 2_000, 1_000), ((at + 100 * number) * 1_000, dur * 1_000), number)
    analysis = Analysis(trace.load())
    work = analysis.index(DeviceWork)
    collective, none = np.flatnonzero(work.end_ns - work.start_ns == 1_000_000), np.zeros(1, np.int64)
    waits = CollectiveWaits(collective, np.array([1_000_000]), none, none, np.ones(1, bool))
    own = np.flatnonzero(work.end_ns - work.start_ns == beside_us * 1_000)
    return undisturbed_ns(analysis.trace, work, np.arange(7), waits)[own].tolist()


def test_work_that_peers_lack_comes_first() -> None:
    took_us = {"save": 150, "print": 100, "sort": 400, "len": 99}
    found = beyond(hour({name: us * US for name, us in took_us.items()}), hour({}), hour({}))
    assert list(found) == [0]
    assert list(found[0].cpu_ns.items()) == [("sort", 400 * US), ("save", 150 * US), ("print", 100 * US)]
    assert dict(found[0].peers_ns) == dict.fromkeys(("sort", "save", "print"), 0.0)
    assert (found[0].late_share, found[0].same_kernels, found[0].computes_more) == (0.065, True, False)


@pytest.mark.parametrize(
    ("own_us", "calls", "told"),
    [(301, 1, True), (300, 1, False), (250, 1.6, True), (250, 1.5, False), (199, 9, False), (200, 9, True)],
)
def test_thrice_the_peers_time_or_half_more_calls_is_more(own_us: float, calls: float, told: bool) -> None:
    """100 us more in any case; the peers take 100 us in one call."""
    usual = [hour({"eval": ns * US}) for ns in (1, 100, 500)]
    found = beyond(hour({"eval": own_us * US}, calls={"eval": calls}), *usual)
    assert (0 in found) is told


@pytest.mark.parametrize(
    ("names", "told"), [(("c10d::allreduce_",), False), (("gloo:all_reduce",), False), (("x",), True)]
)
def test_waiting_in_a_collective_is_nothing_that_a_rank_does(names: tuple[str, ...], told: bool) -> None:
    assert bool(beyond(hour(dict.fromkeys(names, MS)), hour({}))) is told


@pytest.mark.parametrize(
    ("own", "ranks"),
    [
        (hour({}, 1.11 * MS), [0]),
        (hour({}, 1.1 * MS), []),
        (hour({"other": 1.9 * MS}), [0]),
        (hour({"other": 2.1 * MS}, 2 * MS, kernels={7: 1.0}), [0]),
    ],
)
def test_a_rank_that_computes_a_tenth_more_is_behind(own: Any, ranks: list[int]) -> None:
    found = beyond(own, hour({}), hour({}, kernels={1: 8.0, 2: 1.0}))
    assert list(found) == ranks
    assert [one.compute_ns - one.peers_compute_ns for one in found.values()] == [own.compute_ns - MS for _ in ranks]


@pytest.mark.parametrize(("others", "same"), [(({1: 8.0}, {7: 8.0}), True), (({6: 8.0}, {7: 8.0}), False)])
def test_same_kernels_on_one_peer_are_enough(others: Sequence[dict[int, float]], same: bool) -> None:
    """Ranks of a pipeline run other kernels than those of another stage."""
    found = beyond(hour({}, 1.5 * MS, kernels={1: 8.0}), *[hour({}, kernels=own) for own in others])
    assert (list(found), found[0].same_kernels) == ([0], same)


def test_each_rank_with_a_pause_is_reported() -> None:
    """Its own gap, told by name, is no pause again; that of another rank says nothing of it."""
    paused = hour({}, pause_ns=5 * MS)
    gap = hour({"before save": 3 * MS}, pause_ns=3 * MS)
    found = beyond(paused, gap, *[hour({}, pause_ns=100 * US)] * 3)
    assert {rank: (one.pause, dict(one.cpu_ns)) for rank, one in found.items()} == {
        0: ("before loss", {"before loss": 4.9 * MS}),
        1: ("", {"before save": 3 * MS}),
    }


def test_lone_or_nearly_idle_rank_has_no_peers() -> None:
    assert beyond(hour({"save": MS})) == {}
    other = hour({}, 3 * MS)
    other.cpu_ns, other.calls = {"mm": 0.1 * MS, "serve": 9 * MS}, {"mm": 1.0, "serve": 1.0}
    wide = hour({"optimizer": 3 * MS})
    assert 0 not in beyond(other, wide, wide)


def test_kernel_quicker_next_to_a_collective_gets_no_longer() -> None:
    took = beside_waiting(beside_us=5)
    assert took == pytest.approx([5_000.0] * 3)


@pytest.mark.parametrize(
    ("segment_ms", "left_ms"),
    [
        ((0.0, 3.0), 1.0),  # the whole collective lies in it: 2 ms of waiting go
        ((1.5, 3.0), 1.0),  # half a millisecond of the waiting does
        ((2.0, 3.0), 1.0),  # it begins as the waiting ends
        ((0.0, 3.1), 1.1),  # the CPU goes on 0.1 ms after the end
        ((0.0, 3.2), 3.2),  # it is busy with something else
        ((0.0, 2.9), 2.9),
    ],
)
def test_segment_before_collective_loses_its_wait(segment_ms: tuple[float, float], left_ms: float) -> None:
    """A collective of 3 ms that waits for 2 ms."""
    start, end = (np.array([round(edge * 1e6)]) for edge in segment_ms)
    timeline: Any = SimpleNamespace(start_ns=start, end_ns=end, at=np.zeros_like)
    work: Any = SimpleNamespace(start_ns=np.array([0]), end_ns=np.array([3_000_000]))
    none = np.zeros(1, np.int64)
    waits = CollectiveWaits(none, np.array([2_000_000]), none, none, np.ones(1, bool))
    left = without_waits((end - start).astype(np.float64), work, timeline, waits)
    assert left == pytest.approx([left_ms * 1e6])
