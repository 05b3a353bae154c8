"""Links between host and device by the device's name."""

from __future__ import annotations

import pytest

from traceanalyzer.roofline.links import host_link


@pytest.mark.parametrize(
    ("device", "link"),
    [
        ("NVIDIA H200", "PCIe 5 x16"),
        ("NVIDIA H100 80GB HBM3", "PCIe 5 x16"),
        ("NVIDIA GH200 480GB", "NVLink-C2C"),
        ("NVIDIA A100-SXM4-80GB", "PCIe 4 x16"),
        ("NVIDIA GeForce RTX 4090", "PCIe 4 x16"),
        ("Tesla V100-DGXS-32GB", "PCIe 3 x16"),
        ("AMD Instinct MI300X", "PCIe 5 x16"),
    ],
)
def test_link_of_a_device(device: str, link: str) -> None:
    found = host_link(device)
    assert found is not None
    assert found.name == link


@pytest.mark.parametrize("device", [None, "AMD Radeon Graphics", "Some GPU"])
def test_an_unknown_device_has_no_link(device: str | None) -> None:
    assert host_link(device) is None
