"""Which launches of a chain are apart from the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.kernel_chains import PAUSE_NS, KernelChains, after_pauses, launched_apart
from traceanalyzer.timeline.nesting import Nesting


def test_pause_exceeds_its_limit_between_linked_calls() -> None:
    start = np.array([0, 10 + PAUSE_NS, 31 + 2 * PAUSE_NS, 90 * PAUSE_NS])
    work: Any = SimpleNamespace(call_start_ns=start, call_end_ns=start + 10, call=np.array([5, 0, 2, -1]))
    assert after_pauses(work, np.arange(4)).tolist() == [False, False, True, False]


def test_launches_in_an_optimizer_are_not_fused() -> None:
    trace = TraceBuilder()
    trace.op("Optimizer.step#Adam.step", 0, 50_000)
    trace.launch("cudaLaunchKernel", 10_000, 5_000, 1)
    trace.launch("cudaLaunchKernel", 60_000, 5_000, 2)
    analysis = Analysis(trace.load())
    assert launched_apart(analysis.trace, analysis.index(Nesting), np.array([1, 2])).tolist() == [True, False]


def test_chain_counts_kernels_over_its_whole_size() -> None:
    """The first has two of them and a reduction, the second three."""
    chain, whole = np.array([0, 0, 0, 1, 1, 1]), np.array([True, True, False, True, True, True])
    long = KernelChains(np.arange(6), chain, whole, True).longer_than(2)
    assert (long.entry.tolist(), long.chain.tolist()) == ([3, 4, 5], [0, 0, 0])


US = 1_000
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, x>"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, x>>>"
GEMM = "sm90_xmma_gemm_f32f32_tf32f32"


def chains(
    *kernels: tuple[str, int], gap_us: int = 5, streams: tuple[int, ...] = (), shapes: bool = True
) -> list[list[str]]:
    """The kernels of each chain, by number, those that are not whole in brackets; each of an op of 20 us.

    Without shapes a size is blocks of 128 threads that take 4 elements each.
    """
    trace = TraceBuilder()
    for number, (name, size) in enumerate(kernels):
        at = number * (20 + gap_us) * US
        dims = {"Input Dims": [[size]]} if shapes else {}
        trace.op("aten::add", at, 20 * US, **dims)
        trace.launch("cudaLaunchKernel", at + 10 * US, 5 * US, number + 1)
        stream = streams[number] if streams else 7
        grid = (1 if shapes else size, 1, 1)
        trace.kernel(at + 16 * US, 8 * US, number + 1, name=name, stream=stream, grid=grid)
    analysis = Analysis(trace.load())
    found, starts = analysis.index(KernelChains), analysis.index(DeviceWork).start_ns
    begun = np.argsort(np.argsort(starts, kind="stable"))
    result: list[list[str]] = [[] for _ in range(int(found.chain.max(initial=-1)) + 1)]
    for entry, chain, whole in zip(found.entry, found.chain, found.whole, strict=True):
        result[chain].append(str(begun[entry]) if whole else f"({begun[entry]})")
    assert found.sized == shapes
    return result


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([(ADD, 4096)] * 3, [["0", "1", "2"]]),
        ([(ADD, 4096), (ADD, 4096), (ADD, 4097), (ADD, 4097)], [["0", "1"], ["2", "3"]]),
        ([(ADD, 4096), (GEMM, 4096), (ADD, 4096)], [["0"], ["2"]]),
        ([(ADD, 4096), (FILL, 4096), (ADD, 4096)], [["0"], ["2"]]),
        ([(ADD, 4096), (SUM, 4096), (ADD, 4096)], [["0", "(1)", "2"]]),
        ([(ADD, 4096), (ADD, 256), (ADD, 4096)], [["0", "(1)", "2"]]),  # over rows of 16
        ([(ADD, 4096), (ADD, 257), (ADD, 4096)], [["0"], ["1"], ["2"]]),
        ([(ADD, 4096), (SUM, 1 << 20), (ADD, 4096)], [["0", "(1)", "2"]]),  # whatever it reads
        ([(SUM, 4096), (ADD, 256), (ADD, 4096), (ADD, 4096)], [["2", "3"]]),  # another's end
    ],
)
def test_a_chain_is_of_pointwise_kernels_over_one_size(
    kernels: list[tuple[str, int]], found: list[list[str]]
) -> None:
    assert chains(*kernels) == found


@pytest.mark.parametrize(("gap_us", "found"), [(20, [["0", "1"]]), (40, [["0", "1"]]), (41, [])])
def test_longer_code_between_ops_breaks_a_chain(gap_us: int, found: list[list[str]]) -> None:
    assert chains((ADD, 4096), (ADD, 4096), gap_us=gap_us) == found


def test_chains_are_of_one_stream() -> None:
    assert chains(*[(ADD, 4096)] * 4, streams=(7, 8, 7, 8)) == [["0", "2"], ["1", "3"]]


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([(ADD, 100), (ADD, 400)], [["0", "1"]]),  # elements of a thread differ by type and alignment
        ([(ADD, 400), (ADD, 100)], [["0", "1"]]),
        ([(ADD, 100), (ADD, 401)], [["0"], ["1"]]),
        ([(ADD, 401), (ADD, 100)], [["0"], ["1"]]),
        ([(ADD.replace("<4", "<8"), 100), (ADD, 200)], [["0", "1"]]),
        ([("GeluCUDAKernelImpl", 100), (ADD, 400)], [["0", "1"]]),  # four, where the name does not say
        ([(ADD.replace("<4", "<8"), 100), (ADD.replace("<4", "<2"), 100)], [["0", "1"]]),
        ([(ADD.replace("<4", "<8"), 100), (ADD.replace("<4", "<1"), 100)], [["0"], ["1"]]),
    ],
)
def test_without_shapes_a_size_is_four_times_another_at_most(
    kernels: list[tuple[str, int]], found: list[list[str]]
) -> None:
    assert chains(*kernels, shapes=False) == found


@pytest.mark.parametrize(("pause_ns", "found"), [(200_000, [0, 0]), (200_001, [0, 1])])
def test_a_chain_ends_with_a_pause_however_long_its_ops_are(pause_ns: int, found: list[int]) -> None:
    trace = TraceBuilder()
    for number, call in enumerate((990 * US, 995 * US + pause_ns)):
        trace.op("aten::add", number * 1_100 * US, 1_000 * US, **{"Input Dims": [[4096]]})
        trace.launched((call, 5 * US), (call + 10 * US, 8 * US), number + 1, name=ADD)
    assert Analysis(trace.load()).index(KernelChains).chain.tolist() == found


def test_a_chain_ends_with_its_step() -> None:
    trace = TraceBuilder()
    for number, call in enumerate((80 * US, 110 * US)):
        trace.step(number, number * 100 * US, 100 * US)
        trace.op("aten::add", call - 5 * US, 20 * US, **{"Input Dims": [[4096]]})
        trace.launched((call, 5 * US), (call + 10 * US, 8 * US), number + 1, name=ADD)
    assert Analysis(trace.load()).index(KernelChains).chain.tolist() == [0, 1]
