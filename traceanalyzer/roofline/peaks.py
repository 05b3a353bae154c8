"""What devices can do at most, from their makers' data sheets: dense rates, without sparsity, at boost clock."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from traceanalyzer.model.records import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """The link between host and device.

    Attributes:
        name: as its maker calls it.
        gbps: peak of one direction, GB/s (1e9 bytes).
        source: the document that the number is from.
    """

    name: str
    gbps: float
    source: str


# Of the peak by large copies from pinned memory: 55.4 of 63 GB/s, H200, PCIe 5 x16, driver 580.
LINK_REACHED = 0.88

# Rates of PCI Express x16 after 128b/130b encoding: 16 lanes x 8, 16, 32 GT/s x 128 / 130 / 8 bits.
_GEN3 = Link("PCIe 3 x16", 15.8, "PCI Express Base Specification 3.0")
_GEN4 = Link("PCIe 4 x16", 31.5, "PCI Express Base Specification 4.0")
_GEN5 = Link("PCIe 5 x16", 63.0, "PCI Express Base Specification 5.0")
_C2C = Link("NVLink-C2C", 450.0, "NVIDIA GH200 data sheet (2023): 900 GB/s in both directions together")

# The first pattern that is found in the trace's device name decides.
_LINKS: tuple[tuple[str, Link], ...] = (
    (r"GH200|GB200|GB300", _C2C),
    (r"H100|H200|H800|H20\b|B200|B300|RTX 50\d\d|RTX PRO|MI30\d|MI325|MI35\d", _GEN5),
    (
        r"A100|A800|A30\b|A40\b|A10\b|A10G|L4\b|L20\b|L40|RTX [34]0\d\d|RTX A\d[05]00|RTX \d+ Ada|MI2\d\d|MI100",
        _GEN4,
    ),
    (r"V100|T4\b|P100|P40\b|RTX 20\d\d|TITAN|Quadro|MI50|MI60", _GEN3),
)


def host_link(device: str | None) -> Link | None:
    """The link of a device by its name in the trace's deviceProperties; None where it is not known.

    A card may sit in a slower slot than it could use.
    """
    if device is None:
        return None
    return next((link for pattern, link in _LINKS if re.search(pattern, device)), None)


# Share of the peak that well-shaped work reaches, by kind of work and of arithmetic. Measured on an H200 (torch 2.11,
# CUDA 13): square products of 2048 and 8192, 3x3 convolutions of 128 and 256 channels, attention over 512 and 2048
# tokens; other devices are taken to reach the same shares.
_REACHED: Mapping[tuple[str, str], float] = {
    ("matmul", "fp64"): 0.90,
    ("matmul", "fp32"): 0.76,
    ("matmul", "tf32"): 0.72,
    ("matmul", "bf16"): 0.75,
    ("conv", "fp32"): 0.41,
    ("conv", "tf32"): 0.43,  # 0.30 to 0.62
    ("conv", "bf16"): 0.50,
    ("attention", "fp32"): 0.50,
    ("attention", "bf16"): 0.40,
}
_HALF = {"fp16": "bf16", "fp8": "bf16"}  # what reaches the share of what else


@dataclass(frozen=True, slots=True)
class Peaks:
    """One device.

    Attributes:
        name: as its maker calls it.
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
        share = _REACHED.get((kind, _HALF.get(arithmetic, arithmetic)))
        if peak is None or share is None:
            return None
        bounded = kind == "matmul" and arithmetic in ("bf16", "fp16") and self.best_bf16 is not None
        return min(peak * share, self.best_bf16) if bounded and self.best_bf16 else peak * share


@cache
def _known() -> tuple[tuple[str, Peaks], ...]:
    """(pattern of the name, peaks) of each device; "Laptop GPU" and "Max-Q" follow the names of slower cards."""
    table = tomllib.loads(Path(__file__).with_name("devices.toml").read_text(encoding="utf-8"))
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
    if name is None:
        return None
    return next((peaks for pattern, peaks in _known() if re.search(pattern, name)), None)


def known_devices() -> tuple[Peaks, ...]:
    """Every device in the table."""
    return tuple(peaks for _, peaks in _known())
