"""Programs with a fault that torch's profiler hides or distorts: faulty.py NAME STEPS."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import torch
from clock import CUDA, DEVICE, SMALL, Clock
from torch.utils.data import DataLoader, Dataset

WIDTH = 64 if SMALL else 4096
DEPTH = 2 if SMALL else 12


def _network(width: int = WIDTH, depth: int = DEPTH) -> torch.nn.Sequential:
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*layers).to(DEVICE, torch.float32 if SMALL else torch.bfloat16)


class _Training:
    """A step of training whose GPU work takes about 15 ms on an H200 and whose launches are few."""

    def __init__(self) -> None:
        self.network = _network()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-4, fused=CUDA)

    def step(self, rows: torch.Tensor) -> None:
        self.network(rows).float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _rows(count: int) -> torch.Tensor:
    return torch.randn(count, WIDTH, device=DEVICE, dtype=torch.float32 if SMALL else torch.bfloat16)


ROWS = 8 if SMALL else 2048


def healthy(steps: int) -> None:
    """No fault: the control of the others."""
    clock = Clock()
    training, rows = _Training(), _rows(ROWS)
    for _ in range(steps):
        training.step(rows)
        clock.step()
    clock.save()


class _Slow(Dataset[torch.Tensor]):
    """Items that take a worker's time."""

    def __init__(self, count: int, item_s: float) -> None:
        self.count, self.item_s = count, item_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> torch.Tensor:
        end = time.perf_counter() + self.item_s
        value = torch.randn(WIDTH)
        while time.perf_counter() < end:  # decoding uses the CPU
            pass
        return value


def slow_loader(steps: int) -> None:
    """Two workers are a little too slow for the step: under the profiler, whose steps are slower, they keep up.

    The step has many small launches, as they are what the profiler slows.
    """
    clock = Clock()
    training = _Training()
    small = _network(64, 150)
    pace = float(os.environ.get("ITEM_MS", "0.65")) / 1e3  # of two workers a batch each 42 ms
    batch = 4 if SMALL else 128
    loader = DataLoader(_Slow(steps * batch, pace), batch, num_workers=2, pin_memory=CUDA)
    for rows in loader:
        rows = rows.to(DEVICE, training.network[0].weight.dtype, non_blocking=True)
        small(rows[:, :64]).sum().backward()
        training.step(rows)
        clock.step()
    clock.save()


def second_process(steps: int) -> None:
    """Another process computes on the same GPU."""
    clock = Clock()
    other = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "_hog", "0"],
        env={k: v for k, v in os.environ.items() if not k.startswith(("TRACEANALYZER", "RECORDING"))},
        start_new_session=True,
    )
    try:
        training, rows = _Training(), _rows(ROWS)
        time.sleep(0.5 if SMALL else 8)  # the other one starts
        for _ in range(steps):
            training.step(rows)
            clock.step()
        clock.save()
    finally:
        other.kill()


def _hog(_: int) -> None:
    parent = os.getppid()
    left = torch.randn(64 if SMALL else 8192, 64 if SMALL else 8192, device=DEVICE)
    while os.getppid() == parent:
        for _ in range(4):
            left @ left
        if CUDA:
            torch.cuda.synchronize()


def garbage(steps: int) -> None:
    """Each step leaves many objects in cycles, which the garbage collector visits."""
    clock = Clock()
    training, rows = _Training(), _rows(ROWS)
    history: list[object] = []

    class Record:
        def __init__(self) -> None:
            self.me = self
            self.values = [{} for _ in range(20)]

    for _ in range(steps):
        training.step(rows)
        history.extend([{"record": Record()} for _ in range(2_000 if SMALL else 12_000)])
        del history[: len(history) // 4]
        clock.step()
    clock.save()


def alternating(steps: int) -> None:
    """A large and a small batch in turn, as where a bucket of lengths is missing."""
    clock = Clock()
    training = _Training()
    large, little = _rows(2 * ROWS), _rows(ROWS // 8)
    for at in range(steps):
        training.step(large if at % 2 else little)
        clock.step()
    clock.save()


def evaluates(steps: int) -> None:
    """An evaluation after every tenth step takes as long as eight steps."""
    clock = Clock()
    training, rows = _Training(), _rows(ROWS)
    for at in range(steps):
        training.step(rows)
        if at % 10 == 7:
            with torch.no_grad():
                for _ in range(24):
                    training.network(rows)
        clock.step()
    clock.save()


def busy_thread(steps: int) -> None:
    """A thread of Python competes for the interpreter's lock."""
    clock = Clock()
    training, rows = _Training(), _rows(ROWS)
    ended = threading.Event()

    def spin() -> None:
        total = 0
        while not ended.is_set():
            total += sum(range(1000))

    thread = threading.Thread(target=spin, name="metrics", daemon=True)
    thread.start()
    for _ in range(steps):
        training.step(rows)
        clock.step()
    ended.set()
    clock.save()


PROGRAMS = {
    run.__name__: run
    for run in (slow_loader, second_process, garbage, alternating, evaluates, busy_thread, healthy, _hog)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]))
