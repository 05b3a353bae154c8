"""Two ranks that sum over each other's values: in the way of the step or beside it, often or once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial

from capture.device import Device
from capture.ranks import Ranks, add_ranks
from capture.workload import Plan, Workload


def exposed_communication(device: Device, variant: str) -> Callable[[], object]:
    """A wide head on a trunk, whose backward pass is long enough to hide the head's gradient."""
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    rows, tokens, width, wide, depth = device.pick((512, 128, 1024, 2048, 8), (2, 4, 8, 4, 2))
    dtype = device.pick(torch.bfloat16, torch.float32)
    trunk = [m for _ in range(depth) for m in (nn.Linear(width, width, bias=False), nn.ReLU())]
    model: nn.Module = nn.Sequential(*trunk, nn.Flatten(), nn.Linear(tokens * width, wide, bias=False))
    model = model.to(device.kind, dtype)
    x = torch.randn(rows, tokens, width, device=device.kind, dtype=dtype)
    if variant == "good":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, fused=True)
    ranks = distributed.get_world_size()

    def step() -> None:
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        if variant == "bad":
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad)
                parameter.grad /= ranks
        optimizer.step()

    return step


def reduced_norms(device: Device, variant: str) -> Callable[[], object]:
    """The norms of eight layers' outputs, summed over the ranks one by one or all at once."""
    import torch
    from torch import distributed

    size = device.pick(4096, 32)
    dtype = device.pick(torch.bfloat16, torch.float32)
    weights = [torch.randn(size, size, device=device.kind, dtype=dtype) / size**0.5 for _ in range(8)]
    x = torch.randn(size, size, device=device.kind, dtype=dtype)

    def step() -> None:
        y, norms = x, []
        for weight in weights:
            y = torch.mm(y, weight)
            norms.append(torch.linalg.vector_norm(y))
        for value in norms if variant == "bad" else [torch.stack(norms)]:
            distributed.all_reduce(value)

    return step


def build_exposed(args: Namespace, device: Device) -> Plan:
    """Both variants are one model; good wraps it in DistributedDataParallel."""
    return _plan(exposed_communication, args, device)


def build_needless(args: Namespace, device: Device) -> Plan:
    """Both variants sum the same norms; good stacks them first."""
    return _plan(reduced_norms, args, device)


def _plan(make: Callable[[Device, str], Callable[[], object]], args: Namespace, device: Device) -> Plan:
    ranks = Ranks(partial(make, device, args.variant), device, args.ranks)
    return Plan(ranks.step, company=ranks.together)


WORKLOADS = (
    Workload(
        "exposed_communication",
        "gradients summed over two GPUs after the backward pass (bad) or beside it (good)",
        build_exposed,
        ("bad", "good"),
        add_options=add_ranks,
        examples=("exposed_communication --variant bad --out traces",),
        shows={
            "bad": "rank 0 of 2: 4 training steps that average 550 MB of gradients after the backward pass",
            "good": "the same with DistributedDataParallel: most of it beside the backward pass",
        },
        switches=("shapes",),
    ),
    Workload(
        "needless_collectives",
        "norms summed over two GPUs one by one (bad) or all at once (good)",
        build_needless,
        ("bad", "good"),
        add_options=add_ranks,
        examples=("needless_collectives --variant bad --out traces",),
        shows={
            "bad": "rank 0 of 2: 4 steps of 8 matmuls, whose norms are summed over the ranks one by one",
            "good": "the same norms stacked and summed at once",
        },
        switches=("shapes",),
    ),
)
