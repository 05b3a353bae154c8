"""What a program measures of itself: CUDA events at the ends of its steps, whoever else watches."""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SMALL = not CUDA
"""Whether sizes are those of a dry run on the CPU."""

_LOCK: list[Any] = []


class Clock:
    """The time of each step; `save()` writes it where the driver looks for it."""

    def __init__(self) -> None:
        began = time.perf_counter()
        if path := os.environ.get("RECORDING_LOCK"):
            # Until the process ends: one program at a time on the GPU.
            _LOCK.append(open(path, "w"))  # noqa: SIM115
            fcntl.flock(_LOCK[0], fcntl.LOCK_EX)
        self._marks: list[Any] = []
        self._waited_s = time.perf_counter() - began
        self._from_s = time.perf_counter()

    def step(self) -> None:
        """A step has ended."""
        if CUDA:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def save(self) -> None:
        """The program has come to its end."""
        if CUDA:
            torch.cuda.synchronize()
        times = [
            begin.elapsed_time(end) if CUDA else (end - begin) * 1e3
            for begin, end in zip(self._marks, self._marks[1:], strict=False)
        ]
        told = {
            "step_ms": [round(ms, 4) for ms in times],
            "section_s": time.perf_counter() - self._from_s,
            "waited_s": self._waited_s,
        }
        rank = os.environ.get("RANK", "0")
        if (path := os.environ.get("RECORDING_RESULT")) and rank == "0":
            with open(path, "w", encoding="utf-8") as stream:
                json.dump(told, stream)
        print("ended", flush=True)
