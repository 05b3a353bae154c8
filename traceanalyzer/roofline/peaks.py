"""What devices can do at most, from their makers' data sheets: dense rates, without sparsity, at boost clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peaks:
    """One device.

    Attributes:
        name: as its maker calls it.
        tflops: dense peak by kind of arithmetic: fp64, fp32, tf32, fp16, bf16, fp8. Those of matrix units where
            there are any for that kind, vector units otherwise.
        gbps: peak rate of device memory, GB/s (1e9 bytes).
        source: the document that the numbers are from.
    """

    name: str
    tflops: Mapping[str, float]
    gbps: float
    source: str


_V100 = "NVIDIA V100 data sheet (2020), SXM2"
_A100 = "NVIDIA A100 data sheet (2021), SXM4"
_H100 = "NVIDIA H100 data sheet (2023); half of the rates with sparsity"
_H200 = "NVIDIA H200 data sheet (2024), SXM; half of the rates with sparsity"
_B200 = "NVIDIA HGX B200 data sheet (2025); half of the rates with sparsity"
_MI200 = "AMD Instinct MI200 series brochure (2022); one device is one of the two dies on MI250 and MI250X"
_MI300 = "AMD Instinct MI300X data sheet (2023)"

_VOLTA = {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}
_HOPPER = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979.0}
_HOPPER_PCIE = {"fp64": 51.0, "fp32": 51.0, "tf32": 378.0, "fp16": 756.5, "bf16": 756.5, "fp8": 1513.0}
_BLACKWELL = {"fp64": 37.0, "fp32": 75.0, "tf32": 1100.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0}
_CDNA2 = {"fp64": 45.3, "fp32": 45.3, "fp16": 181.0, "bf16": 181.0}
_CDNA2_X = {"fp64": 47.9, "fp32": 47.9, "fp16": 191.5, "bf16": 191.5}
_CDNA3 = {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9}

# The first pattern that is found in the trace's device name decides.
_KNOWN: tuple[tuple[str, Peaks], ...] = (
    (r"V100-SXM2|V100-DGXS", Peaks("V100 SXM2", _VOLTA, 900.0, _V100)),
    (r"A100-SXM4-40GB", Peaks("A100 SXM4 40 GB", _AMPERE, 1555.0, _A100)),
    (r"A100-SXM4-80GB", Peaks("A100 SXM4 80 GB", _AMPERE, 2039.0, _A100)),
    (r"A100.*PCIE-40GB", Peaks("A100 PCIe 40 GB", _AMPERE, 1555.0, _A100)),
    (r"A100.*80GB PCIe", Peaks("A100 PCIe 80 GB", _AMPERE, 1935.0, _A100)),
    (r"H100 80GB HBM3", Peaks("H100 SXM5", _HOPPER, 3350.0, _H100)),
    (r"H100 PCIe", Peaks("H100 PCIe", _HOPPER_PCIE, 2000.0, _H100)),
    (r"H200(?! NVL)", Peaks("H200 SXM", _HOPPER, 4800.0, _H200)),
    (r"B200", Peaks("B200", _BLACKWELL, 7700.0, _B200)),
    (r"MI210", Peaks("MI210", _CDNA2, 1638.4, _MI200)),
    (r"MI250X", Peaks("MI250X, one die", _CDNA2_X, 1638.4, _MI200)),
    (r"MI250", Peaks("MI250, one die", _CDNA2, 1638.4, _MI200)),
    (r"MI300X", Peaks("MI300X", _CDNA3, 5300.0, _MI300)),
)


def device_peaks(name: str | None) -> Peaks | None:
    """Peaks of a device by the name in the trace's deviceProperties; None where it is not known."""
    if name is None:
        return None
    return next((peaks for pattern, peaks in _KNOWN if re.search(pattern, name)), None)


def known_devices() -> tuple[Peaks, ...]:
    """Every device in the table."""
    return tuple(peaks for _, peaks in _KNOWN)
