"""Half-precision products with a dimension that loads cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import numbered
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpu, Gpus
from traceanalyzer.roofline.op_model import Signature, work_of
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline import kernel_families as families

_PRODUCTS = r"^aten::_?(mm|bmm|addmm|baddbmm|addbmm|linear|matmul|einsum|addmm_activation|scaled_mm)$"


@dataclass(frozen=True, slots=True)
class Limits:
    multiple: int = limit(8, "elements of 2 bytes in a 16-byte load; CUTLASS, cuBLAS: align8")
    pad_to: int = limit(64, "multiple that all tile sizes divide well; 50,257 becomes 50,304")
    floor_ns: int = limit(5_000, "shorter products take no less when aligned; H200, torch 2.11")
    speedup: float = limit(
        3.5, "of aligned over align2 kernels where shapes are not recorded; H200, torch 2.11, k = 4,002"
    )
    speedup_odd: float = limit(7.0, "the same of align1 kernels, n = 50,257 and k = 4,001")


@rule(since="0.2", claims=Claims.WORK, limits=Limits)
def misaligned_gemm(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A half-precision matrix product has a dimension that is no multiple of 8.

    What it looks for: bfloat16 and float16 products whose kernels load less than 16 bytes at a time (align1, align2,
    align4), or use tensor cores of an older architecture (cutlass_75_tensorop on sm80 and later), and with shapes
    recorded the dimension that is no multiple of 8.
    Why it costs: TMA and 16-byte loads need rows that start at multiples of 16 bytes. Without them cuBLAS takes
    kernels that reach an eighth (odd dimensions) to a third of the rate.
    Bad: a vocabulary of 50,257. Good: padded to 50,304; the additional rows are never used.
    How sure: the kernels' names say how wide they load. Where every dimension is a multiple of 8, a slice or a view
    starts at an odd place. Float32 kernels, also called align1, are not meant.
    When it is wrong: products so small that they take no less when aligned.
    Saving: the product at the rate that aligned ones reach on this device.
    Source: NVIDIA's Matrix Multiplication Background User's Guide, "Tensor Core requirements"; measured on an H200.
    """
    name = work.name
    narrow = name.matches(families.NARROW_LOADS) | name.matches(families.OLD_TENSOR_CORES)
    half = name.matches(families.HALF_ARITHMETIC) & name.matches(families.GEMM)
    half &= ~name.matches(families.CONVOLUTION) & ~name.matches(r"simt|tf32|f32f32|f64")
    op = work.op
    named = op.name.matches(_PRODUCTS) | ~op.there
    for device, found in work[narrow & half & named].by(work[narrow & half & named].device):
        gpu = gpus[device]
        if gpu.capability is None or gpu.capability >= (8, 0):
            yield _hits(found, gpu, limits)


def _hits(found: Work, gpu: Gpu, limits: Limits) -> Hits:
    number, signatures = signatures_of(found.events.trace, found.op.rows)
    fixed = np.maximum(
        _fixed(found, number, signatures, gpu, limits), np.minimum(found.dur_ns, limits.floor_ns)
    )
    odd = _odd(found, number, signatures, limits.multiple)
    sizes = ", ".join(f"{size:,}" for size in odd)
    padded = ", ".join(f"{size:,} to {-(-size // limits.pad_to) * limits.pad_to:,}" for size in odd)
    shaped = any(one.dims for one in signatures)
    why = f": {sizes} {'is' if len(odd) == 1 else 'are'} no multiple of {limits.multiple}" if odd else ""
    advice = (
        f"Pad {padded}."
        if odd
        else "Pad the dimension that is no multiple of 8 (a vocabulary, a number of classes)."
    )
    if shaped and not odd:
        advice = (
            "All dimensions are multiples of 8: make the operand contiguous, or slice it at a multiple of 8."
        )
    return Hits(
        at=found,
        lost=Lost.excess(found, np.asarray(found.dur_ns - fixed, np.int64)),
        fix=Resize(found.entries, fixed),
        message="half-precision products {times_a_step} in kernels with narrow loads, {spent} in all, {kernels}{where}"
        + why,
        advice=advice,
        confidence=Confidence.HIGH if odd else Confidence.MEDIUM,
        evidence={**told(found), "spent_ns": found.total_ns, "sizes": odd},
    )


def _fixed(
    found: Work, number: np.ndarray, signatures: list[Signature], gpu: Gpu, limits: Limits
) -> np.ndarray:
    """What each would take when aligned: by its operations where shapes and peaks are known."""
    odd = found.name.matches(r"align1(?!\d)|_a1_|aligna1_")
    guess = found.dur_ns / np.where(odd, limits.speedup_odd, limits.speedup)
    rate = (
        gpu.peaks.reached_tflops("matmul", "bf16") or gpu.peaks.reached_tflops("matmul", "fp16")
        if gpu.peaks
        else None
    )
    if rate is None:
        return guess
    models = [work_of(one) for one in signatures]
    flops = np.array([model.flops or 0 if model else 0 for model in models], np.float64)[number]
    return np.where(flops > 0, np.minimum(flops / (rate * 1e3), found.dur_ns), guess)


def _odd(found: Work, number: np.ndarray, signatures: list[Signature], multiple: int) -> list[int]:
    """The sizes that are no multiples, most time first, at most three."""
    spent: dict[int, int] = {}
    codes, used = numbered(number)
    times = np.bincount(codes, weights=found.dur_ns)
    for one, ns in zip(used.tolist(), times.tolist(), strict=True):
        matrices = [shape for shape in signatures[one].dims if isinstance(shape, list) and len(shape) >= 2]
        for size in {
            size for shape in matrices for size in shape[-2:] if isinstance(size, int) and size % multiple
        }:
            spent[size] = spent.get(size, 0) + int(ns)
    return sorted(spent, key=lambda size: (-spent[size], size))[:3]
