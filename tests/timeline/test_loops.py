"""Loops in sequences, steps that are alike, and names of collectives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.collectives import collective_of
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.loops import Loops
from traceanalyzer.timeline.step_similarity import same_steps
from traceanalyzer.timeline.steps import Steps

US = 1_000


def loops(sequence: str, least: int = 3, groups: str | None = None) -> list[tuple[int, int, int, int]]:
    kind = np.array([ord(letter) for letter in sequence], np.int64)
    group = np.array([int(letter) for letter in groups or "0" * len(sequence)], np.int64)
    made = Loops.of(kind, group, least)
    columns = (made.group, made.first, made.period, made.repeats)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("", []),
        ("ab", []),
        ("abcdef", []),
        ("xaaaay", [(0, 1, 1, 4)]),
        ("xabababy", [(0, 1, 2, 3)]),
        ("abab", []),  # twice is no loop
        ("aabaabaab", [(0, 0, 3, 3)]),
        ("xyzababababababcdcdcd", [(0, 3, 2, 6)]),  # the one that covers more
        ("aaaaabcbcbc", [(0, 0, 1, 5)]),  # the longer period covers a fifth more: no more than it must
        ("aaaabcbcbc", [(0, 4, 2, 3)]),
        (
            "ababababxyzabababqbababa",
            [(0, 0, 2, 4), (0, 11, 2, 3), (0, 18, 2, 3)],
        ),  # the same loop in three layers
    ],
)
def test_the_shortest_period_that_covers_most(sequence: str, expected: list[tuple[int, ...]]) -> None:
    assert loops(sequence) == expected


def test_a_loop_ends_with_its_group() -> None:
    assert loops("aaaaaaa", groups="0001111") == [(0, 0, 1, 3), (1, 3, 1, 4)]


@pytest.mark.parametrize(("period", "found"), [(200, [(0, 1, 200, 3)]), (201, [])])
def test_a_repeat_has_200_members_at_most(period: int, found: list[tuple[int, ...]]) -> None:
    """A model that is called sample by sample; what is longer is no loop of ops."""
    kind = np.array([900, *list(range(period)) * 3, 901])
    made = Loops.of(kind, np.zeros(len(kind), np.int64), 3)
    assert list(zip(made.group, made.first, made.period, made.repeats, strict=True)) == found


def test_members_are_repeats_by_period() -> None:
    made = Loops.of(np.array([9, 1, 2, 1, 2, 1, 2]), np.zeros(7, np.int64), 3)
    assert made.members(0).tolist() == [[1, 2], [3, 4], [5, 6]]


def stepped(kernels: list[list[str]]) -> float:
    trace = TraceBuilder()
    number = 0
    for step, names in enumerate(kernels):
        trace.step(step, 1_000 * US * step, 1_000 * US)
        for place, name in enumerate(names):
            number += 1
            at = 1_000 * US * step + 20 * US * place
            trace.launch("cudaLaunchKernel", at, 5 * US, number)
            trace.kernel(at + 8 * US, 5 * US, number, name=name)
    analysis = Analysis(trace.load())
    return same_steps(analysis.trace, analysis.index(DeviceWork), analysis.index(Steps))


def test_steps_are_alike_in_kind_order_and_number() -> None:
    assert stepped([["a", "b"]] * 4) == 1.0
    assert stepped([["a", "b"], ["b", "a"], ["a"], ["a", "b", "b"]]) == 0.25
    assert stepped([["a", "b"], ["a", "b"], ["a", "c"]]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("grid", "share"), [(132, 1.0), (133, 0.5)])
def test_steps_are_alike_on_the_same_grids_and_in_the_order_of_their_launches(
    grid: int, share: float
) -> None:
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


@pytest.mark.parametrize(
    ("kernel", "op", "name"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None, "allreduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", "alltoall"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "c10d::_allgather_base_", "allgather"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*)", "aten::add", "reducescatter"),
        ("void my::exchange_kernel<ns::half>(ns::args)", None, "exchange_kernel"),
        ("void vllm::cross_device_reduce_1stage<half>(x)", None, "cross_device_reduce_1stage"),
    ],
)
def test_names_of_collectives(kernel: str, op: str | None, name: str) -> None:
    assert collective_of(kernel, op) == name[:40]
