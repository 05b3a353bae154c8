"""Which annotation stands in for steps that nobody marked, and how marks are numbered."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.steps import Steps


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
