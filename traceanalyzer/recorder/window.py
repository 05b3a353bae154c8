"""torch's profiler over the recorded steps, and its trace in a file of its own until the rest is known."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import Any

from .options import WARM_STEPS, Options


class Window:
    """The profiled steps. `raw` is the path of the exported trace, None until then."""

    def __init__(self, options: Options, steps: int) -> None:
        from torch.profiler import profile, schedule, supported_activities

        self.steps = steps
        self.ended = 0
        self.raw: str | None = None
        self._profiler: Any = profile(
            activities=supported_activities(),
            schedule=schedule(wait=0, warmup=WARM_STEPS, active=steps, repeat=1),
            record_shapes=options.shapes,
            with_stack=options.stacks,
            profile_memory=options.memory,
        )

    def start(self, *, graphs: bool) -> None:
        """The profiler warms up from here on."""
        import torch

        # CUDA's tracer can be detached from a program with CUDA graphs from 12.6 on (pytorch#150957).
        version = (torch.version.cuda or "0").split(".")
        if not graphs or tuple(map(int, version[:2])) >= (12, 6):
            os.environ.setdefault("TEARDOWN_CUPTI", "1")  # else every launch after the window takes longer
        self._profiler.start()

    def step(self) -> bool:
        """A step has ended; whether it was the last one."""
        self.ended += 1
        self._profiler.step()
        return self.ended == WARM_STEPS + self.steps

    @property
    def recorded(self) -> int:
        """Whole steps in the trace."""
        return max(min(self.ended - WARM_STEPS, self.steps), 0)

    @property
    def cut_off(self) -> str | None:
        """Mark of the step that had not ended when the profiler was stopped; None where all had."""
        return f"ProfilerStep#{self.ended}" if self.recorded < self.steps else None

    def export(self, folder: str) -> None:
        """Stop the profiler, and write its trace into the folder.

        Raises OSError, RuntimeError: the trace cannot be written.
        """
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        handle, self.raw = tempfile.mkstemp(prefix=".recording-", suffix=".json", dir=folder)
        os.close(handle)
        profiler.export_chrome_trace(self.raw)

    def drop(self) -> None:
        """Stop the profiler where it runs, and remove what was exported."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()
        if self.raw is not None:
            with suppress(OSError):
                os.remove(self.raw)

    def leave_alone(self) -> None:
        """The device has failed: whoever touches the profiler now may end the process."""
        KEPT_ALIVE.append(self._profiler)
        self._profiler = None


KEPT_ALIVE: list[Any] = []
"""Profilers that are not to be destroyed."""
