"""Values that go to the host in the middle of a step."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def implicit_sync(device: Device, bad: bool) -> Callable[[], object]:
    """Ten large matmuls, each followed by a look at its sum, or by none."""
    import torch

    size = device.pick(4096, 64)
    x = torch.randn(size, size, device=device.kind, dtype=device.pick(torch.bfloat16, torch.float32))
    seen = []

    def step() -> None:
        for _ in range(10):
            total = torch.mm(x, x).sum()
            if bad:
                seen.append(total.item())

    return step


def host_round_trip(device: Device, bad: bool) -> Callable[[], object]:
    """A matrix is clipped between two matmuls: in numpy, or where it is."""
    import torch

    size = device.pick(4096, 64)
    x = torch.randn(size, size, device=device.kind)

    def clipped(y: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(y.cpu().numpy().clip(-1, 1)).to(device.kind) if bad else y.clamp(-1, 1)

    def step() -> None:
        y = torch.mm(x, x)
        torch.mm(clipped(y), x)

    return step


WORKLOADS = (
    pair(
        "implicit_sync",
        "matmuls whose sums are read back with .item() (bad) or stay on the device (good)",
        implicit_sync,
        bad="4 steps of 10 matmuls, each with .item() on its sum",
        good="the same matmuls and sums without .item()",
        switches=("shapes", "stacks"),
    ),
    pair(
        "host_round_trip",
        "a clamp between two matmuls in numpy (bad) or on the device (good)",
        host_round_trip,
        bad="4 steps of matmul, .cpu(), numpy's clip, .to(device), matmul",
        good="the same with Tensor.clamp on the device",
        switches=("shapes", "stacks"),
    ),
)
