"""Evidence of findings: which call waited for which work, and what of an op's launches is drawn."""

from __future__ import annotations

import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Occurrence
from traceanalyzer.model.overlay import Slices
from traceanalyzer.render.perfetto.finding_tracks import Numbered, evidence_tracks

US = 1_000


def tracks(trace: TraceBuilder, *events: int) -> dict[str, Slices]:
    """What is drawn of one occurrence that names these events, by the first word of the track."""
    analysis = Analysis(trace.load())
    found = samples.finding(0, occurrences=(Occurrence(0, 0, 0, 0, 7, None, None, events),))
    return {one.name.split()[1].strip(","): one for one in evidence_tracks(analysis, [Numbered(1, found)])}


def launched(
    launch: int, start: int, end: int, *, number: int = 1, into: TraceBuilder | None = None
) -> TraceBuilder:
    """Work that was launched within 5 us from then on, and ran from `start` to `end`, all in us."""
    made = into or TraceBuilder()
    made.launched((launch * US, 5 * US), (start * US, (end - start) * US), number)
    return made


def starts(track: Slices | None) -> list[int]:
    """Since the begin of the trace, in us; nothing where there is no such track."""
    return [] if track is None else (track.start_ns // US).tolist()


@pytest.mark.parametrize(
    ("begin_ns", "end_ns", "waited"),
    [
        (40_000, 52_000, True),
        (49_999, 52_000, True),
        (50_000, 52_000, False),  # the device was done already
        (60_000, 65_000, False),
        (40_000, 47_000, True),  # within what clocks may be off
        (40_000, 46_999, False),
    ],
)
def test_a_call_waited_for_work_that_ended_while_it_ran(begin_ns: int, end_ns: int, waited: bool) -> None:
    trace = launched(0, 10, 50)
    call = trace.launch("cudaStreamSynchronize", begin_ns, end_ns - begin_ns, 9)
    drawn = tracks(trace, call)
    assert ("waits" in drawn) is waited
    assert ("work" in drawn) is waited


@pytest.mark.parametrize(("start", "drawn"), [(10, 40), (45, 45)])
def test_wait_is_drawn_once_work_and_call_have_begun(start: int, drawn: int) -> None:
    trace = launched(0, start, 50)
    call = trace.launch("cudaStreamSynchronize", 40 * US, 12 * US, 9)
    found = tracks(trace, call)
    assert starts(found["waits"]) == [drawn]
    (arrow,) = found["waits"].arrows[0]
    (launch,) = found["launches"].arrows[0]
    assert sorted(found["work"].arrows[0]) == sorted((arrow, launch))
    assert starts(found["launches"]) == [0]


def test_last_of_several_awaited_works_is_drawn() -> None:
    trace = launched(0, 10, 20)
    launched(5, 20, 50, number=2, into=trace)
    launched(12, 50, 90, number=3, into=trace)
    call = trace.launch("cudaStreamSynchronize", 18 * US, 33 * US, 9)
    assert starts(tracks(trace, call)["work"]) == [20]


@pytest.mark.parametrize(("launch", "waited"), [(51, True), (52, False)])
def test_no_call_waits_for_work_that_was_launched_after_it(launch: int, waited: bool) -> None:
    trace = launched(launch, 52, 54)
    call = trace.launch("cudaStreamSynchronize", 40 * US, 12 * US, 9, tid=7)
    assert ("waits" in tracks(trace, call)) is waited


def test_last_launch_of_an_op_is_drawn_named_ones_first() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 40 * US)
    launched(5, 50, 60, number=1, into=trace)
    launched(20, 60, 70, number=2, into=trace)
    launched(40, 70, 80, number=3, into=trace)  # after it
    first_work = 2
    alone = tracks(trace, op)
    assert (starts(alone["launches"]), starts(alone["work"])) == ([20], [60])
    assert "waits" not in alone
    named = tracks(trace, op, first_work)
    assert (starts(named["launches"]), starts(named["work"])) == ([5], [50])


def test_op_without_launch_has_no_evidence_of_other_threads() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 40 * US, tid=7)
    launched(5, 50, 60, into=trace)
    assert tracks(trace, op) == {}


def test_launch_awaited_by_two_calls_is_drawn_once() -> None:
    trace = launched(0, 10, 50)
    calls = [trace.launch("cudaStreamSynchronize", 40 * US, 12 * US, 9 + tid, tid=tid) for tid in (7, 8)]
    analysis = Analysis(trace.load())
    found = samples.finding(0, occurrences=(Occurrence(0, 0, 0, 0, 7, None, None, tuple(calls)),))
    drawn = {one.name: one for one in evidence_tracks(analysis, [Numbered(1, found)])}
    assert list(drawn) == [
        "Evidence: launches, thread 1000",
        "Evidence: work, device 0 stream 7",
        "Evidence: waits, thread 7",
        "Evidence: waits, thread 8",
    ]
    assert [len(one) for one in drawn.values()] == [1, 1, 1, 1]
    launch, work, *waits = ([*one.arrows[0]] for one in drawn.values())
    assert sorted(work) == sorted([*launch, *waits[0], *waits[1]])
    assert len({*work}) == 4
