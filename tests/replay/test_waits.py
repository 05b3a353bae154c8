"""Which calls wait for what, and what the profiler adds to a stretch: each limit from both sides."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.slowdown import Slowed, remaining_ns, slow_launches
from traceanalyzer.replay.waits import (
    LaunchOrder,
    Waits,
    explicit_waits,
    rows_in_sample,
    unrecorded_waits,
    waits_of_copies,
    waits_of_frees,
)
from traceanalyzer.timeline.device_work import DeviceWork

US = 1_000


def order(*work: tuple[int, int, int]) -> LaunchOrder:
    """Of work by stream, launch and end in us."""
    stream, launched, ends = (np.array([one[i] for one in work], np.int64) for i in range(3))
    device: Any = SimpleNamespace(entry=np.arange(len(work)), stream=stream, streams=int(stream.max()) + 1)
    every: Any = SimpleNamespace(call_start_ns=launched * US, end_ns=ends * US, start_ns=launched * US)
    return LaunchOrder(every, device)


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
    part = explicit_waits(rows, nesting, order(*TWO), np.array([whole]))
    assert part.streams.tolist() == ([] if streams is None else [streams])
    assert part.tail_ns.tolist() == ([] if streams is None else [tail_us * US])


def test_hidden_wait_returns_as_late_as_the_median_of_visible() -> None:
    """Three that waited return 1, 2 and 9 us later; each costs 4 us at most."""
    rows, nesting = calls((10, 51), (20, 52), (30, 59), (60, 63))
    part = explicit_waits(rows, nesting, order((0, 0, 50)), np.zeros(4, bool))
    assert part.tail_ns.tolist() == [1_000, 2_000, 9_000, 2_000]
    assert part.own_ns.tolist() == [4_000, 4_000, 4_000, 3_000]
    assert part.copy.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("span", "tail_us"), [((10, 110), 10), ((10, 100), 0), ((10, 99), None), ((99, 300), 200), ((100, 300), None)]
)
def test_free_waits_for_pending_work_ended_by_its_return(span: tuple[int, int], tail_us: int | None) -> None:
    """What it does itself follows, however long: none of it is the call's before the wait."""
    rows, nesting = calls(span)
    part = waits_of_frees(rows, nesting, order(*TWO))
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
def test_long_call_returning_after_copy_waits(pageable: bool, span: tuple[float, float], waits: bool) -> None:
    rows, nesting = calls(span)
    none, mine = np.array([7, 0]), np.array([False, pageable])
    part = waits_of_copies(rows, nesting, order((1, 0, 900), (0, 0, 50)), none, mine)
    assert part.copy.tolist() == [1] * waits
    assert part.streams.tolist() == [[True, False]] * waits
    assert part.own_ns.tolist() == [4_000] * waits
    assert part.tail_ns.tolist() == [max(min(round((span[1] - 50) * US), 15_000), 0)] * waits


def test_a_copy_s_call_without_a_copy_waits_for_none() -> None:
    rows, nesting = calls((0, 900), (0, 900))
    part = waits_of_copies(rows, nesting, order((0, 0, 50)), np.array([1]), np.array([True]))
    assert part.row.tolist() == [1]


@pytest.mark.parametrize(("returns_us", "tail_us"), [(60, 10), (66, 15), (150, 15), (151, 101), (900, 850)])
def test_copy_call_that_returns_far_later_takes_that_time(returns_us: int, tail_us: int) -> None:
    """Ends at 50 us: up to 0.1 ms later may be the profiler; a driver that stages pageable memory takes longer."""
    rows, nesting = calls((0, returns_us))
    part = waits_of_copies(rows, nesting, order((0, 0, 50)), np.array([0]), np.array([True]))
    assert part.tail_ns.tolist() == [tail_us * US]


def test_calls_within_the_sampled_steps_on_the_program_s_threads() -> None:
    """Two steps, 10 to 20 and 30 to 40: before, at the begin, at the end, between, and of another thread."""
    start, end = np.array([10, 15, 30]), np.array([15, 20, 40])
    timeline = CpuTimeline(start, end, np.full(3, -1), np.array([0, 0, 1]), np.array([4, 2]))
    nesting: Any = SimpleNamespace(
        start_ns=np.array([9, 10, 19, 20, 25, 30, 39, 40, 12]), thread=np.array([4, 4, 2, 4, 4, 2, 4, 4, 3])
    )
    assert rows_in_sample(nesting, timeline, np.arange(9)).tolist() == [1, 2, 5, 6]


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
    part = unrecorded_waits(analysis.trace, timeline, np.ones(len(gaps), bool), work, device)
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


GAP_SLOWDOWN, OP, CALL, HOST = range(4)


def slowed(
    *kinds: int, ns: float = 100_000.0, steady: bool = False, calls: float = 0.0, shapes: bool = False
) -> Slowed:
    """Segments of these kinds that take so long each, with so many Python calls in each."""
    trace = TraceBuilder(record_shapes=int(shapes))
    trace.op("aten::mm", 0, 1_000)
    kind = np.array(kinds)
    none = np.zeros(len(kinds), bool)
    cpu, python = np.full(len(kinds), ns), np.full(len(kinds), calls)
    masks = kind == GAP_SLOWDOWN, kind == CALL, none, kind == HOST, none | steady
    return Slowed.of(trace.load(), cpu, *masks, python)


def added(found: Slowed, ns: float) -> list[float]:
    return [float(one) for one in found.added(np.full(len(found.most_ns), ns))]


def test_added_time_depends_on_the_kind_of_stretch() -> None:
    """Of 100 us: of a gap 2.6 us, an op 27.9, a call 6.5, an op without launch 11.2, and a part of the rest."""
    assert added(slowed(GAP_SLOWDOWN, OP, CALL, HOST), 100_000) == pytest.approx(
        [2_600 * 0.895 + 97_400 * 0.05, 27_900 * 0.59 + 72_100 * 0.08, 6_500 * 0.05 + 93_500 * 0.2, 11_200 * 0.59]
    )
    assert added(slowed(GAP_SLOWDOWN, OP), 1_000) == pytest.approx([895, 590])
    assert added(slowed(GAP_SLOWDOWN, OP, CALL, HOST, shapes=True), 1_000) == pytest.approx([895, 720, 50, 720])


def test_calls_for_memory_take_as_long_without_the_profiler() -> None:
    assert added(slowed(GAP_SLOWDOWN, OP, CALL, HOST, steady=True, calls=1_000.0), 100_000) == [0] * 4


@pytest.mark.parametrize(
    ("calls", "shares"),
    [
        (10.0, [0.077, 0.0, 0.0, 0.0]),  # 770 ns each, of 100 us
        (90.0, [0.693, 0.0, 0.0, 0.0]),
        (91.0, [0.7, 0.7, 0.0, 0.0]),  # nearly all of an op, as where anomaly mode keeps the stack
    ],
)
def test_python_recording_slows_gaps_and_ops_made_of_them(calls: float, shares: list[float]) -> None:
    found = slowed(GAP_SLOWDOWN, OP, CALL, HOST, calls=calls)
    assert found.python_overhead.tolist() == pytest.approx(shares)
    own = 100_000 * (1 - shares[0])
    gap = 2_600 * 0.895 + 0.05 * (own - 2_600) + 100_000 * shares[0]
    assert added(found, 100_000)[0] == pytest.approx(gap)


def test_slowdown_range_is_wider_for_ranks_around_typical() -> None:
    """A thousand gaps of 1 us, of which 895 ns are said to be recording; ranks are slowed by 0.6 of that."""
    alone = slowed(GAP_SLOWDOWN, ns=1_000.0)
    assert alone.typical == pytest.approx(1 / 0.105)
    assert alone.range.low == pytest.approx(1 / (1 - 0.7 * 0.895))
    assert alone.range.typical == alone.typical
    assert alone.range.high == pytest.approx(20)  # a twentieth stays
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    every, none = np.ones(1, bool), np.zeros(1, bool)
    masks = (every, *[none] * 4)
    rank = Slowed.of(trace.load(), np.array([1_000.0]), *masks, np.zeros(1), of_rank=True)
    assert added(rank, 1_000) == pytest.approx([537])
    assert rank.typical == pytest.approx(1 / 0.463)
    assert (rank.range.low, rank.range.high) == (
        pytest.approx(1 / (1 - 0.6 * 0.537)),
        pytest.approx(1 / (1 - 1.65 * 0.537)),
    )


def test_a_slower_host_is_slower_by_the_same_reasons() -> None:
    found = slowed(GAP_SLOWDOWN, OP)
    twice = found.slower(2.0)
    assert added(twice, 200_000) == pytest.approx([2 * one for one in added(found, 100_000)])
    assert (twice.total_ns, twice.added_ns) == (400_000, pytest.approx(2 * found.added_ns))
    assert twice.typical == pytest.approx(found.typical)


def test_strengths_and_slowdowns_are_each_other_s_inverse() -> None:
    found = slowed(GAP_SLOWDOWN, OP)
    for strength in (0.0, 0.5, 1.0, 2.0):
        assert found.strength(found.slowdown(strength)) == pytest.approx(strength)
    nothing = slowed(CALL, steady=True)
    assert (nothing.added_ns, nothing.strength(3.0), nothing.typical) == (0, 1.0, 1.0)
    assert nothing.unprofiled(np.array([9.0]), np.zeros(1), 3.0).tolist() == [9.0]


def test_twentieth_of_a_stretch_stays_the_programs() -> None:
    left = remaining_ns(np.array([100.0, 100.0]), np.array([30.0, 90.0]), 2.0)
    assert left.tolist() == [40, 5]


@pytest.mark.parametrize(
    ("launches", "stays"),
    [
        ([20_000.0] * 19, 0.0),  # too few to tell
        ([5_000.0] * 20, 0.0),
        ([5_000.0 * np.exp(0.5)] * 20, -0.095),
        ([5_000.0 * np.exp(0.7)] * 20, -0.114),  # of 0.6 e-folds at most
        ([1_000.0] * 20, 0.057),
        ([5_000.0] * 11 + [90_000.0] * 10, 0.0),  # in the median
    ],
)
def test_where_launches_are_slower_less_of_all_is_the_program_s(launches: list[float], stays: float) -> None:
    assert slow_launches(np.array(launches)) == pytest.approx(stays)


def test_only_launches_tell_how_slow_a_host_is() -> None:
    """Twenty of the usual 5 us, and more synchronisations of 50 us each: 0.95 of a call's recording stays."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    ns = np.array([5_000.0] * 20 + [50_000.0] * 30)
    none, every = np.zeros(50, bool), np.ones(50, bool)
    found = Slowed.of(trace.load(), ns, none, every, ns == 5_000, none, none, np.zeros(50))
    assert added(found, 1_000) == pytest.approx([50] * 50)
