"""Random numbers made on the CPU and copied to the device, or made there."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """The size of the input."""
    parser.add_argument("--rows", type=int, help="rows of the input (1024; CPU 64)")
    parser.add_argument("--width", type=int, help="features of each layer (1024; CPU 64)")


def build(args: Namespace, device: Device) -> Plan:
    """bad draws the noise on the CPU, good on the device."""
    import torch
    from torch import nn

    width, rows = args.width or device.pick(1024, 64), args.rows or device.pick(1024, 64)
    layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]).to(device.kind)
    where = "cpu" if args.variant == "bad" else device.kind

    def step() -> None:
        with torch.no_grad():
            layers(torch.randn(rows, width, device=where).to(device.kind))

    return Plan(step, Window(wait=1, warmup=2, active=5))


WORKLOAD = Workload(
    name="host_hotspot",
    summary="a model fed with random numbers from the CPU (bad) or from the device (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "5 steps that draw a million random numbers on the CPU while the device waits",
        "good": "the same numbers drawn on the device",
    },
    examples=("host_hotspot --variant bad --out traces",),
)
