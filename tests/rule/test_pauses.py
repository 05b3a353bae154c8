"""Pauses of the CPU and idle time of the device, each in a small program: what is before, after and within them."""

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.rule.hits import LostTime
from traceanalyzer.rule.views import IdleTime

US = 1_000
MAIN, F, TORCHS = "train.py(3): main", "train.py(9): f", "torch/nn/x.py(9): g"


def launching(*ops: tuple[int, str], steps: int = 2) -> TraceBuilder:
    """Ops of 10 us at these times in us, each with a kernel of 30 us from 8 us on; steps of 1 ms."""
    trace = TraceBuilder()
    for number in range(steps):
        trace.step(number, number * 1_000 * US, 1_000 * US)
    for number, (at, name) in enumerate(ops, start=1):
        trace.op(name, at * US, 10 * US)
        trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 30 * US), number)
    return trace


@pytest.fixture(scope="module")
def pauses() -> CallsAfterCpuGaps:
    """Of 185, 290, 495, 185, 290 and 290 us: in f for 100 us of the first and fourth, and 50 of the last."""
    ops = ((5, "a"), (200, "b"), (500, "a"), (1005, "b"), (1200, "b"), (1500, "a"), (1800, "a"))
    trace = launching(*((at, f"aten::{name}") for at, name in ops))
    frames = ((MAIN, 0, 2_000), (F, 15, 100), (F, 1_015, 100), (F, 1_700, 50), (TORCHS, 520, 400))
    for number, (name, start, dur) in enumerate(frames, start=1):
        trace.python(name, start * US, dur * US, python_id=number, parent=1 if number > 1 else None)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns // US).tolist() == [185, 290, 495, 185, 290, 290]
    return found


def test_a_pause_lies_between_two_ops(pauses: CallsAfterCpuGaps) -> None:
    assert pauses.place.values().tolist() == [
        f"aten::{before} and aten::{after}" for before, after in ("ab", "ba", "ab", "bb", "ba", "aa")
    ]
    assert pauses[::-1].before.name.values().tolist() == [f"aten::{name}" for name in "abbaba"]
    assert pauses.after.name.values().tolist() == [f"aten::{name}" for name in "babbaa"]
    assert len(pauses[:0].place) == 0
    assert (pauses.repeated(), pauses[np.array([0, 1, 0])].repeated()) == (0, 1)


def test_places_are_in_as_many_steps_as_they_are_seen_in(pauses: CallsAfterCpuGaps) -> None:
    assert pauses.in_steps(pauses.place).tolist() == [1, 2, 1, 1, 2, 1]
    assert pauses.in_steps(pauses.place, pauses.dur_ns).tolist() == [1, 2, 1, 1, 2, 1]
    assert pauses.in_steps(np.zeros(6, np.int64)).tolist() == [2] * 6


def test_places_that_take_little_of_the_time_are_minor(pauses: CallsAfterCpuGaps) -> None:
    """Of 1735 us 680 are between a and b, 580 after b and before a, 290 between two of a, and 185 of b."""
    for minor, left in ((185 / 1735 - 1e-9, 6), (185 / 1735 + 1e-9, 5), (0.3, 4), (0.35, 2), (0.5, 0)):
        assert len(pauses.main_places(minor)) == left
    halves = pauses[np.array([1, 5])]
    assert [len(halves.main_places(minor)) for minor in (0.5, 0.51)] == [2, 0]


def test_a_function_that_covers_most_of_a_pause_names_it(pauses: CallsAfterCpuGaps) -> None:
    assert pauses.line.values().tolist() == [F, MAIN, MAIN, F, MAIN, MAIN]
    assert pauses.torchs.values().tolist() == [None, None, TORCHS, None, None, None]
    assert pauses.main_one(pauses.torchs, 495 / 1735 - 1e-9) == TORCHS
    assert pauses.main_one(pauses.torchs, 495 / 1735 + 1e-9) is None
    assert pauses[:2].main_one(pauses[:2].torchs, 0.1) is None
    assert pauses[2:3].main_one(pauses[2:3].torchs, 1.0) == TORCHS


def test_functions_have_what_lies_in_them_of_all_pauses(pauses: CallsAfterCpuGaps) -> None:
    """Looked at every 6.8 us: 15 times in each of the first two, and 8 in the third."""
    sample = 1_735 * US // 256
    assert list(pauses.functions().items()) == [(MAIN, 218 * sample), (F, 38 * sample)]
    assert pauses[:0].functions() == {}
    assert pauses.within_ns(F) == 250 * US
    assert pauses[np.array([0, 5])].within_ns(F) == 150 * US
    assert (pauses.user_calls(), pauses[1:3].user_calls(), pauses[3:4].user_calls()) == (3, 0, 1)


@pytest.mark.parametrize(
    ("ops", "least", "first"),
    [
        ([(600, "mine"), (620, "mine"), (640, "mine")], 3, [True]),
        ([(600, "mine"), (620, "mine"), (640, "mine")], 4, [False]),
        ([(600, "aten::mine"), (620, "aten::mine"), (640, "aten::mine")], 3, [False]),
        ([(600, "mine"), (700, "mine"), (720, "mine")], 3, [False, False]),  # 90 us before the second, too
        ([(600, "mine"), (665, "mine"), (685, "mine")], 3, [True, False]),  # 55 are less than a tenth
        ([(600, "mine"), (620, "mine"), (1_300, "mine")], 3, [False, False]),
    ],
)
def test_single_call_before_a_repeated_one_prepares_it(
    ops: list[tuple[int, str]], least: int, first: list[bool]
) -> None:
    """585 us before its first call."""
    found = Analysis(launching((5, "aten::a"), *ops).load()).index(CallsAfterCpuGaps)
    long = found.dur_ns > 50 * US
    assert found.before_first_calls(least)[long].tolist() == first


@pytest.fixture(scope="module")
def idle() -> IdleTime:
    """Six kernels: idle until 13, from 43, 238, 538 over the step's end, 1043, 1238 and 1538 us on."""
    places = [(at, "aten::mm") for at in (5, 200, 500, 1_005, 1_200, 1_500)]
    found = Analysis(launching(*places).load()).index(IdleTime)
    assert (found.start_ns // US).tolist() == [0, 43, 238, 538, 1_000, 1_043, 1_238, 1_538]
    return found


def test_idle_time_knows_the_work_and_the_launches_around_it(idle: IdleTime) -> None:
    """None before the first and after the last."""
    assert idle.has_next.tolist() == [True] * 7 + [False]
    assert idle.next_entries.tolist() == [0, 1, 2, 3, 3, 4, 5, -1]
    assert idle.before_entries.tolist() == [-1, 0, 1, 2, 2, 3, 4, 5]
    launches = [3, 5, 7, 9, 11, 13]  # after two marks, each after its op
    assert idle.launch.rows.tolist() == [*launches[:4], *launches[3:], -1]
    assert idle.launch_before.rows.tolist() == [-1, *launches[:3], *launches[2:]]
    assert idle.step.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_pieces_cross_step_ends_in_time_order(idle: IdleTime) -> None:
    starts, ends = idle.piece_bounds_ns()
    assert (starts // US).tolist() == [0, 43, 238, 538, 1_043, 1_238, 1_538]
    assert (ends // US).tolist() == [13, 208, 508, 1_013, 1_208, 1_508, 2_000]
    starts, ends = idle[np.array([6, 3, 4, 1])].piece_bounds_ns()
    assert ((starts // US).tolist(), (ends // US).tolist()) == ([43, 538, 1_238], [208, 1_013, 1_508])


def test_few_steps_have_starts_only_before_all_work(idle: IdleTime) -> None:
    start, alone = idle.standing_out(3, 2.0)
    assert (start.tolist()[1:], alone.any()) == ([False] * 7, False)
    assert len(idle.happening_once(3)) == len(idle)


@pytest.mark.parametrize(
    ("spans", "lost"),
    [
        ([(100, 150)], [(0, 100, 208)]),  # up to the end of the pause
        ([(100, 150), (180, 190)], [(0, 100, 180), (1, 180, 208)]),  # or to the next span
        ([(180, 190), (100, 150)], [(0, 180, 208), (1, 100, 180)]),
        ([(20, 43)], []),
        ([(20, 44)], [(0, 43, 208)]),
        ([(600, 700)], [(0, 600, 1_013)]),  # which the step's end does not cut
        ([(100, 300)], [(0, 100, 208), (0, 238, 508)]),
        ([(5, 10)], [(0, 5, 10)]),  # no pause between ops
        ([(210, 230)], []),
        ([(1_600, 1_700)], [(0, 1_600, 1_700)]),
    ],
)
def test_span_ending_in_a_pause_has_its_rest(
    idle: IdleTime, spans: list[tuple[int, int]], lost: list[tuple[int, int, int]]
) -> None:
    starts, ends = (np.array(side) * US for side in zip(*spans, strict=True))
    found = LostTime.idle_from(idle, starts, ends)
    assert found.spans == len(spans)
    stretches: list[list[int]] = []
    rows = zip(found.owner.tolist(), (found.start_ns // US).tolist(), (found.end_ns // US).tolist(), strict=True)
    for owner, start, end in sorted(rows):
        if stretches and stretches[-1][0] == owner and stretches[-1][2] == start:
            stretches[-1][2] = end  # cut where the step ends
        elif start < end:
            stretches.append([owner, start, end])
    assert [tuple(one) for one in stretches] == lost


def test_pauses_lie_once_in_a_function_that_calls_itself() -> None:
    """From 20 us on for 100 us, within which it calls itself twice and the first call does so again."""
    trace = launching((5, "aten::a"), (200, "aten::b"))
    for number, (start, dur, parent) in enumerate(((20, 100, None), (30, 40, 1), (40, 20, 2), (80, 30, 1)), 1):
        trace.python(F, start * US, dur * US, python_id=number, parent=parent)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns // US).tolist() == [185]
    assert found.within_ns(F) == 100 * US


Frame = tuple[str, int, int]  # name, start and end in us


def paused(places: tuple[int, ...], *frames: Frame, others: tuple[Frame, ...] = ()) -> CallsAfterCpuGaps:
    """Pauses between ops of 10 us at these places, beside frames of the thread and of another one."""
    trace = launching(*((at, "aten::mm") for at in places))
    for number, (name, start, end) in enumerate((*frames, *others), start=1):
        tid = 1000 if number <= len(frames) else 2_000
        trace.python(name, start * US, (end - start) * US, python_id=number, tid=tid)
    return Analysis(trace.load()).index(CallsAfterCpuGaps)


def test_shorter_of_frames_starting_together_is_inner() -> None:
    found = paused((5, 215), (MAIN, 0, 900), (F, 0, 800))
    assert found.line.values().tolist() == [F]
    assert paused((5, 215), (F, 0, 800), (MAIN, 0, 900)).line.values().tolist() == [F]


@pytest.mark.parametrize(("start", "line"), [(114, F), (115, MAIN)])
def test_function_open_half_a_pause_is_not_the_main_one(start: int, line: str) -> None:
    """The pause is from 15 to 215 us."""
    assert paused((5, 215), (MAIN, 0, 900), (F, start, 600)).line.values().tolist() == [line]


def test_torch_function_is_known_in_short_and_long_pauses() -> None:
    found = paused((5, 115, 625), (MAIN, 0, 900), (TORCHS, 20, 90))
    assert (found.dur_ns // US).tolist() == [100, 500]
    assert found.torchs.values().tolist() == [TORCHS, None]


TENSOR = "<built-in method tensor of type object at 0x7fc81573e180>"
TOLIST = "<built-in method tolist of Tensor object at 0x7fc76feeb840>"
EXEC = "<built-in function exec>"


def test_innermost_call_of_a_built_in_function_names_a_pause() -> None:
    frames = ((MAIN, 0, 900), (TENSOR, 20, 110), (TOLIST, 130, 600))
    found = paused((5, 115, 625), *frames)
    assert found.built_in.values().tolist() == ["tensor()", "Tensor.tolist()"]
    assert found.main_one(found.built_in, 0.5) == "Tensor.tolist()"
    inside_of_python = paused((5, 115), (EXEC, 0, 900), (MAIN, 1, 800))
    assert inside_of_python.built_in.values().tolist() == [None]


DECODE, INNER = "json/decoder.py(343): raw_decode", "contextlib.py(80): inner"


def test_standard_library_call_with_a_remedy_names_a_pause() -> None:
    found = paused((5, 115, 625), (MAIN, 0, 900), (INNER, 20, 110), (DECODE, 200, 600))
    assert found.built_in.values().tolist() == [None, DECODE]
    starts, ends = found.calls_of(DECODE)
    assert list(zip((starts // US).tolist(), (ends // US).tolist(), strict=True)) == [(200, 600)]
    assert found[:1].calls_of(DECODE)[0].tolist() == []


def test_the_instant_at_which_a_pause_begins_is_its_own() -> None:
    """Of 512 us, looked at every 2 us from 1 us on: 50 times in the first pause, and from its end on in the second."""
    found = paused((5, 116, 537), (MAIN, 0, 900), (F, 126, 537))
    assert (found.dur_ns // US).tolist() == [101, 411]
    assert found.functions() == {F: 206 * 2 * US, MAIN: 50 * 2 * US}


def test_calls_take_their_own_time_where_each_is_a_pause() -> None:
    """200 us of which 185 are a pause."""
    found = paused((5, 200), (MAIN, 0, 900), (F, 10, 210))
    assert (found.dur_ns // US).tolist() == [185]
    assert (found.calls_ns(F, 0.9) // US).tolist() == [200]
    assert found.calls_ns(F, 0.95).tolist() == []  # 0.925 of the call
    assert found.calls_ns("train.py(1): other", 0.5).tolist() == []


def test_calls_of_another_thread_are_not_in_a_pause() -> None:
    found = paused(
        (5, 215),
        (MAIN, 0, 900),
        (F, 50, 60),
        others=(("data.py(1): load", 3, 500), *(("data.py(3): read", at, at + 5) for at in (70, 80, 90))),
    )
    assert found.user_calls() == 1


def test_place_has_the_outermost_ops_before_and_after() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, at in enumerate((5, 215), start=1):
        trace.op("aten::linear", at * US, 10 * US)
        trace.op("aten::mm", at * US, 10 * US)
        trace.launched(((at + 2) * US, 8 * US), ((at + 8) * US, 30 * US), number)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert found.place.values().tolist() == ["aten::linear and aten::linear"]


def test_a_call_of_the_driver_is_no_function_that_is_prepared() -> None:
    trace = launching((5, "aten::a"))
    for number, at in enumerate((600, 620, 640), start=10):
        trace.launch("cudaStreamQuery", at * US, 10 * US, number)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert (found.dur_ns > 500 * US).any()
    assert not found.before_first_calls(3).any()


def test_pieces_of_several_devices_come_in_the_order_of_time() -> None:
    trace = TraceBuilder()
    for number, (at, device) in enumerate(((0, 0), (100, 0), (20, 1), (60, 1), (200, 1)), start=1):
        trace.op("aten::mm", at * US, 2 * US)
        trace.launched((at * US + 100, US), ((at + 10) * US, 10 * US), number, device=device)
    starts, ends = Analysis(trace.load()).index(IdleTime).piece_bounds_ns()
    assert np.all(starts[1:] >= starts[:-1])
    pieces = {(start // US, end // US) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)}
    assert {(20, 110), (40, 70), (80, 210)} <= pieces
