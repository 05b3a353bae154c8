"""torch's profiler over the recorded steps, and over those with an execution trace: files of their own at first."""

import os
import shutil
import tempfile
from contextlib import suppress
from typing import Any

from .options import TENSOR_STEPS, WARM_STEPS, Options

_HEADER = 1 << 16  # bytes: the events begin within them
_kept_alive: list[Any] = []  # profilers that are not to be destroyed


class _Profiled:
    """torch's profiler over `last` steps, of which `ended` have ended since it was started."""

    last: int
    ended = 0
    _profiler: Any = None
    _observer: Any = None

    def step(self) -> bool:
        """A step has ended; whether it was the last one."""
        self.ended += 1
        self._profiler.step()
        return self.ended == self.last

    def leave_alone(self) -> None:
        """The device has failed: whoever touches the profiler now may end the process."""
        _kept_alive.extend((self._profiler, self._observer))
        self._profiler = self._observer = None


class Window(_Profiled):
    """The profiled steps. `raw` is the path of the exported trace, None until then."""

    def __init__(self, options: Options, steps: int) -> None:
        from torch.profiler import profile, schedule, supported_activities

        self.steps, self.last = steps, WARM_STEPS + steps
        self.raw: str | None = None
        self._profiler = profile(
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
        self.raw = _new_file(folder, ".recording-")
        profiler.export_chrome_trace(self.raw)

    def drop(self) -> None:
        """Stop the profiler where it runs, and remove what was exported."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()
        if self.raw is not None:
            with suppress(OSError):
                os.remove(self.raw)


class Tensors(_Profiled):
    """The steps with an execution trace of their own; the first that `ended` is warm-up.

    The file holds torch's execution trace (`nodes`), which tells which tensors each op reads and writes, and the events
    of the same steps as the profiler saw them (`ops`): `rf_id` of a node is `Record function id` of an op. Both make
    steps 2 to 7 times longer, hence the extra steps.
    """

    def __init__(self, folder: str) -> None:
        from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

        self.last = 1 + TENSOR_STEPS
        self._folder = folder
        self._paths = [_new_file(folder, ".tensors-") for _ in range(2)]
        self._observer = ExecutionTraceObserver().register_callback(self._paths[0])
        if not self._observer.is_registered:
            self.drop()
            raise RuntimeError("the program has an execution trace observer")
        self._profiler = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=TENSOR_STEPS, repeat=1),
            record_shapes=True,
            execution_trace_observer=self._observer,
        )

    def start(self) -> None:
        """The profiler warms up from here on."""
        self._profiler.start()

    def finish(self) -> None:
        """Stop the profiler, and write both traces. Raises OSError, RuntimeError: they cannot be written."""
        profiler, observer = self._profiler, self._observer
        self._profiler = self._observer = None
        profiler.stop()
        observer.unregister_callback()
        profiler.export_chrome_trace(self._paths[1])

    def merged(self) -> str:
        """Path of both traces as one JSON document. They are put together as texts: parsing takes too long.

        Raises OSError, ValueError: a trace is missing or damaged.
        """
        path = _new_file(self._folder, ".tensors-")
        with open(self._paths[0], "rb") as source:
            nodes = source.read().rstrip()
        if not nodes.endswith(b"}"):
            raise ValueError("the execution trace has no end")
        with open(self._paths[1], "rb") as source, open(path, "wb") as target:
            target.write(nodes[:-1] + b",")
            header = source.read(_HEADER)
            target.write(header[header.index(b"{") + 1 :].replace(b'"traceEvents"', b'"ops"', 1))
            shutil.copyfileobj(source, target)
        return path

    def drop(self) -> None:
        """Stop what runs, and remove the files."""
        profiler, observer = self._profiler, self._observer
        self._profiler = self._observer = None
        if profiler is not None and self.ended <= TENSOR_STEPS:
            profiler.stop()
        if observer is not None:
            observer.unregister_callback()
        for path in self._paths:
            with suppress(OSError):
                os.remove(path)


def _new_file(folder: str, prefix: str) -> str:
    handle, path = tempfile.mkstemp(prefix=prefix, suffix=".json", dir=folder)
    os.close(handle)
    return path
