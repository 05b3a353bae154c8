"""Idle time of pauses and launches, lost by spans; and what owners and sums may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rule.test_lost_time import US, launched, ns, stretches
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.hits import LostTime, clamp_to_floor, reduce_to
from traceanalyzer.rule.views import Calls, IdleTime, Work


def one(owner: int, start: int, end: int, device: int = 0) -> LostTime:
    return LostTime(*(np.array([value]) for value in (owner, device, start, end)))


def test_stretches_may_be_empty_and_are_read_only() -> None:
    owner, device, start, end = (np.array(side) for side in ([0, 1], [0, 0], [5, 7], [5, 9]))
    lost = LostTime(owner, device, start, end)
    assert lost.sums(2).tolist() == [0, 2]
    for column in (owner, device, start, end):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 3
    with pytest.raises(ValueError, match="1 of 1 lost stretches end before they start"):
        one(0, 5, 4)
    with pytest.raises(ValueError, match="has integers, not int64, 2-dimensional"):
        LostTime(*[np.zeros((1, 1), np.int64)] * 4)
    with pytest.raises(
        ValueError, match="1 of 1 lost stretches have no owner: are these owners of another view"
    ):
        one(-1, 5, 6)
    with pytest.raises(ValueError, match="1 of 2 lost stretches have no owner: leave out owner < 0"):
        LostTime(*(np.array(column) for column in ([0, -1], [0, 0], [1, 1], [2, 2])))


def test_what_an_owner_loses_twice_counts_once_on_each_device() -> None:
    """Owner 2 loses [0, 9) in three stretches, one of them twice; owner 0 some of the same on two devices."""
    stretches_of = [(2, 0, 6, 9), (2, 0, 0, 5), (2, 0, 4, 7), (2, 0, 4, 7), (2, 0, 8, 8)]
    others = [(0, 0, 5, 8), (0, 1, 5, 8), (0, 1, 20, 22), (0, 0, 8, 9)]
    lost = LostTime.joined([one(owner, *span, device) for owner, device, *span in stretches_of + others])
    assert lost.sums(3).tolist() == [4 + 5, 0, 9]
    assert lost[np.array([0, 2, 4])].sums(4).tolist() == [0, 0, 5, 0]
    assert LostTime.none().sums(2).tolist() == [0, 0]


def test_owners_and_sums_are_of_as_many_as_there_are() -> None:
    lost = one(1, 5, 9, device=3)
    assert lost.sums(2).tolist() == [0, 4]
    with pytest.raises(ValueError, match=r"sums\(1\) of owners up to 1"):
        lost.sums(1)
    assert LostTime.none().sums(0).tolist() == []
    given = lost.owned_by(np.array([7, 4]))
    assert stretches(given) == [(4, 3, 0, 0)]
    assert (given.start_ns.tolist(), given.end_ns.tolist()) == ([5], [9])
    with pytest.raises(ValueError, match="lost has an owner of 1, and owner has 1 rows"):
        lost.owned_by(np.array([7]))


def test_what_is_chosen_of_the_lost_time_is_of_the_same_spans() -> None:
    idle = launched((0, 10), (110, 10), (300, 10)).index(IdleTime)
    lost = LostTime.idle_within(idle, ns(20, 60), ns(40, 70))
    assert (lost.spans, lost[lost.owner == 1].spans, lost[np.array([0, 1])].spans) == (2, 2, 2)
    assert lost[lost.owner >= 0] is lost
    assert LostTime.joined([lost, lost]).spans == 2
    assert len(LostTime.joined([]).owner) == 0


def test_spans_that_only_touch_idle_time_have_none_of_it() -> None:
    """Idle from 10 to 110."""
    idle = launched((0, 10), (110, 10)).index(IdleTime)
    lost = LostTime.idle_within(idle, ns(100, 0, 10, 110), ns(110, 10, 20, 115))
    assert [row for row in stretches(lost) if row[2] < row[3]] == [(0, 0, 100, 110), (2, 0, 10, 20)]
    assert len(lost.owner) == 2


def test_work_that_is_covered_in_part_is_lost_around_it_by_its_own_pieces() -> None:
    """Given in any order; what other devices run covers nothing."""
    every = launched((40, 20), (10, 20), (20, 5), (0, 100, 1), (60, 10)).index(Work)
    own = every[np.isin(every.start_ns // US, [60, 40, 10])][::-1]
    assert (own.start_ns // US).tolist() == [60, 40, 10]
    cover = every[np.isin(every.start_ns // US, [20, 0])]
    assert stretches(LostTime.uncovered(own, cover)) == [
        (0, 0, 60, 70),
        (1, 0, 40, 60),
        (2, 0, 10, 20),
        (2, 0, 25, 30),
    ]


def test_work_that_a_span_launches_before_and_after_a_pause_loses_all_of_it() -> None:
    """Launched at 20 and 30 within 18 to 40; the kernel before it ends at 12."""
    idle = launched((2, 10), (22, 6), (100, 10), at=(1, 20, 30)).index(IdleTime)
    lost = LostTime.launched_within(idle, ns(18), ns(40))
    assert stretches(lost) == [(0, 0, 18, 22), (0, 0, 28, 100)]
    second = LostTime.launched_within(idle, ns(0, 18), ns(10, 40))
    assert stretches(second) == [(0, 0, 0, 2), (1, 0, 12, 22), (1, 0, 28, 100)]  # between two spans
    late = LostTime.launched_within(idle, ns(29), ns(40))
    assert stretches(late) == [(0, 0, 29, 100)]


def test_calls_have_the_idle_time_that_their_launch_ended() -> None:
    analysis = launched((5, 10), (100, 10), (200, 10), at=(2, 20, 30))
    calls = analysis.index(Calls)
    launches = calls[calls.is_call]
    idle = analysis.index(IdleTime)
    lost = LostTime.launched_by(idle, launches[[2, 1]])
    assert stretches(lost) == [(0, 0, 110, 200), (1, 0, 15, 100)]


@pytest.mark.parametrize(
    ("needed", "dropped", "resized"),
    [
        ([90.0, 40.0], [], [0, 1]),
        ([0.0, 0.5], [0], [1]),
        ([1.0, 0.0], [1], [0]),
        ([0.0, 0.0], [0, 1], []),
    ],
)
def test_what_needs_no_time_goes_and_what_needs_some_is_shortened(
    needed: list[float], dropped: list[int], resized: list[int]
) -> None:
    """Each piece by its entry, whichever of the work is chosen."""
    every = launched((1, 1), (10, 90), (200, 40)).index(Work)
    work = every[1:]
    made: Any = reduce_to(work, np.array(needed) * (US if needed[0] > 1 else 1))
    fixes = {type(fix).__name__: np.asarray(fix.work).tolist() for fix in made["fix"]}
    assert fixes.get("DropWork", []) == [one + 1 for one in dropped]
    assert fixes["Resize"] == [one + 1 for one in resized]


def test_needed_times_are_from_nothing_to_what_the_work_takes() -> None:
    work = launched((10, 90), (200, 40)).index(Work)
    assert stretches(reduce_to(work, ns(90, 40))["lost"]) == [(0, 0, 100, 100), (1, 0, 240, 240)]
    for wrong, why in (
        (np.array([-1.0, 5.0]), "1 of 2 needed_ns are negative or no number"),
        (np.array([np.nan, 5.0]), "1 of 2 needed_ns are negative or no number"),
        (ns(90, 40) + 1, "2 of 2 needed_ns are more than the work takes"),
    ):
        with pytest.raises(ValueError, match=why):
            reduce_to(work, wrong)
    assert clamp_to_floor(np.array([10.0, 70_000.0]), work, 50_000).tolist() == [50_000.0, 70_000.0]
    assert clamp_to_floor(np.array([10.0, 20.0]), work, 50_000).tolist() == [50_000.0, 40_000.0]


def test_a_call_that_waits_has_not_the_idle_time_that_another_ends() -> None:
    """The device is done at 30; the CPU is told so at 33, and launches at 50."""
    trace = TraceBuilder()
    for number, at in enumerate((0, 45), start=1):
        trace.op("aten::mm", at * US, 8 * US)
        trace.launch("cudaLaunchKernel", (at + 5) * US, 2 * US, number)
        trace.kernel((at + 15) * US, 15 * US, number)
    trace.launch("cudaStreamSynchronize", 10 * US, 23 * US, 9)
    analysis = Analysis(trace.load())
    idle, calls = analysis.index(IdleTime), analysis.index(Calls)
    waits = calls[calls.name.one_of("cudaStreamSynchronize")]
    assert idle.call.inside(waits).any()
    assert len(LostTime.launched_by(idle, waits).owner) == 0
    launches = calls[calls.name.one_of("cudaLaunchKernel")]
    lost = LostTime.launched_by(idle[idle.before_entries >= 0], launches)
    assert lost.sums(2).tolist() == [0, 30 * US]
