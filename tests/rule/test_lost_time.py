"""Who lost which time."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.support.built_findings import MS, STEP, findings, kernels, scope
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Severity
from traceanalyzer.replay.edits import Drop, DropWork, Edit, Resize
from traceanalyzer.report.summary import scope_of
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.hits import LostTime, clamp_to_floor, reduce_to
from traceanalyzer.rule.judging import Judgement
from traceanalyzer.rule.lost_time import split_waiting
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.collective_waits import Arrivals, without_waiting
from traceanalyzer.timeline.steps import Steps

US = 1_000


def ns(*values: int) -> Any:
    """Some us as an array of ns."""
    return np.array(values, np.int64) * US


def stretches(lost: LostTime) -> list[tuple[int, int, int, int]]:
    """(owner, device, start, end) in us, by owner and start."""
    columns = (lost.owner, lost.device, lost.start_ns // US, lost.end_ns // US)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def launched(*kernels: tuple[int, int] | tuple[int, int, int], at: tuple[int, ...] = ()) -> Analysis:
    """Kernels by start, length and device in us, launched `at` or all at 0; the first event is at 0."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, US)
    for number, place in enumerate(kernels, start=1):
        start, dur, device = (*place, 0)[:3]
        trace.launch("cudaLaunchKernel", at[number - 1] * US if at else 100 * number, 50, number)
        trace.kernel(start * US, dur * US, number, device=device, stream=7 + number)
    return Analysis(trace.load())


def test_unoverlapped_time_is_lost_by_the_latest_work() -> None:
    """Two pieces that overlap on one device, one on another; covered on the first, and on a third."""
    every = launched((10, 90), (60, 90), (10, 90, 1), (20, 10), (140, 60), (0, 300, 2)).index(Work)
    longest = every.dur_ns == 90 * US
    own = every[longest]
    places = zip(own.device.tolist(), (own.start_ns // US).tolist(), strict=True)
    assert list(places) == [(0, 10), (1, 10), (0, 60)]
    lost = LostTime.uncovered(own, every[~longest])
    assert stretches(lost) == [(0, 0, 10, 20), (0, 0, 30, 60), (1, 1, 10, 100), (2, 0, 60, 140)]


def test_no_work_covers_itself() -> None:
    work = launched((0, 10), (20, 10), (40, 10)).index(Work)
    for cover, shared in ((work, 2), (work[1:], 1)):
        with pytest.raises(ValueError, match=f"{shared} of 2 pieces of work are in cover, too, and would cover"):
            LostTime.uncovered(work[:2], cover)
    assert len(LostTime.uncovered(work[:2], work[2:]).owner) == 2


def test_idle_time_within_spans_is_theirs_on_every_device() -> None:
    """Spans in any order, one of them over the edge of a pause and one beside all of them."""
    idle = launched((0, 10), (110, 10), (0, 50, 1), (110, 10, 1)).index(IdleTime)
    lost = LostTime.idle_within(idle, ns(100, 20, 112), ns(115, 60, 118))
    assert lost.sums(3).tolist() == ns(10 + 10, 40 + 10, 0).tolist()
    assert lost.sums(5).tolist()[3:] == [0, 0]
    one = LostTime.idle_within(idle[idle.device == 0], ns(20, 60), ns(60, 110))
    assert one.sums(2).tolist() == ns(40, 50).tolist()


def test_overlapping_spans_give_idle_to_the_first_and_longest() -> None:
    """Idle from 10 to 110: a span in another one and one without length lose nothing, of equal starts the shorter."""
    idle = launched((0, 10), (110, 10)).index(IdleTime)
    lost = LostTime.idle_within(idle, ns(30, 20, 20, 50, 70, 90), ns(40, 25, 60, 80, 70, 120))
    assert stretches(lost) == [(2, 0, 20, 60), (3, 0, 60, 80), (5, 0, 90, 110)]
    assert lost.sums(6).tolist() == ns(0, 0, 40, 20, 0, 20).tolist()
    twice = LostTime.idle_within(idle, ns(20, 20), ns(60, 60))
    assert stretches(twice) == [(0, 0, 20, 60)]


@pytest.mark.parametrize(
    ("launch", "owner"), [(19, None), (20, 0), (29, 0), (30, None), (40, 1), (44, 2), (49, 2), (60, None)]
)
def test_launch_belongs_to_the_latest_open_span(launch: int, owner: int | None) -> None:
    """Spans of two threads, the second of which lies in the first: what it launches is its own."""
    analysis = launched((5, 10), (100, 10), at=(2, launch))
    spans = ns(20, 40, 44), ns(30, 60, 50)
    idle, work = analysis.index(IdleTime), analysis.index(Work)
    owned = LostTime.launched_within(idle, *spans)
    assert set(owned.owner.tolist()) == ({owner} if owner is not None else set())
    alone_ns = 100 * US - spans[0][owner] if owner is not None else 0  # from the span's start to the kernel
    assert (owned.end_ns - owned.start_ns).sum() == alone_ns
    spent = LostTime.spent_within(work, *spans)
    assert stretches(spent) == ([(owner, 0, 100, 110)] if owner is not None else [])
    assert (owned.spans, spent.spans) == (3, 3)


def test_joined_times_are_parallel_to_occurrences_if_each_is() -> None:
    analysis = launched((5, 10), (100, 10), at=(2, 40))
    work = analysis.index(Work)
    owned = LostTime.all_of(work, np.zeros(len(work), np.int64))
    assert LostTime.joined([owned, owned]).spans is None
    assert LostTime.joined([owned, LostTime.all_of(work)]).spans == 2
    assert LostTime.joined([LostTime.all_of(work[:1]), LostTime.all_of(work), owned]).spans == 1


def test_the_last_part_of_work_is_what_it_takes_too_long() -> None:
    work = launched((10, 90), (200, 40)).index(Work)
    assert stretches(LostTime.excess(work, ns(30, 40))) == [(0, 0, 70, 100), (1, 0, 200, 240)]
    named = LostTime.excess(work, ns(30, 40), np.array([7, 7]))
    assert stretches(named) == [(7, 0, 70, 100), (7, 0, 200, 240)]
    made = reduce_to(work, np.array([60_000, 0]))
    assert stretches(made["lost"]) == [(0, 0, 70, 100), (1, 0, 200, 240)]
    dropped, resized = made["fix"]
    assert isinstance(dropped, DropWork)
    assert isinstance(resized, Resize)
    assert np.asarray(dropped.work).tolist() == [1]
    assert (np.asarray(resized.work).tolist(), np.asarray(resized.dur_ns).tolist()) == ([0], [60_000.0])
    assert len(reduce_to(work, ns(60, 40))["fix"]) == 1


def test_a_collective_first_waits_and_then_moves_data() -> None:
    """What is lost of it in its last 30 us is transfer, before that waiting."""
    found: Any = SimpleNamespace(end_ns=ns(100, 300))
    arrivals = Arrivals(ns(30, 200), np.array([2, -1]))
    assert arrivals.measured.tolist() == [True, False]
    lost = LostTime(np.array([0, 0, 0, 1]), np.zeros(4, np.int64), ns(0, 60, 80, 100), ns(50, 90, 90, 300))
    waiting, moving = split_waiting(found, lost, arrivals.transfer_ns)
    assert stretches(waiting) == [(0, 0, 0, 50), (0, 0, 60, 70)]
    assert stretches(moving) == [(0, 0, 70, 90), (0, 0, 80, 90), (1, 0, 100, 300)]


def test_waiting_is_taken_off_where_it_was_measured() -> None:
    work: Any = SimpleNamespace(dur_ns=ns(100, 50), entries=np.arange(2))
    waits: Any = SimpleNamespace(of=lambda entries: (np.array([40 * US, -1]), np.array([1, -1])))
    assert without_waiting(work, waits).tolist() == ns(60, 50).tolist()
    assert without_waiting(work, None).tolist() == ns(100, 50).tolist()


def test_work_is_in_order_by_device_then_stream_then_start() -> None:
    trace = TraceBuilder()
    for number, (start, device, stream) in enumerate(((0, 1, 7), (10, 0, 9), (20, 0, 7), (30, 0, 9), (40, 0, 7))):
        trace.kernel(start * US, US, number + 1, device=device, stream=stream)
    work = Analysis(trace.load()).index(Work)
    assert (work.in_order().start_ns // US).tolist() == [20, 40, 10, 30, 0]
    assert (work[::-1].in_order().start_ns // US).tolist() == [20, 40, 10, 30, 0]
    one = work[work.stream == 9]
    assert (one.in_order().start_ns // US).tolist() == [10, 30]
    assert (one[::-1].in_order().start_ns // US).tolist() == [10, 30]


def test_beside_is_overlap_with_streams_of_the_same_device() -> None:
    trace = TraceBuilder()
    for number, (start, dur, device, stream) in enumerate(
        ((0, 10, 0, 7), (1, 99, 1, 13), (5, 10, 0, 9), (8, 4, 0, 11), (20, 10, 0, 7), (22, 2, 0, 7))
    ):
        trace.kernel(start * US, dur * US, number + 1, device=device, stream=stream)
    work = Analysis(trace.load()).index(Work)
    assert (work.beside_ns() // US).tolist() == [5, 0, 7, 4, 0, 0]
    assert (work[work.stream == 7].beside_ns() // US).tolist() == [5, 0, 0]


def test_the_next_of_the_rows_begins_at_an_instant_or_after_it() -> None:
    calls = launched((50, 10), (70, 10), at=(20, 30)).index(Calls)
    calls = calls[calls.is_call]
    most = np.iinfo(np.int64).max
    origin = int(calls.start_ns[0]) - 20 * US
    found = calls[::-1].next_start_ns(origin + ns(0, 20, 21, 30, 31))
    starts = [int(one) - origin if one < most else None for one in found]
    assert starts == [*ns(20, 20, 30, 30).tolist(), None]


def test_rows_group_by_shared_value_longest_first() -> None:
    trace = TraceBuilder()
    for number, (name, dur, stream) in enumerate(
        (("b", 30, 7), ("a", 10, 7), ("a", 20, 9), ("c", 40, 7), ("d", 30, 7))
    ):
        trace.kernel(number * 100 * US, dur * US, number + 1, name=name, stream=stream)
    work = Analysis(trace.load()).index(Work)
    totals_us = [(name, own.total_ns // US) for name, own in work.by(work.name)]
    assert totals_us == [("c", 40), ("a", 30), ("b", 30), ("d", 30)]
    keys = [key for key, _ in work.by(work.name, work.stream)]
    assert keys == [("c", 7), ("b", 7), ("d", 7), ("a", 9), ("a", 7)]
    assert [(key, len(own)) for key, own in work.by(work.dur_ns >= 30 * US)] == [(1, 3), (0, 2)]


def test_a_collective_is_measured_whichever_rank_came_last() -> None:
    """Rank 0 among them: 50 us of which 40 were waiting; of what was not measured the transfer is an estimate."""
    trace = TraceBuilder()
    for number in (1, 2):
        trace.launch("cudaLaunchKernel", number * 100 * US, 5 * US, number)
        trace.kernel((number * 100 + 10) * US, 50 * US, number, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)")
    work = Analysis(trace.load()).index(Work)
    waits: Any = SimpleNamespace(of=lambda entries: (np.array([40 * US, -1]), np.array([0, -1])))
    found = Arrivals.of(work, waits)
    assert found.last.tolist() == [0, -1]
    assert found.transfer_ns[0] == 10 * US
    assert found.transfer_ns[1] == Arrivals.of(work, None).transfer_ns[1]


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
    with pytest.raises(ValueError, match="1 of 1 lost stretches have no owner: are these owners of another view"):
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


def test_partly_covered_work_is_lost_around_the_cover() -> None:
    """Given in any order; what other devices run covers nothing."""
    every = launched((40, 20), (10, 20), (20, 5), (0, 100, 1), (60, 10)).index(Work)
    own = every[np.isin(every.start_ns // US, [60, 40, 10])][::-1]
    assert (own.start_ns // US).tolist() == [60, 40, 10]
    cover = every[np.isin(every.start_ns // US, [20, 0])]
    lost = LostTime.uncovered(own, cover)
    assert stretches(lost) == [(0, 0, 60, 70), (1, 0, 40, 60), (2, 0, 10, 20), (2, 0, 25, 30)]


def test_span_with_a_pause_loses_all_its_work() -> None:
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
    [([90.0, 40.0], [], [0, 1]), ([0.0, 0.5], [0], [1]), ([1.0, 0.0], [1], [0]), ([0.0, 0.0], [0, 1], [])],
)
def test_unneeded_work_goes_and_other_is_shortened(needed: list[float], dropped: list[int], resized: list[int]) -> None:
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


def test_waiting_call_does_not_own_idle_time_ended_by_another() -> None:
    """The device is done at 30; the CPU is told so at 33, and launches at 50."""
    trace = TraceBuilder()
    for number, at in enumerate((0, 45), start=1):
        trace.op("aten::mm", at * US, 8 * US)
        trace.launched(((at + 5) * US, 2 * US), ((at + 15) * US, 15 * US), number)
    trace.launch("cudaStreamSynchronize", 10 * US, 23 * US, 9)
    analysis = Analysis(trace.load())
    idle, calls = analysis.index(IdleTime), analysis.index(Calls)
    waits = calls[calls.name.one_of("cudaStreamSynchronize")]
    assert idle.call.inside(waits).any()
    assert len(LostTime.launched_by(idle, waits).owner) == 0
    launches = calls[calls.name.one_of("cudaLaunchKernel")]
    lost = LostTime.launched_by(idle[idle.before_entries >= 0], launches)
    assert lost.sums(2).tolist() == [0, 30 * US]


HIGH, MEDIUM, INFO = Severity.HIGH, Severity.MEDIUM, Severity.INFO


def test_info_findings_add_nothing_to_the_fix() -> None:
    """The first fault has a finding for information as well; the second one has only such, the third one is info."""
    severities = (HIGH, INFO, INFO, INFO, HIGH)
    found = [replace(samples.findings()[0], severity=severity) for severity in severities]
    edits: list[Edit] = [Drop(rows) for rows in ((0,), (1,), (2,), (3,), (4,))]  # type: ignore[arg-type]
    faults = FaultOf((0, 0, 1, 1, 2), (None,) * 3, (HIGH, MEDIUM, INFO))
    judged = Judgement(tuple(found), tuple((edit,) for edit in edits), faults, ())
    assert judged.edits_of(judged.to_fix) == (edits[0], edits[1])


def test_findings_do_not_count_launchless_end_steps() -> None:
    trace = TraceBuilder()
    for number in range(5):
        trace.step(number, 1_000 * number, 900)
        if number in (1, 3):
            trace.launched((1_000 * number + 10, 5), (1_000 * number + 20, 700), number)
    analysis = Analysis(trace.load())
    steps = analysis.index(Steps)
    assert (len(steps), steps.working, scope_of(analysis, None).steps) == (5, 3, 3)


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [(0, 4 * STEP, "2.50 ms a step"), (0, 2 * STEP, "1.50 ms a step"), (STEP, 2 * STEP, "2.00 ms in total")],
)
def test_rule_totals_scale_to_the_requested_window(start: int, end: int, said: str) -> None:
    """Of 10 ms in four steps, the first two have 3."""
    places = [(number * STEP + MS, dur * MS) for number, dur in enumerate((1, 2, 3, 4))]
    hits = kernels(*places, message="{spent_a_step}", evidence={"spent_ns": 10 * MS})
    chosen = replace(scope(end - start, (end - start) // STEP), start_ns=start, end_ns=end, asked=True)
    (found,) = findings([hits], chosen)
    assert found.message == said
    assert found.evidence["spent_ns"] == 10 * MS
