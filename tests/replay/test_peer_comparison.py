"""What a rank takes more than its peers becomes an edit of its program, and beside what kernels run slower."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.replay.built import beyond, hour
from tests.replay.programs import Loop, program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.overlap_slowdown import _slower, undisturbed_ns
from traceanalyzer.replay.peer_comparison import Excess, ExcessOverPeers, MatchPeers, RemainingShare, _same
from traceanalyzer.replay.step_breakdown import StepBreakdown, segment_names
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork

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
def test_rank_that_computes_less_is_late_by_cpu_work(
    compute_ns: float, share: float, computes_more: bool
) -> None:
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
    left = found.edit.left.share
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
    own = [found.edit.left.share[names.one_of(name)] for name in ("aten::sort", "aten::mm")]
    assert [set(one.tolist()) for one in own] == [{0.1}, {0.25}]
    assert trace.cpu["name"].iloc[found.rows].tolist() == ["aten::sort"] * 3
    assert len(rows) == len(found.edit.left.share)
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
    MatchPeers(RemainingShare(share), 0.5).apply(edited)
    assert (~edited.alive).sum() == 3
    assert set(edited.dur_ns.tolist()) == {1_500.0}
    half = names.one_of("aten::mm")
    assert edited.cpu_ns[half].tolist() == (before[half] / 2).tolist()
    assert not edited.kept[share <= 0.02].any()


@pytest.mark.parametrize(
    ("own", "other", "same"),
    [
        ({1: 8, 2: 2}, {1: 8}, True),  # four of five
        ({1: 7.9, 2: 2.1}, {1: 7.9}, False),
        ({1: 8}, {1: 8, 3: 90}, True),  # of the rank's own
        ({1: 8}, {1: 7}, False),
        ({}, {1: 8}, False),
    ],
)
def test_most_kernels_are_the_other_s_as_often(
    own: dict[int, float], other: dict[int, float], same: bool
) -> None:
    assert _same(own, other) is same


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
        loop.trace.kernel(
            begin + 900 * US, 70 * US, number, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
        )
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
def test_by_how_much_a_kind_is_slower_beside_communication(
    alike: list[tuple[int, float, float]], ratios: list[float]
) -> None:
    """Each three times."""
    trace, work, (took, beside) = kernels(*[one for one in alike for _ in range(3)])
    found = _slower(trace, work, np.arange(len(took)), took, beside)
    assert found[::3].tolist() == pytest.approx(ratios)


def test_kernels_lengthen_only_next_to_own_device_waits() -> None:
    """A collective of 100 us that waits for the first 40; kernels of 20 us on both devices then and later."""
    trace = TraceBuilder()
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)"
    trace.launch("cudaLaunchKernel", 0, 1 * US, 1)
    trace.kernel(1_000 * US, 100 * US, 1, name=nccl, stream=20)
    for number, (start, device) in enumerate([(1_010, 0), (1_010, 1), (1_070, 0), (1_030, 0)], 2):
        trace.launch("cudaLaunchKernel", number * 2 * US, 1 * US, number)
        trace.kernel(start * US, 20 * US, number, device=device, stream=number)
    analysis = Analysis(trace.load())
    work = analysis.index(DeviceWork)
    own, one = np.flatnonzero(work.end_ns - work.start_ns == 100 * US), np.ones(1, bool)
    waits = CollectiveWaits(own, np.array([40 * US]), own * 0, own * 0, one)
    took = undisturbed_ns(analysis.trace, work, np.arange(5), waits)
    whole, half = 20 - 20 * (1 - 1 / 1.35), 20 - 10 * (1 - 1 / 1.35)
    by_stream = dict(zip(work.stream.tolist(), (took / US).tolist(), strict=True))
    assert by_stream == pytest.approx({20: 100, 2: whole, 3: 20, 4: 20, 5: half})
