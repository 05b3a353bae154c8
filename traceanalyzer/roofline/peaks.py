"""What devices can do at most, from their makers' data sheets: dense rates, without sparsity, at boost clock."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Link:
    """The link between host and device; `gbps` is the peak of one direction (1e9 bytes/s), by the document `source`."""

    name: str
    gbps: float
    source: str


@cache
def _tables() -> Mapping[str, Any]:
    """What `devices.toml` has, which explains it."""
    return tomllib.loads(Path(__file__).with_name("devices.toml").read_text(encoding="utf-8"))


def link_reached() -> float:
    """Share of a link's peak that large copies from pinned memory reach."""
    return float(_tables()["link_reached"])


def host_link(device: str | None) -> Link | None:
    """The link of a device by its name in the trace's deviceProperties; None where it is not known.

    A card may sit in a slower slot than it could use.
    """
    links = _tables()["links"] if device is not None else ()
    return next((Link(*fields) for pattern, *fields in links if re.search(pattern, device or "")), None)


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
        shares: Mapping[str, float] = _tables()["reached"].get(kind, {})
        share = shares.get(_HALF.get(arithmetic, arithmetic))
        if peak is None or share is None:
            return None
        bounded = kind == "matmul" and arithmetic in ("bf16", "fp16") and self.best_bf16 is not None
        return min(peak * share, self.best_bf16) if bounded and self.best_bf16 else peak * share


@cache
def _known() -> tuple[tuple[str, Peaks], ...]:
    """(pattern of the name, peaks) of each device; "Laptop GPU" and "Max-Q" follow the names of slower cards."""
    table = _tables()
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
