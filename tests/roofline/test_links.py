"""Links between host and device by the device's name."""

from __future__ import annotations

import pytest

from traceanalyzer.roofline.peaks import host_link


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
        ("NVIDIA H20", "PCIe 5 x16"),
        ("NVIDIA B200", "PCIe 5 x16"),
        ("NVIDIA GeForce RTX 5090", "PCIe 5 x16"),
        ("NVIDIA RTX PRO 6000 Blackwell", "PCIe 5 x16"),
        ("AMD Instinct MI355X", "PCIe 5 x16"),
        ("NVIDIA GB200", "NVLink-C2C"),
        ("NVIDIA GB300", "NVLink-C2C"),
        ("NVIDIA A10", "PCIe 4 x16"),
        ("NVIDIA A10G", "PCIe 4 x16"),
        ("NVIDIA A30", "PCIe 4 x16"),
        ("NVIDIA A40", "PCIe 4 x16"),
        ("NVIDIA A800-SXM4-80GB", "PCIe 4 x16"),
        ("NVIDIA L4", "PCIe 4 x16"),
        ("NVIDIA L40S", "PCIe 4 x16"),
        ("NVIDIA GeForce RTX 3090", "PCIe 4 x16"),
        ("NVIDIA RTX A6000", "PCIe 4 x16"),
        ("AMD Instinct MI210", "PCIe 4 x16"),
        ("AMD Instinct MI100", "PCIe 4 x16"),
        ("Tesla T4", "PCIe 3 x16"),
        ("Tesla P100-PCIE-16GB", "PCIe 3 x16"),
        ("Tesla P40", "PCIe 3 x16"),
        ("NVIDIA GeForce RTX 2080 Ti", "PCIe 3 x16"),
        ("NVIDIA TITAN V", "PCIe 3 x16"),
        ("AMD Instinct MI60", "PCIe 3 x16"),
    ],
)
def test_link_of_a_device(device: str, link: str) -> None:
    found = host_link(device)
    assert found is not None
    assert found.name == link


@pytest.mark.parametrize("device", [None, "AMD Radeon Graphics", "Some GPU"])
def test_an_unknown_device_has_no_link(device: str | None) -> None:
    assert host_link(device) is None


def test_rates_are_those_of_one_direction() -> None:
    devices = ("Tesla T4", "NVIDIA L4", "NVIDIA H200", "NVIDIA GB200")
    assert [link.gbps for link in map(host_link, devices) if link] == [15.8, 31.5, 63.0, 450.0]
