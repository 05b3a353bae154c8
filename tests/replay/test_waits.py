"""Which calls wait for what, and what they cost beside it: each limit from both sides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.waits import Waits, _copies, _explicit, _frees, _here, _Order, _unrecorded
from traceanalyzer.timeline.device_work import DeviceWork

US = 1_000


def order(*work: tuple[int, int, int]) -> _Order:
    """Of work by stream, launch and end in us."""
    stream, launched, ends = (np.array([one[i] for one in work], np.int64) for i in range(3))
    device: Any = SimpleNamespace(entry=np.arange(len(work)), stream=stream, streams=int(stream.max()) + 1)
    every: Any = SimpleNamespace(call_start_ns=launched * US, end_ns=ends * US, start_ns=launched * US)
    return _Order(every, device)


def calls(*spans: tuple[float, float]) -> tuple[np.ndarray, Any]:
    """(rows, nesting) of calls from and to, in us."""
    start, end = (np.array([round(one[i] * US) for one in spans], np.int64) for i in range(2))
    return np.arange(len(spans)), SimpleNamespace(start_ns=start, end_ns=end)


TWO = ((0, 0, 50), (1, 0, 100))  # a stream is done at 50 us, and another at 100


@pytest.mark.parametrize(
    ("span", "whole", "streams", "tail_us"),
    [
        ((10, 52), False, [True, False], 2),
        ((10, 47), False, [True, False], 0),  # clocks are rounded to 3 us
        ((10, 46.999), False, None, 0),  # returns while all works: it waits for nothing that is known
        ((10, 103), False, [True, True], 3),  # both had come so far
        ((10, 52), True, [True, True], 0),
        ((10, 130), True, [True, True], 15),  # what takes longer is another matter
        ((60, 62), False, [True, False], 4),  # the late CPU hides it: as long as usual
    ],
)
def test_synchronisation_waits_for_the_streams_so_far(
    span: tuple[float, float], whole: bool, streams: list[bool] | None, tail_us: float
) -> None:
    rows, nesting = calls(span)
    part = _explicit(rows, nesting, order(*TWO), np.array([whole]))
    assert part.streams.tolist() == ([] if streams is None else [streams])
    assert part.tail_ns.tolist() == ([] if streams is None else [tail_us * US])


def test_hidden_wait_returns_as_late_as_the_median_of_visible() -> None:
    """Three that waited return 1, 2 and 9 us later; each costs 4 us at most."""
    rows, nesting = calls((10, 51), (20, 52), (30, 59), (60, 63))
    part = _explicit(rows, nesting, order((0, 0, 50)), np.zeros(4, bool))
    assert part.tail_ns.tolist() == [1_000, 2_000, 9_000, 2_000]
    assert part.own_ns.tolist() == [4_000, 4_000, 4_000, 3_000]
    assert part.copy.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("span", "tail_us"),
    [((10, 110), 10), ((10, 100), 0), ((10, 99), None), ((99, 300), 200), ((100, 300), None)],
)
def test_free_waits_for_pending_work_ended_by_its_return(span: tuple[int, int], tail_us: int | None) -> None:
    """What it does itself follows, however long: none of it is the call's before the wait."""
    rows, nesting = calls(span)
    part = _frees(rows, nesting, order(*TWO))
    assert part.tail_ns.tolist() == ([] if tail_us is None else [tail_us * US])
    assert part.own_ns.tolist() == ([] if tail_us is None else [0])
    assert part.streams.tolist() == ([] if tail_us is None else [[True, True]])


@pytest.mark.parametrize(
    ("pageable", "span", "waits"),
    [
        (True, (29.999, 50), True),
        (True, (30, 50), False),  # too quick to have waited
        (True, (0, 20.001), True),  # pageable memory was read, and the copy goes on for 30 us
        (True, (0, 20), False),
        (False, (19.999, 50), True),
        (False, (20, 50), False),
        (False, (0, 49.999), False),  # returned before its copy was done
    ],
)
def test_long_copy_call_that_returned_after_its_copy_waits(
    pageable: bool, span: tuple[float, float], waits: bool
) -> None:
    rows, nesting = calls(span)
    none, mine = np.array([7, 0]), np.array([False, pageable])
    part = _copies(rows, nesting, order((1, 0, 900), (0, 0, 50)), none, mine)
    assert part.copy.tolist() == [1] * waits
    assert part.streams.tolist() == [[True, False]] * waits
    assert part.own_ns.tolist() == [4_000] * waits
    assert part.tail_ns.tolist() == [max(min(round((span[1] - 50) * US), 15_000), 0)] * waits


def test_a_copy_s_call_without_a_copy_waits_for_none() -> None:
    rows, nesting = calls((0, 900), (0, 900))
    part = _copies(rows, nesting, order((0, 0, 50)), np.array([1]), np.array([True]))
    assert part.row.tolist() == [1]


@pytest.mark.parametrize(("returns_us", "tail_us"), [(60, 10), (66, 15), (150, 15), (151, 101), (900, 850)])
def test_copy_call_that_returns_far_later_takes_that_time(returns_us: int, tail_us: int) -> None:
    """Ends at 50 us: up to 0.1 ms later may be the profiler; a driver that stages pageable memory takes longer."""
    rows, nesting = calls((0, returns_us))
    part = _copies(rows, nesting, order((0, 0, 50)), np.array([0]), np.array([True]))
    assert part.tail_ns.tolist() == [tail_us * US]


def test_calls_within_the_sampled_steps_on_the_program_s_threads() -> None:
    """Two steps, 10 to 20 and 30 to 40: before, at the begin, at the end, between, and of another thread."""
    start, end = np.array([10, 15, 30]), np.array([15, 20, 40])
    timeline = CpuTimeline(start, end, np.full(3, -1), np.array([0, 0, 1]), np.array([4, 2]))
    nesting: Any = SimpleNamespace(
        start_ns=np.array([9, 10, 19, 20, 25, 30, 39, 40, 12]), thread=np.array([4, 4, 2, 4, 4, 2, 4, 4, 3])
    )
    assert _here(nesting, timeline, np.arange(9)).tolist() == [1, 2, 5, 6]


def test_a_call_that_waits_costs_its_own_time_once() -> None:
    """The first call has three segments and begins in the second; the other has one, the last."""
    none, two = np.empty(0, np.int64), np.array([1, 5])
    waits = Waits(two, two, np.array([3, 5]), np.array([4.0, 3.0]), np.zeros(2), none, np.ones((2, 1), bool))
    assert waits.less_waiting(np.full(6, 9.0)).tolist() == [9, 4, 0, 0, 9, 3]


def unrecorded(*gaps: tuple[str, float, float, float], rows: tuple[int, ...] = ()) -> list[tuple[int, float]]:
    """(number, tail) of the gaps of 2 ms that end with work of a name, launched and ended so long before the gap's
    begin and end, in us; one each 10 ms. They are between rows, or in a row of these each."""
    trace = TraceBuilder()
    for number, (name, launched, _, ended) in enumerate(gaps):
        end = (10_000 * number + 5_000) * US
        trace.launch("cudaLaunchKernel", end - 2_000 * US - round(launched * US), 1 * US, number + 1)
        trace.kernel(end - round(ended * US) - 10, 10, number + 1, name=name)
    analysis = Analysis(trace.load())
    end = (10_000 * np.arange(len(gaps)) + 5_000) * US
    took = np.array([round(one[2] * US) for one in gaps])
    row = np.array(rows or [-1] * len(gaps))
    timeline = CpuTimeline(end - took, end, row, np.zeros(len(gaps), np.int64), np.zeros(1, np.int64))
    work = analysis.index(DeviceWork)
    device: Any = SimpleNamespace(entry=np.arange(len(gaps)), stream=np.zeros(len(gaps), np.int64), streams=1)
    part = _unrecorded(analysis.trace, timeline, np.ones(len(gaps), bool), work, device)
    assert (part.row.tolist(), part.own_ns.tolist()) == ([-1] * len(part.row), [4_000] * len(part.row))
    assert part.streams.all()
    return [(int(at) // (10_000 * US), tail / US) for at, tail in zip(part.end_ns, part.tail_ns, strict=True)]


GAP = ("mm", 5, 2_000, 10)


@pytest.mark.parametrize(
    ("gaps", "waits"),
    [
        ((GAP, GAP), [(0, 10), (1, 10)]),
        ((GAP, ("add", *GAP[1:])), []),  # after a kernel of a name it may be so once by chance
        ((GAP, GAP, ("mm", 5, 2_000, 100)), [(0, 10), (1, 10), (2, 15)]),  # of a tail no more than 15 us
        ((GAP, GAP, ("mm", 5, 2_000, 100.001)), [(0, 10), (1, 10)]),
        ((GAP, GAP, ("mm", 5, 1_000, 10)), [(0, 10), (1, 10), (2, 10)]),
        ((GAP, GAP, ("mm", 5, 999.999, 10)), [(0, 10), (1, 10)]),
        ((GAP, GAP, ("mm", -0.001, 2_000, 10)), [(0, 10), (1, 10)]),  # launched in it
        ((GAP, GAP, *[("mm", 5, 2_000, 500)] * 2), [(0, 10), (1, 10)]),  # half of those of a place
        ((GAP, GAP, *[("mm", 5, 2_000, 500)] * 3), []),
    ],
)
def test_long_gap_ending_with_earlier_work_is_a_hidden_wait(
    gaps: tuple[tuple[str, float, float, float], ...], waits: list[tuple[int, float]]
) -> None:
    assert unrecorded(*gaps) == waits


def test_places_are_told_by_the_row_that_is_open() -> None:
    """Between rows half of the gaps end with work, and in one row none."""
    assert unrecorded(GAP, GAP, *[("mm", 5, 2_000, 500)] * 3, rows=(-1, -1, 0, 0, 0)) == [(0, 10), (1, 10)]
