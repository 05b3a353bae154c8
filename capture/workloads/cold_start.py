"""Convolutions from a cold start with cuDNN's benchmark mode, or warmed up."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """The size of the device's work."""
    parser.add_argument("--batch", type=int, help="images of a batch (32; CPU 2)")
    parser.add_argument("--channels", type=int, default=64, help="channels of each convolution (64)")


def build(args: Namespace, device: Device) -> Plan:
    """bad: nothing has run before, the profiler keeps step 0, and cuDNN times its kernels in it; good: warm."""
    import torch
    from torch import nn

    torch.backends.cudnn.benchmark = True
    channels = args.channels
    layers = nn.Sequential(*[nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3)]).to(device.kind)
    images = torch.randn(args.batch or device.pick(32, 2), channels, 56, 56, device=device.kind)

    def step() -> None:
        with torch.no_grad():
            layers(images)

    if args.variant == "bad":
        return Plan(step, Window(wait=0, warmup=0, active=6), warm_steps=0)
    return Plan(step, Window(wait=1, warmup=2, active=6))


WORKLOAD = Workload(
    name="cold_start",
    summary="convolutions from a cold start inside the window (bad) or warmed up (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "6 steps from a cold start: the first loads, tunes and allocates",
        "good": "the same steps warmed up",
    },
    examples=("cold_start --variant bad --out traces",),
)
