"""Arithmetic in float64, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropWork, Resize
from traceanalyzer.roofline.gpus import Gpu, Gpus
from traceanalyzer.roofline.op_model import Signature
from traceanalyzer.roofline.op_work import shapes_of
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.rule.views.selection import Mask
from traceanalyzer.timeline import kernel_families as families

_WITH_TF32 = (
    "; and let float32 products use TF32 (torch.set_float32_matmul_precision('high')), since without it they are "
    "hardly quicker on devices that have float64 tensor cores"
)


@dataclass(frozen=True, slots=True)
class Limits:
    floor_ns: int = limit(2_000, "shorter kernels take no less with half the bytes; H200, torch 2.11")
    moving_share: float = limit(0.5, "of the time that kernels bound by memory need with half the bytes")
    unknown_speedup: float = limit(2.0, "of products on devices without known peaks: half the bytes")


@rule(since="0.2", claims=Claims.WORK, limits=Limits)
def float64_math(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Work runs in float64.

    What it looks for: kernels whose names say double (f64f64, dgemm, Functor<double>), and ops with a tensor of doubles
    among their inputs. With shapes recorded, the first op that has both a double and another floating tensor among its
    inputs is where float64 leaked in.
    Why it costs: twice the bytes, and half to a 64th of the float32 rate; float64 products have no TF32.
    Bad: a numpy array (float64 by default) made a tensor, or a Python constant made a tensor of dtype float64, in a
    float32 model: every result that it touches is float64. Good: torch.from_numpy(a).float(), dtype=torch.float32.
    How sure: kernels and types are recorded. Scalars are Python's doubles and do not count.
    When it is wrong: where results need float64.
    Saving: products at the rate of float32 (TF32 unless the trace shows that it is off), everything else at half the
    bytes, conversions to float64 gone.
    Source: "Type promotion" in PyTorch's documentation (torch.result_type).
    """
    number, signatures = signatures_of(work.events.trace, work.op.rows)
    wide = work.name.matches(families.FP64_ARITHMETIC) & work.kind.one_of("compute")
    wide |= np.array([_has(one, "double") for one in signatures], bool)[number] & ~work.kind.one_of("memset")
    wide &= ~(work.kind.one_of("copy_h2d", "copy_d2h") | work.name.matches("multi_tensor_apply"))
    tf32_off = bool(work.name.matches(families.FP32_ARITHMETIC).any())
    mixed = np.array([_mixes(one) for one in signatures], bool)[number]
    for device, found in work[wide].by(work[wide].device):
        leak = work[wide & mixed & (work.device == device)]
        yield _hits(found, leak, gpus[device], tf32_off, limits)


def _hits(found: Work, leak: Work, gpu: Gpu, tf32_off: bool, limits: Limits) -> Hits:
    speedup = _speedup(gpu, "fp32" if tf32_off else "tf32") or limits.unknown_speedup
    casts = _widening(found)
    product = found.name.matches(families.GEMM) | found.name.matches(families.CONVOLUTION)
    fixed = np.where(product, found.dur_ns / speedup, found.dur_ns * limits.moving_share)
    fixed = np.where(casts, 0.0, np.maximum(fixed, np.minimum(found.dur_ns, limits.floor_ns)))
    first, source = _first(leak)
    rest = found[~casts]
    return Hits(
        at=found,
        lost=Lost.excess(found, np.asarray(found.dur_ns - fixed, np.int64)),
        fix=(DropWork(found.entries[casts]), Resize(rest.entries, fixed[~casts])),
        message="{times_a_step} work runs in float64, {spent} in all, in {ops}" + source,
        advice="Make it float32 where it enters"
        + (f" ({first})" if first else "")
        + ": torch.from_numpy(a).float(), or dtype=torch.float32"
        + ("" if tf32_off or not product.any() else _WITH_TF32)
        + ".",
        confidence=Confidence.HIGH if first else Confidence.MEDIUM,
        evidence={**told(found), "spent_ns": found.total_ns, "first_op": first, "casts": int(casts.sum())},
    )


def _first(leak: Work) -> tuple[str, str]:
    """(the op of each step that mixed float64 into another type first, the end of a sentence about it)."""
    inside = leak[leak.step >= 0] if (leak.step >= 0).any() else leak
    if len(inside) == 0:
        return "", ""
    order = np.argsort(inside.launch.start_ns, kind="stable")
    ordered = inside[order]
    at = int(np.searchsorted(ordered.step, distinct(ordered.step)[-1])) if len(ordered) else 0
    one = ordered[np.array([at])]
    op, shapes = one.outer_op.name[0] or "", shapes_of(Signature.parsed("", one.dims[0], None, None))
    line = f" at {one.line[0]}" if one.line[0] else ""
    return op, f"; it enters with {op}{line}" + (f" of {shapes}" if shapes else "")


def _tensors(op: Signature) -> set[str]:
    """Types of the inputs that are tensors with dimensions."""
    pairs = zip(op.dims, op.types, strict=False)
    return {kind for shape, kind in pairs if isinstance(shape, list) and shape and _elements(shape) > 1}


def _elements(shape: list[object]) -> int:
    return math.prod(size for size in shape if isinstance(size, int))


def _has(op: Signature, kind: str) -> bool:
    return kind in _tensors(op)


def _mixes(op: Signature) -> bool:
    """Whether it takes doubles together with another floating type."""
    kinds = _tensors(op)
    return "double" in kinds and bool(kinds & {"float", "c10::Half", "c10::BFloat16"})


def _widening(found: Work) -> Mask:
    """Conversions from another type to float64: `copy_` into doubles."""
    number, signatures = signatures_of(found.events.trace, found.op.rows)
    copies = [one.name == "aten::copy_" and _mixes(one) and one.types[0] == "double" for one in signatures]
    return np.array(copies, bool)[number]


def _speedup(gpu: Gpu, arithmetic: str) -> float | None:
    if gpu.peaks is None:
        return None
    now = gpu.peaks.reached_tflops("matmul", "fp64")
    then = gpu.peaks.reached_tflops("matmul", arithmetic) or gpu.peaks.reached_tflops("matmul", "fp32")
    return max(then / now, 1.0) if now and then else None
