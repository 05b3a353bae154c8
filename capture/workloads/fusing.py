"""Several kernels where one would do, and work done twice."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def unfused_pointwise(device: Device, bad: bool) -> Callable[[], object]:
    """GELU's tanh form written out, or as the function that torch has."""
    import torch

    x = torch.randn(*device.pick((16384, 8192), (4, 8)), device=device.kind, dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(2):
            if bad:
                0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
            else:
                torch.nn.functional.gelu(x, approximate="tanh")

    return step


def hand_written_attention(device: Device, bad: bool) -> Callable[[], object]:
    """Attention as two products and a softmax, or as scaled_dot_product_attention."""
    import torch

    shape = device.pick((8, 16, 2048, 64), (1, 2, 8, 4))
    q, k, v = (torch.randn(*shape, device=device.kind, dtype=torch.bfloat16) for _ in range(3))

    def step() -> None:
        for _ in range(2):
            if bad:
                weights = torch.softmax(q @ k.transpose(-2, -1) / shape[-1] ** 0.5, dim=-1)
                weights @ v
            else:
                torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return step


def recomputation(device: Device, bad: bool) -> Callable[[], object]:
    """A training step with every layer checkpointed, or with none."""
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    width, rows = device.pick((4096, 8192), (16, 8))
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)]
    model = nn.ModuleList(layers).to(device.kind, torch.bfloat16)
    x = torch.randn(rows, width, device=device.kind, dtype=torch.bfloat16, requires_grad=True)

    def step() -> None:
        y = x
        for layer in model:
            y = checkpoint(layer, y, use_reentrant=False) if bad else layer(y)
        y.float().square().mean().backward()

    return step


WORKLOADS = (
    pair(
        "unfused_pointwise",
        "GELU written as eight pointwise ops (bad) or as one (good)",
        unfused_pointwise,
        bad="4 steps of a hand-written GELU over 256 MiB",
        good="the same with torch.nn.functional.gelu",
    ),
    pair(
        "hand_written_attention",
        "attention by hand (bad) or scaled_dot_product_attention (good)",
        hand_written_attention,
        bad="4 steps of two matmul, softmax, matmul attentions over 2,048 tokens",
        good="the same with scaled_dot_product_attention",
    ),
    pair(
        "recomputation",
        "training with every layer checkpointed (bad) or none (good)",
        recomputation,
        bad="4 training steps of 4 layers, each computed again in the backward pass",
        good="the same without checkpointing",
    ),
)
