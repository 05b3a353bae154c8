"""Steps in which the host does something else than launching."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from capture.device import Device
from capture.workload import Plan, Window, Workload, pair

if TYPE_CHECKING:
    import torch


def dataloader_stall(device: Device, bad: bool) -> Callable[[], object]:
    """A batch whose samples take 0.1 ms each to make, by a DataLoader without workers or with eight."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Samples(IterableDataset[torch.Tensor]):  # type: ignore[misc]  # torch may be untyped
        def __iter__(self) -> Iterator[torch.Tensor]:
            while True:
                yield torch.arange(20_000, dtype=torch.float32).sin().cumsum(0)[:1024]

    loader = DataLoader(Samples(), batch_size=64, num_workers=0 if bad else 8, pin_memory=device.is_gpu)
    batches = iter(loader)
    w = torch.randn(1024, 1024, device=device.kind)

    def step() -> None:
        x = next(batches).to(device.kind, non_blocking=True)
        for _ in range(20):
            x = torch.tanh(x @ w)

    return step


def host_gap(device: Device, bad: bool) -> Callable[[], object]:
    """Some 0.3 ms of python between matmuls, or none."""
    import torch

    size = device.pick(2048, 64)
    x = torch.randn(size, size, device=device.kind, dtype=torch.bfloat16)

    def bookkeeping() -> int:
        return sum(number * number % 7 for number in range(4_000))

    def step() -> None:
        for _ in range(8):
            torch.mm(x, x)
            if bad:
                bookkeeping()

    return step


def allocator_thrash(device: Device, bad: bool) -> Callable[[], object]:
    """torch.cuda.empty_cache() in every step, or never."""
    import torch

    def step() -> None:
        for _ in range(4):
            x = torch.empty(device.pick(1 << 28, 1 << 10), device=device.kind)
            x.fill_(1.0)
            del x
            if bad and device.is_gpu:
                torch.cuda.empty_cache()

    return step


def cold_start(args: Namespace, device: Device) -> Plan:
    """A small network from its very first step on, or after twenty."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 10))
    model = model.to(device.kind)
    x = torch.randn(8, 8, 32, 32, device=device.kind)
    warm = args.variant == "good"
    seconds, steps = (0.5, 20) if warm else (0.0, 0)
    window = Window(wait=0, warmup=0, active=4)
    return Plan(lambda: model(x).sum().backward(), window, warm_steps=steps, warm_seconds=seconds)


def host_hotspot(device: Device, bad: bool) -> Callable[[], object]:
    """Noise is drawn on the CPU and uploaded, or drawn on the device."""
    import torch

    size = device.pick(1024, 16)
    w = torch.randn(size, size, device=device.kind)

    def step() -> None:
        x = torch.randn(size, size, device="cpu" if bad else device.kind).to(device.kind)
        for _ in range(8):
            x = torch.tanh(x @ w)

    return step


WORKLOADS = (
    pair(
        "dataloader_stall",
        "batches made in the main process (bad) or by eight workers (good)",
        dataloader_stall,
        bad="4 steps that wait for a DataLoader without workers",
        good="the same with eight workers",
    ),
    pair(
        "host_gap",
        "python between matmuls (bad) or none (good)",
        host_gap,
        bad="4 steps with some 0.3 ms of python after each of 8 matmuls",
        good="the same matmuls one after the other",
    ),
    pair(
        "allocator_thrash",
        "empty_cache() after each of four tensors (bad) or never (good)",
        allocator_thrash,
        bad="5 steps of 4 tensors of 1 GiB, with empty_cache() after each",
        good="the same from the allocator's cache",
        active=5,
    ),
    Workload(
        "cold_start",
        "a network's first steps (bad) or the same after twenty (good)",
        cold_start,
        ("bad", "good"),
        shows={
            "bad": "the first 4 steps of a process: libraries, kernels and workspaces are loaded",
            "good": "the same steps after a warm-up",
        },
        examples=("cold_start --variant bad --out traces",),
        switches=("shapes",),
    ),
    pair(
        "host_hotspot",
        "noise drawn on the CPU (bad) or on the device (good)",
        host_hotspot,
        bad="4 steps that draw a million numbers on the CPU and upload them",
        good="the same drawn on the device",
    ),
)
