"""Candidates of a search by their scores: all of them sorted, or only the best looked for."""

from __future__ import annotations

from collections.abc import Callable

from capture.device import Device
from capture.workload import pair


def full_sort(device: Device, bad: bool) -> Callable[[], object]:
    """Requests meet all items, and a small network looks again at the best."""
    import torch
    from torch import nn

    requests, items, width, kept = device.pick((256, 200_000, 128, 200), (8, 500, 16, 20))
    with torch.device(device.kind):
        tower = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))
        ranker = nn.Sequential(nn.Linear(2 * width, 512), nn.GELU(), nn.Linear(512, 1))
        index, x = torch.randn(items, width), torch.randn(requests, width)

    def best(scores: torch.Tensor) -> torch.Tensor:
        if bad:
            return scores.argsort(dim=1, descending=True)[:, :kept]
        return scores.topk(kept, dim=1).indices

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        with torch.inference_mode():
            users = tower(x)
            chosen = best(users @ index.t())
            both = [nn.functional.embedding(chosen, index), users[:, None].expand(-1, kept, -1)]
            ranks = ranker(torch.cat(both, dim=-1)).squeeze(-1)
            chosen.gather(1, ranks.topk(10, dim=1).indices)

    return step


WORKLOADS = (
    pair(
        "full_sort",
        "the best 200 of 200,000 items for 256 requests by sorting all of them (bad) or by topk (good)",
        full_sort,
        bad="4 steps that sort 256 rows of 200,000 scores and keep the first 200 of each",
        good="the same with topk",
    ),
)
