"""What edits put in the place of what goes, in a program whose segments and work are given one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.replay.built import CALL, DRIVER, GAP, OP, made
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import (
    CapOps,
    Drop,
    DropSpans,
    Edit,
    Insert,
    MoveToSideStream,
    Resize,
    Scale,
    ShrinkSpans,
    SplitAcrossRanks,
    Wait,
)
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch, Replace


def calls(
    count: int, launches: Sequence[int], durs: Sequence[int] = (), **more: Sequence[int]
) -> EditedProgram:
    """So many calls of 10 ns one after the other, each a step's op of its own; work by its call."""
    return made(*[(CALL, 10)] * count, launches=launches, durs=durs, **more)  # type: ignore[arg-type]


def edited(program: EditedProgram, *edits: Edit) -> EditedProgram:
    for edit in edits:
        edit.apply(program)
    return program


def work(program: EditedProgram) -> list[tuple[int, float]]:
    """(segment of the launch, duration) of all work that is left."""
    return [(int(program.launch[one]), float(program.dur_ns[one])) for one in np.flatnonzero(program.alive)]


def test_replaced_span_launches_its_first_kernels_at_start() -> None:
    """Two spans of three and of two launches, given last first, and one twice; the last call is in neither."""
    left = edited(
        calls(6, [0, 1, 2, 3, 4, 5]),
        Replace([30, 0, 30], [50, 30, 50], [7.0, 8.0], 100),
    )
    assert work(left) == [(0, 7), (0, 8), (3, 7), (3, 8), (5, 5_000)]
    assert left.added_ns.tolist() == [100, 0, 0, 100, 0, 0]
    assert np.flatnonzero(left.kept).tolist() == [5]


def test_durations_follow_their_replaced_spans_in_any_order() -> None:
    """The first launches one kernel: it keeps one."""
    left = edited(calls(3, [0, 1, 2]), Replace([10, 0], [30, 10], np.array([[3.0, 4.0], [1.0, 2.0]]), 9))
    assert work(left) == [(0, 1), (1, 3), (1, 4)]


def test_removed_work_is_not_in_a_replaced_span() -> None:
    left = calls(2, [0, 1])
    left.alive[0] = False
    assert work(edited(left, Replace([0], [20], [7.0], 0))) == [(0, 7)]
    assert left.alive.tolist() == [False, True]


@pytest.mark.parametrize(
    ("durs", "groups", "left"),
    [
        ([8, 4, 2, 9], [0, 0, 0, 1], [2.0, 9.0]),  # a quarter of the longest is of its size
        ([8, 4, 1, 9], [0, 0, 0, 1], [4.0, 9.0]),
        ([8, 4, 9, 3], [1, 1, 0, 0], [4.0, 3.0]),  # numbers of groups come in any order
    ],
)
def test_fused_kernel_takes_the_shortest_of_its_size(
    durs: list[int], groups: list[int], left: list[float]
) -> None:
    fused = edited(calls(4, [0, 1, 2, 3], durs), Fuse([100, 99, 98, 97], groups))
    assert [dur for _, dur in work(fused)] == left


def test_fused_durations_are_by_group_unsampled_skipped() -> None:
    """Entry 7 is in no sampled step: the first of its group here is the next."""
    fused = edited(calls(4, [0, 1, 2, 3]), Fuse([7, 100, 99, 98, 97], [1, 1, 1, 0, 0], [6.0, 2.0]))
    assert work(fused) == [(0, 2), (2, 6)]


def graph() -> EditedProgram:
    """Two steps: a launch that goes, one of a collective in an op, a wait, a pause, a longer one, a cudaMalloc."""
    step = ((CALL, 10), (OP, 20), (CALL, 30), (CALL, 40), (GAP, 100_000), (GAP, 100_001), (DRIVER, 50))
    return made(
        *step, *step,
        steps=[0] * 7 + [1] * 7, tops=[0, 1, 1, 3, -1, -1, -1, 7, 8, 8, 10, -1, -1, -1],
        launches=[0, 2, 7, 7, 9], durs=[4_999, 100, 5_000, 200, 300], talking=[1, 4],
        waits=[(3, 3, -1), (10, 10, -1)],
    )  # fmt: skip


@pytest.mark.parametrize("edit", [GraphLaunch(), Compile([])])
def test_waits_pauses_collectives_and_driver_stay(edit: Edit) -> None:
    left = edited(graph(), edit)
    assert np.flatnonzero(left.kept).tolist() == [1, 2, 3, 5, 6, 8, 9, 10, 12, 13]


def test_a_wait_or_a_collective_that_went_before_keeps_nothing() -> None:
    program = graph()
    program.waits[0] = program.alive[1] = False
    assert np.flatnonzero(edited(program, GraphLaunch()).kept).tolist() == [5, 6, 8, 9, 10, 12, 13]


def test_graph_is_launched_at_step_start_and_costs_its_kernels() -> None:
    """8 us and 30 ns for each kernel that is left; before short ones the gap is 100 ns at most."""
    program = graph()
    program.alive[3] = False
    left = edited(program, GraphLaunch())
    assert left.launch[left.alive].tolist() == [0, 0, 7, 7]
    assert np.flatnonzero(left.added_ns).tolist() == [0, 7]
    assert left.added_ns[[0, 7]].tolist() == [8_060, 8_060]
    assert left.gap_ns[left.alive].tolist() == [100, 50, 2_000, 100]


def test_pointwise_neighbours_become_the_longest_of_them() -> None:
    """In two steps, three and two; the third of the first is not pointwise, and none fuses over the step's end."""
    program = calls(6, [0, 1, 2, 3, 4, 5], [10, 30, 20, 40, 50, 60], steps=[0, 0, 0, 0, 1, 1])
    left = edited(program, Compile([100, 99, 97, 96, 95]))
    assert work(left) == [(0, 30), (2, 20), (3, 40), (4, 60)]
    assert left.added_ns.tolist() == [63_000, 0, 13_000, 13_000, 63_000, 0]


def test_first_sampled_repeat_stands_for_its_group() -> None:
    """The first of all lies before the sample; two groups, and a call that is in none."""
    program = calls(5, [0, 1, 2, 3, 4])
    left = edited(program, Batch([-20, 0, 10, 20, 30], [-10, 10, 20, 30, 40], [0, 0, 0, 1, 1], 2.0))
    assert work(left) == [(0, 10_000), (2, 10_000), (4, 5_000)]
    assert np.flatnonzero(left.kept).tolist() == [0, 2, 4]


def test_repeats_that_go_leave_nothing_cold() -> None:
    segments = [(OP, 20_000)] * 4 + [(CALL, 60_000), (CALL, 60_000), (OP, 40_000)]
    program = made(*segments, kinds=[0, 0, 0, 0, 1, 1, 0], launches=[4, 5])
    assert edited(program, Batch([80_000, 140_000], [140_000, 200_000], [0, 0])).quickened_ns == 0


@pytest.mark.parametrize(("stall", "quickened"), [(True, 20_000), (False, 0)])
def test_spans_that_are_no_stall_leave_nothing_cold(stall: bool, quickened: int) -> None:
    program = made(*[(OP, 20_000)] * 4, (CALL, 60_000), (OP, 40_000), kinds=[0, 0, 0, 0, 1, 0])
    assert edited(program, DropSpans([80_000], [140_000], stall=stall)).quickened_ns == quickened


def test_rest_of_dropped_spans_stays_once_at_the_first_segment() -> None:
    """Spans come in any order, each with its own end; a span without a segment leaves nothing."""
    left = edited(calls(6, []), DropSpans([30, 0, 30, 4], [50, 20, 50, 6], leaving_ns=3.0))
    assert left.added_ns.tolist() == [3, 0, 0, 3, 0, 0]
    assert np.flatnonzero(left.kept).tolist() == [2, 5]
    rows = edited(calls(3, []), Drop([1, 1], leaving_ns=4.0))
    assert (rows.kept.tolist(), rows.added_ns.tolist()) == ([True, False, True], [0, 4, 0])


def test_times_per_work_hold_where_some_are_not_sampled() -> None:
    sizes = [7, 100, 98], [1.0, 2.0, 3.0]
    assert edited(calls(3, [0, 1, 2]), Resize(*sizes)).dur_ns.tolist() == [2, 5_000, 3]
    aside = edited(calls(3, [0, 1, 2]), MoveToSideStream(*sizes))
    assert (aside.dur_ns.tolist(), aside.stream.tolist()) == ([2, 5_000, 3], [1, 0, 1])
    parts = np.array([0.1, 0.2, 0.3])
    assert edited(calls(3, [0, 1, 2]), Scale(sizes[0], parts)).dur_ns.tolist() == [1_000, 5_000, 1_500]
    split = SplitAcrossRanks([99], 0.5)
    assert edited(calls(3, [0, 1, 2]), split).dur_ns.tolist() == [5_000, 2_500, 5_000]
    assert split.kind == "balance"


def test_launches_over_fewer_tensors_are_capped() -> None:
    segments = (GAP, 100), (OP, 200), (CALL, 300), (OP, 400)
    assert edited(made(*segments), ShrinkSpans([0], [600], 0.5)).cpu_ns.tolist() == [50, 100, 300, 400]
    assert edited(made(*segments), CapOps(80.0)).cpu_ns.tolist() == [100, 80, 300, 80]


def test_a_cost_is_paid_once_for_a_row_and_work_after_a_wait() -> None:
    """What follows the last wait of all is put into the last segment."""
    waiting = edited(calls(3, []), Insert([2, 2], 1.0), Wait([2, 0], 5.0))
    assert waiting.added_ns.tolist() == [0, 5, 6]
    assert waiting.added_waits.tolist() == [0, 2]
