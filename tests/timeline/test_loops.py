"""Exact, approximate and nested loops, and kernels that repeat."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.loops import LAYER, Loop, approximate_loops, exact_loops, nested_loops, step_edges
from traceanalyzer.timeline.repeated_kernels import (
    RepeatedKernels,
    losing,
    same_steps,
    spread,
    steps_of_place,
    usual_at_place,
)
from traceanalyzer.timeline.steps import Steps

START, END, EXTRA = 100, 101, 102


def exact(sequence: str, least: int = 3, groups: str | None = None) -> list[tuple[int, int, int]]:
    """(first, period, repeats) of each loop; a letter is an op."""
    kind = np.array([ord(letter) for letter in sequence], np.int64)
    group = np.array([int(letter) for letter in groups or "0" * len(sequence)], np.int64)
    return [(loop.first, loop.period, loop.repeats) for loop in exact_loops(kind, group, least)]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("", []),
        ("ab", []),
        ("abcdef", []),
        ("xaaaay", [(1, 1, 4)]),
        ("xabababy", [(1, 2, 3)]),
        ("abab", []),  # twice is no loop
        ("aabaabaab", [(0, 3, 3)]),
        ("xyzababababababcdcdcd", [(3, 2, 6)]),  # the one that covers more
        ("aaaaabcbcbc", [(0, 1, 5)]),  # the longer period covers a fifth more: no more than it must
        ("aaaabcbcbc", [(4, 2, 3)]),
        ("ababababxyzabababqbababa", [(0, 2, 4), (11, 2, 3), (18, 2, 3)]),  # the same loop in three layers
    ],
)
def test_exact_loops_have_the_shortest_period(sequence: str, expected: list[tuple[int, ...]]) -> None:
    assert exact(sequence) == expected


def test_exact_loops_end_with_their_group() -> None:
    assert exact("aaaaaaa", groups="0001111") == [(0, 1, 3), (3, 1, 4)]


@pytest.mark.parametrize(("period", "found"), [(200, [(1, 200, 3)]), (201, [])])
def test_exact_loops_have_periods_of_at_most_200_ops(period: int, found: list[tuple[int, ...]]) -> None:
    kind = np.array([900, *list(range(period)) * 3, 901])
    loops = exact_loops(kind, np.zeros(len(kind), np.int64), 3)
    assert [(loop.first, loop.period, loop.repeats) for loop in loops] == found


def test_loop_members_are_repeats_by_period() -> None:
    (loop,) = exact_loops(np.array([9, 1, 2, 1, 2, 1, 2]), np.zeros(7, np.int64), 3)
    assert loop.members.tolist() == [[1, 2], [3, 4], [5, 6]]


def approximate(sequence: list[int], *more: list[int]) -> list[Loop]:
    """The loops of one group for each sequence."""
    parts = (sequence, *more)
    group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return approximate_loops(np.array([one for part in parts for one in part]), group, 8, 0.4)


def repeats(times: int, *, length: int = 6, branch: bool = True) -> list[int]:
    """A head, then so many repeats, every third of which has one op more."""
    body = [[*range(length), *([EXTRA] if branch and number % 3 == 0 else [])] for number in range(times)]
    return [START, *(one for part in body for one in part), END]


def test_approximate_loops_may_have_branches() -> None:
    (loop,) = approximate(repeats(20))
    assert loop.repeats in (19, 20)
    assert loop.end - loop.first >= 110


def test_approximate_loops_are_outermost() -> None:
    inner = [1, 2, 3] * 10
    (loop,) = approximate([op for _ in range(12) for op in (START, *inner, END)])
    assert loop.repeats in (11, 12)


def test_approximate_loops_may_exceed_200_ops() -> None:
    (loop,) = approximate(repeats(9, length=300))
    assert loop.repeats == 9


def test_approximate_loops_stay_within_a_group() -> None:
    found = approximate(repeats(10), list(range(200, 260)), repeats(30))
    ends = len(repeats(10)), len(repeats(10)) + 60 + len(repeats(30))
    assert len(found) == 2
    assert 0 <= found[0].first < found[0].end <= ends[0]
    assert ends[0] + 60 <= found[1].first < found[1].end <= ends[1]


def test_rare_ops_make_no_approximate_loop() -> None:
    assert approximate(list(range(50))) == []
    assert approximate(repeats(5)) == []
    assert approximate([]) == []


def test_an_exact_loop_is_an_approximate_loop() -> None:
    assert approximate([7, 8, 9], repeats(10, branch=False)) == [Loop(4, 6, 10, 64)]


def test_an_approximate_loop_ends_with_its_group() -> None:
    assert approximate(spaced(*[10] * 8)) == [Loop(0, 10, 9, 81)]


def spaced(*gaps: int) -> list[int]:
    """An anchor, 0, at these distances from one another, and nothing else that comes twice."""
    others = iter(range(1, 10_000))
    return [0, *(one for gap in gaps for one in (*(next(others) for _ in range(gap - 1)), 0))]


@pytest.mark.parametrize(("gap", "found"), [(4, 8), (5, 9), (16, 9), (17, 8)])
def test_repeats_are_0_5_to_1_6_times_the_usual_distance(gap: int, found: int) -> None:
    (loop,) = approximate(spaced(*[10] * 7, gap))
    assert loop.repeats == found


@pytest.mark.parametrize(("others", "found"), [(120, 1), (121, 0)])
def test_approximate_loops_cover_the_least_share(others: int, found: int) -> None:
    """80 members in 8 repeats, of 200 or of one more: 0.4 of them."""
    head = list(range(1_000, 1_000 + others + 9))
    assert len(approximate([*head, *spaced(*[10] * 7)])) == found


def test_step_edges_separate_steps_and_threads() -> None:
    """A step of two threads, and the next of the second."""

    class Ops(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.step)

    ops: Any = Ops(step=np.array([0, 0, 0, 1, 1, 3]), thread=np.array([7, 7, 9, 9, 9, 9]))
    assert step_edges(ops) == [0, 2, 3, 5, 6]
    assert step_edges(Ops(step=np.zeros(3, int), thread=np.zeros(3, int))) == [0, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        *(("aten::linear", True), ("aten::conv2d", True), ("aten::convolution", True)),
        *(("aten::baddbmm", True), ("aten::embedding", True)),
        *(("aten::embedding_bag", False), ("aten::mm_out", False), ("xaten::mm", False)),
    ],
)
def test_layers_are_gemms_convolutions_and_embeddings(name: str, layer: bool) -> None:
    assert (LAYER.search(name) is not None) is layer


def nested(sequence: str) -> list[tuple[int, int, str]]:
    """(position of the first op, repeats, ops of a usual repeat) of each loop, the outer before the inner."""
    loops = nested_loops(np.array([ord(letter) for letter in sequence]), np.zeros(len(sequence), np.int64), 4)
    return [
        (int(starts[0]), len(starts), "".join(map(chr, body)))
        for starts, body in zip(loops.starts, loops.body, strict=True)
    ]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("", []),
        ("abcabcabc", []),  # three times may be chance
        ("xabcabcabcabcy", [(1, 4, "abc")]),
        ("aaaaaaaa", []),  # one op is no block
        ("abcabfcabcabfcabcabcabfcabc", [(0, 8, "abc")]),  # an op in some repeats
        ("xyabcdabcdxyabcdabcdxyabcdabcdxyabcdabcd", [(0, 4, "xyabcdabcd"), (2, 2, "abcd")]),
        ("abababababzzmnomnomnomnomno", [(12, 5, "mno"), (0, 5, "ab")]),
    ],
)
def test_nested_loops_allow_small_differences(sequence: str, expected: list[tuple[int, int, str]]) -> None:
    loops = nested(sequence)
    assert loops[: len(expected)] == expected
    assert len(loops) >= len(expected)


def test_an_op_of_few_repeats_is_no_part_of_the_loop() -> None:
    kind = np.array([ord(letter) for letter in "abcabfcabcabcabcabc"])
    loops = nested_loops(kind, np.zeros(len(kind), np.int64), 4)
    assert loops.owner[5] == -1
    assert (np.delete(loops.owner, 5) == 0).all()


@pytest.mark.parametrize(
    ("name", "repeats"), [("gpt2_train", 6), ("vit_infer", 12), ("resnet50", 16), ("llama_decode", 8)]
)
def test_blocks_of_recorded_models(shared: Callable[[str], Path], name: str, repeats: int) -> None:
    calls = Analysis(load(shared(f"real/{name}.eager"))).index(Calls)
    ops = calls[calls.is_top_op & (calls.step >= 0)].in_order(by_step=True)
    ops = ops[ops.step == ops.step[len(ops) // 2]]
    loops = nested_loops(ops.name.code, (np.diff(ops.thread, prepend=ops.thread[0]) != 0).cumsum(), 4)
    length = [end - starts[0] for starts, end in zip(loops.starts, loops.end, strict=True)]
    longest = (loops.starts[place] for place in np.argsort(length)[::-1])
    forward = next(starts for starts in longest if ops.thread[starts[0]] == ops.thread[0])
    assert len(forward) == repeats


def repeated(*kernels: dict[str, Any], steps: int = 4) -> TraceBuilder:
    """Steps that run these kernels one after the other."""
    trace = TraceBuilder()
    for number in range(steps):
        start = number * 1_000
        trace.step(number, start, 1_000)
        for i, fields in enumerate(kernels):
            correlation = number * 10 + i + 1
            trace.launched((start + 10 * i, 5), (start + 100 * (i + 1), 50), correlation, **fields)
    return trace


@pytest.mark.parametrize(
    ("other", "groups"),
    [
        ({}, 1),
        ({"grid": [2, 1, 1]}, 2),
        ({"block": [64, 1, 1]}, 2),
        ({"name": "void other(float*)"}, 2),
        ({"device": 1}, 2),
        ({"stream": 20}, 1),
    ],
)
def test_a_group_has_one_device_name_grid_and_block(other: dict[str, Any], groups: int) -> None:
    first = {"grid": [1, 1, 1], "block": [128, 1, 1]}
    table = Analysis(repeated(first, first | other).load()).index(RepeatedKernels)
    assert len(set(table.group)) == groups
    assert len(table) == 8
    assert len(set(table.place)) == 2
    assert set(table.dur_ns) == {50}


def test_communication_waits_for_peers_and_is_left_out() -> None:
    trace = repeated({}, {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"})
    assert len(Analysis(trace.load()).index(RepeatedKernels)) == 4


def test_groups_that_lose_little_are_left_out() -> None:
    trace = repeated({"name": "steady"}, {"name": "slow at times"})
    slow = [event for event in trace.events if event["name"] == "slow at times"][-1]
    slow["dur"] *= 3
    table = Analysis(trace.load()).index(RepeatedKernels)
    lost = int(table.dur_ns.max() - table.dur_ns.min())
    kept = losing(table, lost)
    assert (len(kept), len(set(kept.group))) == (4, 1)
    assert kept.dur_ns.max() == table.dur_ns.max()
    assert len(losing(table, lost + 1)) == 0
    assert len(losing(table[table.group < 0], 1)) == 0


def in_steps(*times: int, shapes: bool = False) -> RepeatedKernels:
    """Of steps that run one kernel so many times each."""
    trace = TraceBuilder()
    for number, count in enumerate(times):
        trace.step(number, number * 1_000, 1_000)
        for i in range(count):
            correlation = number * 10 + i + 1
            dims = {"Input Dims": [[4, 4]]} if shapes else {}
            trace.op("aten::mm", number * 1_000 + 20 * i, 15, **dims)
            trace.launch("cudaLaunchKernel", number * 1_000 + 20 * i + 2, 5, correlation)
            trace.kernel(number * 1_000 + 100 * (i + 1), 50, correlation)
    return Analysis(trace.load()).index(RepeatedKernels)


@pytest.mark.parametrize(
    ("times", "kept", "places"),
    [
        ((2, 2, 2, 2), 8, 2),
        ((1, 1, 0, 0), 2, 1),  # half of the steps
        ((1, 0, 0, 1, 0), 0, 0),  # fewer
        ((2, 2, 2, 3), 0, 0),  # which of the three is the first of the others?
    ],
)
def test_regular_steps_order_unshaped_places(times: tuple[int, ...], kept: int, places: int) -> None:
    table = in_steps(*times)
    assert (len(table), len(set(table.place)), table.shaped.any()) == (kept, places, False)


def test_equal_shapes_are_one_place_where_the_order_tells_none() -> None:
    table = in_steps(2, 2, 2, 3, shapes=True)
    assert (len(table), len(set(table.place)), table.shaped.all()) == (9, 1, True)
    assert steps_of_place(table).tolist() == [4] * 9


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 99)), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.1, 0.5, 0.75, 1.0]),
)
def test_usual_values_of_places_and_step_counts(rows: list[tuple[int, int, int]], quantile: float) -> None:
    place, step, dur = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    table = RepeatedKernels(np.arange(len(rows)), step, place * 0, place, place >= 0, dur)
    usual, steps = usual_at_place(table, quantile), steps_of_place(table)
    for at, own in enumerate(place):
        assert usual[at] == pytest.approx(np.quantile(dur[place == own], quantile))
        assert steps[at] == len(set(step[place == own].tolist()))


def test_how_executions_spread() -> None:
    """Two in each of three steps, of which the second is slow in the last."""
    dur = np.array([10, 20, 12, 22, 14, 60], np.int64)
    whole = RepeatedKernels(np.arange(6), np.arange(6) // 2, dur * 0, np.arange(6) % 2, dur > 0, dur)
    assert spread(whole[dur > 50], whole) == {
        "executions": 6,
        "slow": 1,
        "slowdown": 4.29,
        "median_dur_ns": 17,
        "mean_ns": 23,
        "p10_ns": 11,
        "p90_ns": 41,
        "worst_dur_ns": 60,
    }
    assert spread(whole, whole)["slowdown"] == 1.0


US = 1_000


def same_share(kernels: list[list[str]]) -> float:
    trace = TraceBuilder()
    number = 0
    for step, names in enumerate(kernels):
        trace.step(step, 1_000 * US * step, 1_000 * US)
        for place, name in enumerate(names):
            number += 1
            at = 1_000 * US * step + 20 * US * place
            trace.launched((at, 5 * US), (at + 8 * US, 5 * US), number, name=name)
    analysis = Analysis(trace.load())
    return same_steps(analysis.trace, analysis.index(DeviceWork), analysis.index(Steps))


def test_same_steps_launch_equal_kernels_in_equal_order() -> None:
    assert same_share([["a", "b"]] * 4) == 1.0
    assert same_share([["a", "b"], ["b", "a"], ["a"], ["a", "b", "b"]]) == 0.25
    assert same_share([["a", "b"], ["a", "b"], ["a", "c"]]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("grid", "share"), [(132, 1.0), (133, 0.5)])
def test_same_steps_compare_grids_in_launch_order(grid: int, share: float) -> None:
    """Two streams, of which now the one and now the other begins first."""
    trace = TraceBuilder()
    for step in range(2):
        begin = step * 1_000 * US
        trace.step(step, begin, 1_000 * US)
        for at, name in enumerate("ab"):
            number = 2 * step + at + 1
            trace.launch("cudaLaunchKernel", begin + 10 * at * US, 5 * US, number)
            start = begin + (100 if at == step else 200) * US
            shape = (grid if step else 132, 1, 1)
            trace.kernel(start, 20 * US, number, name=name, stream=7 + at, grid=shape)
    analysis = Analysis(trace.load())
    assert same_steps(analysis.trace, analysis.index(DeviceWork), analysis.index(Steps)) == share
