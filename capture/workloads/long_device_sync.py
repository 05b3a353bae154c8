"""torch.cuda.synchronize() after every layer: the queue drains and the device waits for launches."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """Sizes of one step: the smaller the layers, the larger the idle share."""
    parser.add_argument("--width", type=int, help="features of each layer (4096; CPU 64)")
    parser.add_argument("--rows", type=int, help="rows of the input (2048; CPU 32)")
    parser.add_argument("--layers", type=int, default=8, help="linear layers with GELU per step (8)")


def build(args: Namespace, device: Device) -> Plan:
    """bad waits for the device after each layer, good never."""
    import torch
    from torch import nn

    width = args.width or device.pick(4096, 64)
    dtype = device.pick(torch.bfloat16, torch.float32)
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()).to(device.kind, dtype) for _ in range(args.layers)]
    rows = torch.randn(args.rows or device.pick(2048, 32), width, device=device.kind, dtype=dtype)

    def step() -> None:
        values = rows
        with torch.no_grad():
            for layer in layers:
                values = layer(values)
                if args.variant == "bad":
                    device.synchronize()

    return Plan(step, Window(wait=1, warmup=2, active=5))


WORKLOAD = Workload(
    name="long_device_sync",
    summary="layers with torch.cuda.synchronize() after each (bad) or without (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "5 steps of 8 layers with torch.cuda.synchronize() after each layer",
        "good": "the same layers without it; the one cudaDeviceSynchronize is the profiler's own",
    },
    examples=(
        "long_device_sync --variant bad --out traces",
        "long_device_sync --variant bad --rows 256 --layers 20 --out traces --name small_layers",
    ),
)
