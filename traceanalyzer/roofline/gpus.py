"""The devices of a trace with what they can do at most."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.trace import Trace
from traceanalyzer.roofline.peaks import Peaks, device_peaks

# Before Hopper cuDNN's float32 convolutions reach what its matrix products do.
_CONVOLUTIONS_OF_ITS_OWN = (9, 0)
GUESSED_RATE = "guessed_rate"
"""Evidence of a finding whose saving rests on the guessed rate of an unknown device: it may be nothing."""

_UNKNOWN_GBPS = 300.0  # the L4, the slowest device for servers


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device; None for what the trace or the table of peaks does not have."""

    name: str | None
    sms: int | None
    capability: tuple[int, int] | None
    peaks: Peaks | None

    @property
    def shown(self) -> str:
        """Its name, or what stands for it in a sentence."""
        return self.name or "this device"

    @property
    def guess(self) -> dict[str, bool]:
        """Evidence of a finding about its rates; empty if they are known."""
        return {} if self.peaks else {GUESSED_RATE: True}


_UNKNOWN = Gpu(None, None, None, None)


@dataclass(frozen=True, slots=True)
class Gpus:
    """Devices by ordinal.

    Attributes:
        known: ordinal -> what the trace and the table of peaks say of it.
    """

    known: Mapping[int, Gpu]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        devices = trace.meta.devices
        return cls({d.ordinal: Gpu(d.name, d.sms, d.compute_capability, device_peaks(d.name)) for d in devices})

    def __getitem__(self, ordinal: int) -> Gpu:
        """The device; one about which nothing is known where the trace does not describe it."""
        return self.known.get(ordinal, _UNKNOWN)

    def memory_gbps(self, ordinals: NDArray[np.int64]) -> Floats:
        """Peak rate of each device's memory, GB/s; one that is not known is taken for a slow one."""
        result = [self[ordinal].peaks for ordinal in ordinals.tolist()]
        return np.array([peaks.gbps if peaks else _UNKNOWN_GBPS for peaks in result], np.float64)


def speedup(gpu: Gpu, kind: str, now: str, then: str) -> float | None:
    """How many times as quick well-shaped work is in other arithmetic, as in `Peaks.tflops`; None where unknown."""
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
