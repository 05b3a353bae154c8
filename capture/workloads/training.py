"""A training step: a small convolutional network or one transformer, with a fused optimizer or not."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from capture.device import Device
from capture.workload import Plan, Window, Workload


def add_options(parser: ArgumentParser) -> None:
    """Model and sizes; --memory, --shapes, --stacks and --flops are switches of every workload."""
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="default: cnn")
    parser.add_argument("--batch", type=int, help="images or sequences (cnn 64, transformer 8; CPU 4)")
    parser.add_argument("--width", type=int, help="channels or features (cnn 64, transformer 1024; CPU 16)")
    parser.add_argument("--layers", type=int, default=2, help="transformer layers (2)")
    parser.add_argument("--tokens", type=int, help="length of a sequence (1024; CPU 16)")
    parser.add_argument("--no-fused", action="store_true", help="optimizer with one kernel per group, not fused")


def cnn(width: int, device: Device) -> Any:
    """Two convolutions with batch norm, pooling and two linear layers, for 32x32 images."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    ).to(device.kind)


def transformer(width: int, layers: int, device: Device) -> Any:
    """Encoder layers with self-attention and a head, in bf16 on a GPU; no dropout."""
    import torch
    from torch import nn

    encoder = [
        nn.TransformerEncoderLayer(
            width, nhead=max(1, width // 64), dim_feedforward=4 * width, dropout=0.0, batch_first=True
        )
        for _ in range(layers)
    ]
    dtype = device.pick(torch.bfloat16, torch.float32)
    return nn.Sequential(*encoder, nn.Linear(width, width)).to(device.kind, dtype)


def training_step(model: Any, loss: Callable[[Any], Any], batch: Any, fused: bool) -> Callable[[], None]:
    """Forward, backward, AdamW, gradients set to None: nothing in it waits for the device."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(batch)).backward()
        optimizer.step()

    return step


def build(args: Namespace, device: Device) -> Plan:
    """The model that was asked for, on one batch that stays on the device."""
    import torch
    from torch.nn import functional

    if args.model == "cnn":
        count = args.batch or device.pick(64, 4)
        labels = torch.randint(0, 10, (count,), device=device.kind)
        images = torch.randn(count, 3, 32, 32, device=device.kind)
        model = cnn(args.width or device.pick(64, 16), device)
        step = training_step(model, lambda out: functional.cross_entropy(out, labels), images, not args.no_fused)
        return Plan(step, Window(active=3))
    width = args.width or device.pick(1024, 16)
    shape = (args.batch or device.pick(8, 4), args.tokens or device.pick(1024, 16), width)
    sequences = torch.randn(shape, device=device.kind, dtype=device.pick(torch.bfloat16, torch.float32))
    model = transformer(width, args.layers, device)
    step = training_step(model, lambda out: out.float().square().mean(), sequences, not args.no_fused)
    return Plan(step, Window(active=3))


WORKLOAD = Workload(
    name="training",
    summary="a training step of a small convolutional network or of a transformer",
    build=build,
    add_options=add_options,
    examples=(
        "training --model cnn --memory --stacks --out traces",
        "training --model transformer --width 2048 --shapes --flops --out traces --name transformer",
    ),
)
