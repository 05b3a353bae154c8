"""What devices can do at most, from their makers' data sheets: dense rates, without sparsity, at boost clock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

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


LINK_REACHED = (
    0.88  # of the peak by large copies from pinned memory: 55.4 of 63 GB/s, H200, PCIe 5 x16, driver 580
)

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


@dataclass(frozen=True, slots=True)
class _Cards:
    """Cards of one architecture, whose matrix units do fixed multiples of the card's float32 rate.

    Attributes:
        rates: operations for each of float32, by kind of arithmetic, with sums in float32.
        source: the document that the multiples and the cards' numbers are from.
        cards: (how its name ends, TFLOP/s of float32, GB/s).
    """

    rates: Mapping[str, float]
    source: str
    cards: tuple[tuple[str, float, float], ...]

    def known(self) -> Iterator[tuple[str, Peaks]]:
        """(pattern, peaks) of each card; "Laptop GPU" and "Max-Q" follow the names of slower ones."""
        for name, fp32, gbps in self.cards:
            tflops = {"fp32": fp32} | {kind: round(times * fp32, 2) for kind, times in self.rates.items()}
            yield rf"\b{name}( Generation)?( \d+ ?GB)?$", Peaks(name, tflops, gbps, self.source)


# GeForce cards sum in float32 at half of the rate of the same chip in a workstation or server.
_CARDS = (
    _Cards(
        {"fp64": 1 / 32, "fp16": 4.0},
        "NVIDIA Turing GPU architecture white paper (2018), reference cards; product pages of later cards",
        (
            ("RTX 2080 Ti", 13.4, 616.0),
            ("RTX 2080 SUPER", 11.2, 496.0),
            ("RTX 2080", 10.1, 448.0),
            ("RTX 2070 SUPER", 9.1, 448.0),
            ("RTX 2070", 7.5, 448.0),
            ("RTX 2060 SUPER", 7.2, 448.0),
            ("RTX 2060", 6.5, 336.0),
        ),
    ),
    _Cards(
        {"fp64": 1 / 32, "fp16": 8.0},
        "NVIDIA Turing GPU architecture white paper (2018); TITAN RTX and Quadro RTX product pages",
        (("TITAN RTX", 16.3, 672.0), ("Quadro RTX 8000", 16.3, 672.0), ("Quadro RTX 6000", 16.3, 672.0)),
    ),
    _Cards(
        {"fp64": 1 / 64, "tf32": 1.0, "fp16": 2.0, "bf16": 2.0},
        "NVIDIA Ampere GA102 architecture white paper (2021); product pages of the other cards",
        (
            ("RTX 3090 Ti", 40.0, 1008.0),
            ("RTX 3080 Ti", 34.1, 912.0),
            ("RTX 3080", 29.8, 760.0),
            ("RTX 3070 Ti", 21.7, 608.0),
            ("RTX 3070", 20.3, 448.0),
            ("RTX 3060 Ti", 16.2, 448.0),
            ("RTX 3060", 12.7, 360.0),
            ("A10G", 35.0, 600.0),
        ),
    ),
    _Cards(
        {"fp64": 1 / 64, "tf32": 2.0, "fp16": 4.0, "bf16": 4.0},
        "NVIDIA RTX A5500, A5000, A4500 and A4000 data sheets (2021, 2022); half of the rates with sparsity",
        (
            ("RTX A5500", 34.1, 768.0),
            ("RTX A5000", 27.8, 768.0),
            ("RTX A4500", 23.7, 640.0),
            ("RTX A4000", 19.2, 448.0),
        ),
    ),
    _Cards(
        {"fp64": 1 / 64, "tf32": 1.0, "fp16": 2.0, "bf16": 2.0, "fp8": 4.0},
        "NVIDIA Ada GPU architecture white paper (2022); product pages of the other cards; L40 data sheet (2022)",
        (
            ("RTX 4090 D", 73.5, 1008.0),
            ("RTX 4080 SUPER", 52.2, 736.0),
            ("RTX 4080", 48.7, 717.0),
            ("RTX 4070 Ti SUPER", 44.1, 672.0),
            ("RTX 4070 Ti", 40.1, 504.0),
            ("RTX 4070 SUPER", 35.5, 504.0),
            ("RTX 4070", 29.1, 504.0),
            ("RTX 4060 Ti", 22.1, 288.0),
            ("RTX 4060", 15.1, 272.0),
            ("L40", 90.5, 864.0),
        ),
    ),
    _Cards(
        {"fp64": 1 / 64, "tf32": 2.0, "fp16": 4.0, "bf16": 4.0, "fp8": 8.0},
        "NVIDIA RTX Ada Generation data sheets (2022 to 2024); half of the rates with sparsity",
        (
            ("RTX 6000 Ada", 91.1, 960.0),
            ("RTX 5000 Ada", 65.3, 576.0),
            ("RTX 4500 Ada", 39.6, 432.0),
            ("RTX 4000 Ada", 26.7, 360.0),
        ),
    ),
    _Cards(
        {"fp64": 1 / 64, "tf32": 1.0, "fp16": 2.0, "bf16": 2.0, "fp8": 4.0},
        "NVIDIA RTX Blackwell GPU architecture white paper (2025); product pages of the other cards",
        (
            ("RTX 5090", 104.8, 1792.0),
            ("RTX 5080", 56.3, 960.0),
            ("RTX 5070 Ti", 43.9, 896.0),
            ("RTX 5070", 30.9, 672.0),
            ("RTX 5060 Ti", 23.7, 448.0),
            ("RTX 5060", 19.2, 448.0),
        ),
    ),
)

_V100 = "NVIDIA V100 data sheet (2020)"
_T4 = "NVIDIA T4 data sheet (2019)"
_A100 = "NVIDIA A100 data sheet (2021), SXM4"
_A100_PCIE = "NVIDIA A100 data sheet (2021), PCIe"
_GA102 = "NVIDIA A10, A40 and RTX A6000 data sheets (2021); half of the rates with sparsity"
_RTX30 = "NVIDIA Ampere GA102 architecture white paper (2021); dense, float32 accumulation"
_RTX40 = "NVIDIA Ada GPU architecture white paper (2022); dense, float32 accumulation"
_ADA = "NVIDIA L4 and L40S data sheets (2023); half of the rates with sparsity"
_H100 = "NVIDIA H100 data sheet (2023); half of the rates with sparsity"
_H200 = "NVIDIA H200 data sheet (2024), SXM; half of the rates with sparsity"
_A800 = "NVIDIA A800 data sheet (2022): an A100 with slower NVLink"
_A800_PCIE = "NVIDIA A800 PCIe data sheet (2022): an A100 with slower NVLink"
_NVL = "NVIDIA H100 and H200 data sheets (2024), NVL; half of the rates with sparsity"
_H800 = "an H100 with slower NVLink and less float64 (Lenovo ThinkSystem product guide, 2023)"
_H20 = "NVIDIA H20 specifications in Lenovo's ThinkSystem product guide (2024)"
_GH200 = "NVIDIA GH200 data sheet (2023); half of the rates with sparsity"
_B200 = "NVIDIA HGX B200 data sheet (2025); half of the rates with sparsity"
_B300 = "NVIDIA HGX B300 data sheet (2025); half of the rates with sparsity"
_GB200 = "NVIDIA GB200 NVL72 data sheet (2024), one GPU; half of the rates with sparsity"
_GB300 = "NVIDIA GB300 NVL72 data sheet (2025), one GPU; half of the rates with sparsity"
_MI100 = "AMD Instinct MI100 brochure (2020)"
_MI300A = "AMD Instinct MI300A data sheet (2023)"
_MI308 = "no data sheet: 80 of the 304 compute units of the MI300X, at its rates"
_MI350 = "AMD Instinct MI350X data sheet (2025)"
_MI200 = "AMD Instinct MI200 series brochure (2022); one device is one of the two dies on MI250 and MI250X"
_MI300 = "AMD Instinct MI300X data sheet (2023)"
_MI325 = "AMD Instinct MI325X data sheet (2024)"
_MI355 = "AMD Instinct MI355X data sheet (2025)"

_VOLTA = {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}
_VOLTA_PCIE = {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0}
_TURING = {"fp64": 0.25, "fp32": 8.1, "fp16": 65.0}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}
_A30 = {"fp64": 10.3, "fp32": 10.3, "tf32": 82.0, "fp16": 165.0, "bf16": 165.0}
_A10 = {"fp64": 0.49, "fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0}
_A40 = {"fp64": 0.58, "fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7}
_A6000 = {"fp64": 0.6, "fp32": 38.7, "tf32": 77.4, "fp16": 154.8, "bf16": 154.8}
_3090 = {"fp64": 0.56, "fp32": 35.6, "tf32": 35.6, "fp16": 71.0, "bf16": 71.0}
_4090 = {"fp64": 1.29, "fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3}
_L4 = {"fp64": 0.47, "fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5}
_L40S = {"fp64": 1.43, "fp32": 91.6, "tf32": 183.0, "fp16": 362.0, "bf16": 362.0, "fp8": 733.0}
_HOPPER = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979.0}
_HOPPER_PCIE = {"fp64": 51.0, "fp32": 51.0, "tf32": 378.0, "fp16": 756.5, "bf16": 756.5, "fp8": 1513.0}
_BLACKWELL = {"fp64": 40.0, "fp32": 80.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0}
_BLACKWELL_ULTRA = {"fp64": 1.2, "fp32": 80.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0}
_GRACE_BLACKWELL = {"fp64": 40.0, "fp32": 80.0, "tf32": 1250.0, "fp16": 2500.0, "bf16": 2500.0, "fp8": 5000.0}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5}
_HOPPER_800 = {**_HOPPER, "fp64": 1.0}
_HOPPER_20 = {"fp64": 1.0, "fp32": 44.0, "tf32": 74.0, "fp16": 148.0, "bf16": 148.0, "fp8": 296.0}
_GRACE_BLACKWELL_ULTRA = {**_GRACE_BLACKWELL, "fp64": 1.3}
_CDNA1 = {"fp64": 11.5, "fp32": 46.1, "fp16": 184.6, "bf16": 92.3}
_CDNA2 = {"fp64": 45.3, "fp32": 45.3, "fp16": 181.0, "bf16": 181.0}
_CDNA2_X = {"fp64": 47.9, "fp32": 47.9, "fp16": 191.5, "bf16": 191.5}
_CDNA3 = {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9}
_CDNA3_A = {"fp64": 122.6, "fp32": 122.6, "tf32": 490.3, "fp16": 980.6, "bf16": 980.6, "fp8": 1961.2}
_CDNA3_80 = {kind: round(rate * 80 / 304, 1) for kind, rate in _CDNA3.items()}
_CDNA4_X = {"fp64": 72.1, "fp32": 144.2, "fp16": 2300.0, "bf16": 2300.0, "fp8": 4600.0}
_CDNA4 = {"fp64": 78.6, "fp32": 157.3, "fp16": 2500.0, "bf16": 2500.0, "fp8": 5000.0}

# The first pattern that is found in the trace's device name decides. Best measured products: "maximum achievable
# matmul FLOPS" of the Machine Learning Engineering book (2025), and an H200 with torch 2.11 (8192 cubed).
_KNOWN: tuple[tuple[str, Peaks], ...] = (
    (r"V100-SXM2|V100-DGXS", Peaks("V100 SXM2", _VOLTA, 900.0, _V100)),
    (r"V100-SXM3", Peaks("V100 SXM3", _VOLTA, 981.0, "NVIDIA DGX-2 user guide (2019)")),
    (r"V100S-PCIE", Peaks("V100S PCIe", {"fp64": 8.2, "fp32": 16.4, "fp16": 130.0}, 1134.0, _V100)),
    (r"V100-PCIE", Peaks("V100 PCIe", _VOLTA_PCIE, 900.0, _V100)),
    (r"Tesla T4", Peaks("T4", _TURING, 320.0, _T4)),
    (r"A100-SXM4-40GB|A100-PG509-20[01]", Peaks("A100 SXM4 40 GB", _AMPERE, 1555.0, _A100, 271.0)),
    (r"A100-SXM4-80GB", Peaks("A100 SXM4 80 GB", _AMPERE, 2039.0, _A100, 271.0)),
    (r"A100.*PCIE-40GB", Peaks("A100 PCIe 40 GB", _AMPERE, 1555.0, _A100_PCIE)),
    (r"A100.*80GB PCIe", Peaks("A100 PCIe 80 GB", _AMPERE, 1935.0, _A100_PCIE)),
    (r"A800-SXM4-80GB", Peaks("A800 SXM4 80 GB", _AMPERE, 2039.0, _A800)),
    (r"A800-SXM4-40GB|A800 40GB Active", Peaks("A800 40 GB", _AMPERE, 1555.0, _A800)),
    (r"A800 80GB PCIe|A800.*PCIE-80GB", Peaks("A800 PCIe 80 GB", _AMPERE, 1935.0, _A800_PCIE)),
    (r"NVIDIA A30$", Peaks("A30", _A30, 933.0, "NVIDIA A30 data sheet (2021)")),
    (r"NVIDIA A10$", Peaks("A10", _A10, 600.0, _GA102)),
    (r"NVIDIA A40$", Peaks("A40", _A40, 696.0, _GA102)),
    (r"RTX A6000", Peaks("RTX A6000", _A6000, 768.0, _GA102)),
    (r"RTX 3090$", Peaks("RTX 3090", _3090, 936.2, _RTX30)),
    (r"RTX 4090$", Peaks("RTX 4090", _4090, 1008.0, _RTX40)),
    (r"NVIDIA L40S", Peaks("L40S", _L40S, 864.0, _ADA)),
    (r"NVIDIA L4$", Peaks("L4", _L4, 300.0, _ADA)),
    (r"H100 80GB HBM3", Peaks("H100 SXM5", _HOPPER, 3350.0, _H100, 794.0)),
    (r"H800(?! PCIe)", Peaks("H800 SXM5", _HOPPER_800, 3350.0, _H800)),
    (r"H100 NVL", Peaks("H100 NVL", _HOPPER_NVL, 3900.0, _NVL)),
    (r"H200 NVL", Peaks("H200 NVL", _HOPPER_NVL, 4800.0, _NVL)),
    (r"H20\b", Peaks("H20", _HOPPER_20, 4000.0, _H20)),
    (r"H100 PCIe", Peaks("H100 PCIe", _HOPPER_PCIE, 2000.0, _H100)),
    (r"GH200.*144G", Peaks("GH200 144 GB", _HOPPER, 4800.0, _GH200, 829.0)),
    (r"GH200", Peaks("GH200 96 GB", _HOPPER, 4000.0, _GH200, 829.0)),
    (r"H200(?! NVL)", Peaks("H200 SXM", _HOPPER, 4800.0, _H200, 788.0)),
    (r"GB200", Peaks("GB200", _GRACE_BLACKWELL, 8000.0, _GB200, 1822.0)),
    (r"GB300", Peaks("GB300", _GRACE_BLACKWELL_ULTRA, 8000.0, _GB300)),
    (r"(?<!G)B200", Peaks("B200", _BLACKWELL, 8000.0, _B200, 1745.0)),
    (r"(?<!G)B300", Peaks("B300", _BLACKWELL_ULTRA, 8000.0, _B300, 1769.0)),
    (r"MI100", Peaks("MI100", _CDNA1, 1228.8, _MI100)),
    (r"MI210", Peaks("MI210", _CDNA2, 1638.4, _MI200)),
    (r"MI250X", Peaks("MI250X, one die", _CDNA2_X, 1638.4, _MI200)),
    (r"MI250", Peaks("MI250, one die", _CDNA2, 1638.4, _MI200)),
    (r"MI300X", Peaks("MI300X", _CDNA3, 5300.0, _MI300, 668.0)),
    (r"MI300A", Peaks("MI300A", _CDNA3_A, 5300.0, _MI300A)),
    (r"MI308X", Peaks("MI308X", _CDNA3_80, 5300.0, _MI308)),
    (r"MI325X", Peaks("MI325X", _CDNA3, 6000.0, _MI325, 785.0)),
    (r"MI350X", Peaks("MI350X", _CDNA4_X, 8000.0, _MI350)),
    (r"MI355X", Peaks("MI355X", _CDNA4, 8000.0, _MI355, 1565.0)),
    *(entry for cards in _CARDS for entry in cards.known()),
)


def device_peaks(name: str | None) -> Peaks | None:
    """Peaks of a device by the name in the trace's deviceProperties; None where it is not known."""
    if name is None:
        return None
    return next((peaks for pattern, peaks in _KNOWN if re.search(pattern, name)), None)


def known_devices() -> tuple[Peaks, ...]:
    """Every device in the table."""
    return tuple(peaks for _, peaks in _KNOWN)
