"""Times steps without waiting for the device: events of its stream mark the ends of blocks of steps."""

from __future__ import annotations

import time
from typing import Any


class StepTimer:
    """Time of a step, once per block of steps.

    On CUDA and ROCm an event of the current stream marks the end of a block, so that the program runs on undisturbed.
    Elsewhere it is a clock, after the accelerator, if there is one, has caught up.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        self._device: int | None = None
        self._marks: list[Any] = []

    def mark(self) -> None:
        """A block of steps begins here, or ends and the next one begins."""
        import torch

        if not self._marks and torch.cuda.is_available() and torch.cuda.is_initialized():
            self._device = torch.cuda.current_device()
        if self._device is None:
            _catch_up()
            self._marks.append(time.perf_counter())
            return
        with torch.cuda.device(self._device):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks.append(event)

    def step_ms(self) -> list[float]:
        """ms of a step in each whole block so far. Waits for the last mark."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        if self._device is None:
            return [(end - begin) * 1e3 / self._block for begin, end in pairs]
        if self._marks:
            self._marks[-1].synchronize()
        return [begin.elapsed_time(end) / self._block for begin, end in pairs]


def _catch_up() -> None:
    """Wait for an accelerator that is neither CUDA nor ROCm."""
    import torch

    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available() and not torch.cuda.is_available():
        accelerator.synchronize()
