"""The first kernel far behind its launch: a cold start inside the window, or a warm one outside."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """The size of the device's work."""
    parser.add_argument("--size", type=int, help="rows and columns of the matrices (4096; CPU 128)")


def build(args: Namespace, device: Device) -> Plan:
    """bad: nothing has run before and the profiler keeps step 0; good: warm, and it drops three."""
    import torch
    from torch.profiler import record_function

    size = args.size or device.pick(4096, 128)
    dtype = device.pick(torch.bfloat16, torch.float32)
    x, w, b = (torch.randn(size, size, device=device.kind, dtype=dtype) for _ in range(3))

    def step() -> None:
        with record_function("matmul_add"):
            torch.add(torch.matmul(x, w), b)

    if args.variant == "bad":
        return Plan(step, Window(wait=0, warmup=0, active=10), warm_steps=0)
    return Plan(step, Window(wait=1, warmup=2, active=10))


WORKLOAD = Workload(
    name="lane_offset",
    summary="matmul and add from a cold start inside the window (bad) or warmed up (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "10 steps from a cold start, kept from step 0: the first kernels come far behind the first op",
        "good": "the same steps warmed up, after three that the profiler drops",
    },
    examples=(
        "lane_offset --variant bad --out traces",
        "lane_offset --variant bad --warm-steps 20 --out traces --name warm_without_warmup",
    ),
)
