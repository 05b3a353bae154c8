"""What edits leave of a program whose segments are given one by one, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.replay.built import CALL, GAP, NODE, OP, USUAL_NS, at, made
from traceanalyzer.replay.edited_program import EditedProgram, quartiles


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (10_000, 15_000, (4_000, 6_000)),  # in proportion, together the usual one
        (2_000, 3_000, (2_000, 3_000)),  # which makes none longer
        (300_000, 100_000, (7_500, 2_500)),
        (300_001, 20_000, (300_001, 10_000)),  # Python's own work stays
    ],
)
def test_gaps_around_an_op_that_goes_become_the_usual_one(
    before: int, after: int, left: tuple[int, int]
) -> None:
    edited = made((OP, 5_000), (GAP, before), (OP, 20_000), (GAP, after), (OP, 5_000), (GAP, 40_000))
    edited.drop(at(edited, 2), stall=False)
    assert edited.kept.tolist() == [True, True, False, True, True, True]
    assert edited.cpu_ns[[1, 3]] == pytest.approx(left)
    assert edited.cpu_ns[[0, 4, 5]].tolist() == [
        5_000,
        5_000,
        40_000,
    ]  # the last gap touches nothing that goes


def test_a_gap_that_goes_itself_is_no_part_of_those_that_stay() -> None:
    edited = made((GAP, 10_000), (OP, 20_000), (GAP, 15_000), (OP, 5_000))
    edited.drop(at(edited, 0, 1), stall=False)
    assert edited.cpu_ns[2] == pytest.approx(USUAL_NS)


@pytest.mark.parametrize(("between", "left"), [(OP, USUAL_NS), (CALL, 14_000)])
def test_python_around_two_removed_ops_shrinks_a_call_does_not(between: str, left: float) -> None:
    edited = made((OP, 5_000), (OP, 20_000), (between, 14_000), (OP, 20_000), (OP, 5_000))
    edited.drop(at(edited, 1, 3), stall=False)
    assert edited.cpu_ns.tolist() == pytest.approx([5_000, 20_000, left, 20_000, 5_000])


def test_gaps_shrink_around_half_removed_autograd_nodes() -> None:
    """Before, 0.5 us for each of two; after, 1 us each: of the first gap half of what is beyond the usual one, and
    the rest of the step's last gap. A step without nodes between two with them stays as it is."""
    step = ((GAP, 30_000), (NODE, 5_000), (NODE, 5_000), (NODE, 5_000), (NODE, 5_000), (GAP, 11_000))
    step = (*step, (OP, 5_000), (GAP, 50_000))
    plain = tuple((GAP if what == GAP else OP, ns) for what, ns in step)
    edited = made(*step, *plain, *step, steps=[0] * 8 + [1] * 8 + [2] * 8)
    edited._fewer_nodes(at(edited, 1, 2))
    first = [30_000 - 1_000, *[5_000] * 4, 11_000 - 500, 5_000, 50_000 - 1_500]
    others = [float(ns) for _, ns in step]
    assert edited.cpu_ns.tolist() == [*first, *others, *others]


def test_a_node_that_is_dropped_twice_is_counted_once() -> None:
    step = ((GAP, 30_000), (OP, 5_000), (GAP, 30_000), (NODE, 5_000), (OP, 1), (NODE, 5_000), (GAP, 400_000))
    once, twice = (made(*step) for _ in range(2))
    for edited, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            edited.drop(at(edited, 3), stall=False)
    assert once.cpu_ns.tolist() == twice.cpu_ns.tolist()
    assert once.cpu_ns[6] == 400_000 - 1_000


def cold(stall: int, *after: tuple[str, int], kinds: Sequence[int] = ()) -> EditedProgram:
    """Four ops of kind 0 that take 20 us, a call that stands still, and what comes after it."""
    return made(
        *[(OP, 20_000)] * 4, (CALL, stall), *after, kinds=[0, 0, 0, 0, 1, *(kinds or [0] * len(after))]
    )


@pytest.mark.parametrize(
    ("stall", "after", "left"),
    [
        (50_000, (OP, 30_000), 20_000),  # as the quicker ones of its kind
        (49_999, (OP, 30_000), 30_000),  # too short to leave anything cold
        (50_000, (OP, 80_000), 30_000),  # no more than the stall took
        (60_000, (OP, 15_000), 15_000),  # nothing gets slower
        (50_000, (OP, 160_000), 160_000),  # longer than anything stays cold: three times the stall
        (900_000, (GAP, 300_000), 20_000),
        (900_000, (GAP, 300_001), 300_001),  # Python's own work
    ],
)
def test_what_ran_cold_after_a_stall_that_goes(stall: int, after: tuple[str, int], left: float) -> None:
    edited = cold(stall, after)
    edited._rewarm(at(edited, 4))
    assert edited.cpu_ns[5] == pytest.approx(left)
    assert edited.quickened_ns == pytest.approx(after[1] - left)


def test_cold_work_is_so_many_times_as_slow_at_most() -> None:
    edited = cold(50_000, (OP, 30_000))
    edited._rewarm(at(edited, 4), 1.2)
    assert edited.cpu_ns[5] == pytest.approx(25_000)


def test_what_never_ran_warm_is_seven_tenths_slower_cold() -> None:
    """But not after a gap, in which the CPU was at work."""
    edited = cold(60_000, (OP, 34_000), kinds=[7])
    edited._rewarm(at(edited, 4))
    assert edited.cpu_ns[5] == pytest.approx(20_000)
    pause = made((OP, 20_000), (GAP, 60_000), (OP, 34_000))
    pause._rewarm(at(pause, 1))
    assert pause.cpu_ns[2] == 34_000


def test_nothing_is_cold_five_milliseconds_after_a_stall() -> None:
    edited = cold(2_000_000, (GAP, 4_970_000), (OP, 30_000), (OP, 30_000), kinds=[7, 0, 0])
    edited._rewarm(at(edited, 4))
    assert edited.cpu_ns[6:].tolist() == pytest.approx([20_000, 30_000])


def test_second_removed_stall_did_not_run_cold() -> None:
    """Each makes its own followers quicker, by no more than it took, and all that is told."""
    edited = cold(100_000, (CALL, 90_000), (OP, 60_000), kinds=[2, 0])
    both = cold(50_000, (OP, 30_000), (CALL, 50_000), (OP, 30_000), kinds=[0, 2, 0])
    edited._rewarm(at(edited, 4, 5))
    assert edited.cpu_ns.tolist() == [20_000] * 4 + [100_000, 90_000, 20_000]
    both._rewarm(at(both, 4, 6))
    assert both.cpu_ns[[5, 7]].tolist() == [20_000, 20_000]
    assert both.quickened_ns == 20_000
    apart = cold(50_000, (OP, 30_000), (GAP, 400_000), (CALL, 50_000), (OP, 30_000), kinds=[0, 2, 3, 0])
    for one in (4, 7):
        apart._rewarm(at(apart, one))
    assert apart.quickened_ns == 20_000


def test_gaps_that_shrink_are_kept_gaps_beyond_the_usual_one() -> None:
    edited = made((GAP, 60_000), (OP, 60_000), (GAP, 9_000), (GAP, 80_000))
    edited.kept[3] = False
    edited.shrink(at(edited, 0, 1, 2, 3))
    assert edited.cpu_ns[[0, 2, 3]].tolist() == [USUAL_NS, 9_000, 80_000]
    assert edited.cpu_ns[1] == 60_000  # after a pause of work nothing is told of what never ran warm


def test_a_gap_of_the_usual_length_leaves_nothing_cold() -> None:
    """However many are asked to shrink: side by side they are no stall."""
    edited = made(*[(OP, 20_000)] * 4, *[(GAP, 10_000)] * 6, (OP, 22_000), kinds=[*[0] * 4, *[1] * 6, 0])
    edited.shrink(at(edited, *range(4, 10)))
    assert edited.cpu_ns[10] == 22_000


@pytest.mark.parametrize(
    ("taken", "quartile"), [((9, 3, 5, 7), 3), ((9, 3, 5, 7, 8), 5), ((4,), 4), ((4, 2, 8, 6, 9, 7, 5, 3), 3)]
)
def test_the_quicker_quarter_of_a_kind(taken: tuple[int, ...], quartile: int) -> None:
    """Of those that are asked about; the last one's kind is asked about nowhere."""
    edited = made((OP, 1), *[(OP, ns) for ns in taken], (OP, 99), kinds=[0, *[0] * len(taken), 1])
    asked = at(edited, *range(1, 1 + len(taken)))
    found = quartiles(edited.program, asked)
    assert found[:-1].tolist() == [quartile] * (1 + len(taken))
    assert np.isnan(found[-1])


def test_where_spans_lie() -> None:
    """Segments at 0, 10, 30, 60: whole ones count, and a span that holds none has no first."""
    edited = made((OP, 10), (OP, 20), (OP, 30), (OP, 40))
    spans = np.array([0, 10, 31, 5]), np.array([10, 60, 59, 31])
    for start, end, inside in [
        (0, 10, [0]),
        (10, 60, [1, 2]),
        (31, 59, []),
        (5, 31, [1]),
        (0, 100, [0, 1, 2, 3]),
    ]:
        found = edited.within(np.array([start]), np.array([end]))
        assert np.flatnonzero(found).tolist() == inside
    assert edited.within(*spans).tolist() == [True, True, True, False]
    assert edited.first_of(*spans).tolist() == [0, 1, 1]
    assert edited.within(np.array([30]), np.array([30])).sum() == 0
    assert edited.first_of(np.array([30]), np.array([30])).tolist() == []


def test_how_unsteady_is_what_goes() -> None:
    """Of three steps one loses 3 us and another, whose op goes whole, 9: 0, 3 and 9 have the deviation 4.58."""
    edited = made((OP, 9_000), (OP, 9_000), (OP, 9_000), steps=[0, 1, 2])
    edited.cpu_ns[1] = 6_000
    edited.cpu_ns[0] = 12_000  # what is longer is nothing that goes
    edited.kept[2] = False
    assert edited.unsteady_ns == pytest.approx(np.sqrt(21) * 1_000 / np.sqrt(3))
    assert made((OP, 1)).unsteady_ns == 0.0
