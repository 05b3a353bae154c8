"""Captures of CUDA graphs: what they keep from usual steps, and how far they reach."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Report, diagnose
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.captures import captures
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

US = 1_000
MS = 1_000 * US


def replay(trace: TraceBuilder, at: int, number: int) -> None:
    """A graph of two kernels."""
    trace.launch("cudaGraphLaunch", at + 100 * US, 20 * US, number)
    trace.kernel(at + 130 * US, 400 * US, number)
    trace.kernel(at + 531 * US, 400 * US, number)


def capture(trace: TraceBuilder, at: int, number: int, *, pause: int = 0) -> None:
    """As `torch.cuda.graph` does: it synchronises, collects garbage, and captures."""
    trace.launch("cudaDeviceSynchronize", at, 30 * US, 2_000 + number)
    trace.launch("cudaStreamBeginCapture", at + 110 * US + pause, 5 * US, 3_000 + number)
    for i in range(50):
        trace.op("aten::mm", at + pause + (200 + 100 * i) * US, 90 * US)
        trace.launch("cudaLaunchKernel", at + pause + (210 + 100 * i) * US, 5 * US, 4_000 + 100 * number + i)
    trace.launch("cudaStreamEndCapture", at + pause + 5_300 * US, 20 * US, 5_000 + number)
    trace.launch("cudaGraphInstantiate", at + pause + 5_330 * US, 500 * US, 6_000 + number)


def regions() -> TraceBuilder:
    """Two marks that capture a graph, for 20 ms, beside three that replay it."""
    trace, at = TraceBuilder(), 0
    for number in range(5):
        captures = number in (0, 2)
        trace.step(number, at, 21 * MS if captures else MS)
        if captures:
            capture(trace, at + 10 * US, number, pause=14 * MS)
        replay(trace, at + 20 * MS * captures, number)
        at += 21 * MS if captures else MS
    return trace


def test_a_mark_that_captures_is_not_the_usual_step() -> None:
    trace = regions().load()
    steps = Analysis(trace).index(Steps)
    assert steps.capturing.tolist() == [True, False, True, False, False]
    assert steps.steady.tolist() == [False, True, False, True, True]
    report = diagnose(trace)
    (head,) = report.traces
    assert head.step is not None
    assert 0.8 * MS < head.step.unprofiled_ns < 1.1 * MS
    assert said(report) <= {"host-gap"}  # between the replays
    assert sum(one.cost_ns for one in report.findings if one.rule == "host-gap") < 2 * MS
    assert "2 of 5 capture CUDA graphs" in steps.source


def test_capture_is_neither_host_gap_nor_sync_in_loop() -> None:
    """From its synchronisation on, over the garbage that is collected, to the graph's end."""
    idle = Analysis(regions().load()).index(Idle)
    capturing = sum(idle.dur_ns[idle.cause == CAUSES.index("graph-capture")].tolist())
    assert capturing == pytest.approx(2 * (14 * MS + 5_830 * US), abs=100 * US)
    assert "compilation" not in {CAUSES[cause] for cause in idle.cause.tolist()}


def test_a_window_that_captures_is_a_cold_start_that_captures() -> None:
    trace = TraceBuilder()
    trace.op("aten::empty", 0, 10 * US)
    capture(trace, 20 * US, 1)
    trace.op("CUDAGraphNode.record (dynamo_timed)", 15 * US, 5_900 * US)
    replay(trace, 6 * MS, 2)
    (found,) = [one for one in diagnose(trace.load()).findings if one.rule == "cold-start"]
    assert next(iter(found.evidence["kinds"])) == "capturing graphs"
    assert "compiling" not in found.evidence["kinds"]


def test_regions_that_capture_beside_regions_that_replay(shared: Callable[[str], Path]) -> None:
    """219, 2.5, 210, 2.4 and 210 ms: the usual one takes 2.4."""
    report = diagnose(shared("jobs/ao_vit_capture"))
    assert not said(report)
    (head,) = report.traces
    assert head.step is not None
    assert head.step.traced_ns < 2.6 * MS
    assert "captured" not in (head.verdict or "")


def said(report: Report) -> set[str]:
    """Rules with a finding above info."""
    return {one.rule for one in report.findings if one.severity.value != "info"}


def spans_of(*calls: tuple[str, int, int], ops: tuple[tuple[int, int], ...] = ()) -> list[list[list[int]]]:
    """(spans, what is around them) in us, of calls of 10 us at some us on some thread, and ops from and to there."""
    trace = TraceBuilder()
    for start, end in ops:
        trace.op("aten::captured", start * US, (end - start) * US)
    for number, (name, at, tid) in enumerate(calls):
        trace.launch(name, at * US, 10 * US, number + 1, tid=tid)
    analysis = Analysis(trace.load())
    found = captures(analysis.trace, analysis.index(Nesting))
    return [
        [[int(start) // US, int(end) // US] for start, end in zip(*of, strict=True)]
        for of in (found.spans, found.around)
    ]


BEGIN, END, SYNC = "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaDeviceSynchronize"


@pytest.mark.parametrize(
    ("calls", "ops", "spans", "around"),
    [
        ([(BEGIN, 100, 1), (END, 200, 1)], (), [[100, 210]], [[100, 210]]),
        ([(BEGIN, 100, 1), (END, 150, 2), (END, 200, 1)], (), [[100, 210]], [[100, 210]]),
        ([(BEGIN, 100, 1), (END, 150, 2)], (), [], []),  # does not end in the recording
        ([(END, 50, 1), (BEGIN, 100, 1)], (), [], []),
        ([(BEGIN, 100, 1), (END, 200, 1), (END, 300, 1)], (), [[100, 210]], [[100, 210]]),
        ([(SYNC, 50, 1), (BEGIN, 100, 1), (END, 200, 1)], (), [[100, 210]], [[50, 210]]),
        ([(SYNC, 50, 1), ("cudaLaunchKernel", 70, 1), (BEGIN, 100, 1), (END, 200, 1)], (), [[100, 210]], [[100, 210]]),
        ([(SYNC, 50, 1), ("cudaMemcpyAsync", 70, 1), (BEGIN, 100, 1), (END, 200, 1)], (), [[100, 210]], [[100, 210]]),
        # the op that captures, whole
        ([(SYNC, 20, 1000), (BEGIN, 100, 1000), (END, 200, 1000)], ((80, 400),), [[100, 210]], [[80, 400]]),
        (
            [(BEGIN, 100, 1), (END, 200, 1), ("cudaGraphInstantiate", 300, 1)],
            (),
            [[100, 210]],
            [[100, 210], [300, 310]],
        ),
    ],
)
def test_capture_reaches_from_synchronisation_to_its_end(
    calls: list[tuple[str, int, int]], ops: tuple[tuple[int, int], ...], spans: list[list[int]], around: list[list[int]]
) -> None:
    assert spans_of(*calls, ops=ops) == [spans, around]


def test_two_threads_capture_each_to_its_own_end() -> None:
    calls = [(BEGIN, 100, 1), (BEGIN, 120, 2), (END, 200, 2), (END, 300, 1), (BEGIN, 500, 2), (END, 600, 1)]
    assert spans_of(*calls)[0] == [[100, 310]]
    assert spans_of(*calls[1:3], *calls[4:], (END, 700, 2))[0] == [[120, 210], [500, 710]]
