"""What edits leave of a program, and put in its place, by segments and work given one by one."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.replay.built import CALL, DRIVER, GAP, NODE, OP, USUAL_NS, at, made
from traceanalyzer.replay.edited_program import EditedProgram, quartiles
from traceanalyzer.replay.edits import (
    CapOps,
    Drop,
    DropSpans,
    Edit,
    Insert,
    MoveToSideStream,
    Resize,
    Scale,
    SplitAcrossRanks,
    Wait,
)
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch, Replace


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (10_000, 15_000, (4_000, 6_000)),  # in proportion, together the usual one
        (2_000, 3_000, (2_000, 3_000)),  # which makes none longer
        (300_000, 100_000, (7_500, 2_500)),
        (300_001, 20_000, (300_001, 10_000)),  # Python's own work stays
    ],
)
def test_gaps_around_a_dropped_op_become_usual(before: int, after: int, left: tuple[int, int]) -> None:
    edited = made((OP, 5_000), (GAP, before), (OP, 20_000), (GAP, after), (OP, 5_000), (GAP, 40_000))
    edited.drop(at(edited, 2), stall=False)
    assert edited.kept.tolist() == [True, True, False, True, True, True]
    assert edited.cpu_ns[[1, 3]] == pytest.approx(left)
    assert edited.cpu_ns[[0, 4, 5]].tolist() == [5_000, 5_000, 40_000]  # the last gap touches nothing that goes


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
    of_all = [0, 0, 0, 0, 1, *(kinds or [0] * len(after))]
    return made(*[(OP, 20_000)] * 4, (CALL, stall), *after, kinds=of_all)


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
    for start, end, inside in [(0, 10, [0]), (10, 60, [1, 2]), (31, 59, []), (5, 31, [1]), (0, 100, [0, 1, 2, 3])]:
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


def kept(edited: EditedProgram) -> tuple[list[int], list[int]]:
    """(segments, work) that are left."""
    return np.flatnonzero(edited.kept).tolist(), np.flatnonzero(edited.alive).tolist()


def launching() -> EditedProgram:
    """An op with two launches, the second of which starts two pieces of work, an op with one, and one in no op."""
    segments = ((OP, 1), (CALL, 1), (OP, 1), (CALL, 1), (OP, 1), (CALL, 1), (CALL, 1))
    return made(*segments, tops=[0, 0, 0, 0, 4, 4, -1], launches=[1, 3, 3, 5, 6])


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ([0], ([0, 2, 3, 4, 5, 6], [1, 2, 3, 4])),
        ([1], ([0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 4])),  # the call starts more than that
        ([1, 2], ([0, 1, 2, 4, 5, 6], [0, 3, 4])),
        ([3, 4], ([0, 1, 2, 3, 4], [0, 1, 2])),
    ],
)
def test_work_goes_with_its_only_calls(gone: list[int], left: tuple[list[int], list[int]]) -> None:
    edited = launching()
    edited.drop_work(np.array(gone))
    assert kept(edited) == left


@pytest.mark.parametrize(
    ("gone", "ops", "calls"), [([3], {4}, set()), ([0], set(), {1}), ([0, 1, 2], {0}, set()), ([4], set(), {6})]
)
def test_work_goes_with_outermost_ops_that_launch_only_it(
    gone: list[int], ops: set[int], calls: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an op that stays the call alone."""
    asked: list[int] = []
    edited = launching()
    monkeypatch.setattr(EditedProgram, "of_rows", lambda self, rows: asked.extend(rows.tolist()) or at(self))
    edited.drop_ops(np.array(gone))
    assert set(asked) == ops
    assert set(range(7)) - set(kept(edited)[0]) >= calls


def test_an_op_goes_whose_other_work_went_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    edited = launching()
    edited.drop_work(np.array([1, 2]))
    monkeypatch.setattr(EditedProgram, "of_rows", lambda self, rows: asked.extend(rows.tolist()) or at(self))
    edited.drop_ops(np.array([0]))
    assert asked == [0]


def test_wait_goes_with_its_call_or_its_moved_copy() -> None:
    """The first call has two segments and waits for its own copy, the second for everything."""
    edited = made((CALL, 1), (OP, 1), (CALL, 1), (OP, 1), launches=[0, 1], waits=[(0, 2, 0), (3, 3, -1)])
    edited.drop(at(edited, 0), work=False, stall=False)
    assert edited.waits.tolist() == [True, True]
    edited.aside(np.array([1]))
    assert edited.waits.tolist() == [True, True]
    edited.aside(np.array([0]))
    assert edited.waits.tolist() == [False, True]
    assert (edited.stream.tolist(), edited.streams) == ([2, 1], 3)
    other = made((CALL, 1), (OP, 1), (CALL, 1), launches=[0, 1], waits=[(0, 2, 0)])
    other.drop(at(other, 2), stall=False)
    assert other.waits.tolist() == [False]


def test_entries_are_found_wherever_they_stand() -> None:
    assert launching().positions(np.array([98, 100, 96, 95, 101])).tolist() == [2, 0, 4, -1, -1]


def test_which_span_launches_a_piece_of_work() -> None:
    """From 1 to 4 ns are the first op's calls and what lies between, and from 4 to 4 is nothing."""
    first, span = launching().span_of_launch(np.array([1, 4, 5]), np.array([4, 4, 6]))
    assert first.tolist() == [1, -1, 5]
    assert span.tolist() == [0, 0, 0, 2, -1]


def calls(count: int, launches: Sequence[int], durs: Sequence[int] = (), **more: Sequence[int]) -> EditedProgram:
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
    left = edited(calls(6, [0, 1, 2, 3, 4, 5]), Replace([30, 0, 30], [50, 30, 50], [7.0, 8.0], 100))
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
def test_fused_kernel_takes_shortest_of_size(durs: list[int], groups: list[int], left: list[float]) -> None:
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
    left = edited(program, Batch([-20, 0, 10, 20, 30], [-10, 10, 20, 30, 40], [0, 0, 0, 1, 1]))
    assert work(left) == [(0, 5_000), (2, 5_000), (4, 5_000)]
    assert np.flatnonzero(left.kept).tolist() == [0, 2, 4]


def test_a_repeat_that_does_for_all_takes_longer_than_one() -> None:
    """As long as all of its group at most: groups of five, of two and of one."""
    program = calls(9, [*range(9)])
    starts = [10 * place for place in range(8)]
    left = edited(program, Batch(starts, [at + 10 for at in starts], [0] * 5 + [1] * 2 + [2], times=4.0))
    assert np.flatnonzero(left.kept).tolist() == [0, 5, 7, 8]
    assert left.cpu_ns[[0, 5, 7, 8]].tolist() == [40, 20, 10, 10]


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
    assert edited(made(*segments), CapOps(80.0)).cpu_ns.tolist() == [100, 80, 300, 80]


def test_a_cost_is_paid_once_for_a_row_and_work_after_a_wait() -> None:
    """What follows the last wait of all is put into the last segment."""
    waiting = edited(calls(3, []), Insert([2, 2], 1.0), Wait([2, 0], 5.0))
    assert waiting.added_ns.tolist() == [0, 5, 6]
    assert waiting.added_waits.tolist() == [0, 2]
