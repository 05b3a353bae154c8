"""What the profiler is said to add to a stretch, by what the stretch is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.replay.slowdown import Slowed, _left, _slow_launches

GAP, OP, CALL, HOST = range(4)


def slowed(
    *kinds: int, ns: float = 100_000.0, steady: bool = False, calls: float = 0.0, shapes: bool = False
) -> Slowed:
    """Segments of these kinds that take so long each, with so many Python calls in each."""
    trace = TraceBuilder(record_shapes=int(shapes))
    trace.op("aten::mm", 0, 1_000)
    kind = np.array(kinds)
    none = np.zeros(len(kinds), bool)
    cpu, python = np.full(len(kinds), ns), np.full(len(kinds), calls)
    masks = kind == GAP, kind == CALL, none, kind == HOST, none | steady
    return Slowed.of(trace.load(), cpu, *masks, python)


def added(found: Slowed, ns: float) -> list[float]:
    return [float(one) for one in found.added(np.full(len(found.most_ns), ns))]


def test_added_time_depends_on_the_kind_of_stretch() -> None:
    """Of 100 us: of a gap 2.6 us, an op 27.9, a call 6.5, an op without launch 11.2, and a part of the rest."""
    assert added(slowed(GAP, OP, CALL, HOST), 100_000) == pytest.approx(
        [
            2_600 * 0.895 + 97_400 * 0.05,
            27_900 * 0.59 + 72_100 * 0.08,
            6_500 * 0.05 + 93_500 * 0.2,
            11_200 * 0.59,
        ]
    )
    assert added(slowed(GAP, OP), 1_000) == pytest.approx([895, 590])
    assert added(slowed(GAP, OP, CALL, HOST, shapes=True), 1_000) == pytest.approx([895, 720, 50, 720])


def test_calls_for_memory_take_as_long_without_the_profiler() -> None:
    assert added(slowed(GAP, OP, CALL, HOST, steady=True, calls=1_000.0), 100_000) == [0] * 4


@pytest.mark.parametrize(
    ("calls", "shares"),
    [
        (10.0, [0.077, 0.0, 0.0, 0.0]),  # 770 ns each, of 100 us
        (90.0, [0.693, 0.0, 0.0, 0.0]),
        (91.0, [0.7, 0.7, 0.0, 0.0]),  # nearly all of an op, as where anomaly mode keeps the stack
    ],
)
def test_python_recording_slows_gaps_and_ops_made_of_them(calls: float, shares: list[float]) -> None:
    found = slowed(GAP, OP, CALL, HOST, calls=calls)
    assert found.python_overhead.tolist() == pytest.approx(shares)
    own = 100_000 * (1 - shares[0])
    gap = 2_600 * 0.895 + 0.05 * (own - 2_600) + 100_000 * shares[0]
    assert added(found, 100_000)[0] == pytest.approx(gap)


def test_slowdown_range_is_wider_for_ranks_around_typical() -> None:
    """A thousand gaps of 1 us, of which 895 ns are said to be recording; ranks are slowed by 0.6 of that."""
    alone = slowed(GAP, ns=1_000.0)
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
    found = slowed(GAP, OP)
    twice = found.slower(2.0)
    assert added(twice, 200_000) == pytest.approx([2 * one for one in added(found, 100_000)])
    assert (twice.total_ns, twice.added_ns) == (400_000, pytest.approx(2 * found.added_ns))
    assert twice.typical == pytest.approx(found.typical)


def test_strengths_and_slowdowns_are_each_other_s_inverse() -> None:
    found = slowed(GAP, OP)
    for strength in (0.0, 0.5, 1.0, 2.0):
        assert found.strength(found.slowdown(strength)) == pytest.approx(strength)
    nothing = slowed(CALL, steady=True)
    assert (nothing.added_ns, nothing.strength(3.0), nothing.typical) == (0, 1.0, 1.0)
    assert nothing.unprofiled(np.array([9.0]), np.zeros(1), 3.0).tolist() == [9.0]


def test_twentieth_of_a_stretch_stays_the_programs() -> None:
    left = _left(np.array([100.0, 100.0]), np.array([30.0, 90.0]), 2.0)
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
    assert _slow_launches(np.array(launches)) == pytest.approx(stays)


def test_only_launches_tell_how_slow_a_host_is() -> None:
    """Twenty of the usual 5 us, and more synchronisations of 50 us each: 0.95 of a call's recording stays."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    ns = np.array([5_000.0] * 20 + [50_000.0] * 30)
    none, every = np.zeros(50, bool), np.ones(50, bool)
    found = Slowed.of(trace.load(), ns, none, every, ns == 5_000, none, none, np.zeros(50))
    assert added(found, 1_000) == pytest.approx([50] * 50)
