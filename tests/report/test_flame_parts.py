"""Trees of time by hand: what is too small, what a window holds, and what is outside of ops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.report.time_tree import (
    ALL_CPU,
    ALL_GPU,
    NO_OP,
    OTHER,
    OUTSIDE,
    Node,
    _Forest,
    _tree,
    flame_of,
    flame_of_cpu,
)

US = 1_000


def tree(durations: dict[str, tuple[int, ...]], most: int = 100) -> Node:
    """Of one op "x" with these kernels, each with its executions, and another op "w" with one of 30 ns."""
    names = ["x", "w", "last", *durations]
    forest = _Forest([-1, -1, 1, *[0] * len(durations)], names, ["op", "op", *["kernel"] * (len(names) - 2)])
    leaf = [2, *(3 + at for at, every in enumerate(durations.values()) for _ in every)]
    times = [30, *(ns for every in durations.values() for ns in every)]
    return _tree(forest, np.array(leaf), np.array(times), most)


def test_nodes_sum_their_contents_largest_first_then_name() -> None:
    found = tree({"b": (10, 20), "a": (30,), "c": (31, 0)})
    last = Node("w", "op", 30, 1, [Node("last", "kernel", 30, 1)])
    inside = [Node("c", "kernel", 31, 2), Node("a", "kernel", 30, 1), Node("b", "kernel", 30, 2)]
    assert found == Node(ALL_GPU, "all", 121, 6, [Node("x", "op", 91, 5, inside), last])


@pytest.mark.parametrize(
    ("most", "inside"),
    [
        (6, [("c", 5, 1), ("b", 4, 1), ("a", 3, 3)]),
        (5, [("c", 5, 1), ("b", 4, 1), ("a", 3, 3)]),
        (4, [("c", 5, 1), ("b", 4, 1), (OTHER, 3, 3)]),
        (3, [("c", 5, 1), (OTHER, 7, 4)]),
    ],
)
def test_of_more_nodes_than_may_be_the_small_ones_are_one(
    most: int, inside: list[tuple[str, int, int]]
) -> None:
    """Six of 30, 30, 12, 5, 4 and 3 ns."""
    found = tree({"a": (1, 1, 1), "b": (4,), "c": (5,)}, most)
    (x,) = [one for one in found.inside if one.name == "x"]
    assert [(one.name, one.ns, one.count) for one in x.inside] == inside


@pytest.mark.parametrize(("ns", "name"), [(20, "small"), (19, OTHER)])
def test_less_than_a_five_thousandth_of_all_is_with_the_others(ns: int, name: str) -> None:
    found = tree({"large": (100_000 - 30 - ns,), "small": (ns,)})
    assert found.ns == 100_000
    assert [(one.name, one.ns) for one in found.inside[0].inside] == [("large", 99_970 - ns), (name, ns)]


def test_what_takes_no_time_is_counted_with_the_others() -> None:
    assert tree({"a": (5,), "none": (0, 0)}).inside[1].inside[1] == Node(OTHER, "other", 0, 2)


def launches(*kernels: tuple[int, int]) -> TraceBuilder:
    """Work from .. to .. us, each launched by an op; the CPU begins at 0."""
    made = TraceBuilder()
    for at, (start, end) in enumerate(kernels):
        made.op(f"aten::op{at}", at * 10 * US, 8 * US)
        made.launch("cudaLaunchKernel", (at * 10 + 2) * US, 3 * US, at + 1)
        made.kernel(start * US, (end - start) * US, at + 1, name=f"kernel{at}")
    return made


def test_of_a_window_the_parts_of_work_in_it_are_counted() -> None:
    made = launches((60, 100), (100, 130), (140, 150), (180, 220), (220, 230))
    analysis = Analysis(made.load(), (110 * US, 200 * US))
    root = flame_of(analysis)
    assert {one.name: one.ns // US for one in root.inside if one.ns} == {
        "aten::op1": 20,
        "aten::op2": 10,
        "aten::op3": 20,
    }
    assert (root.ns, root.count) == (50 * US, 3)
    assert flame_of(Analysis(made.load())).ns == 130 * US


def test_each_work_kind_is_listed_with_opless_work_separate() -> None:
    made = launches((20, 60))
    made.memcpy(60 * US, 10 * US, 8, name="Memcpy HtoD (Pinned -> Device)")
    made.memset(70 * US, 5 * US, 9)
    made.kernel(
        80 * US, 4 * US, 10, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", stream=9
    )
    root = flame_of(Analysis(made.load()))
    assert [(one.name, one.kind, one.ns // US) for one in root.inside] == [
        ("aten::op0", "op", 40),
        (NO_OP, "op", 19),
    ]
    assert [one.kind for one in root.inside[1].inside] == ["copy", "memset", "communication"]


def test_the_cpu_s_time_is_below_its_ops_and_calls_are_leaves() -> None:
    """The step only wraps others; a call that no op makes is outside of them."""
    made = TraceBuilder()
    made.step(1, 0, 300 * US)
    made.annotation("phase", 0, 100 * US)
    made.op("aten::mm", 10 * US, 60 * US)
    made.launch("cudaLaunchKernel", 20 * US, 15 * US, 1)
    made.launch("cudaDeviceSynchronize", 200 * US, 30 * US, 2)
    root = flame_of_cpu(Analysis(made.load()))
    assert (root.name, root.ns, root.count) == (ALL_CPU, 300 * US, 5)
    outside, phase = root.inside
    assert (outside.name, outside.ns) == (OUTSIDE, 200 * US)  # the step's own 170 us with the call's 30
    assert outside.inside == [Node("cudaDeviceSynchronize", "call", 30 * US, 1)]
    (op,) = phase.inside
    assert (phase.name, phase.kind, phase.ns, op.name, op.kind, op.ns) == (
        *("phase", "annotation", 100 * US),
        *("aten::mm", "op", 60 * US),
    )
    assert op.inside == [Node("cudaLaunchKernel", "call", 15 * US, 1)]
