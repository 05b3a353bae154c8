"""Pauses around the autograd engine, and what the CPU works on while it launches nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loops import Loop
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import IdleTime
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps, HostCalls

US = 1_000
MAIN, ENGINE = 1_000, 2_000
MM, ADD = (f"autograd::engine::evaluate_function: {name}Backward0" for name in ("Mm", "Add"))


def around_the_engine(engine: int, annotated: int | None = None, steps: int = 2) -> CallsAfterCpuGaps:
    """Pauses before forward's op, between nodes, before the engine's op, and right after the engine."""
    trace = TraceBuilder()
    for number in range(steps):
        trace.step(number, number * 1_000 * US, 1_000 * US)
    if annotated is not None:
        trace.annotation("mine", 510 * US, 30 * US, tid=annotated)
    rows = (
        *((5, "aten::a", MAIN), (300, "aten::b", MAIN), (320, MM, engine)),
        *((520, ADD, engine), (700, "aten::c", engine), (900, "aten::d", MAIN)),
    )
    for number, (at, name, tid) in enumerate(rows, start=1):
        trace.op(name, at * US, 10 * US, tid=tid)
        trace.launch("cudaLaunchKernel", (at + 2) * US, 4 * US, number, tid=tid)
        trace.kernel((at + 8) * US, 5 * US, number)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns // US).tolist() == [285, 190, 170, 190]
    return found


@pytest.mark.parametrize(
    ("engine", "into", "leaving"),
    [
        (ENGINE, [False, True, True, False], [False, False, False, True]),
        (
            MAIN,
            [False, True, False, False],
            [False, False, True, False],
        ),  # forward's own thread runs the nodes
    ],
)
def test_what_is_in_the_engine_or_on_the_way_into_it_is_torchs(
    engine: int, into: list[bool], leaving: list[bool]
) -> None:
    pauses = around_the_engine(engine)
    assert [mask.tolist() for mask in pauses.by_autograd] == [into, leaving]


@pytest.mark.parametrize("annotated", [ENGINE, MAIN])
def test_annotation_in_a_node_does_not_make_a_user_thread(annotated: int) -> None:
    """Where steps are marked, they tell which thread is the user's."""
    into, leaving = around_the_engine(ENGINE, annotated).by_autograd
    assert into.tolist() == [False, True, True, False]
    assert leaving.tolist() == [False, False, False, True]


def test_without_steps_an_annotation_shows_the_user_thread() -> None:
    into, leaving = around_the_engine(MAIN, MAIN, steps=0).by_autograd
    assert into.tolist() == [False, True, False, False]
    assert leaving.tolist() == [False, False, True, False]


@pytest.mark.parametrize(("least", "last"), [(190 * US, True), (190 * US + 1, False)])
def test_a_long_pause_right_after_the_engine_is_the_users(least: int, last: bool) -> None:
    assert around_the_engine(ENGINE).is_users(least).tolist() == [True, False, False, last]


@pytest.fixture(scope="module")
def working() -> HostCalls:
    """585 us in f with ops of 300 and 200 us, and 290 us that no function is known of, with one of 250 us."""
    trace = TraceBuilder()
    for number in range(2):
        trace.step(number, number * 1_000 * US, 1_000 * US)
    for number, at in enumerate((5, 600, 900), start=1):
        trace.op("aten::mm", at * US, 10 * US)
        trace.launch("cudaLaunchKernel", (at + 2) * US, 4 * US, number)
        trace.kernel((at + 8) * US, 5 * US, number)
    for name, at, dur in (("aten::sort", 20, 300), ("aten::unique", 330, 200), ("aten::sort", 620, 250)):
        trace.op(name, at * US, dur * US)
        trace.op("aten::inner", (at + 1) * US, 5 * US)
    trace.op("Torch-Compiled Region: 0/0", 535 * US, 20 * US)
    trace.python("train.py(3): f", 16 * US, 580 * US, python_id=1)
    found = Analysis(trace.load()).index(HostCalls)
    assert (found.dur_ns // US).tolist() == [585, 290]
    return found


def test_stretch_ops_are_outermost_without_compiled_code(working: HostCalls) -> None:
    ops, stretch = working.ops()
    assert ops.name.values().tolist() == ["aten::sort", "aten::unique", "aten::sort"]
    assert stretch.tolist() == [0, 0, 1]
    later, of_later = working[1:].ops()
    assert (later.name.values().tolist(), of_later.tolist()) == (["aten::sort"], [0])


@pytest.mark.parametrize(
    ("most", "alone", "subjects"),
    [
        (0.51, 0.6, ["aten::sort", "aten::sort"]),  # 300 of 585, and of 500 that its ops take
        (0.52, 0.6, ["train.py(3): f", "aten::sort"]),
        (0.51, 0.601, ["train.py(3): f", "aten::sort"]),
        (0.86, 0.6, ["train.py(3): f", "aten::sort"]),  # 250 of 290
        (0.87, 0.6, ["train.py(3): f", None]),
    ],
)
def test_stretch_is_about_its_longest_op_or_user_function(
    working: HostCalls, most: float, alone: float, subjects: list[str | None]
) -> None:
    assert working.subject(most, alone).values().tolist() == subjects


def recurring(*long: tuple[int, int]) -> IdleTime:
    """Seven steps of a launch every 100 us, the pauses before some of which are 60 us longer: (step, launch)."""
    trace, now, number = TraceBuilder(), 0, 0
    for step in range(7):
        begin = now
        for place in range(5):
            now += (160 if (step, place) in long else 100) * US
            number += 1
            trace.op("aten::mm", now, 10 * US)
            trace.launch("cudaLaunchKernel", now + 2 * US, 4 * US, number)
            trace.kernel(now + 8 * US, 30 * US, number)
        trace.step(step, begin, now + 40 * US - begin)
        now += 41 * US
    return Analysis(trace.load()).index(IdleTime)


def test_idle_time_of_one_exceptional_step_stands_out() -> None:
    """In the fifth step twice as long pauses, or in the first, which is a start."""
    for step in (4, 0):
        idle = recurring(*[(step, place) for place in range(5)])
        start, alone = idle.standing_out(7, 1.2)
        head = idle.before_entries < 0
        assert head.sum() == 1
        assert set(idle.step[alone].tolist()) == {step}
        assert not alone[head].any()
        assert start[head].all()
        assert set(idle.step[start & ~head].tolist()) == (set() if step else {0})
        few_start, few_alone = idle.standing_out(8, 1.2)
        assert (few_start.tolist(), few_alone.any()) == (head.tolist(), False)
        assert not idle.standing_out(7, 2.0)[1].any()


def test_equal_calls_differ_by_their_place_in_the_step() -> None:
    """The third pause of each step is held up at the third launch of it."""
    idle = recurring()
    inside = idle[(idle.before_entries >= 0) & idle.has_next]
    place = inside.held_up_at()
    order = inside.next_entries % 5
    for one in range(5):
        assert len(np.unique(place[order == one])) == 1
    assert len(np.unique(place)) == 5


@pytest.mark.parametrize(
    ("covered_us", "more", "calls"),
    [(500, 0, 5), (450, 0, 5), (449, 0, 0), (500, 1, 0), (500, -1, 5)],
)
def test_function_calls_are_pauses_if_they_fill_them(covered_us: int, more: int, calls: int) -> None:
    """Pauses of 500 us, each with a call; a sixth call in a step, or before all steps."""

    def body(loop: Loop, number: int) -> None:
        begin = loop.now - 3_000
        loop.python("train.py(3): f", begin, covered_us * US, python_id=number + 1)
        loop.now = begin + 500 * US

    loop = Loop()
    loop.now = 50 * US
    for number in range(5):
        loop.begin()
        for _ in range(4):
            loop.launched()
        body(loop, number)
        loop.launched()
        loop.end()
    if more:
        at = 56 * US if more > 0 else 10 * US
        loop.python("train.py(3): f", at, 2 * US, python_id=9)
    found = Analysis(loop.load()).index(CallsAfterCpuGaps)
    long = found[found.dur_ns > 400 * US]
    assert len(long) == 5
    assert len(long.calls_ns("train.py(3): f", 0.9)) == calls


def test_calls_in_pauses_count_on_their_thread() -> None:
    """One at a pause's begin, one at its end, and two while the other thread is waited for."""
    trace = TraceBuilder()
    number = 0
    for tid, starts in ((MAIN, (0, 300)), (ENGINE, (105, 400))):
        for at in starts:
            number += 1
            trace.op("aten::mm", at * US, 10 * US, tid=tid)
            trace.launch("cudaLaunchKernel", (at + 2) * US, 4 * US, number, tid=tid)
            trace.kernel((at + 8) * US, 5 * US, number)
    for number, (tid, at) in enumerate(
        ((MAIN, 115), (MAIN, 300), (ENGINE, 200), (ENGINE, 50), (MAIN, 60)), start=1
    ):
        trace.python("train.py(3): f", at * US, 2 * US, python_id=number, tid=tid)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    rows = zip(found.thread.tolist(), (found.dur_ns // US).tolist(), strict=True)
    assert sorted(rows) == [(MAIN, 185), (ENGINE, 90), (ENGINE, 95)]
    assert found.user_calls() == 2
    assert found[found.thread == MAIN].user_calls() == 1


@pytest.mark.parametrize(("most", "subject"), [(0.5, "aten::sort"), (0.51, None)])
@pytest.mark.parametrize("start", [15, 60, 115])
def test_op_may_begin_and_end_with_its_stretch(start: int, most: float, subject: str | None) -> None:
    """100 us of the 200 from 15 us on."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, at in enumerate((5, 215), start=1):
        trace.op("aten::mm", at * US, 10 * US)
        trace.launch("cudaLaunchKernel", (at + 2) * US, 4 * US, number)
        trace.kernel((at + 8) * US, 5 * US, number)
    trace.op("aten::sort", start * US, 100 * US)
    found = Analysis(trace.load()).index(HostCalls)
    assert (found.dur_ns // US).tolist() == [200]
    ops, stretch = found.ops()
    assert (ops.name.values().tolist(), stretch.tolist()) == (["aten::sort"], [0])
    assert found.subject(most, 0.9).values().tolist() == [subject]
