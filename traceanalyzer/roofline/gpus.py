"""What devices can do at most, from their makers' data sheets: dense rates, without sparsity, at boost clock."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Link:
    """The link between host and device; `gbps` is the peak of one direction (1e9 bytes/s), by the document `source`."""

    name: str
    gbps: float
    source: str


@cache
def tables() -> Mapping[str, Any]:
    """What `devices.toml` has, which explains it."""
    return tomllib.loads(Path(__file__).with_name("devices.toml").read_text(encoding="utf-8"))


def host_link(device: str | None) -> Link | None:
    """The link of a device by its name in the trace's deviceProperties, perhaps in a slower slot; None if unknown."""
    links = tables()["links"]
    return next((Link(*fields) for pattern, *fields in links if device and re.search(pattern, device)), None)


_HALF = {"fp16": "bf16", "fp8": "bf16"}  # what reaches the share of what else


@dataclass(frozen=True, slots=True)
class Peaks:
    """One device.

    Attributes:
        tflops: dense peak by kind of arithmetic: fp64, fp32, tf32, fp16, bf16, fp8. Those of matrix units where
            there are any for that kind, vector units otherwise.
        gbps: peak rate of device memory, GB/s (1e9 bytes).
        source: the document that the numbers are from.
        best_bf16: the best bf16 matrix product that was measured, TFLOP/s; None where nobody did.
    """

    name: str
    tflops: Mapping[str, float]
    gbps: float
    source: str
    best_bf16: float | None = None

    def reached_tflops(self, kind: str, arithmetic: str) -> float | None:
        """What well-shaped work of that kind (matmul, conv, attention) and arithmetic reaches; None if unknown."""
        peak = self.tflops.get(arithmetic)
        shares: Mapping[str, float] = tables()["reached"].get(kind, {})
        share = shares.get(_HALF.get(arithmetic, arithmetic))
        if peak is None or share is None:
            return None
        best = self.best_bf16 if kind == "matmul" and arithmetic in ("bf16", "fp16") else None
        return min(peak * share, best or math.inf)


@cache
def _known() -> tuple[tuple[str, Peaks], ...]:
    """(pattern of the name, peaks) of each device; "Laptop GPU" and "Max-Q" follow the names of slower cards."""
    table = tables()
    devices = [
        (pattern, Peaks(name, table["rates"][rates], gbps, table["sources"][source], *best))
        for pattern, name, rates, gbps, source, *best in table["devices"]
    ]
    for group in table["cards"]:
        for name, fp32, gbps in group["cards"]:
            tflops = {"fp32": fp32} | {kind: round(times * fp32, 2) for kind, times in group["times"].items()}
            pattern = rf"\b{name}( Generation)?( \d+ ?GB)?$"
            devices.append((pattern, Peaks(name, tflops, gbps, group["source"])))
    return tuple(devices)


def device_peaks(name: str | None) -> Peaks | None:
    """Peaks of a device by the name in the trace's deviceProperties; None where it is not known."""
    return next((peaks for pattern, peaks in _known() if name and re.search(pattern, name)), None)


_CONVOLUTIONS_OF_ITS_OWN = (9, 0)  # before Hopper cuDNN's float32 convolutions reach what its matrix products do
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
        of_each = (self[ordinal].peaks for ordinal in ordinals.tolist())
        return np.array([peaks.gbps if peaks else _UNKNOWN_GBPS for peaks in of_each], np.float64)


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
