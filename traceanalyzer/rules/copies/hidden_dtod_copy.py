"""A device-to-device copy that only seeds a matrix product's destination."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model import intervals
from traceanalyzer.model.finding import Confidence, Hit
from traceanalyzer.model.trace import Trace, event_ids, ints, matching, text
from traceanalyzer.rule.places import Places
from traceanalyzer.rule.registry import rule
from traceanalyzer.timeline.device_work import KINDS, DeviceWork


@dataclass(frozen=True, slots=True)
class Limits:
    max_memsets: int = 2  # between copy and GEMM: cuBLAS clears one workspace (4 bytes, H200, torch 2.11)
    min_bytes: int = 1  # of the copy; an empty one moves nothing


# GEMM kernels by library: cuBLAS on Hopper and later (nvjet, xmma), older cuBLAS (ampere_, volta_, turing_),
# CUTLASS, hipBLASLt (Cijk), MAGMA.
_GEMM = re.compile(r"nvjet_|gemm|cutlass.*(tensorop|simt)|Cijk_", re.IGNORECASE)
_ADDS = re.compile(r"^aten::_?(addmm|baddbmm|addbmm)")  # ops that add a product to their first argument
_MAX_LEVELS = 3  # of ops between the copy's and the GEMM's
_OTHER = re.compile(r"splitKreduce|split_k_reduce|implicit|conv|[wd]grad|fprop|gemmk1", re.IGNORECASE)


@rule(limits=Limits, since="0.1")
def hidden_dtod_copy(where: Places, trace: Trace, limits: Limits) -> Iterator[Hit]:
    """A hidden copy seeds the destination of a GEMM.

    What it looks for: on one stream, `Memcpy DtoD`, at most a workspace memset, then a GEMM kernel, all launched
    by one op of the addmm family. The copy writes the op's `input` (the bias) into the output, which the GEMM adds to.
    Why it costs: the copy reads and writes the whole output once more before the product starts. What compute on
    other streams covers is not counted.
    Bad: torch.addmm(full_matrix, a, b). Good: a 1-D bias, which goes into the GEMM's epilogue, or the addition
    fused with what follows by torch.compile.
    How sure: the three belong to one op, and nothing else of the stream is between them. A copy that feeds no GEMM
    (clone, copy_, FSDP's copy-out) has an op of its own and is not this.
    When it is wrong: copies inside a CUDA graph have no op and are not looked at.
    Source: cuBLAS computes D = alpha*A*B + beta*C in place; measured on an H200 with torch 2.11.
    """
    work = where.work
    kinds, computing = where.work.kind, where.computing()
    copies = np.flatnonzero((kinds == KINDS.index("copy_d2d")) & (work.op >= 0))
    sizes = ints(trace.gpu, "bytes")[work.row[copies]]
    copies = copies[sizes >= limits.min_bytes]
    gemm = matching(trace.gpu, "name", lambda name: bool(_GEMM.search(name)) and not _OTHER.search(name))
    gemm &= (trace.gpu["category"] == "kernel").to_numpy()
    following = _next_on_stream(work)
    target = following[copies]
    for _ in range(limits.max_memsets):
        passing = (target >= 0) & (kinds[target] == KINDS.index("memset"))
        target = np.where(passing, following[target], target)
    adds = matching(trace.cpu, "name", lambda name: bool(_ADDS.search(name)))
    op = work.op[target]
    seeds = (
        (target >= 0) & gemm[work.row[target]] & (op >= 0) & adds[op] & _within(work.op[copies], op, where)
    )
    for copy, product in zip(copies[seeds].tolist(), target[seeds].tolist(), strict=True):
        yield _hit(copy, product, computing[int(work.device[copy])], where, trace)


def _within(inner: NDArray[np.int64], outer: NDArray[np.int64], where: Places) -> NDArray[np.bool_]:
    """Whether each row of the CPU lane is another or lies in it: baddbmm copies through an aten::copy_ of its own."""
    found: NDArray[np.bool_] = inner == outer
    for _ in range(_MAX_LEVELS):
        inner = np.where(inner >= 0, where.nesting.parent[inner], -1)
        found |= (inner >= 0) & (inner == outer)
    return found


def _next_on_stream(work: DeviceWork) -> NDArray[np.int64]:
    """The work that starts next on the same stream, -1 for none; shape (work,)."""
    order = np.lexsort((work.start_ns, work.stream, work.device))
    following = np.full(len(order) + 1, -1)  # the last entry is for position -1
    same = (work.device[order][1:] == work.device[order][:-1]) & (
        work.stream[order][1:] == work.stream[order][:-1]
    )
    following[order[:-1][same]] = order[1:][same]
    return following


def _hit(copy: int, product: int, computing: intervals.Set, where: Places, trace: Trace) -> Hit:
    work = where.work
    op, row = int(work.op[product]), int(work.row[copy])
    span = np.array([work.start_ns[copy]]), np.array([work.end_ns[copy]])
    exposed = intervals.difference(span, computing)
    shapes = text(trace.cpu, "input_dims", op)
    rows = (
        (trace.gpu, row),
        (trace.gpu, int(work.row[product])),
        (trace.cpu, op),
        (trace.cpu, int(work.call[copy])),
    )
    return Hit(
        span=where.of_work(copy),
        events=event_ids(*rows),
        cost_ns=intervals.length(exposed),
        cost_spans=tuple(zip(exposed[0].tolist(), exposed[1].tolist(), strict=True)),
        cause="seeded-destination",
        message="{op} copies its input into its output before the GEMM ({bytes}), {times}, {in_steps}: {total} in all"
        + ("; shapes {shapes}" if shapes else ""),
        advice="Pass a 1-D bias (it goes into the GEMM's epilogue), or add the matrix apart where torch.compile can "
        "fuse the addition with what follows.",
        confidence=Confidence.HIGH,
        evidence={
            "op": text(trace.cpu, "name", op) or "",
            "bytes": int(ints(trace.gpu, "bytes")[row]),
            "copy_ns": int(work.end_ns[copy] - work.start_ns[copy]),
            "gemm": text(trace.gpu, "name", int(work.row[product])) or "",
            "gemm_ns": int(work.end_ns[product] - work.start_ns[product]),
            **({"shapes": shapes} if shapes else {}),
        },
    )
