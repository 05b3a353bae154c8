"""An execution trace: which tensors each op reads and writes, of steps of their own.

The file holds torch's execution trace (`nodes`), and the events of the same steps as the profiler saw them (`ops`):
`rf_id` of a node is `Record function id` of an op. Both make steps 2 to 7 times longer, hence the extra steps.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from typing import Any

from .options import TENSOR_STEPS
from .window import KEPT_ALIVE

_HEADER = 1 << 16  # bytes: the events begin within them


class Tensors:
    """The steps with an execution trace; the first that `ended` is warm-up."""

    def __init__(self, folder: str) -> None:
        from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

        self.ended = 0
        self._folder = folder
        self._paths = [self._file(), self._file()]
        self._observer: Any = ExecutionTraceObserver().register_callback(self._paths[0])
        if not self._observer.is_registered:
            self.drop()
            raise RuntimeError("the program has an execution trace observer")
        self._profiler: Any = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=TENSOR_STEPS, repeat=1),
            record_shapes=True,
            execution_trace_observer=self._observer,
        )

    def start(self) -> None:
        """The profiler warms up from here on."""
        self._profiler.start()

    def step(self) -> bool:
        """A step has ended; whether it was the last one."""
        self.ended += 1
        self._profiler.step()
        return self.ended == 1 + TENSOR_STEPS

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
        path = self._file()
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
        profiler, observer = getattr(self, "_profiler", None), self._observer
        self._profiler = self._observer = None
        if profiler is not None and self.ended <= TENSOR_STEPS:
            profiler.stop()
        if observer is not None:
            observer.unregister_callback()
        for path in self._paths:
            with suppress(OSError):
                os.remove(path)

    def leave_alone(self) -> None:
        """The device has failed: whoever touches the profiler now may end the process."""
        KEPT_ALIVE.extend((self._profiler, self._observer))
        self._profiler = self._observer = None

    def _file(self) -> str:
        handle, path = tempfile.mkstemp(prefix=".tensors-", suffix=".json", dir=self._folder)
        os.close(handle)
        return path
