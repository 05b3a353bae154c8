"""Which executions of a kernel are compared with one another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels, losing


def repeated(*kernels: dict[str, Any], steps: int = 4) -> TraceBuilder:
    """Steps that run these kernels one after the other."""
    trace = TraceBuilder()
    for number in range(steps):
        start = number * 1_000
        trace.step(number, start, 1_000)
        for i, fields in enumerate(kernels):
            correlation = number * 10 + i + 1
            trace.launch("cudaLaunchKernel", start + 10 * i, 5, correlation)
            trace.kernel(start + 100 * (i + 1), 50, correlation, **fields)
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
