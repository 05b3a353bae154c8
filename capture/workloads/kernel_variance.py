"""The same kernels at different speeds: another process works on the same device, or none."""

from __future__ import annotations

import multiprocessing
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from capture.device import Device
from capture.errors import CaptureError
from capture.workload import Plan, Window, Workload

START_LIMIT_S = 120.0


def add_options(parser: ArgumentParser) -> None:
    """Sizes of this process' work and of the other's."""
    parser.add_argument("--size", type=int, help="rows and columns of the matrices (4096; CPU 128)")
    parser.add_argument("--matmuls", type=int, default=8, metavar="N", help="per step (8)")
    parser.add_argument("--other-size", type=int, help="the other process' matrices (4096; CPU 128)")


def hammer(kind: str, size: int, ready: Any, stop: Any) -> None:
    """In the other process: matrix products, a few at a time, until told to stop."""
    import torch

    device = Device(kind)
    dtype = device.pick(torch.bfloat16, torch.float32)
    x = torch.randn(size, size, device=kind, dtype=dtype)
    while not stop.is_set():
        for _ in range(20):
            torch.matmul(x, x)
        device.synchronize()
        ready.set()


@contextmanager
def other_process(kind: str, size: int) -> Iterator[None]:
    """Keeps another process busy on the device from its first product on."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=hammer, args=(kind, size, ready, stop), daemon=True)
    process.start()
    try:
        if not ready.wait(START_LIMIT_S):
            raise CaptureError(f"the other process did not start within {START_LIMIT_S:.0f} s")
        yield
    finally:
        stop.set()
        process.join(10)
        if process.is_alive():
            process.terminate()
            process.join()


def build(args: Namespace, device: Device) -> Plan:
    """The same matmuls in every step; only bad has company on the device."""
    import torch

    size = args.size or device.pick(4096, 128)
    dtype = device.pick(torch.bfloat16, torch.float32)
    x = torch.randn(size, size, device=device.kind, dtype=dtype)
    w = torch.randn(size, size, device=device.kind, dtype=dtype)

    def step() -> None:
        for _ in range(args.matmuls):
            torch.matmul(x, w)

    other = partial(other_process, device.kind, args.other_size or device.pick(4096, 128))
    return Plan(
        step,
        Window(wait=1, warmup=2, active=10),
        warm_seconds=1.0,
        company=other if args.variant == "bad" else nullcontext,
    )


WORKLOAD = Workload(
    name="kernel_variance",
    summary="matmuls beside another process on the same device (bad) or alone (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "10 steps of 8 equal matmuls while another process works on the same GPU",
        "good": "the same matmuls with the GPU to themselves",
    },
    examples=(
        "kernel_variance --variant bad --out traces",
        "kernel_variance --variant bad --other-size 1024 --out traces --name light_company",
    ),
)
