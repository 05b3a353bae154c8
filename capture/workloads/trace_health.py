"""A recording of which little can be said: its first two steps, or five after a warm-up."""

from __future__ import annotations

from argparse import Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def build(args: Namespace, device: Device) -> Plan:
    """bad: nothing has run before and the profiler keeps steps 0 and 1; good: warm, and it drops four."""
    import torch
    from torch import nn

    width, rows = device.pick((4096, 8192), (16, 4))
    dtype = device.pick(torch.bfloat16, torch.float32)
    layers = (m for _ in range(4) for m in (nn.Linear(width, width), nn.GELU()))
    model = nn.Sequential(*layers).to(device.kind, dtype)
    x = torch.randn(rows, width, device=device.kind, dtype=dtype)

    def step() -> None:
        with torch.no_grad():
            model(x)

    if args.variant == "bad":
        return Plan(step, Window(wait=0, warmup=0, active=2), warm_steps=0)
    return Plan(step, Window(wait=1, warmup=3, active=5))


WORKLOAD = Workload(
    name="trace_health",
    summary="a network's first two steps (bad) or five of it after a warm-up (good)",
    build=build,
    variants=("bad", "good"),
    shows={
        "bad": "the first 2 steps of a process: too few to tell what recurs, and without a warm-up",
        "good": "5 of the same steps after a warm-up and four that the profiler drops",
    },
    examples=("trace_health --variant bad --out traces",),
    switches=("shapes", "stacks"),
)
