"""Steps that take as long as the CPU needs to launch them."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def unfused_optimizer(device: Device, bad: bool) -> Callable[[], object]:
    """AdamW over 120 small parameters, one at a time or fused."""
    import torch

    parameters = [torch.nn.Parameter(torch.randn(256, 256, device=device.kind)) for _ in range(120)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, foreach=False, fused=not bad)
    return lambda: optimizer.step()


def repeated_calls(device: Device, bad: bool) -> Callable[[], object]:
    """64 samples through two small layers, one by one or as a batch."""
    import torch

    width = device.pick(512, 8)
    samples = torch.randn(64, 16, width, device=device.kind)
    first, second = (torch.randn(width, width, device=device.kind) for _ in range(2))

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ first) @ second

    def step() -> None:
        if bad:
            torch.stack([forward(sample).mean() for sample in samples])
        else:
            forward(samples).mean(dim=(1, 2))

    return step


def launch_bound(device: Device, bad: bool) -> Callable[[], object]:
    """Twenty different small layers, launched one by one or as one CUDA graph."""
    import torch
    from torch import nn

    layers = [m for n in range(20) for m in (nn.Linear(256 + 8 * n, 264 + 8 * n), nn.LayerNorm(264 + 8 * n), nn.SiLU())]
    model = nn.Sequential(*layers).to(device.kind).requires_grad_(False)
    x = torch.randn(64, 256, device=device.kind)
    if bad or not device.is_gpu:
        return lambda: model(x)
    for _ in range(3):
        model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return lambda: graph.replay()


def compile_again(device: Device, bad: bool) -> Callable[[], object]:
    """A compiled function whose constant changes in every step, or never."""
    import torch

    x = torch.randn(1024, 1024, device=device.kind)
    torch._dynamo.config.cache_size_limit = 512

    def power(x: torch.Tensor, exponent: int) -> torch.Tensor:
        return torch.sin(x) ** exponent

    scaled = torch.compile(power, dynamic=False, backend=device.pick("inductor", "aot_eager"))
    exponent = 2

    def step() -> None:
        nonlocal exponent
        exponent += bad
        scaled(x, exponent)

    return step


WORKLOADS = (
    pair(
        "unfused_optimizer",
        "AdamW over 120 parameters one at a time (bad) or fused (good)",
        unfused_optimizer,
        bad="3 optimizer steps with foreach=False: some 1,500 launches each",
        good="the same with fused=True",
        active=3,
    ),
    pair(
        "repeated_calls",
        "64 samples one by one (bad) or as one batch (good)",
        repeated_calls,
        bad="4 steps that run two layers for each of 64 samples",
        good="the same as one batch",
        switches=("shapes", "stacks"),
    ),
    pair(
        "launch_bound",
        "sixty small kernels launched one by one (bad) or as a CUDA graph (good)",
        launch_bound,
        bad="5 steps of 20 small layers, each with its launches",
        good="the same as one CUDA graph",
        active=5,
    ),
    pair(
        "compile",
        "a compiled function that is compiled anew in every step (bad) or once (good)",
        compile_again,
        bad="3 steps that compile again because a constant changes",
        good="the same with a constant that stays",
        active=3,
        warm_seconds=0.0,
        warm_steps=3,
    ),
)
