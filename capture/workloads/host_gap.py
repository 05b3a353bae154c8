"""Python between the layers of every step, or none."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """Sizes of the device's work and of the Python work."""
    parser.add_argument("--width", type=int, help="features of each layer (2048; CPU 64)")
    parser.add_argument("--layers", type=int, default=6, help="linear layers per step (6)")
    parser.add_argument("--words", type=int, help="words counted between two layers (4000; CPU 400)")


def count_words(words: list[str]) -> dict[str, int]:
    """A metric of the host's: how often each word occurs."""
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def build(args: Namespace, device: Device) -> Plan:
    """bad counts words between the layers of each step, good did so once."""
    import torch
    from torch import nn

    width = args.width or device.pick(2048, 64)
    words = [f"word{number % 97}" for number in range(args.words or device.pick(4_000, 400))]
    layers = [nn.Linear(width, width).to(device.kind) for _ in range(args.layers)]
    rows = torch.randn(width, width, device=device.kind)
    count_words(words)

    def step() -> None:
        values = rows
        with torch.no_grad():
            for layer in layers:
                values = layer(values)
                if args.variant == "bad":
                    count_words(words)

    return Plan(step, Window(wait=1, warmup=2, active=5))


WORKLOAD = Workload(
    name="host_gap",
    summary="layers with Python work between them (bad) or without (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "5 steps of 6 layers; after each layer Python counts words for 0.3 ms",
        "good": "the same layers one after the other",
    },
    examples=(
        "host_gap --variant bad --out traces",
        "host_gap --variant bad --words 40000 --out traces --name slower",
    ),
)
