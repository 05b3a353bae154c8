"""One recording: skip, time without the profiler, record, time again, write. Driven by `step()` at each step's end."""

from __future__ import annotations

import atexit
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

METADATA = "traceanalyzer_recording"
"""The key of the trace's envelope that holds the times without the profiler, and what `described()` says."""

BLOCKS = 3  # of timed steps: their spread says how sure the time of a step is
WARM_STEPS = 2  # under the profiler before the window: its first steps load its own code
SETTLE_STEPS = 2  # after the window, before steps are timed again: the profiler's buffers are being freed


@dataclass(frozen=True)
class Options:
    """What to record; `skip`, `steps` and `timed` are numbers of steps."""

    path: str
    steps: int = 6
    skip: int = 10
    timed: int = 18
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    stop: bool = False
    every_call_of: str | None = None

    def __post_init__(self) -> None:
        if min(self.steps, self.timed) < 1 or self.skip < 0:
            raise ValueError("steps and timed are at least 1, skip at least 0")


class Session:
    """The phases of a recording in one process.

    Attributes:
        written: path of the trace once it is written, else None.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.written = options, None  # type: Options, str | None
        self._block = -(-options.timed // BLOCKS)
        self._seen, self._profiler, self._raw = 0, None, None  # type: int, Any, str | None
        self._times: dict[str, list[float]] = {"before_ms": [], "after_ms": []}
        self._since = 0.0
        self._closed = False
        timed = self._block * BLOCKS
        self._timed_from = options.skip
        self._recorded_from = self._timed_from + timed
        self._recorded_to = self._recorded_from + WARM_STEPS + options.steps
        self._after_from = self._recorded_to + SETTLE_STEPS
        self._done = self._after_from + timed

    def step(self, unit: str = "step") -> None:
        """One step has ended."""
        if self._closed or _capturing():
            return
        done, self._unit = self._seen, unit
        self._seen += 1
        if self._timed_from <= done <= self._recorded_from:
            self._timed("before_ms", done - self._timed_from)
        if done == self._recorded_from:
            self._start()
        elif self._recorded_from < done <= self._recorded_to:
            self._profiler.step()
            if done == self._recorded_to:
                self._finish_window()
        elif self._after_from <= done <= self._done:
            self._timed("after_ms", done - self._after_from)
            if done == self._done:
                self.close()
                if self.options.stop:
                    raise SystemExit(0)

    def _timed(self, name: str, steps: int) -> None:
        """At every end of a block of steps: how long one of its steps took."""
        if steps % self._block:
            return
        _synchronise()
        now = time.perf_counter()
        if steps:
            self._times[name].append((now - self._since) / self._block * 1e3)
        self._since = now

    def _start(self) -> None:
        from torch.profiler import profile, schedule, supported_activities

        wanted = self.options
        self._profiler = profile(
            activities=supported_activities(),
            schedule=schedule(wait=0, warmup=WARM_STEPS, active=wanted.steps, repeat=1),
            record_shapes=wanted.shapes,
            with_stack=wanted.stacks,
            profile_memory=wanted.memory,
        )
        self._profiler.start()

    def _finish_window(self) -> None:
        """The window is over: its trace goes to a file beside the wanted one until the times after it are known."""
        self._profiler.stop()
        path = path_of_rank(self.options.path)
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        handle, self._raw = tempfile.mkstemp(prefix=".recording-", suffix=".json", dir=folder)
        os.close(handle)
        self._profiler.export_chrome_trace(self._raw)
        self._profiler = None

    def close(self) -> None:
        """Write what there is: the whole recording, or as much as the program had steps for."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._profiler is not None and self._seen - 1 > self._recorded_from + WARM_STEPS:
                self._finish_window()
            elif self._profiler is not None:
                self._profiler.stop()
                self._profiler = None
            if self._raw is None:
                _say(self._too_few())
            else:
                self._write()
        finally:
            if self._raw is not None and os.path.exists(self._raw):
                os.remove(self._raw)

    def give_up(self, error: Exception) -> None:
        """Record no more: the program goes on as if nobody had watched."""
        self._closed = True
        if self._raw is not None and os.path.exists(self._raw):
            os.remove(self._raw)
        _say(f"nothing is recorded: {error}")

    def _too_few(self) -> str:
        if not self._seen:
            return (
                "no step was seen: no optimizer stepped, and no module was called without gradients; "
                "name the function that is one step with --every-call-of pkg.module:function"
            )
        return (
            f"the program ended after {self._seen} steps; the window begins after step "
            f"{self._recorded_from + WARM_STEPS}: lower --skip or --timed"
        )

    def _write(self) -> None:
        from .metadata import described

        path = path_of_rank(self.options.path)
        said = {**described(), **self._times, "unit": self._unit, "options": asdict(self.options)}
        del said["options"]["path"]
        part = f"{path}.part"
        try:
            with open(self._raw or "", "rb") as source, _opened(part, path) as target:
                source.seek(source.read(64).index(b"{") + 1)  # torch puts a blank before it
                target.write(b"{" + json.dumps({METADATA: said})[1:-1].encode() + b",")
                shutil.copyfileobj(source, target, 1 << 20)
            os.replace(part, path)
        finally:
            if os.path.exists(part):
                os.remove(part)
        self.written = path
        _say(f"{path}: {self.options.steps} steps recorded")


def start_from_environment() -> None:
    """In a program under `traceanalyzer record`: a session whose steps are found, and which ends with the program."""
    from .steps import watch

    options = Options(**json.loads(os.environ["TRACEANALYZER_RECORD"]))
    session = Session(options)
    process = os.getpid()

    def step(unit: str) -> None:
        if os.getpid() != process:  # a forked child has the hooks, too, but no profiler
            return
        try:
            session.step(unit)
        except Exception as error:  # the program comes first
            session.give_up(error)

    def close() -> None:
        if os.getpid() == process and (session._seen or watched.could_step):
            session.close()

    watched = watch(step, options.every_call_of)
    atexit.register(close)


def path_of_rank(path: str) -> str:
    """`trace.json.gz` of one process; `trace-rank3.json.gz` of rank 3 of several; `{rank}` is replaced, too."""
    rank, world = os.environ.get("RANK"), int(os.environ.get("WORLD_SIZE") or 1)
    if "{rank}" in path:
        return path.replace("{rank}", rank or "0")
    if world <= 1 or rank is None:
        return path
    ending = next((end for end in (".json.gz", ".json") if path.endswith(end)), "")
    return f"{path.removesuffix(ending)}-rank{rank}{ending}"


def _opened(part: str, path: str) -> Any:
    return gzip.open(part, "wb", compresslevel=5) if path.endswith(".gz") else open(part, "wb")


def _synchronise() -> None:
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may be synchronised then, and no step takes place."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _say(text: str) -> None:
    print(f"traceanalyzer record: {text}", file=sys.stderr, flush=True)
