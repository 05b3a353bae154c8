"""Functions around pauses: which of them cover a pause, at their edges, on other threads, and what they take."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rule.test_pauses import MAIN, TORCHS, US, F, launching
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import IdleTime
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps

Frame = tuple[str, int, int]  # name, start and end in us


def paused(places: tuple[int, ...], *frames: Frame, others: tuple[Frame, ...] = ()) -> CallsAfterCpuGaps:
    """Pauses between ops of 10 us at these places, beside frames of the thread and of another one."""
    trace = launching(*((at, "aten::mm") for at in places))
    for number, (name, start, end) in enumerate((*frames, *others), start=1):
        tid = 1000 if number <= len(frames) else 2_000
        trace.python(name, start * US, (end - start) * US, python_id=number, tid=tid)
    return Analysis(trace.load()).index(CallsAfterCpuGaps)


def test_of_frames_that_begin_at_once_the_shorter_is_the_inner_one() -> None:
    found = paused((5, 215), (MAIN, 0, 900), (F, 0, 800))
    assert found.line.values().tolist() == [F]
    assert paused((5, 215), (F, 0, 800), (MAIN, 0, 900)).line.values().tolist() == [F]


@pytest.mark.parametrize(("start", "line"), [(114, F), (115, MAIN)])
def test_a_function_that_is_open_for_half_of_a_pause_is_not_open_for_most_of_it(
    start: int, line: str
) -> None:
    """The pause is from 15 to 215 us."""
    assert paused((5, 215), (MAIN, 0, 900), (F, start, 600)).line.values().tolist() == [line]


def test_torchs_function_in_a_short_pause_is_known_beside_a_long_one() -> None:
    found = paused((5, 115, 625), (MAIN, 0, 900), (TORCHS, 20, 90))
    assert (found.dur_ns // US).tolist() == [100, 500]
    assert found.torchs.values().tolist() == [TORCHS, None]


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


def test_functions_that_another_thread_calls_during_a_pause_are_not_called_in_it() -> None:
    found = paused(
        (5, 215),
        (MAIN, 0, 900),
        (F, 50, 60),
        others=(("data.py(1): load", 3, 500), *(("data.py(3): read", at, at + 5) for at in (70, 80, 90))),
    )
    assert found.user_calls() == 1


def test_a_place_is_named_by_the_outermost_op_before_it_and_after_it() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, at in enumerate((5, 215), start=1):
        trace.op("aten::linear", at * US, 10 * US)
        trace.op("aten::mm", at * US, 10 * US)
        trace.launch("cudaLaunchKernel", (at + 2) * US, 8 * US, number)
        trace.kernel((at + 8) * US, 30 * US, number)
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
        trace.launch("cudaLaunchKernel", at * US + 100, US, number)
        trace.kernel((at + 10) * US, 10 * US, number, device=device)
    starts, ends = Analysis(trace.load()).index(IdleTime).piece_bounds_ns()
    assert np.all(starts[1:] >= starts[:-1])
    pieces = {(start // US, end // US) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)}
    assert {(20, 110), (40, 70), (80, 210)} <= pieces
