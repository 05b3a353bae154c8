"""Which events the timeline keeps: those around spans and occurrences, those that are long, and whole steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding, Occurrence
from traceanalyzer.render.html.timeline_events import Chosen, chosen, representative_steps
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

US = 1_000


def events_of(analysis: Analysis, kept: Chosen) -> list[int]:
    """Ids of all that is kept, in order."""
    cpu, gpu = analysis.trace.cpu["event_id"].to_numpy(), analysis.trace.gpu["event_id"].to_numpy()
    found = [cpu[rows] for _, rows in kept.threads]
    if len(gpu):
        row = analysis.index(DeviceWork).row
        found += [gpu[row[entries]] for _, _, entries in kept.streams]
    return sorted(int(one) for part in found for one in part)


def kept_of(trace: TraceBuilder, *spans: tuple[int, int], most: int = 10, findings: Any = ()) -> list[int]:
    analysis = Analysis(trace.load())
    return events_of(analysis, chosen(analysis, list(findings), list(spans), most))


def ops(number: int = 30) -> TraceBuilder:
    """Ops of 10 us, one every 100 us; without steps and work."""
    trace = TraceBuilder()
    for at in range(number):
        trace.op(f"aten::op{at}", at * 100 * US, 10 * US)
    return trace


def finding(*events: tuple[int, ...], **changes: Any) -> Finding:
    """Occurrences of 10 us, one every 100 us, that name these events."""
    found = tuple(
        Occurrence(at * 100 * US, at * 100 * US + 10 * US, 1, 0, 7, None, None, ids) for at, ids in enumerate(events)
    )
    first = found[0]
    typical = {"start_ns": first.start_ns, "end_ns": first.end_ns, "event_ids": first.event_ids}
    return replace(samples.finding(0), occurrences=found, **{**typical, **changes})


@pytest.mark.parametrize(
    ("span", "kept"),
    [
        ((440, 460), []),  # an op ends at 410, just where the span's surroundings begin; another begins at 500
        ((439, 460), [4]),
        ((440, 471), [5]),
        ((439, 571), [4, 5, 6]),
    ],
)
def test_what_is_within_thirty_microseconds_of_a_span_is_kept(span: tuple[int, int], kept: list[int]) -> None:
    assert kept_of(ops(), (span[0] * US, span[1] * US)) == kept


def test_work_that_runs_as_a_span_begins_is_kept() -> None:
    trace = TraceBuilder()
    for at in range(30):
        trace.kernel(at * 100 * US, 10 * US, at + 1)
    assert kept_of(trace, (439 * US, 460 * US)) == [4]
    assert kept_of(trace, (440 * US, 460 * US)) == []


def test_launches_of_kept_work_are_kept_with_their_ops() -> None:
    """The launch lies long before the span; the op around the call, not the annotation around both."""
    trace = ops()
    trace.annotation("step", 2_019 * US, 10 * US)
    op = trace.op("aten::mm", 2_020 * US, 7 * US)
    call = trace.launch("cudaLaunchKernel", 2_022 * US, US, 1)
    bare = trace.launch("cudaLaunchKernel", 2_040 * US, US, 2)
    first = trace.kernel(2_850 * US, 5 * US, 1)
    second = trace.kernel(2_855 * US, 5 * US, 2)
    trace.kernel(0, US, 3)  # the window begins here
    assert kept_of(trace, (2_850 * US, 2_860 * US)) == [op, call, bare, first, second]


def test_an_occurrence_s_own_events_are_kept_wherever_they_are() -> None:
    far = finding((20,), (25,), start_ns=0, event_ids=(22,))
    found = kept_of(ops(), most=8, findings=[far])
    assert {20, 22, 25} <= set(found)
    assert len(found) < 10


@pytest.mark.parametrize(("most", "around"), [(12, [0, 1]), (1_000, list(range(30)))])
def test_surroundings_of_occurrences_stay_while_room(most: int, around: list[int]) -> None:
    """Half of the room is for them."""
    one = finding((0,), (1,))
    assert kept_of(ops(), most=most, findings=[one])[: len(around)] == around


def test_half_an_occurrence_is_shown_on_either_side() -> None:
    """From 800 to 1,200 us: of the ops every 100 us those from 600 to 1,400 us."""
    one = finding((10,), start_ns=800 * US, end_ns=1_200 * US, event_ids=(10,))
    one = replace(one, occurrences=())
    assert kept_of(ops(), most=16, findings=[one]) == list(range(6, 14))


def test_events_of_later_occurrences_take_turns_while_room() -> None:
    """The first twelve have theirs in any case; then one of each finding after the other."""
    first = finding(*[(0,)] * 12, (10,), (11,), (12,))
    second = finding(*[(1,)] * 12, (20,), (21,), (22,))
    found = kept_of(ops(200), most=14, findings=[first, second])
    assert [one for one in found if one >= 10] == [10, 11, 20]


def test_fifth_to_twelfth_occurrence_keeps_forty_events() -> None:
    one = finding(*[(0,)] * 4, tuple(range(50, 100)))
    found = kept_of(ops(2_000), most=200, findings=[one])
    assert [event for event in found if event >= 50][:40] == list(range(50, 90))
    assert not {90, 91, 99} & set(found)


def test_long_events_are_seen_from_afar() -> None:
    """Of 100 events 35 may be; ops as long as each other are kept together or not at all."""
    trace = TraceBuilder()
    lasting = [40 if at % 10 == 3 else 10 for at in range(300)]
    for at, us in enumerate(lasting):
        trace.op("aten::op", at * 100 * US, us * US)
    analysis = Analysis(trace.load())
    kept = chosen(analysis, [], [], 100)
    assert events_of(analysis, kept) == [at for at, us in enumerate(lasting) if us == 40]
    assert 10 * US < kept.least_ns <= 40 * US
    (band,) = kept.bands
    assert band.least_ns == 10 * US + 1
    assert (band.start_ns, band.end_ns) == (0, int((299 * 100 + 10) * US))


def test_work_of_a_1200th_of_the_window_is_seen_from_afar() -> None:
    """Of 12 ms 10 us; two kernels last so long, two are longer, and many are just shorter."""
    trace = TraceBuilder()
    lasting = [20_000, 10_000, *[9_999] * 30, 10_000, 20_000]
    for at, ns in enumerate(lasting):
        trace.kernel(12_000 * US - 20_000 if at == len(lasting) - 1 else at * 100 * US, ns, at + 1)
    analysis = Analysis(trace.load())
    kept = chosen(analysis, [], [], 12)
    assert kept.least_ns == 10_000
    assert events_of(analysis, kept) == [0, 1, 32, 33]


def test_longest_160_events_of_each_side_surround_a_span() -> None:
    trace = TraceBuilder()
    for at in range(200):
        trace.kernel(at * 200, 150 if at == 190 else 100, at + 1)
    assert kept_of(trace, (0, 40 * US), most=190) == [*range(159), 190]


def steps_of(*lengths_us: int, mark_us: int = 5) -> TraceBuilder:
    """Steps of these lengths, in each an op that launches work for all of it but the last 5 us."""
    trace, at = TraceBuilder(), 0
    for number, us in enumerate(lengths_us):
        trace.step(number + 3, at, us * US)
        trace.op("aten::mm", at + US, 3 * US)
        trace.launched((at + 2 * US, US), (at + 3 * US, (us - mark_us) * US), number + 1)
        at += us * US
    return trace


@pytest.mark.parametrize(
    ("named", "positions"), [((), [1, 3]), ((4, 7, 7), [1, 4, 3]), ((4,), [1, 3]), ((99, 99, 3), [1, 0, 3])]
)
def test_steps_that_are_shown_whole(named: tuple[int, ...], positions: list[int]) -> None:
    """That of median length, that with most findings, and the longest, each once; steps are numbered from 3."""
    steps = Analysis(steps_of(100, 200, 150, 900, 400).load()).index(Steps)
    steady = replace(steps, steady=np.ones(5, np.bool_))
    found = [replace(samples.finding(0), step=number) for number in named]
    assert list(representative_steps(steady, found)) == positions


def test_the_median_step_is_a_steady_one() -> None:
    steps = Analysis(steps_of(800, 700, 100, 200, 150).load()).index(Steps)
    cold = replace(steps, steady=np.array([False, False, True, True, True]))
    assert list(representative_steps(cold, [])) == [4, 0]


def test_step_is_whole_until_its_launched_work_ends() -> None:
    trace = TraceBuilder()
    for number in range(4):
        at = number * 1_000 * US
        trace.step(number, at, 1_000 * US)
        trace.op("aten::mm", at + 100 * US, 20 * US)
        trace.launch("cudaLaunchKernel", at + 110 * US, 5 * US, number + 1)
        trace.kernel(at + 950 * US, (100 if number < 3 else 300) * US, number + 1)
    short = trace.op("aten::empty", 1_500 * US, 0), trace.kernel(1_600 * US, US, 99)  # launched by none
    analysis = Analysis(trace.load())
    kept = chosen(analysis, [replace(samples.finding(0), step=1)], [], 100)
    assert set(short) <= set(events_of(analysis, kept))
    last = [(one.start_ns // US, one.end_ns // US) for one in kept.bands][-2:]
    assert last == [(1_000, 2_050), (3_000, 4_250)]
    assert all(band.least_ns == 0 for band in kept.bands)


def test_bands_are_in_time_and_later_steps_if_room() -> None:
    """The longest is the first of four, the usual one comes later."""
    analysis = Analysis(steps_of(900, 100, 120, 110, mark_us=5).load())
    kept = chosen(analysis, [], [], 1_000)
    assert [band.start_ns for band in kept.bands] == sorted(band.start_ns for band in kept.bands)
    assert len(kept.bands) == 2
    assert all(band.least_ns == 0 for band in kept.bands)


def test_threads_are_those_that_launch_and_those_of_findings() -> None:
    """By when they begin; a thread that neither launches nor is named is left out, but where none launches."""
    trace = TraceBuilder()
    trace.op("aten::idle", 0, US, tid=TID + 1)
    trace.op("aten::named", US, US, tid=TID + 2)
    trace.op("aten::mm", 2 * US, 10 * US, tid=TID + 9)
    trace.launch("cudaLaunchKernel", 3 * US, US, 1, tid=TID + 9)
    trace.op("aten::late", 5 * US, 10 * US, tid=TID + 3)
    trace.launch("cudaLaunchKernel", 6 * US, US, 2, tid=TID + 3)
    bare = Analysis(trace.load())
    assert len(chosen(bare, [], [], 1_000).threads) == 4
    trace.kernel(10 * US, US, 1)
    trace.kernel(12 * US, US, 2)
    analysis = Analysis(trace.load())

    def tids(*findings: Finding) -> list[int]:
        rows = [rows[0] for _, rows in chosen(analysis, findings, [], 1_000).threads]
        return [int(analysis.trace.cpu["tid"].iloc[row]) - TID for row in rows]

    assert tids() == [9, 3]
    assert tids(replace(finding(()), thread=TID + 2)) == [2, 9, 3]


def test_of_many_threads_those_that_launch_most() -> None:
    """Those that launch less have more rows."""
    trace = TraceBuilder()
    for thread in range(5):
        for at in range(5 - thread):
            trace.op("aten::mm", (10 * thread + at) * US, US, tid=TID + thread)
        for at in range(thread + 1):
            number = 10 * thread + at + 1
            begin_ns = (10 * thread + 5 + at) * US // 2 + 200 * US
            trace.launch("cudaLaunchKernel", begin_ns, US // 2, number, tid=TID + thread)
            trace.kernel(number * US, US, number)
    analysis = Analysis(trace.load(), (0, 300 * US))
    rows = [thread for thread, _ in chosen(analysis, [], [], 1_000).threads]
    assert len(rows) == 4
    first = [int(analysis.index(Events).nesting.thread_rows[thread][0]) for thread in rows]
    assert [int(analysis.trace.cpu["tid"].iloc[row]) - TID for row in first] == [1, 2, 3, 4]


def test_streams_are_the_eight_with_most_work() -> None:
    """By device and number; ten streams of which the two with least work are left out."""
    trace = TraceBuilder()
    streams = [(1, 3, 50), (0, 9, 1), *((0, 10 + k, 20 + k) for k in range(7)), (1, 2, 5)]
    for at, (device, stream, us) in enumerate(streams, 1):
        trace.kernel(at * 100 * US, us * US, at, device=device, stream=stream)
    kept = chosen(Analysis(trace.load()), [], [], 1_000)
    assert [one[:2] for one in kept.streams] == [*((0, 10 + k) for k in range(7)), (1, 3)]


def test_what_lies_outside_of_the_window_is_not_kept() -> None:
    trace = ops()
    for at in range(30):
        trace.kernel(at * 100 * US + 20 * US, 90 * US, at + 1)
    analysis = Analysis(trace.load(), (1_000 * US, 1_320 * US))
    kept = events_of(analysis, chosen(analysis, [finding((2, 32))], [(0, 3_000 * US)], 1_000))
    assert [one for one in kept if one < 30] == [10, 11, 12, 13]
    assert [one - 30 for one in kept if one >= 30] == [9, 10, 11, 12]
