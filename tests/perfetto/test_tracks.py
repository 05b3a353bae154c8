"""Tracks beside the trace: findings and their evidence, idle time, steps and counters."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding, Occurrence, Severity
from traceanalyzer.model.overlay import Drift, Slices
from traceanalyzer.render.perfetto.archive import evened
from traceanalyzer.render.perfetto.chrome import us
from traceanalyzer.render.perfetto.finding_tracks import Numbered, evidence_tracks, finding_tracks, numbered
from traceanalyzer.render.perfetto.overlay import (
    MOST_SAMPLES,
    busy_counters,
    idle_track,
    memory_counters,
    overlays_of,
    queue_counters,
    step_tracks,
)
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.timeline.steps import Steps

US = 1_000


def test_a_finding_is_called_by_its_number_and_title() -> None:
    finding = samples.finding(0, message="aten::mm comes too late, twice a step")
    assert Numbered(3, finding).title == "3 aten::mm comes too late, twice a step"
    assert Numbered(3, replace(finding, title="It waits twice")).title == "3 It waits twice"


@pytest.mark.parametrize(
    ("step_ns", "said"), [(1_500_000, ", saves 1.50 ms a step"), (0, ""), (-1_500_000, ""), (None, "")]
)
def test_a_slice_says_what_fixing_it_saves(step_ns: int | None, said: str) -> None:
    saves = None if step_ns is None else replace(samples.saving(), step_ns=step_ns)
    one = Numbered(1, samples.finding(0, saving=saves))
    assert one.label == one.title + said


def test_one_track_per_severity_highest_first() -> None:
    def at(severity: Severity, *starts: int) -> Finding:
        return samples.finding(*starts, severity=severity, title=f"r{starts[0]}")

    found = [at(Severity.LOW, 9), at(Severity.INFO, 4), at(Severity.HIGH, 7), at(Severity.LOW, 8, 1)]
    tracks = list(finding_tracks(numbered(samples.report(findings=tuple(found)))))
    assert [one.name for one in tracks] == ["Findings: high", "Findings: low", "Findings: info"]
    low = tracks[1]
    assert (low.start_ns - ORIGIN).tolist() == [1, 8, 9]
    assert [low.names[kind] for kind in low.kind] == ["4 r8", "4 r8", "1 r9"]
    assert [low.args[kind]["finding"] for kind in low.kind] == [4, 4, 1]
    assert [list(one["event_ids"]) for one in low.own] == [[1, 2], [8, 9], [9, 10]]  # type: ignore[arg-type]


def test_a_slice_has_what_its_finding_and_its_occurrence_say() -> None:
    at = Occurrence(ORIGIN + 5, ORIGIN + 3, 7_000, 0, None, 12, None, (4,))
    evidence = {"op": "aten::mm", "lines": {"a": 1, "b": 2}, "no": None}
    evidence |= {"count": 4, "share": 0.1, "total_ns": 3}
    loses = replace(samples.saving(), step_ns=-2 * MS)
    found = samples.finding(0, occurrences=(at,), by="aten::mm", saving=loses, evidence=evidence)
    (track,) = finding_tracks([Numbered(2, found)])
    assert (track.start_ns.tolist(), track.end_ns.tolist()) == ([ORIGIN + 5], [ORIGIN + 5])
    assert track.own == [{"cost_ns": 7_000, "device": 0, "thread": 12, "event_ids": (4,)}]
    (args,) = track.args
    assert {key: args[key] for key in args if key.startswith("evidence")} == {
        "evidence_op": "aten::mm",
        "evidence_lines": "a: 1, b: 2",
        "evidence_no": "None",
    }
    assert args["cost"] == "12.0 ms in total (12.0 % of the window)"
    assert (args["saving"], args["saving_step_ns"]) == ("-2.00 ms a step, 46.0 % to 54.0 % of it", -2 * MS)
    assert (args["cause"], args["by"], args["count"], args["severity"]) == ("late", "aten::mm", 1, "high")
    (track,) = finding_tracks([Numbered(2, replace(found, by=None, saving=None))])
    assert not {"by", "saving", "saving_step_ns"} & set(track.args[0])


class Names(list[str | None]):
    """Texts with a code for each, as in a trace."""

    @property
    def code(self) -> np.ndarray[Any, Any]:
        return np.array([sorted({str(one) for one in self}).index(str(one)) for one in self])


@pytest.mark.parametrize(
    ("end", "cause", "op", "slices"),
    [
        (10, "dispatching", "aten::mm", [(0, 20)]),  # it is cut at a step
        (9, "dispatching", "aten::mm", [(0, 9), (10, 20)]),
        (10, "python", "aten::mm", [(0, 10), (10, 20)]),
        (10, "dispatching", "aten::add", [(0, 10), (10, 20)]),
    ],
)
def test_touching_stretches_merge(end: int, cause: str, op: str, slices: list[tuple[int, int]]) -> None:
    idle: Any = SimpleNamespace(
        start_ns=np.array([0, 10]),
        end_ns=np.array([end, 20]),
        cause=Names(["dispatching", cause]),
        op=SimpleNamespace(name=Names(["aten::mm", op])),
    )
    track = idle_track(idle, 3)
    assert track.name == "Idle: device 3"
    assert list(zip(track.start_ns.tolist(), track.end_ns.tolist(), strict=True)) == slices
    last = track.args[track.kind[-1]]
    assert last == {"cause": cause, "op": op}


def test_device_use_is_sampled_every_ten_us_of_a_short_window() -> None:
    trace = TraceBuilder()
    for number, (start, end) in enumerate(((0, 15), (18, 20), (30, 40)), 1):
        trace.kernel(start * US, (end - start) * US, number)
    trace.kernel(12 * US, 6 * US, 9, stream=8)  # beside the first
    (busy,) = busy_counters(Analysis(trace.load()))
    at = busy.at_ns - busy.at_ns[0]
    assert (at // US).tolist() == [0, 10, 20, 30, 40]
    assert busy.value.tolist() == [100.0, 100.0, 0.0, 100.0, 0.0]
    assert (busy.unit, busy.name) == ("%", "Busy: device 0")
    assert busy.about == "Share of every 10.0 µs in which any work ran on the device."


def test_what_an_allocator_does_not_tell_is_not_drawn() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 10 * US)
    trace.memory(1 * US, 64, allocated=64, reserved=128)
    trace.memory(2 * US, 32, device_type=0, device=-1, allocated=32)
    drawn = {one.name: one.value.tolist() for one in memory_counters(Analysis(trace.load()))}
    assert drawn == {
        "Memory allocated: CUDA:0": [64.0],
        "Memory reserved: CUDA:0": [128.0],
        "Memory allocated: CPU": [32.0],
    }


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, b"0.000"), (7, b"0.007"), (999, b"0.999"), (1_000, b"1.000"), (-1_500, b"-1.500"), (-7, b"-0.007")],
)
def test_times_are_exact_decimals_of_microseconds(ns: int, text: bytes) -> None:
    assert us(ns) == text


DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"ts":2000000.000,"dur":500.000}', b'{"ts":1999900.000,"dur":499.950}'),
        (b'{"ts": 1000000}', b'{"ts":1000000.000}'),
        (b'{"ts":0,"ph":"M","dur":20000}', b'{"ts":100.000,"ph":"M","dur":19998.000}'),
        (b'{"dur":20000,"ts":1000000}', b'{"dur":19998.000,"ts":1000000.000}'),
        (b'{"ts":%d}' % (DAY_US + 1_000_001), b'{"ts":%d}' % (DAY_US + 1_000_001)),  # no time of this trace
        (b'{"ts":%d}' % (DAY_US + 1_000_000), b'{"ts":%d.000}' % (DAY_US + 1_000_000 - 8_640_000)),
        (b'{"ts":%d}' % (-DAY_US + 999_999), b'{"ts":%d}' % (-DAY_US + 999_999)),
        (rb'{"name":"\"ts\":2000000"}', rb'{"name":"\"ts\":2000000"}'),
    ],
)
def test_drifting_clock_times_move_within_a_day_of_measuring(before: bytes, after: bytes) -> None:
    """A clock that gains 100 us a second, and is right at the first second."""
    drift = Drift(100.0, 1_000 * MS)
    for cut in (len(before), len(before) // 2):
        assert b"".join(evened(lambda: [before[:cut], before[cut:]], drift)) == after  # noqa: B023
        assert b"".join(evened(lambda: [before[:cut], before[cut:]], Drift())) == before  # noqa: B023


def test_queued_counts_launched_but_unfinished_work() -> None:
    """Launches at 0, 10 and 20 us, the last as the first work ends; what has no launch was queued at no known time."""
    made = TraceBuilder()
    made.kernel(5 * US, 10 * US, 99)
    for number, (start, end, device) in enumerate(((5, 20, 0), (20, 30, 0), (30, 40, 0), (12, 60, 1)), 1):
        made.launch("cudaLaunchKernel", min(number - 1, 2) * 10 * US, 2 * US, number)
        made.kernel(start * US, (end - start) * US, number, device=device)
    made.kernel(5 * US, 10 * US, 98, device=2)
    analysis = Analysis(made.load())
    origin = int(analysis.trace.cpu["start_ns"].min())
    found = {one.name: (one.at_ns - origin, one.value) for one in queue_counters(analysis)}
    drawn = {name: np.stack([at // US, depth]).T.tolist() for name, (at, depth) in found.items()}
    assert drawn == {
        "Queue depth: device 0": [[0, 1], [10, 2], [20, 2], [30, 1], [40, 0]],
        "Queue depth: device 1": [[20, 1], [60, 0]],
        "Queue depth: device 2": [],
    }


def test_many_changes_are_drawn_by_their_mean() -> None:
    """The area under the queue's curve stays what it was."""
    made = TraceBuilder()
    made.step(0, 0, 300 * MS)
    rng = np.random.default_rng(5)
    count = MOST_SAMPLES
    starts = np.cumsum(rng.integers(11_000, 14_000, count))
    for at, start in enumerate(starts.tolist(), 1):
        made.launched((start - 9_000, 2_000), (start, int(rng.integers(500, 9_000))), at)
    analysis = analyses_of(made.load())
    (overlay,) = overlays_of(report_of(analysis, select=["hotspot"]), analysis)
    queue = next(one for one in overlay.counters if one.name.startswith("Queue"))
    assert len(queue.at_ns) <= MOST_SAMPLES
    frame = analysis[0][1].trace.gpu
    calls = analysis[0][1].trace.cpu
    launched = calls[calls["name"] == "cudaLaunchKernel"]["start_ns"].sum()
    area = int((frame["start_ns"] + frame["dur_ns"]).sum() - launched)
    window = analysis[0][1]
    widths = np.diff(np.append(queue.at_ns, window.index(Steps).window_end_ns))
    assert float(queue.value @ widths) == pytest.approx(area, rel=1e-3)


def test_no_peak_of_memory_is_lost() -> None:
    made = TraceBuilder(profile_memory=1)
    made.op("aten::empty", 0, 300 * MS)
    rng = np.random.default_rng(7)
    allocated = rng.integers(1, 1 << 30, MOST_SAMPLES + 5_000)
    for at, size in enumerate(allocated.tolist()):
        made.memory(at * 10_000, 512, allocated=size, reserved=1 << 31)
    analysed_ = analyses_of(made.load())
    (overlay,) = overlays_of(report_of(analysed_, select=["hotspot"]), analysed_)
    curves = {one.name: one for one in overlay.counters}
    drawn = curves["Memory allocated: CUDA:0"]
    assert len(drawn.at_ns) <= MOST_SAMPLES
    assert drawn.value.max() == allocated.max()
    assert np.isin(np.sort(allocated)[-100:], drawn.value).all()
    assert set(curves["Memory reserved: CUDA:0"].value) == {float(1 << 31)}


def loop(*, marked: bool = True, gpu: bool = True) -> TraceBuilder:
    """Three steps of 100 us, with work from 20 us on."""
    trace = TraceBuilder()
    for number in range(3):
        at = 100 * US * number
        if marked:
            trace.step(number + 7, at, 90 * US)
        trace.op("aten::mm", at + 5 * US, 20 * US)
        if gpu:
            trace.launched((at + 10 * US, 5 * US), (at + 20 * US, 30 * US), number + 1)
    return trace


def test_steps_are_those_of_the_device_or_else_of_the_cpu() -> None:
    for gpu, name, lengths in ((True, "Steps: device 0", None), (False, "Steps: CPU", [90 * US] * 3)):
        (track,) = step_tracks(Analysis(loop(gpu=gpu).load()))
        assert (track.name, list(track.names)) == (name, ["Step 7", "Step 8", "Step 9"])
        assert [one["mark"] for one in track.args] == ["ProfilerStep"] * 3
        assert (track.end_ns > track.start_ns).all()
        if lengths:
            assert (track.end_ns - track.start_ns).tolist() == lengths


def test_without_marks_there_are_none() -> None:
    assert list(step_tracks(Analysis(loop(marked=False).load()))) == []


def tracks(trace: TraceBuilder, *events: int) -> dict[str, Slices]:
    """What is drawn of one occurrence that names these events, by the first word of the track."""
    analysis = Analysis(trace.load())
    found = samples.finding(0, occurrences=(Occurrence(0, 0, 0, 0, 7, None, None, events),))
    return {one.name.split()[1].strip(","): one for one in evidence_tracks(analysis, [Numbered(1, found)])}


def launched(launch: int, start: int, end: int, *, number: int = 1, into: TraceBuilder | None = None) -> TraceBuilder:
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
    drawn = tracks(trace, trace.launch("cudaStreamSynchronize", begin_ns, end_ns - begin_ns, 9))
    assert ("waits" in drawn) is ("work" in drawn) is waited


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
