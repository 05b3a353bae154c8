"""Which annotation stands in for steps, which steps are cold, empty or cut, and whose step unlinked work is."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.steps import StepMarks, Steps


def stepping(*durations: int, idle: tuple[int, ...] = ()) -> TraceBuilder:
    """Steps of these lengths; each but those in `idle` launches a kernel, which ends within it."""
    trace, start = TraceBuilder(), 0
    for number, took in enumerate(durations):
        trace.step(number, start, took)
        if number not in idle:
            trace.launched((start + 1, 5), (start + 10, took - 12), number + 1)
        start += took
    return trace


@pytest.mark.parametrize(
    ("durations", "idle", "steady"),
    [
        ((150, 100, 100, 100), (), [True, True, True, True]),  # one and a half times the later ones
        ((151, 100, 100, 100), (), [False, True, True, True]),
        ((900, 900, 900, 100, 100, 100, 100), (), [False, False, False, True, True, True, True]),
        ((900, 900, 900, 100, 100), (), [False, False, True, True, True]),  # half of them at most
        ((100, 900, 100, 100, 100, 100), (), [True] * 6),  # a usual one came before
        ((1_000, 1_000, 1_000, 1_000, 99), (4,), [True, True, True, True, False]),
        ((1_000, 1_000, 1_000, 1_000, 100), (4,), [True] * 5),  # a tenth of the others
        ((1_000, 1_000, 1_000, 1_000, 99), (), [True] * 5),  # short, but it works
        ((1_000, 99, 1_000, 1_000), (1,), [True, True, True, True]),  # not at the end
        ((160, 100, 5), (2,), [False, True, False]),
        ((149, 100, 5), (2,), [True, True, False]),  # the usual length is that of those that are not empty
    ],
)
def test_steps_are_cold_or_empty_from_these_limits_on(
    durations: tuple[int, ...], idle: tuple[int, ...], steady: list[bool]
) -> None:
    assert Analysis(stepping(*durations, idle=idle).load()).index(Steps).steady.tolist() == steady


def test_a_step_is_cold_that_is_so_on_one_of_several_devices() -> None:
    trace, start = TraceBuilder(), 0
    for number, second in enumerate((700, 300, 300, 300, 300)):
        trace.step(number, 100 * number, 100)
        for device, took in enumerate((1_000, second)):
            trace.launch("cudaLaunchKernel", 100 * number + 10 * device, 5, 2 * number + device + 1)
            trace.kernel(
                20 + (start if device else 1_000 * number), took, 2 * number + device + 1, device=device
            )
        start += second
    steps = Analysis(trace.load()).index(Steps)
    assert steps.durations_ns(0)[:3].tolist() == [1_020, 1_000, 1_000]
    assert steps.durations_ns()[:3].tolist() == [100, 100, 100]
    with pytest.raises(ValueError, match=r"device 2 has no work: the devices are \[0, 1\]"):
        steps.durations_ns(2)
    assert steps.steady.tolist() == [False, True, True, True, True]


@pytest.mark.parametrize(("begin", "cut"), [(99, False), (100, False), (101, True)])
def test_a_step_is_cut_where_the_window_leaves_a_hundredth_out(begin: int, cut: bool) -> None:
    trace = stepping(10_000, 10_000).load()
    whole = Analysis(trace).index(StepMarks).whole_ns[0]
    assert Analysis(trace, (whole + begin, 20_000)).index(Steps).cut.tolist() == [cut, False]
    assert not Analysis(trace).index(Steps).cut.any()


def test_steps_in_use_reach_from_first_to_last_work() -> None:
    steps = Analysis(stepping(100, 100, 100, 100, 100, idle=(0, 2, 4)).load()).index(Steps)
    assert (steps.in_use, steps.working) == ((1, 4), 3)
    marks = TraceBuilder()
    for number in range(3):
        marks.step(number, 100 * number, 100)
    assert Analysis(marks.load()).index(Steps).in_use == (0, 3)


def test_recording_that_began_amid_a_step_is_warm() -> None:
    trace = stepping(1_000, 1_000)
    assert not Analysis(trace.load()).index(Steps).warm
    assert Analysis(trace.load(), (1_200, 1_900)).index(Steps).warm
    earlier = trace.shifted(1_000)
    earlier.launched((100, 10), (200, 100), 77)
    assert Analysis(earlier.load()).index(Steps).warm


def test_unlinked_work_of_an_unlinked_device_goes_by_time() -> None:
    """On the other device it goes with what ran before it there, and before the first launch with no step."""
    trace = TraceBuilder()
    trace.kernel(5, 10, 90)
    for number in (0, 1):
        trace.step(number, 1_000 * number, 1_000)
        trace.launched((1_000 * number + 20, 10), (1_000 * number + 50, 100), number + 1)
    trace.kernel(900, 20, 91, device=1)
    trace.kernel(1_100, 20, 92, device=1)
    trace.kernel(1_900, 20, 93)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.of_work.tolist() == [-1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("work", "op", "sync", "end"),
    [
        (500, 300, 0, 500),  # the last work
        (200, 300, 0, 300),  # the op that launched it
        (200, 300, 400, 400),  # a wait for the device
    ],
)
def test_unmarked_window_ends_with_the_last_device_request(work: int, op: int, sync: int, end: int) -> None:
    """And not with an op after it that launches nothing."""
    trace = TraceBuilder()
    trace.op("aten::linear", 0, op)
    trace.op("aten::mm", 10, 50)
    trace.launched((20, 10), (100, work - 100), 1)
    if sync:
        trace.launch("cudaStreamSynchronize", 350, sync - 350, 2)
    trace.op("aten::size", 900, 50)
    steps = Analysis(trace.load()).index(Steps)
    assert (steps.kind, steps.cpu_end_ns.tolist()) == ("window", [end])


def steps_of(trace: TraceBuilder) -> Steps:
    """With a kernel of 1,000 ns, as long as the window is."""
    trace.kernel(0, 1_000, 1)
    return Analysis(trace.load()).index(Steps)


@pytest.mark.parametrize(("last", "kind"), [(250, "mine"), (249, "window")])
def test_an_annotation_that_covers_half_of_the_window_is_a_step(last: int, kind: str) -> None:
    trace = TraceBuilder()
    trace.annotation("mine", 0, 250)
    trace.annotation("mine", 400, last)
    assert steps_of(trace).kind == kind


def test_step_is_the_repeated_annotation_that_covers_most() -> None:
    trace = TraceBuilder()
    trace.annotation("once", 0, 990)
    for start in (0, 500):
        trace.annotation("step", start, 400)
        trace.annotation("a part", start + 10, 300)
    assert steps_of(trace).kind == "step"


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_equal_ones_the_first_by_name_is_the_step(names: str) -> None:
    trace = TraceBuilder()
    for start in (0, 500):
        for name in names:
            trace.annotation(name, start, 400)
    assert steps_of(trace).kind == "a"


@pytest.mark.parametrize(("digits", "number"), [("9" * 18, int("9" * 18)), ("9" * 19, 1)])
def test_a_number_that_fits_no_column_counts_from_0(digits: str, number: int) -> None:
    trace = TraceBuilder()
    trace.annotation("ProfilerStep#7", 0, 400)
    trace.annotation(f"ProfilerStep#{digits}", 500, 400)
    assert steps_of(trace).number.tolist() == [7, number]


@pytest.mark.parametrize(
    ("names", "kind"), [(("llama 7b", "llama 7b"), "llama 7b"), (("batch 1", "batch 2"), "batch #")]
)
def test_step_mark_is_named_by_what_names_have_in_common(names: tuple[str, str], kind: str) -> None:
    trace = TraceBuilder()
    for start, name in zip((0, 500), names, strict=True):
        trace.annotation(name, start, 400)
    steps = steps_of(trace)
    assert steps.kind == kind
    assert repr(kind) in steps.source
