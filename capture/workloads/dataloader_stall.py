"""A DataLoader whose batches are made inside the step, or ahead of it by workers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """What a sample costs, and who makes it."""
    parser.add_argument("--batch", type=int, help="samples of a batch (64; CPU 8)")
    parser.add_argument("--workers", type=int, default=8, help="processes of variant good (8)")
    parser.add_argument(
        "--sort", type=int, default=20_000, metavar="N", help="numbers sorted for each sample (20000)"
    )


class Sorted:
    """Samples that take the CPU some 0.2 ms each."""

    def __init__(self, numbers: int, width: int) -> None:
        self.numbers, self.width = numbers, width

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.rand(self.numbers).sort().values[: self.width]


def build(args: Namespace, device: Device) -> Plan:
    """bad loads with num_workers=0, good with workers; the model is the same."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    width, batch = device.pick(1024, 64), args.batch or device.pick(64, 8)
    workers = 0 if args.variant == "bad" else device.pick(args.workers, 2)
    loader = DataLoader(
        Sorted(args.sort, width), batch_size=batch, num_workers=workers, pin_memory=device.is_gpu
    )
    layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]).to(device.kind)
    batches = iter(loader)

    def step() -> None:
        values = next(batches).to(device.kind, non_blocking=True)
        with torch.no_grad():
            layers(values)

    return Plan(step, Window(wait=1, warmup=2, active=5), warm_steps=5, warm_seconds=0.0)


WORKLOAD = Workload(
    name="dataloader_stall",
    summary="a model fed by a DataLoader without workers (bad) or with (good)",
    build=build,
    variants=("bad", "good"),
    add_options=add_options,
    shows={
        "bad": "5 steps that each make their batch themselves, num_workers=0",
        "good": "the same with 8 workers that make the batches ahead",
    },
    examples=(
        "dataloader_stall --variant bad --out traces",
        "dataloader_stall --variant good --workers 1 --out traces --name one_worker",
    ),
)
