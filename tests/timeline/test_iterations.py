"""Iterations: what repeats within one mark, and what only looks like it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.steps import Steps

US = 1_000
FORWARD = ("linear", "sigmoid", "topk", "sort", "all_to_all", "mm", "silu", "mm", "mul", "sum")


class Mark:
    """Ops one behind the other in one ProfilerStep, each with a kernel of 20 us."""

    def __init__(self) -> None:
        self.trace, self.at, self.launches = TraceBuilder(), 0, 0

    def run(self, ops: Sequence[str]) -> None:
        for op in ops:
            self.launches += 1
            self.trace.op(f"aten::{op}", self.at, 18 * US)
            self.trace.launched((self.at + 5 * US, 5 * US), (self.at + 15 * US, 20 * US), self.launches)
            self.at += 25 * US

    def steps(self, *, marked: bool = True) -> Steps:
        if marked:
            self.trace.step(3, 0, self.at + US)
        return Analysis(self.trace.load()).index(Steps)


@pytest.mark.parametrize("marked", [True, False])
def test_an_iteration_is_what_a_mark_consists_of(marked: bool) -> None:
    mark = Mark()
    for _ in range(10):
        mark.run(FORWARD)
    steps = mark.steps(marked=marked)
    assert (len(steps), steps.kind) == (10, "iteration")
    assert set(steps.durations_ns().tolist()[:-1]) == {250 * US}
    inside = "the one ProfilerStep mark" if marked else "the recording"
    assert steps.source == f"a step is what repeats 10 times within {inside}: the same 10 ops and launches"


def test_the_layers_of_a_model_are_no_iterations() -> None:
    mark = Mark()
    mark.run(["embedding"])
    for _ in range(10):
        mark.run(FORWARD)
    mark.run(["layer_norm", "mm"])
    steps = mark.steps()
    assert (len(steps), steps.kind) == (1, "ProfilerStep")


def test_a_loop_over_tensors_is_no_iteration() -> None:
    mark = Mark()
    for _ in range(60):
        mark.run(["add", "mul"])
    assert mark.steps().kind == "ProfilerStep"


def marked(counts: Sequence[int]) -> Steps:
    """Marks of so many iterations each."""
    mark = Mark()
    for step, count in enumerate(counts):
        begun = mark.at
        for _ in range(count):
            mark.run(FORWARD)
        mark.trace.step(step, begun, mark.at - begun)
    return Analysis(mark.trace.load()).index(Steps)


def test_marks_of_which_there_are_several_are_the_steps() -> None:
    """The user says what a step is: repeats may be samples, or layers; the source tells of them."""
    steps = marked([4, 4, 4])
    assert (len(steps), steps.kind) == (3, "ProfilerStep")
    assert steps.source == "steps are ProfilerStep marks; each holds 4 repeats of the same 10 ops and launches"


def test_marks_with_unequal_iterations_are_no_steps() -> None:
    steps = marked([10, 10, 7])
    assert (len(steps), steps.kind) == (27, "iteration")
    assert set(steps.durations_ns().tolist()[:-1]) == {250 * US}
    assert steps.source == "a step is what repeats 27 times within 3 ProfilerStep marks: the same 10 ops and launches"


def test_marks_that_hold_unlike_things_are_the_steps() -> None:
    mark = Mark()
    for step, ops in enumerate((FORWARD, FORWARD[::-1])):
        begun = mark.at
        for _ in range(3 + step):
            mark.run(ops)
        mark.trace.step(step, begun, mark.at - begun)
    assert Analysis(mark.trace.load()).index(Steps).kind == "ProfilerStep"


def test_ten_forward_passes_in_one_mark_reduce_once_each(shared: Callable[[str], Path]) -> None:
    report = diagnose(shared("jobs/ao_ep_moe/syncless"))
    assert not [one for one in report.findings if one.rule == "needless-collectives"]
    (head,) = report.traces
    assert head.steps is not None
    assert head.steps.every.count == 10
    assert head.step is not None
    assert head.step.unprofiled_ns == pytest.approx(2.8e6, rel=0.15)  # 28.4 ms in the mark, with the profiler


@pytest.mark.parametrize(
    ("ops", "times", "found"),
    [
        (FORWARD, 3, 3),
        (FORWARD, 2, 1),  # twice may be chance
        (FORWARD[:8], 4, 4),
        (FORWARD[:7], 4, 1),  # a loop over tensors
        (("mm",) * 8 + ("mul",) * 8, 4, 4),
        (("mm",) * 9 + ("mul",) * 9, 4, 1),  # whose rarest op comes too often to look that far
    ],
)
def test_how_often_and_how_much_an_iteration_repeats(ops: tuple[str, ...], times: int, found: int) -> None:
    mark = Mark()
    for _ in range(times):
        mark.run(ops)
    assert len(mark.steps()) == found


def test_numbers_in_names_do_not_distinguish_ops() -> None:
    numbered, cut = Mark(), Mark()
    for number in range(4):
        numbered.run([f"{op}_{number}" for op in FORWARD])
        cut.run(FORWARD)
    cut.run(FORWARD[:3])
    assert (len(numbered.steps()), len(cut.steps())) == (4, 1)
