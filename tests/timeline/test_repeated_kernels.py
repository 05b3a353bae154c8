"""Kernels that repeat, and the share of steps that launch the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.repeated_kernels import (
    RepeatedKernels,
    losing,
    same_steps,
    spread,
    steps_of_place,
    usual_at_place,
)
from traceanalyzer.timeline.steps import Steps


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
def test_unshaped_places_are_ordered_if_steps_are_regular(
    times: tuple[int, ...], kept: int, places: int
) -> None:
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
def test_what_is_usual_at_a_place_and_in_how_many_steps(
    rows: list[tuple[int, int, int]], quantile: float
) -> None:
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
        "first_step_ns": 15,
        "last_step_ns": 37,
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
