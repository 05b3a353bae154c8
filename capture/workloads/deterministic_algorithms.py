"""Messages between the nodes of a graph, with deterministic algorithms left on, or off."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from capture.device import Device
from capture.workload import Plan, Workload

LAYERS = 3


@contextmanager
def repeatable() -> Iterator[None]:
    """Deterministic algorithms are on, and afterwards off: the setting is the whole process'."""
    import torch

    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def training(device: Device) -> Callable[[], object]:
    """A step of three layers, in each of which every node adds up what its neighbours send."""
    import torch
    from torch import nn

    nodes, edges, width = device.pick((50_000, 400_000, 128), (20, 80, 8))
    with torch.device(device.kind):
        sends = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(LAYERS))
        norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(LAYERS))
        x = torch.randn(nodes, width)
        source, target = torch.randint(0, nodes, (2, edges))
    optimizer = torch.optim.AdamW([*sends.parameters(), *norms.parameters()], 1e-3, fused=True)

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        optimizer.zero_grad()
        y = x
        for send, norm in zip(sends, norms, strict=True):
            ends = [y.index_select(0, index) for index in (source, target)]
            message = torch.relu(send(torch.cat(ends, dim=1)))
            y = norm(y + torch.zeros_like(y).index_add(0, target, message))
        y.square().mean().backward()
        optimizer.step()

    return step


def build(args: Namespace, device: Device) -> Plan:
    """The same network; only bad runs with deterministic algorithms on."""
    # Without it torch refuses matmuls in the bad one; cuBLAS' workspace is to be the same in both.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return Plan(training(device), company=repeatable if args.variant == "bad" else nullcontext)


WORKLOAD = Workload(
    name="deterministic_algorithms",
    summary="messages along 400,000 edges with deterministic algorithms on (bad) or off (good)",
    build=build,
    variants=("bad", "good"),
    shows={
        "bad": "4 steps of three layers of messages, which fill what they allocate and sort before they add",
        "good": "the same with deterministic algorithms off",
    },
    switches=("shapes",),
    examples=("deterministic_algorithms --variant bad --out traces",),
)
