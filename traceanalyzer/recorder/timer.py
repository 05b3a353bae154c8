"""Times steps without waiting for the device: events of its stream mark the ends of steps."""

import itertools
import time
from statistics import median
from typing import Any

_SETTLED = 0.8  # of the first third of the times is the least that the last third takes
_LISTED = 4096
PARTS = 3  # of the timed steps: the spread of their means says how sure the time of a step is


class StepTimer:
    """Time of each step, or of each group of `every` steps where a step is too short to be marked.

    On CUDA and ROCm an event of the current stream marks the end of a step, so that the program runs on undisturbed.
    Elsewhere it is a clock, after the accelerator, if there is one, has caught up.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.steps = -1
        self._device: int | None = None
        self._marks: list[Any] = []
        self._clock_s: list[float] = []
        self._drained = 0

    def step(self) -> None:
        """A step has ended. The first call only begins the first one."""
        self.steps += 1
        if self.steps % self.every:
            return
        import torch

        if not self._marks and torch.cuda.is_available() and torch.cuda.is_initialized():
            self._device = torch.cuda.current_device()
        if self._device is None:
            # An accelerator that is neither CUDA nor ROCm is waited for.
            accelerator = getattr(torch, "accelerator", None)
            if accelerator is not None and accelerator.is_available() and not torch.cuda.is_available():
                accelerator.synchronize()
            self._marks.append(None)
        else:
            with torch.cuda.device(self._device):
                self._drained += torch.cuda.current_stream().query()
                event = torch.cuda.Event(enable_timing=True)
                event.record()
            self._marks.append(event)
        self._clock_s.append(time.perf_counter())

    @property
    def elapsed_s(self) -> float:
        """Seconds of the host's clock since the first mark."""
        return time.perf_counter() - self._clock_s[0] if self._clock_s else 0.0

    @property
    def clock_ms(self) -> list[float]:
        """ms of the host's clock of each step between two marks."""
        return [(end - begin) * (1e3 / self.every) for begin, end in itertools.pairwise(self._clock_s)]

    @property
    def drained_share(self) -> float | None:
        """Share of marks at which the device had already finished everything; None without a device."""
        if self._device is None or not self._marks:
            return None
        return self._drained / len(self._marks)

    def step_ms(self) -> list[float]:
        """ms of each step between two marks, on the device. Waits for the last mark."""
        if self._device is None:
            return self.clock_ms
        if self._marks:
            self._marks[-1].synchronize()
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [begin.elapsed_time(end) / self.every for begin, end in pairs]


def parts_of(times: list[float]) -> list[float]:
    """Means of the first, second and last third of the times; of fewer times each by itself."""
    count = min(PARTS, len(times))
    bounds = [len(times) * part // count for part in range(count + 1)] if count else [0]
    spans = itertools.pairwise(bounds)
    return [sum(times[begin:end]) / (end - begin) for begin, end in spans]


def settled(times: list[float]) -> bool:
    """Whether the last third of the times is about as long as the first."""
    third = len(times) // 3
    return third < 1 or median(times[-third:]) >= _SETTLED * median(times[:third])


def rounded(times: list[float]) -> list[float]:
    """Times as they are stored: 0.1 µs, and no more than 4,096."""
    return [round(ms, 4) for ms in times[:_LISTED]]
