"""Views of calls, of idle time by its causes, and of the CPU's time."""

import numpy as np
import pytest

from tests.rules.loops import Loop, loop_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps, HostCalls
from traceanalyzer.rule.views import Calls, IdleTime


def test_outermost_calls_lie_in_no_other() -> None:
    trace = TraceBuilder()
    outer, inner, apart = (
        trace.op(name, start, dur) for name, start, dur in (("a", 0, 90), ("b", 10, 20), ("c", 100, 5))
    )
    calls = Analysis(trace.load()).index(Calls)
    assert calls.outermost().rows.tolist() == [outer, apart]
    assert calls[calls.rows == inner].outermost().rows.tolist() == [inner]


def test_what_is_missing_or_between_the_steps_is_in_no_step() -> None:
    trace = TraceBuilder()
    trace.step(0, 100, 100)
    trace.step(1, 300, 100)
    rows = [trace.op("aten::mm", start, 10) for start in (0, 100, 190, 290, 300, 390, 500)]
    calls = Analysis(trace.load()).index(Calls)
    at = calls[np.isin(calls.rows, rows)]
    assert at.step.tolist() == [-1, 0, 0, 0, 1, 1, 1]
    assert at.parent.step.tolist() == [-1, 0, 0, -1, 1, 1, -1]


@pytest.mark.parametrize(
    ("in_steps", "once"),
    [({0, 1}, True), ({3, 4}, True), ({2, 3, 4}, False), ({0, 1, 5}, True)],  # of steps 2 to 6, half are three
)
def test_half_of_the_later_steps_is_not_once(in_steps: set[int], once: bool) -> None:
    def body(loop: Loop, number: int) -> None:
        loop.pause(500_000 if number in in_steps else 1_000)

    idle = Analysis(loop_of(body, steps=7)).index(IdleTime)
    long = idle.dur_ns > 300_000
    assert sorted(set(idle[long].step.tolist())) == sorted(in_steps)
    kept = idle.happening_once(3)
    assert (kept.dur_ns > 300_000).any() == once
    assert len(idle.happening_once(8)) == len(idle)


@pytest.mark.parametrize(("covered_us", "named"), [(1_000, "train.py(3): loop"), (1_001, "train.py(12): metrics")])
def test_pause_is_in_the_function_open_over_half_of_it(covered_us: int, named: str) -> None:
    """One pause of 1 ms, then four of 2 ms."""

    def body(loop: Loop, number: int) -> None:
        begin, length = loop.now - 3_000, 2_000_000 if number else 1_000_000
        loop.python("train.py(3): loop", begin - 2_000, length + 4_000, python_id=2 * number + 1)
        if number:
            loop.python("train.py(12): metrics", begin + 1_000, 1_000 * covered_us, python_id=2 * number + 2)
        loop.now = begin + length

    pauses = Analysis(loop_of(body, steps=5)).index(CallsAfterCpuGaps)
    assert pauses.dur_ns.tolist() == [1_000_000, *[2_000_000] * 4]
    assert [*pauses.line.values()] == ["train.py(3): loop", *[named] * 4]


@pytest.mark.parametrize(("longer_us", "pauses", "calls"), [(0, 5, 5), (55, 5, 5), (56, 5, 0), (0, 4, 0)])
def test_calls_of_a_function_are_the_pauses_where_each_is_one(longer_us: int, pauses: int, calls: int) -> None:
    """One call of 500 us and more takes 10 % or more of its time beside its pause; one pause has no call."""

    def body(loop: Loop, number: int) -> None:
        begin, more = loop.now - 3_000, 1_000 * longer_us if number == 2 else 0
        if number < pauses:
            loop.python("train.py(3): f", begin, 500_000 + more, python_id=number + 1)
        loop.now = begin + 500_000

    found = Analysis(loop_of(body, steps=5)).index(CallsAfterCpuGaps)
    assert len(found.calls_ns("train.py(3): f", 0.9)) == calls


US = 1_000


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """Four steps of three kernels; the CPU waits before all of them, and twice in the third step, for the kernels."""
    trace = TraceBuilder()
    trace.launch("cudaDeviceSynchronize", 2 * US, 300 * US, 900)
    for number in range(4):
        trace.step(number, number * 1_000 * US, 1_000 * US)
        for which, start in enumerate((400, 600, 800)):
            at, correlation = (number * 1_000 + start) * US, 10 * number + which + 1
            trace.op("aten::mm", at, 10 * US)
            trace.launched((at + 2 * US, 4 * US), (at + 8 * US, 100 * US), correlation)
            if number == 2 and which < 2:
                trace.launch("cudaDeviceSynchronize", at + 20 * US, 95 * US, 500 + correlation)
    return Analysis(trace.load())


@pytest.fixture(scope="module")
def idle(analysis: Analysis) -> IdleTime:
    found = analysis.index(IdleTime)
    assert (found.start_ns[:4] // US - found.start_ns[0] // US).tolist() == [0, 2, 302, 508]
    assert found.cause.values().tolist() == [
        "host-code", "unknown", *["host-code"] * 9, *["synchronisation"] * 2, *["host-code"] * 4, "tail",
    ]  # fmt: skip
    return found


def test_unknown_wait_before_all_work_is_a_start(idle: IdleTime) -> None:
    for min_steps in (3, 5):
        start, _ = idle.standing_out(min_steps, 2.0)
        assert np.flatnonzero(start).tolist() == [0, 1, 2]


def test_what_nobody_knows_may_be_of_a_launch(idle: IdleTime) -> None:
    assert idle.for_launches().cause.values().tolist() == idle.cause.values().tolist()


def test_what_comes_twice_in_one_of_the_later_steps_happens_once(idle: IdleTime) -> None:
    """Host code is in all three of them."""
    once = ["unknown", "synchronisation", "synchronisation", "tail"]
    assert idle.happening_once(4).cause.values().tolist() == once
    assert len(idle.happening_once(5)) == len(idle)


def test_device_delays_are_counted_in_time_order_per_step() -> None:
    """Two waits in each of two steps, the second before the first in the file."""
    trace = TraceBuilder()
    for number in range(2):
        trace.step(number, number * 1_000 * US, 1_000 * US)
        for which, start in enumerate((600, 400, 800) if number else (400, 600, 800)):
            at, correlation = (number * 1_000 + start) * US, 10 * number + which + 1
            trace.op("aten::mm", at, 10 * US)
            trace.launched((at + 2 * US, 4 * US), (at + 8 * US, 100 * US), correlation)
            if start < 800:
                trace.launch("cudaDeviceSynchronize", at + 20 * US, 95 * US, 500 + correlation)
    found = Analysis(trace.load()).index(IdleTime).charged_to("synchronisation")
    first, second, *later = found.held_up_at().tolist()
    assert first != second
    assert later == [first, second]


def test_two_pauses_before_one_op_are_two() -> None:
    """Between them the optimizer steps, whose time is torch's."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, at in enumerate((5, 515), start=1):
        trace.op("aten::mm", at * US, 10 * US)
        trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 30 * US), number)
    trace.annotation("Optimizer.step#SGD.step", 215 * US, 100 * US)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns // US).tolist() == [200, 200]
    assert found.after.start_ns.tolist() == [found.after.start_ns[0]] * 2
    assert (found.repeated(), found[np.array([0, 1, 1])].repeated()) == (0, 1)


def test_event_wait_only_in_the_first_step_is_no_start() -> None:
    """It was launched in time: the cause says why."""
    trace = TraceBuilder()
    for number in range(6):
        trace.step(number, number * 2_000 * US, 2_000 * US)
    trace.launched((1 * US, 2 * US), (4 * US, 2 * US), 5)
    trace.launched((20 * US, 5 * US), (28 * US, 72 * US), 1)
    trace.launch("cudaStreamWaitEvent", 40 * US, 1 * US, 9)
    trace.launched((60 * US, 5 * US), (1_000 * US, 50 * US), 2)
    for number in range(1, 6):
        trace.launched((number * 2_000 * US, 5 * US), ((number * 2_000 + 8) * US, 1_900 * US), 10 + number)
    idle = Analysis(trace.load()).index(IdleTime)
    start, alone = idle.standing_out(3, 2.0)
    waiting = idle.cause.one_of("waiting")
    assert (idle.dur_ns[waiting] // US).tolist() == [900]
    assert not (start | alone)[waiting].any()


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
        trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 5 * US), number, tid=tid)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns // US).tolist() == [285, 190, 170, 190]
    return found


@pytest.mark.parametrize(
    ("engine", "into", "leaving"),
    [
        (ENGINE, [False, True, True, False], [False, False, False, True]),
        (MAIN, [False, True, False, False], [False, False, True, False]),  # forward's own thread runs the nodes
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
        trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 5 * US), number)
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
    trace, now = TraceBuilder(), 0
    for step in range(7):
        begin = now
        for place in range(5):
            now += (160 if (step, place) in long else 100) * US
            trace.op("aten::mm", now, 10 * US)
            trace.launched((now + 2 * US, 4 * US), (now + 8 * US, 30 * US))
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
    ("covered_us", "more", "calls"), [(500, 0, 5), (450, 0, 5), (449, 0, 0), (500, 1, 0), (500, -1, 5)]
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
            trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 5 * US), number, tid=tid)
    for number, (tid, at) in enumerate(((MAIN, 115), (MAIN, 300), (ENGINE, 200), (ENGINE, 50), (MAIN, 60)), start=1):
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
        trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 5 * US), number)
    trace.op("aten::sort", start * US, 100 * US)
    found = Analysis(trace.load()).index(HostCalls)
    assert (found.dur_ns // US).tolist() == [200]
    ops, stretch = found.ops()
    assert (ops.name.values().tolist(), stretch.tolist()) == (["aten::sort"], [0])
    assert found.subject(most, 0.9).values().tolist() == [subject]
