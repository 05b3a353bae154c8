"""Loops that keep the device busy: nothing in them deserves a finding."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from capture.device import Device
from capture.workload import Plan, Window, Workload
from capture.workloads.training import training_step, transformer


def add_options(parser: ArgumentParser) -> None:
    """Sizes; the defaults make the device's time several times that of the CPU."""
    parser.add_argument("--width", type=int, help="features (gemm 8192, train 2048, cuda_graphs 4096; CPU 32)")
    parser.add_argument("--rows", type=int, help="rows or tokens per step (8192; CPU 32)")
    parser.add_argument("--layers", type=int, default=0, help="per step (gemm 6, train 1, cuda_graphs 12)")


def gemm(args: Namespace, device: Device) -> Plan:
    """Matrix products, one after the other."""
    import torch

    width, rows = args.width or device.pick(8192, 32), args.rows or device.pick(8192, 32)
    dtype = device.pick(torch.bfloat16, torch.float32)
    x = torch.randn(rows, width, device=device.kind, dtype=dtype)
    w = torch.randn(width, width, device=device.kind, dtype=dtype) / width**0.5

    def step() -> None:
        for _ in range(args.layers or 6):
            torch.matmul(x, w)

    return Plan(step, Window(wait=1, warmup=2, active=5), warm_seconds=1.0)


def train(args: Namespace, device: Device) -> Plan:
    """A transformer's training step with a fused optimizer."""
    import torch

    width, rows = args.width or device.pick(2048, 32), args.rows or device.pick(16384, 32)
    tokens = min(rows, device.pick(1024, 8))
    dtype = device.pick(torch.bfloat16, torch.float32)
    batch = torch.randn(max(1, rows // tokens), tokens, width, device=device.kind, dtype=dtype)
    model = transformer(width, args.layers or 1, device)
    step = training_step(model, lambda out: out.float().square().mean(), batch, fused=True)
    return Plan(step, Window(wait=1, warmup=2, active=4), warm_seconds=1.0)


def cuda_graphs(args: Namespace, device: Device) -> Plan:
    """One graph with all layers, replayed; on a CPU the same layers without a graph."""
    import torch
    from torch import nn

    width, rows = args.width or device.pick(4096, 32), args.rows or device.pick(8192, 32)
    dtype = device.pick(torch.bfloat16, torch.float32)
    layers = [m for _ in range(args.layers or 12) for m in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(device.kind, dtype).requires_grad_(False)
    x = torch.randn(rows, width, device=device.kind, dtype=dtype)

    def forward() -> None:
        model(x)

    step = _replay(forward) if device.is_gpu else forward
    return Plan(step, Window(wait=1, warmup=2, active=5), warm_seconds=1.0)


def _replay(body: Callable[[], None]) -> Callable[[], None]:
    """The body as one CUDA graph: warmed up on a side stream, then captured."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()

    def step() -> None:
        graph.replay()

    return step


KINDS = {"gemm": gemm, "train": train, "cuda_graphs": cuda_graphs}


def build(args: Namespace, device: Device) -> Plan:
    """The variant that was asked for."""
    return KINDS[args.variant](args, device)


WORKLOAD = Workload(
    name="healthy",
    summary="loops that keep the device busy: matmuls, a fused training step, a replayed CUDA graph",
    build=build,
    variants=tuple(KINDS),
    add_options=add_options,
    shows={
        "gemm": "5 steps of 6 large matmuls",
        "train": "4 training steps of a transformer layer in bf16 with fused AdamW",
        "cuda_graphs": "5 replays of one CUDA graph with 12 linear layers and GELUs",
    },
    tabled=("train",),
    examples=(
        "healthy --variant gemm --out traces",
        "healthy --variant train --layers 2 --out traces",
        "healthy --variant cuda_graphs --out traces",
    ),
)
