"""Float32 products on units that are no tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpu, Gpus
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import named_ops, told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline import kernel_families as families


@dataclass(frozen=True, slots=True)
class Limits:
    min_gpu_share: float = limit(0.05, "of all GPU time; below that nobody changes a model's precision")
    floor_ns: int = limit(5_000, "shorter kernels are not much quicker on tensor cores; H200, torch 2.11")
    fewer_products: float = limit(
        2.25, "times fewer in a Winograd convolution F(2x2, 3x3): Lavin and Gray, 2015"
    )
    unknown_speedup: float = limit(
        4.0, "of devices without known peaks: the least of matrix over vector units, MI300X"
    )


_ADVICE = {
    "matmul": "torch.set_float32_matmul_precision('high') computes float32 products in TF32; autocast to bfloat16 is "
    "quicker still.",
    "convolution": "torch.backends.cudnn.allow_tf32 = True computes float32 convolutions in TF32; autocast to bfloat16 "
    "is quicker still.",
    "attention": "Run attention in bfloat16 (torch.autocast): flash attention has no float32 kernel.",
    "older": "This device has no TF32: use torch.autocast with {half} for its matrix units.",
}


@rule(since="0.2", claims=Claims.WORK, limits=Limits)
def no_tensor_cores(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Float32 matrix products, convolutions or attention run without tensor cores.

    What it looks for: kernels whose names say that they compute float32 on the ordinary units: simt_sgemm, sgemm,
    f32f32 with ffma, scudnn and implicit_convolve_sgemm, fmha_cutlassF_f32, Tensile's single precision.
    Why it costs: matrix units are 4 to 16 times as quick, in TF32 (float32 in memory, rounded to 10 bits for the
    product), bfloat16 or float16.
    Bad: a float32 model with TF32 left off, or a part of it outside autocast. Good: TF32, or autocast to bfloat16.
    How sure: the names say so. Kernels that say tf32, s1688 or xf32 use tensor cores; products with a vector are bound
    by memory and left out, and so is all that takes less than a twentieth of the GPU's time.
    When it is wrong: where results need full float32, as in some scientific code.
    Saving: the ratio of the rates that such work reaches on this device (roofline/peaks.py).
    Source: "Numerical accuracy" and "CUDA semantics: TF32" in PyTorch's documentation.
    """
    name = work.name
    slow = name.matches(families.FP32_ARITHMETIC) & ~name.matches(families.TENSOR_CORES_FP32)
    slow &= ~name.matches(families.VECTOR_PRODUCT)
    attention = name.matches(families.ATTENTION)
    convolution = name.matches(families.CONVOLUTION) | named_ops(work).matches("convolution")
    for kind, chosen in (
        ("attention", slow & attention),
        ("convolution", slow & convolution & ~attention),
        ("matmul", slow & ~convolution & ~attention),
    ):
        for device, found in work[chosen].by(work[chosen].device):
            whole = work[work.device == device].total_ns
            if found.total_ns >= limits.min_gpu_share * whole:
                yield _hits(kind, found, gpus[device], found.total_ns / whole, limits)


def _hits(kind: str, found: Work, gpu: Gpu, share: float, limits: Limits) -> Hits:
    target = _target(kind, gpu)
    speedup = _speedup(kind, target, gpu) or limits.unknown_speedup
    gains = np.where(
        found.name.matches(families.FEWER_PRODUCTS), max(speedup / limits.fewer_products, 1), speedup
    )
    fixed = np.maximum(found.dur_ns / gains, np.minimum(found.dur_ns, limits.floor_ns))
    known = "" if gpu.peaks else f"; {gpu.shown} is not in the table of peaks, so that is a guess"
    older = gpu.peaks is not None and kind != "attention" and target != "tf32"
    advice = _ADVICE["older"].format(half=_LONG[target]) if older else _ADVICE[kind]
    return Hits(
        at=found,
        cause=kind,
        lost=Lost.excess(found, np.asarray(found.dur_ns - fixed, np.int64)),
        fix=Resize(found.entries, fixed),
        message="float32 {what} {times_a_step} on units that are no tensor cores: {gpu} of GPU time, in "
        f"{{kernels}}{{where}}; {_LONG[target]} is about {{speedup}} times as quick{known}",
        advice=advice,
        confidence=Confidence.HIGH if gpu.peaks else Confidence.MEDIUM,
        evidence={
            **told(found),
            "what": kind,
            "gpu_share": share,
            "speedup": round(speedup, 1),
            "target": target,
        },
    )


_LONG = {"tf32": "TF32", "bf16": "bfloat16", "fp16": "float16"}


def _target(kind: str, gpu: Gpu) -> str:
    """The arithmetic to change to: TF32 where there is any and a kernel for it."""
    rates = gpu.peaks.tflops if gpu.peaks else {"tf32": 0.0, "bf16": 0.0}
    wanted = ("bf16", "fp16") if kind == "attention" else ("tf32", "bf16", "fp16")
    return next((one for one in wanted if one in rates), "fp16")


def _speedup(kind: str, target: str, gpu: Gpu) -> float | None:
    if gpu.peaks is None:
        return None
    word = {"convolution": "conv"}.get(kind, kind)
    # cuDNN has no float32 kernels of Hopper's own; before it they reach what matrix products do.
    own = kind != "convolution" or (gpu.capability or (0, 0)) >= (9, 0)
    now = gpu.peaks.reached_tflops(word if own else "matmul", "fp32")
    then = gpu.peaks.reached_tflops(word, target)
    return max(then / now, 1.0) if now and then else None
