"""How fast a device's link to its host is, from its maker's data sheet: one direction, without encoding."""

from __future__ import annotations

import re
from dataclasses import dataclass


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


REACHED = (
    0.88  # of the peak by large copies from pinned memory: 55.4 of 63 GB/s, H200, PCIe 5 x16, driver 580
)

# Rates of PCI Express x16 after 128b/130b encoding: 16 lanes x 8, 16, 32 GT/s x 128 / 130 / 8 bits.
_GEN3 = Link("PCIe 3 x16", 15.8, "PCI Express Base Specification 3.0")
_GEN4 = Link("PCIe 4 x16", 31.5, "PCI Express Base Specification 4.0")
_GEN5 = Link("PCIe 5 x16", 63.0, "PCI Express Base Specification 5.0")
_C2C = Link("NVLink-C2C", 450.0, "NVIDIA GH200 data sheet (2023): 900 GB/s in both directions together")

# The first pattern that is found in the trace's device name decides.
_KNOWN: tuple[tuple[str, Link], ...] = (
    (r"GH200|GB200|GB300", _C2C),
    (r"H100|H200|H800|H20\b|B200|B300|RTX 50\d\d|RTX PRO 6000|MI300|MI325|MI35\d", _GEN5),
    (r"A100|A800|A30\b|A40\b|A10\b|A10G|L4\b|L40|RTX [34]0\d\d|RTX A\d000|MI2\d\d|MI100", _GEN4),
    (r"V100|T4\b|P100|P40\b|RTX 20\d\d|TITAN|Quadro|MI50|MI60", _GEN3),
)


def host_link(device: str | None) -> Link | None:
    """The link of a device by its name in the trace's deviceProperties; None where it is not known.

    A card may sit in a slower slot than it could use.
    """
    if device is None:
        return None
    return next((link for pattern, link in _KNOWN if re.search(pattern, device)), None)
