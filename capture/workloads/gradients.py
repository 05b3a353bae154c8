"""Steps that compute gradients that nobody needs."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def dense_gradient(device: Device, bad: bool) -> Callable[[], object]:
    """4,096 rows of a large table are looked up and trained."""
    import torch
    from torch import nn

    rows, width = device.pick(4_000_000, 1_000), 64
    with torch.device(device.kind):
        table = nn.Embedding(rows, width, sparse=not bad)
        layers = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 1))
        batches = [torch.randint(0, rows, (device.pick(4096, 16),)) for _ in range(8)]
    optimizer = torch.optim.SGD([*table.parameters(), *layers.parameters()], 0.1)
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        optimizer.zero_grad()
        layers(table(batches[count % 8])).square().mean().backward()
        optimizer.step()

    return step


def unused_gradient(device: Device, bad: bool) -> Callable[[], object]:
    """A head is trained on ten layers that no optimizer has, with or without their gradients."""
    import torch
    from torch import nn

    width = device.pick(2048, 32)
    frozen = nn.Sequential(*(m for _ in range(10) for m in (nn.Linear(width, width), nn.GELU())))
    frozen = frozen.to(device.kind).requires_grad_(bad)
    head = nn.Linear(width, 100, device=device.kind)
    x = torch.randn(device.pick(8192, 8), width, device=device.kind)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        head(frozen(x)).square().mean().backward()
        optimizer.step()

    return step


def repeated_backward(device: Device, bad: bool) -> Callable[[], object]:
    """Two losses over one network, each with a backward pass of its own or added up."""
    import torch
    from torch import nn

    width = device.pick(2048, 32)
    with torch.device(device.kind):
        trunk = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(width, width), nn.GELU())))
        heads = nn.ModuleList(nn.Linear(width, 100) for _ in range(2))
        x = torch.randn(device.pick(8192, 8), width)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], 1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.kind, torch.bfloat16):
            y = trunk(x)
            first, second = (head(y).mean() for head in heads)
        if bad:
            first.backward(retain_graph=True)
            second.backward()
        else:
            (first + second).backward()
        optimizer.step()

    return step


WORKLOADS = (
    pair(
        "dense_gradient",
        "4,096 rows of a table of 4 million are trained with a dense (bad) or a sparse gradient (good)",
        dense_gradient,
        bad="4 steps that fill and add a gradient of 1 GB for 4,096 rows",
        good="the same with sparse=True",
    ),
    pair(
        "unused_gradient",
        "a head is trained on layers that require gradients that nobody uses (bad) or none (good)",
        unused_gradient,
        bad="4 steps of backward through ten layers that no optimizer has",
        good="the same with requires_grad_(False)",
    ),
    pair(
        "repeated_backward",
        "two losses over one network, each with its own backward pass (bad) or added up (good)",
        repeated_backward,
        bad="4 steps that go backward through the same eight layers twice",
        good="the same with one backward pass for the sum of the losses",
    ),
)
