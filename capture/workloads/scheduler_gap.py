"""Python work between launches: the device runs dry in every step, at the same places."""

from __future__ import annotations

import itertools
import json
import time
from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """Sizes of the device's work and of the Python work."""
    parser.add_argument("--size", type=int, help="rows and columns of the matrices (4096; CPU 128)")
    parser.add_argument("--matmuls", type=int, default=4, metavar="N", help="per step (4)")
    parser.add_argument("--entries", type=int, help="entries parsed before each matmul (1000; CPU 100)")
    parser.add_argument("--pause-ms", type=float, default=8.0, metavar="MS", help="the one pause of variant once (8)")


def build(args: Namespace, device: Device) -> Plan:
    """bad parses a text before each matmul, good parsed it once, once sleeps in a single step."""
    import torch

    size = args.size or device.pick(4096, 128)
    dtype = device.pick(torch.bfloat16, torch.float32)
    x = torch.randn(size, size, device=device.kind, dtype=dtype)
    w = torch.randn(size, size, device=device.kind, dtype=dtype)
    text = json.dumps([{"id": i, "weight": i / 7} for i in range(args.entries or device.pick(1000, 100))])
    countdown = itertools.count(1)

    def arm(window: Window) -> None:
        nonlocal countdown
        countdown = itertools.count(-window.wait - window.warmup - window.active // 2)

    def step() -> None:
        pause = args.variant == "once" and next(countdown) == 0
        for index in range(args.matmuls):
            if args.variant == "bad":
                json.loads(text)
            if pause and index == args.matmuls // 2:
                time.sleep(args.pause_ms / 1e3)
            torch.matmul(x, w)

    return Plan(step, Window(wait=1, warmup=2, active=6), arm=arm)


WORKLOAD = Workload(
    name="scheduler_gap",
    summary="matmuls with Python work before each (bad), without (good), or with one pause (once)",
    build=build,
    variants=("bad", "good", "once"),
    add_options=add_options,
    shows={
        "bad": "6 steps of 4 matmuls, a JSON text parsed before each: a gap at the same places in every step",
        "good": "the same matmuls, the text parsed once beforehand: the CPU stays ahead",
        "once": "as good, with one pause of 8 ms in one step: a gap that appears once",
    },
    examples=(
        "scheduler_gap --variant bad --out traces",
        "scheduler_gap --variant bad --entries 5000 --out traces --name slower",
        "scheduler_gap --variant once --pause-ms 40 --out traces",
    ),
)
