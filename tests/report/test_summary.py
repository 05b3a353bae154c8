"""The head of a report: steps with the cold ones apart, and parts that cannot be computed."""

from collections.abc import Sequence

import pytest

from tests.support.sample_rules import sample_rules  # noqa: F401 - a fixture
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.report import StepsSummary
from traceanalyzer.model.trace import Trace
from traceanalyzer.report.summary import scope_of, span_of
from traceanalyzer.timeline.device_work import Busy
from traceanalyzer.timeline.steps import Steps

MS = 1_000_000

pytestmark = pytest.mark.usefixtures("sample_rules")


def steps_of(lengths_ms: Sequence[int], busy_ms: Sequence[int]) -> Trace:
    """Steps of these lengths, each beginning with one kernel of that length; 0 for none."""
    made, at = TraceBuilder(), 5 * MS
    for number, (length, busy) in enumerate(zip(lengths_ms, busy_ms, strict=True)):
        made.step(number, at, length * MS)
        if busy:
            made.launched((at, 1_000), (at + 1_000, busy * MS), number + 1)
        at += length * MS
    return made.load()


def summary_of(trace: Trace) -> StepsSummary:
    steps = diagnose(trace).traces[0].steps
    assert steps is not None
    return steps


def test_cold_steps_are_told_apart_from_steady_ones() -> None:
    steps = summary_of(steps_of([80, 5, 5, 5, 5], [2, 4, 4, 4, 4]))
    assert steps.cold is not None
    assert steps.steady is not None
    assert (steps.cold.count, steps.steady.count, steps.every.count) == (1, 4, 5)
    assert steps.cold.total_ns == pytest.approx(80 * MS, rel=0.01)
    assert steps.steady.median_ns == pytest.approx(5 * MS, rel=0.01)
    assert steps.cold.busy_share == pytest.approx(2 / 80, rel=0.02)
    assert steps.steady.busy_share == pytest.approx(4 / 5, rel=0.02)


@pytest.mark.parametrize("lengths", [[5, 5, 5, 5], [5, 5, 80, 5], [80, 5], [80, 80, 80, 5]])
def test_steps_that_do_not_lead_or_are_the_most_are_not_cold(lengths: list[int]) -> None:
    steps = summary_of(steps_of(lengths, [4] * len(lengths)))
    assert steps.cold is None
    assert steps.steady is None


@pytest.mark.parametrize(("leading", "trailing"), [(0, 1), (1, 0), (2, 1), (0, 0)])
def test_steps_at_the_ends_that_launch_nothing_are_in_no_median(leading: int, trailing: int) -> None:
    lengths = [1] * leading + [5, 5, 5] + [1] * trailing
    steps = summary_of(steps_of(lengths, [4 * (length == 5) for length in lengths]))
    assert (steps.every.count, steps.empty) == (3, leading + trailing)
    assert steps.every.min_ns > 4 * MS


def test_failure_in_one_part_of_the_head_costs_only_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(Busy, "build", classmethod(lambda cls, work: broken()))
    report = diagnose(steps_of([5, 5, 5], [4, 4, 4]))
    head = report.traces[0]
    assert head.busy == ()
    assert head.unavailable is not None
    assert head.unavailable["busy"] == "failed: RuntimeError: no such luck"
    assert head.accounting != ()
    assert {finding.rule for finding in report.findings} == {"idle-device"}
    monkeypatch.setattr(Steps, "build", classmethod(lambda cls, marks, window: broken()))
    head = diagnose(steps_of([5, 5, 5], [4, 4, 4])).traces[0]
    assert (head.steps, head.busy) == (None, ())
    assert head.window.length_ns > 0


@pytest.mark.parametrize(("window", "count", "cut", "median"), [((3, 33), 2, 2, 10), ((3, 17), 2, 0, 7)])
def test_steps_that_the_window_cuts_are_in_no_times(window: tuple[int, int], count: int, cut: int, median: int) -> None:
    trace = steps_of([10, 10, 10, 10], [5, 5, 5, 5])
    asked = (window[0] * MS + 1_000, window[1] * MS + 1_000)
    steps = diagnose(trace, window=asked).traces[0].steps
    assert steps is not None
    assert (steps.every.count, steps.cut, steps.every.median_ns) == (count, cut, median * MS)
    assert steps.source.endswith("all cut by --window") == (cut == 0)


def test_the_recording_ends_with_its_last_event_of_either_lane() -> None:
    for first, second in ((30, 5), (5, 30)):
        made = TraceBuilder()
        made.op("aten::mm", 0, first * MS)
        made.launched((1_000, 1_000), (MS, second * MS), 1)
        trace = made.load()
        assert span_of(trace) == (0, (30 if first == 30 else 31) * MS)


def test_costs_are_per_step_that_works_and_the_median_is_no_mean() -> None:
    trace = steps_of([5, 5, 8, 1], [4, 4, 4, 0])
    assert scope_of(Analysis(trace), 3).steps == 3
    times = summary_of(trace).every
    assert (times.count, times.median_ns) == (3, pytest.approx(5 * MS, rel=0.01))
    assert times.max_ns == pytest.approx(8 * MS, rel=0.01)
    assert times.total_ns == pytest.approx(18 * MS, rel=0.01)


def test_steps_that_are_cut_are_not_empty_ones() -> None:
    trace = steps_of([10, 10, 10, 10, 1], [5, 5, 5, 5, 0])
    steps = diagnose(trace, window=(3 * MS, None)).traces[0].steps
    assert steps is not None
    assert (steps.every.count, steps.cut, steps.empty) == (3, 1, 1)


def test_a_device_is_busy_for_what_it_does_within_the_window() -> None:
    """Of 40 ms the first 5 of every 10 are busy; the window holds 2 of the first, and all of the second."""
    trace = steps_of([10, 10, 10, 10], [5, 5, 5, 5])
    head = diagnose(trace, window=(3 * MS + 1_000, 19 * MS)).traces[0]
    (busy,) = head.busy
    assert (busy.device, busy.busy_ns) == (0, 7 * MS)
    assert busy.share == pytest.approx(7 / head.window.length_ns * MS)
    assert head.window.asked


def test_steps_are_timed_on_the_first_of_several_devices() -> None:
    """Work of the second one begins late in each step, and later from step to step."""
    made = TraceBuilder()
    for step in range(4):
        at = 10 * MS * step
        made.step(step, at, 10 * MS)
        for device, begin in ((1, 2 * MS + step * MS), (0, 1_000)):
            number = 10 * step + device + 1
            made.launch("cudaLaunchKernel", at + 100 * (device + 1), 50, number)
            made.kernel(at + begin, 3 * MS, number, device=device, stream=7 + device)
    steps = summary_of(made.load())
    assert steps.device == 0
    assert (steps.every.min_ns, steps.every.median_ns) == (pytest.approx(10 * MS, rel=0.01),) * 2


@pytest.mark.parametrize("broken", [False, True])
def test_unmarked_trace_covers_requested_window_or_all(monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    """And so is one whose steps cannot be told."""

    def build(*_: object) -> Steps:
        raise Unavailable("no steps")

    if broken:
        monkeypatch.setattr(Steps, "build", build)
    made = TraceBuilder()
    for at in (5, 8, 20):
        made.op("aten::mm", at * MS, MS)
    trace = made.load()
    whole, part = scope_of(Analysis(trace), 2), scope_of(Analysis(trace, (6 * MS, 15 * MS)), 2)
    assert (whole.rank, whole.start_ns, whole.end_ns, whole.asked) == (2, 5 * MS, 21 * MS, False)
    assert (part.rank, part.start_ns, part.end_ns, part.asked) == (2, 6 * MS, 15 * MS, True)
    heads = [diagnose(trace, window=window).traces[0].window for window in (None, (MS, 10 * MS))]
    bounds = [(one.start_ns, one.end_ns, one.asked) for one in heads]
    assert bounds == [(5 * MS, 21 * MS, False), (6 * MS, 15 * MS, True)]
