"""Two ranks on two GPUs: ranks.py NAME STEPS, the first one under torchrun."""

from __future__ import annotations

import os
import sys

import torch
from clock import CUDA, DEVICE, SMALL, Clock
from torch.utils.data import DataLoader, Dataset

RANKS = 2


class _Images(Dataset[tuple[torch.Tensor, int]]):
    """Images whose decoding takes a worker about 1 ms."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        image = torch.rand(3, 64 if SMALL else 176, 64 if SMALL else 176)
        return (image - image.mean()) / image.std(), at % 10


def _train(steps: int, rank: int, store: torch.distributed.Store | None = None) -> None:
    clock = Clock() if rank == 0 else None
    backend = "nccl" if CUDA else "gloo"
    if store is None:
        torch.distributed.init_process_group(backend)
    else:
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=RANKS)
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
    _train(steps, int(os.environ["RANK"]))


def _spawned_rank(rank: int, steps: int, port: int) -> None:
    _train(steps, rank, torch.distributed.TCPStore("127.0.0.1", port))


def spawned(steps: int) -> None:
    """The same with torch.multiprocessing.spawn; no variable of the environment names a rank."""
    # The store stays open on its port, as rank 0 may wait for the GPU before it joins.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(_spawned_rank, (steps, store.port), nprocs=RANKS)


PROGRAMS = {run.__name__: run for run in (ddp_resnet, spawned)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]))
