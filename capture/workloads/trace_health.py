"""A recording too short and too early to judge by, or one that is long enough."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """The size of the device's work."""
    parser.add_argument("--size", type=int, help="rows and columns of the matrices (4096; CPU 128)")


def build(args: Namespace, device: Device) -> Plan:
    """bad keeps steps 0 and 1 only, good five steps after three that the profiler drops."""
    import torch

    size = args.size or device.pick(4096, 128)
    x, w = (torch.randn(size, size, device=device.kind) for _ in range(2))

    def step() -> None:
        torch.matmul(x, w)

    window = (
        Window(wait=0, warmup=0, active=2) if args.variant == "bad" else Window(wait=1, warmup=2, active=5)
    )
    return Plan(step, window)


WORKLOAD = Workload(
    name="trace_health",
    summary="matmuls recorded too briefly (bad) or long enough (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "2 steps from step 0 on: nothing says what recurs",
        "good": "5 steps after three that the profiler drops",
    },
    examples=("trace_health --variant bad --out traces",),
)
