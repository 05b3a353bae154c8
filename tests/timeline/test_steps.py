"""The window and the steps: which definition holds, and where steps begin and end on a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.mark_search import phase_and_batch
from traceanalyzer.timeline.steps import StepMarks, Steps


def test_a_step_on_the_device_is_the_work_that_it_launched() -> None:
    """The CPU is far ahead: all three steps are launched while the first one's work runs."""
    trace = TraceBuilder()
    for number in (3, 4, 5):
        start = 100 * (number - 3)
        trace.step(number, start, 90)
        trace.launched((start + 10, 10), (30 + 1_000 * (number - 3), 1_000), number)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.kind == "ProfilerStep"
    assert steps.number.tolist() == [3, 4, 5]
    assert (steps.window_start_ns, steps.window_end_ns) == (0, 3_030)
    assert steps.bounds_ns[0].tolist() == [0, 1_030, 2_030, 3_030]
    assert steps.durations_ns(0).tolist() == [1_030, 1_000, 1_000]
    assert steps.durations_ns().tolist() == [100, 100, 90]
    assert steps.of_work.tolist() == [0, 1, 2]


def test_a_step_begins_at_its_mark_where_the_device_waits() -> None:
    trace = TraceBuilder()
    for number in (0, 1):
        start = 1_000 * number
        trace.step(number, start, 990)
        trace.launched((start + 10, 10), (start + 30, 100), number + 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.bounds_ns[0].tolist() == [0, 1_000, 1_990]
    assert steps.at(0, np.array([-5, 0, 999, 1_000, 5_000])).tolist() == [-1, 0, 0, 1, 1]
    assert steps.at_cpu(np.array([-1, 0, 1_000])).tolist() == [-1, 0, 1]


def test_window_begins_with_unlinked_work() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000)
    trace.kernel(300, 100, 1)
    assert Analysis(trace.load()).index(StepMarks).whole_ns == (300, 1_000)


def test_devices_have_bounds_of_their_own() -> None:
    trace = TraceBuilder()
    for number in (0, 1):
        trace.step(number, 100 * number, 100)
        for device in (0, 1):
            correlation = 10 * number + device + 1
            trace.launch("cudaLaunchKernel", 100 * number + 10 + device, 5, correlation)
            trace.kernel(20 + 400 * number + device, 300 + device * 50, correlation, device=device)
    loaded = trace.load()
    steps = Analysis(loaded).index(Steps)
    assert {device: bounds.tolist() for device, bounds in steps.bounds_ns.items()} == {
        0: [0, 320, 771],
        1: [0, 371, 771],
    }
    asked = Analysis(loaded, (330, 360)).index(Steps)
    assert asked.number.tolist() == [0, 1]  # the one device is in the second step, the other in the first


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["ProfilerStep#7", "Optimizer.step#SGD.step"], "ProfilerStep"),
        (["execute_context_1(8_8)_generation_0(0)", "mine"], "serving step"),
        (["step[DECODE bs=32]"], "serving step"),
        (["Optimizer.step#SGD.step", "mine"], "Optimizer.step"),
        (["mine"], "mine"),
        ([], "window"),
    ],
)
def test_the_first_kind_of_mark_that_there_is_counts(names: list[str], kind: str) -> None:
    trace = TraceBuilder()
    for i, name in enumerate(names):
        for start in (0, 1_000):
            numbered = name.replace("#7", f"#{start}")
            trace.annotation(numbered, start + 10 * i, 900 - 20 * i)
    trace.launched((100, 10), (150, 1_700), 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.kind == kind
    assert len(steps) == (1 if kind == "window" else 2)
    assert steps.marked == (kind != "window")
    assert steps.source


def test_an_optimizers_step_ends_a_step() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 1_000, 1)
    for end in (400, 800):
        trace.annotation("Optimizer.step#SGD.step", end - 100, 100)
    steps = Analysis(trace.load()).index(Steps)
    assert (steps.cpu_start_ns.tolist(), steps.cpu_end_ns.tolist()) == ([0, 400], [400, 800])


def test_marks_within_marks_of_the_same_name_are_not_counted() -> None:
    trace = TraceBuilder()
    for start in (0, 500):
        trace.annotation("mine", start, 450)
        trace.annotation("mine", start + 10, 100)
    assert Analysis(trace.load()).index(Steps).cpu_start_ns.tolist() == [0, 500]


def test_the_profilers_last_wait_is_outside_the_window() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.launched((10, 10), (30, 500), 1)
    trace.launch("cudaDeviceSynchronize", 150, 5_000, 2)
    assert Analysis(trace.load()).index(StepMarks).whole_ns == (0, 530)


def test_the_users_window_cuts_the_steps_and_changes_no_numbers() -> None:
    trace, marks = TraceBuilder(), TraceBuilder()
    for number in (0, 1, 2):
        trace.step(number, 1_000 * number, 1_000)
        trace.launched((1_000 * number + 10, 10), (1_000 * number + 30, 100), number + 1)
        marks.step(number, 1_000 * number, 1_000)
    whole = trace.load()
    steps = Analysis(whole, (1_500, 2_500)).index(Steps)
    assert (steps.window_start_ns, steps.window_end_ns) == (1_500, 2_500)
    assert steps.number.tolist() == [1, 2]
    assert steps.bounds_ns[0].tolist() == [1_500, 2_000, 2_500]
    assert steps.at(0, np.array([1_500, 2_000])).tolist() == [0, 1]
    assert steps.of_work.tolist() == [-1, 0, 1]
    for asked, numbers in (((1_000, 2_000), [1]), ((999, 2_000), [0, 1]), ((1_000, 2_001), [1, 2])):
        for loaded in (whole, marks.load()):  # from edge to edge, also where nothing runs on a device
            assert Analysis(loaded, asked).index(Steps).number.tolist() == numbers
    with pytest.raises(Unavailable, match="outside"):
        Analysis(whole, (9_000, 9_999)).index(Steps)


def test_a_part_before_the_first_step_has_books_but_no_step() -> None:
    trace = TraceBuilder()
    trace.launched((0, 10), (20, 500), 1)
    trace.step(7, 100, 900)
    trace.launched((110, 10), (600, 100), 2)
    part = Analysis(trace.load(), (100, 300))
    steps = part.index(Steps)
    assert steps.at(0, np.array([100, 299])).tolist() == [-1, -1]
    frame = part.index(Accounting).frame(part.trace, part.index(Idle), steps)
    assert (frame["ns"].tolist(), frame["step"].isna().tolist()) == ([200], [True])


def test_many_names_are_no_burden() -> None:
    """A name per step, as some loops write: found without looking at every name for every row."""
    trace = TraceBuilder()
    for i in range(3_000):
        trace.annotation(f"batch {chr(97 + i // 100)}{chr(97 + i % 26)}{i}", 10 * i, 9)
    assert Analysis(trace.load()).index(Steps).kind == "window"


@pytest.mark.parametrize(
    "name",
    [
        "_compile.compile_inner (dynamo_timed)",
        "nccl:all_reduce",
        "enumerate(DataLoader)#_SingleProcess.__next__",
    ],
)
def test_what_can_be_no_step(name: str) -> None:
    trace = TraceBuilder()
    trace.annotation(name, 0, 450)
    trace.annotation(name, 500, 450)
    assert Analysis(trace.load()).index(Steps).kind in (
        "window",
        "enumerate(DataLoader)#_SingleProcess.__next__",
    )


@pytest.mark.parametrize("add", [TraceBuilder.annotation, TraceBuilder.op])
def test_a_batch_or_a_compiled_region_begins_a_step(add: Callable[..., int]) -> None:
    annotated = add is TraceBuilder.annotation
    name = "enumerate(DataLoader)#_SingleProcess.__next__" if annotated else "Torch-Compiled Region: 0/0"
    trace = TraceBuilder()
    for start in (100, 500, 900):
        add(trace, name, start, 50)
    if not annotated:
        trace.op("Torch-Compiled Region: 1/0", 200, 50)
    trace.kernel(0, 1_200, 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.kind == name
    assert (steps.cpu_start_ns.tolist(), steps.cpu_end_ns.tolist()) == ([100, 500, 900], [500, 900, 950])


@pytest.mark.parametrize(
    ("name", "phase", "batch"),
    [
        ("execute_context_2(6144)_generation_3(3)", "mixed", 5),
        ("execute_new_2_cached_3", "new and cached", 5),
        ("execute_new_0_cached_64", "cached", 64),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 1),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk9)", "decode", 32),
        ("step[DECODE bs=64 toks=64]", "decode", 64),
        ("step[EXTEND bs=2 toks=14721]", "prefill", 2),
        ("step[MIXED bs=7]", "mixed", 7),
        ("prefill[toks=512]", "prefill", -1),
        ("decode[bs=117/128 graph]", "decode", 117),
        ("execute_model", None, -1),
    ],
)
def test_serving_marks_say_phase_and_batch(name: str, phase: str | None, batch: int) -> None:
    assert phase_and_batch(name) == (phase, batch)
    trace = TraceBuilder()
    trace.annotation(name, 0, 450)
    trace.kernel(0, 500, 1)
    steps = Analysis(trace.load()).index(Steps)
    if phase:
        assert (steps.kind, steps.phase, steps.batch.tolist()) == ("serving step", (phase,), [batch])
