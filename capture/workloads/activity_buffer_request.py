"""CUPTI asks for its next buffer inside the window, because the warm-up has filled the first.

Kineto's buffers hold 4 MB. The one in use is kept from the profiler's warm-up steps into the
window, so a short window shows the request too where much was launched before it.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """Sizes of one step, and how full the first buffer is when the window begins."""
    parser.add_argument("--size", type=int, help="rows and columns of the matrices (2048; CPU 64)")
    parser.add_argument("--matmuls", type=int, default=120, metavar="N", help="per step (120)")
    parser.add_argument(
        "--fill",
        type=int,
        metavar="N",
        help="launches in the last warm-up step (bad: nearly a buffer's worth; good: 0)",
    )


def build(args: Namespace, device: Device) -> Plan:
    """bad fills the buffer in the profiler's last warm-up step; the steps themselves are the same."""
    import torch

    size = args.size or device.pick(2048, 64)
    dtype = device.pick(torch.bfloat16, torch.float32)
    x = torch.randn(size, size, device=device.kind, dtype=dtype)
    w = torch.randn(size, size, device=device.kind, dtype=dtype)
    one = torch.zeros(1, device=device.kind)
    default = device.pick(BUFFER_LAUNCHES, 100) if args.variant == "bad" else 0
    fill = default if args.fill is None else args.fill
    countdown = itertools.count(1)

    def arm(window: Window) -> None:
        nonlocal countdown
        countdown = itertools.count(1 - window.wait - window.warmup)

    def step() -> None:
        if next(countdown) == 0:
            for _ in range(fill):
                one.add_(1)
            device.synchronize()
        for _ in range(args.matmuls):
            torch.matmul(x, w)

    return Plan(step, Window(wait=1, warmup=2, active=5), arm=arm)


# Measured on an H200, torch 2.11, CUDA 13.0: launches in a warm-up step that leave room in the
# first 4 MB buffer for about half of the window's 600 launches.
BUFFER_LAUNCHES = 12000

WORKLOAD = Workload(
    name="activity_buffer_request",
    summary="a short window after a warm-up that filled CUPTI's first buffer (bad) or did not (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "5 steps of 120 matmuls; CUPTI's first buffer is full after some of them",
        "good": "the same steps with room left in the buffer",
    },
    examples=(
        "activity_buffer_request --variant bad --out traces",
        "activity_buffer_request --variant good --active 400 --out traces --name long_window",
    ),
)
