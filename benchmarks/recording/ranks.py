"""Two ranks on two GPUs: ranks.py NAME STEPS, the first one under torchrun."""

from __future__ import annotations

import os
import sys

import torch
from clock import CUDA, DEVICE, SMALL, Clock
from torch.utils.data import DataLoader, Dataset


class _Images(Dataset[tuple[torch.Tensor, int]]):
    """Images whose decoding takes a worker about 1 ms."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        image = torch.rand(3, 64 if SMALL else 176, 64 if SMALL else 176)
        return (image - image.mean()) / image.std(), at % 10


def _train(steps: int) -> None:
    clock = Clock() if os.environ.get("RANK", "0") == "0" else None
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("nccl" if CUDA else "gloo")
    if CUDA:
        torch.cuda.set_device(rank)
    network: torch.nn.Module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))
    if not SMALL:
        from torchvision.models import resnet50

        network = resnet50(num_classes=10)
    model = torch.nn.parallel.DistributedDataParallel(network.to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = 4 if SMALL else 64
    for images, labels in DataLoader(_Images(steps * batch), batch, num_workers=2, pin_memory=CUDA):
        with torch.autocast(DEVICE, torch.bfloat16):
            out = model(images.to(DEVICE, non_blocking=True))
            loss = torch.nn.functional.cross_entropy(out, labels.to(DEVICE, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if clock is not None:
            clock.step()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if clock is not None:
        clock.save()


def ddp_resnet(steps: int) -> None:
    """A ResNet under DistributedDataParallel; two workers per rank are too slow for it."""
    _train(steps)


def _spawned_rank(rank: int, steps: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(29_500 + os.getppid() % 900),
    }
    _train(steps)


def spawned(steps: int) -> None:
    """The same with torch.multiprocessing.spawn."""
    torch.multiprocessing.spawn(_spawned_rank, (steps,), nprocs=2)


PROGRAMS = {run.__name__: run for run in (ddp_resnet, spawned)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]))
