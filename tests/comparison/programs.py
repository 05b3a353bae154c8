"""Programs for tests of comparisons: the same but for one thing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from tests.rules.kernel_programs import BF16, NVJET, Op
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Comparison, Trace
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.comparison.matching import matched
from traceanalyzer.comparison.snapshot import Captures

US = 1_000
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >"
TANH = "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)>"
MM = Op("aten::mm", NVJET, 500, [[512, 512], [512, 512]], [BF16, BF16])
ADDED = Op("aten::add", ADD, 120, [[512, 512], [512, 512]], ["float", "float"])


def built(ops: Sequence[Op], *, steps: int = 8, syncs: int = 0, copies: int = 0, jitter: int = 7) -> TraceBuilder:
    """The same ops in each step, the device never idle; then so many read-backs, and copies on the device."""
    trace, number, cpu, gpu = TraceBuilder(record_shapes=1), 0, 0, 0
    for step in range(steps):
        begin = cpu
        for op in ops:
            number += 1
            trace.op(op.name, cpu + US, 8 * US, **{"Input Dims": list(op.dims), "Input type": list(op.types)})
            trace.launch("cudaLaunchKernel", cpu + 2 * US, 3 * US, number)
            gpu = max(gpu, cpu + 6 * US)
            long = op.dur * US + (step * 37 + number * 13) % jitter * 100  # never twice the same to the ns
            trace.kernel(gpu, long, number, name=op.kernel, grid=(op.grid, 1, 1))
            gpu, cpu = gpu + long + US, cpu + 11 * US
        for _ in range(copies):
            number += 1
            trace.op("aten::clone", cpu, 9 * US)
            trace.op("aten::copy_", cpu + US, 7 * US)
            trace.launch("cudaMemcpyAsync", cpu + 2 * US, 3 * US, number)
            trace.memcpy(gpu, 20 * US, number, name="Memcpy DtoD (Device -> Device)", size=1 << 20)
            gpu, cpu = gpu + 21 * US, cpu + 11 * US
        for _ in range(syncs):
            number += 1
            end = gpu + 12 * US
            trace.op("aten::item", cpu, end + 5 * US - cpu)
            trace.op("aten::_local_scalar_dense", cpu + US, end + 3 * US - cpu)
            trace.launch("cudaMemcpyAsync", cpu + 2 * US, 3 * US, number)
            trace.memcpy(gpu, 2 * US, number, name="Memcpy DtoH (Device -> Pageable)", size=4)
            trace.launch("cudaStreamSynchronize", cpu + 6 * US, end - cpu - 6 * US, number + 100_000)
            gpu, cpu = gpu + 3 * US, end + 8 * US
        cpu = max(cpu, gpu)
        trace.step(step, begin, cpu - begin - 1)
    return trace


def sums(found: Comparison) -> bool:
    fall = found.waterfall
    assert fall is not None
    assert all(part.new_ns - part.base_ns == part.delta_ns for part in fall.parts)
    assert sum(part.base_ns for part in fall.parts) == fall.base_ns
    assert sum(of[2] for of in fall.groups.values()) == fall.new_ns - fall.base_ns
    busy = [part for part in fall.parts if part.by_count_ns is not None]
    assert all(
        (part.by_count_ns or 0) + (part.by_duration_ns or 0) + (part.by_overlap_ns or 0) == part.delta_ns
        for part in busy
    )
    return fall.base_ns + sum(part.delta_ns for part in fall.parts) == fall.new_ns


def ranks_of(*ops: Sequence[Op]) -> dict[int, Trace]:
    return {rank: built(own).load() for rank, own in enumerate(ops)}


def waiting(*ns: int, culprit: int | None) -> dict[int | None, Captures]:
    """Ranks that wait so long in each recorded step, and the one that a report says they wait for."""
    (one,) = (capture[None] for capture in side_of(built([MM]).load()))
    return {
        rank: Captures.of([replace(one, rank=rank, waiting_ns=waits, culprit=rank == culprit)])
        for rank, waits in enumerate(ns)
    }


GEMM: dict[str, Any] = {
    "annotation": "",
    "outer": "aten::linear",
    "op": "aten::mm",
    "dims": "[8, 8]",
    "types": "float",
    "kernel": "gemm",
    "kind": "compute",
    "blocks": 100,
    "count": 10.0,
}
Told = list[tuple[str, dict[int, float], dict[int, float]]]


def pairs(base: list[dict[str, Any]], new: list[dict[str, Any]]) -> Told:
    """(rung, rows of base, rows of new) of each pair; what a row does not say is as in `GEMM`."""
    tables = [pd.DataFrame([{**GEMM, **row} for row in rows], columns=list(GEMM)) for rows in (base, new)]
    return [
        (
            pair.rung,
            {row: round(part, 6) for row, part in pair.base.items()},
            {row: round(part, 6) for row, part in pair.new.items()},
        )
        for pair in matched(*tables)
    ]
