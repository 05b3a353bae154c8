"""Trees of time and decisions of the report."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.html.timeline_events import representative_steps
from traceanalyzer.render.perfetto.overlay import MOST_SAMPLES, drawn_curve
from traceanalyzer.report.finding_order import by_fault
from traceanalyzer.report.job_summary import job_pace
from traceanalyzer.report.time_tree import (
    ALL_CPU,
    ALL_GPU,
    NO_OP,
    OTHER,
    OUTSIDE,
    Forest,
    Node,
    flame_of,
    flame_of_cpu,
    tree_of,
)
from traceanalyzer.rule.faults import FaultOf

US = 1_000


def tree(durations: dict[str, tuple[int, ...]], most: int = 100) -> Node:
    """Of one op "x" with these kernels, each with its executions, and another op "w" with one of 30 ns."""
    names = ["x", "w", "last", *durations]
    forest = Forest([-1, -1, 1, *[0] * len(durations)], names, ["op", "op", *["kernel"] * (len(names) - 2)])
    leaf = [2, *(3 + at for at, every in enumerate(durations.values()) for _ in every)]
    times = [30, *(ns for every in durations.values() for ns in every)]
    return tree_of(forest, np.array(leaf), np.array(times), most)


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
    times_us = {one.name: one.ns // US for one in root.inside if one.ns}
    assert times_us == {"aten::op1": 20, "aten::op2": 10, "aten::op3": 20}
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
    parts = [(one.name, one.kind, one.ns // US) for one in root.inside]
    assert parts == [("aten::op0", "op", 40), (NO_OP, "op", 19)]
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


def test_the_rank_that_waits_least_sets_the_pace() -> None:
    waits = {0: 5, 1: 1, 2: None, 3: 9}
    ranks: Any = [SimpleNamespace(rank=rank, predicted_waiting_ns=ns) for rank, ns in waits.items()]
    step: Any = SimpleNamespace(bound="cpu")
    assert job_pace(ranks, step).startswith("rank 1 is the slowest")


def test_the_mean_of_a_curve_that_does_not_change_is_its_value() -> None:
    at = np.arange(2 * MOST_SAMPLES) * 10
    steps: Any = SimpleNamespace(window_start_ns=0, window_end_ns=int(at[-1]))
    _, mean, note = drawn_curve(at, np.ones(len(at)), steps)
    assert note
    assert mean.tolist() == [1.0] * len(mean)


def test_step_beyond_the_requested_is_not_shown() -> None:
    steps: Any = SimpleNamespace(
        number=np.arange(10, 15),
        steady=np.ones(5, bool),
        in_use=(1, 4),
        bounds_ns={0: None},
        durations_ns=lambda device: np.array([9, 2, 3, 4, 9]),
    )
    findings: Any = [SimpleNamespace(step=14), SimpleNamespace(step=14), SimpleNamespace(step=11)]
    assert list(representative_steps(steps, findings)) == [2, 1, 3]
    assert list(representative_steps(steps, findings[:2])) == [2, 3]


@pytest.mark.parametrize(
    ("behind", "order"),
    [
        ((), ["large", "fusing", "small"]),
        ((0,), ["large", "fusing", "small"]),
        ((0, 2), ["large", "small", "fusing"]),
    ],
)
def test_fusing_a_chain_follows_findings_on_its_cause(behind: tuple[int, ...], order: list[str]) -> None:
    """By itself it would stand between the two others, by what it saves."""
    savings = [samples.saving(share) for share in (0.4, 0.3, 0.2)]
    findings = [
        samples.finding(0, by=name, severity=Severity.HIGH, saving=saving)
        for name, saving in zip(("large", "fusing", "small"), savings, strict=True)
    ]
    faults = FaultOf((0, 1, 2), tuple(savings), (Severity.HIGH,) * 3, {1: frozenset(behind)})
    told, (of_trace,) = by_fault(findings, [faults])
    assert [one.by for one in told] == order
    assert [one.saving for one in of_trace] == [one.saving for one in told]
