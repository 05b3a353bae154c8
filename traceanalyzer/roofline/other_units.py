"""What products would take in another arithmetic, on the units that the device has for it."""

from __future__ import annotations

from traceanalyzer.roofline.gpus import Gpu

_CONVOLUTIONS_OF_ITS_OWN = (
    9,
    0,
)  # before Hopper cuDNN's float32 convolutions reach what its matrix products do


def speedup(gpu: Gpu, kind: str, now: str, then: str) -> float | None:
    """How many times as quick well-shaped work is; None where the device's rates are not known.

    Args:
        kind: matmul, convolution or attention.
        now, then: kinds of arithmetic, as in `Peaks.tflops`.
    """
    if gpu.peaks is None:
        return None
    word = {"convolution": "conv"}.get(kind, kind)
    own = kind != "convolution" or (gpu.capability or (0, 0)) >= _CONVOLUTIONS_OF_ITS_OWN
    before = gpu.peaks.reached_tflops(word if own else "matmul", now)
    after = gpu.peaks.reached_tflops(word, then)
    return max(after / before, 1.0) if before and after else None


def reached_flops_per_ns(gpu: Gpu, kind: str, *arithmetic: str) -> float | None:
    """Operations in a nanosecond that well-shaped work reaches, in the first arithmetic that the device has."""
    rates = (gpu.peaks.reached_tflops(kind, one) for one in arithmetic) if gpu.peaks else ()
    rate = next((rate for rate in rates if rate is not None), None)
    return None if rate is None else rate * 1e3


def first_of(gpu: Gpu, *arithmetic: str) -> str | None:
    """The first of these kinds of arithmetic that the device has a rate for; None where none is known."""
    return next((one for one in arithmetic if gpu.peaks and one in gpu.peaks.tflops), None)
