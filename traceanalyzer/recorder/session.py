"""One recording: skip, time without the profiler, record, time again, write. Driven by `step()` at each step's end."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .metadata import described
from .notes import NO_STEP, NOTHING, PARTLY, STEPPING, WRITTEN, Notes, ending_of
from .timer import StepTimer

METADATA = "traceanalyzer_recording"
"""The key of the trace's envelope that holds the times without the profiler, and what `described()` says."""

BLOCKS = 3  # of timed steps: their spread says how sure the time of a step is
WARM_STEPS = 2  # under the profiler before the window: its first steps load its own code
SETTLE_STEPS = 2  # after the window, before steps are timed again: the profiler's buffers are being freed


@dataclass(frozen=True)
class Options:
    """What to record.

    Attributes:
        path: the trace to write.
        steps, skip, timed: numbers of steps: recorded, left to warm-up, and timed before the window and again after it.
        shapes, stacks, memory: switches of the profiler.
        stop: end the program once all is written.
        every_call_of: `pkg.module:function`, each call of which is a step.
        notes: folder for `Notes`.
    """

    path: str
    steps: int = 6
    skip: int = 10
    timed: int = 24
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    stop: bool = False
    every_call_of: str | None = None
    notes: str | None = None

    def __post_init__(self) -> None:
        if min(self.steps, self.timed) < 1 or self.skip < 0:
            raise ValueError("steps and timed are at least 1, skip at least 0")

    @cached_property
    def block(self) -> int:
        """Steps of a block of timed steps."""
        return -(-self.timed // BLOCKS)

    @cached_property
    def recorded_from(self) -> int:
        """Steps before the profiler starts."""
        return self.skip + self.block * BLOCKS

    @cached_property
    def recorded_to(self) -> int:
        """Steps before the profiler ends."""
        return self.recorded_from + WARM_STEPS + self.steps

    @cached_property
    def timed_again_from(self) -> int:
        """Steps before the second timing starts."""
        return self.recorded_to + SETTLE_STEPS

    @cached_property
    def total(self) -> int:
        """Steps that the whole recording takes."""
        return self.timed_again_from + self.block * BLOCKS


class Session:
    """The phases of a recording in one process.

    Attributes:
        options: what was asked for.
        seen: steps so far.
        written: path of the trace once it is written, else None.
        graphs: whether the program has captured a CUDA graph.
        closed: whether steps no longer matter.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.seen = 0
        self.written: str | None = None
        self.closed = self.graphs = False
        self._notes = Notes(options.notes)
        self._unit = "step"
        self._profiler: Any = None
        self._raw: str | None = None
        self._before = StepTimer(options.block)
        self._after = StepTimer(options.block)

    def step(self, unit: str = "step") -> None:
        """One step has ended.

        Raises:
            SystemExit: the recording is complete, and the program was to stop then.
        """
        if self.closed or _capturing():
            return
        wanted, ended, self._unit = self.options, self.seen, unit
        self.seen += 1
        if 0 < ended < wanted.skip:
            return
        if not ended:
            self._notes.tell(STEPPING, unit)
        if wanted.skip <= ended <= wanted.recorded_from:
            self._mark(self._before, ended - wanted.skip)
        if ended == wanted.recorded_from:
            self._start()
        elif wanted.recorded_from < ended <= wanted.recorded_to:
            self._profiler.step()
            if ended == wanted.recorded_to:
                self._finish_window()
        elif wanted.timed_again_from <= ended <= wanted.total:
            self._mark(self._after, ended - wanted.timed_again_from)
            if ended == wanted.total:
                self.close()
                if wanted.stop:
                    raise SystemExit(0)

    def restart(self) -> bool:
        """Count from the first step again; False where the profiler has been started."""
        if self.seen > self.options.recorded_from:
            return False
        self.seen, self._before = 0, StepTimer(self.options.block)
        return True

    def _mark(self, timer: StepTimer, steps: int) -> None:
        if steps % self.options.block == 0:
            timer.mark()

    def _start(self) -> None:
        from torch.profiler import profile, schedule, supported_activities

        self._before.step_ms()  # the device has caught up
        wanted = self.options
        if not self.graphs or _detaches_from_graphs():
            os.environ.setdefault("TEARDOWN_CUPTI", "1")  # else every launch after the window takes longer
        self._profiler = profile(
            activities=supported_activities(),
            schedule=schedule(wait=0, warmup=WARM_STEPS, active=wanted.steps, repeat=1),
            record_shapes=wanted.shapes,
            with_stack=wanted.stacks,
            profile_memory=wanted.memory,
        )
        self._profiler.start()

    def _finish_window(self) -> None:
        """The window is over: its trace goes to a file of its own until the times after it are known."""
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        folder = self._notes.beside(self.options.path)
        os.makedirs(folder, exist_ok=True)
        handle, self._raw = tempfile.mkstemp(prefix=".recording-", suffix=".json", dir=folder)
        os.close(handle)
        profiler.export_chrome_trace(self._raw)

    def close(self) -> None:
        """Write what there is: the whole recording, or as much as the program had steps for."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._profiler is not None and self._recorded_steps() >= 1:
                self._finish_window()
            if self._raw is None:
                self._notes.tell(NOTHING, self._too_few(), seen=self.seen)
            else:
                self._write(self._raw)
        except Exception as error:  # the program ends as it would have ended
            self._notes.tell(NOTHING, f"the recording could not be written: {error}")
        finally:
            self._clean_up()

    def give_up(self, error: Exception) -> None:
        """Record no more: the program goes on as if nobody had watched."""
        self.closed = True
        self._notes.tell(NOTHING, f"the recording failed: {error}")
        self._clean_up()

    def _clean_up(self) -> None:
        profiler, self._profiler = self._profiler, None
        if self._raw is not None and os.path.exists(self._raw):
            os.remove(self._raw)
        if profiler is not None:
            profiler.stop()

    def _recorded_steps(self) -> int:
        """Whole steps within the window so far."""
        return min(self.seen - 1 - self.options.recorded_from - WARM_STEPS, self.options.steps)

    def _too_few(self) -> str:
        if not self.seen:
            return NO_STEP
        needed = self.options.recorded_from + WARM_STEPS + 2
        return (
            f"the program ended after {self.seen} steps, and the first recorded step ends with step {needed}; "
            "lower --skip or --timed"
        )

    def _write(self, raw: str) -> None:
        path = self._notes.free_path(path_of_rank(self.options.path))
        recorded = self._recorded_steps()
        said = {"format": 1, **described(), "unit": self._unit, "recorded_steps": recorded}
        said |= {"before_ms": self._before.step_ms(), "after_ms": self._after.step_ms()}
        said["options"] = {k: v for k, v in asdict(self.options).items() if k not in ("path", "notes")}
        part = os.path.join(self._notes.beside(path), f".{os.path.basename(path)}.{os.getpid()}.part")
        try:
            with open(raw, "rb") as source, _opened(part, path) as target:
                source.seek(source.read(64).index(b"{") + 1)
                target.write(b"{" + json.dumps({METADATA: said})[1:-1].encode() + b",")
                shutil.copyfileobj(source, target, 1 << 20)
            os.replace(part, path)
        finally:
            if os.path.exists(part):
                os.remove(part)
        self.written = path
        self._notes.tell(WRITTEN, f"{path}: {recorded} step{'s' * (recorded != 1)} recorded", path=path)
        if recorded < self.options.steps or not said["after_ms"]:
            missing = "steps were not timed again after the window"
            if recorded < self.options.steps:
                missing = f"only {recorded} of {self.options.steps} steps were recorded, and {missing}"
            self._notes.tell(PARTLY, f"{path}: the program ended after {self.seen} steps, so {missing}")


def path_of_rank(path: str) -> str:
    """`trace.json.gz` of one process; `trace-rank3.json.gz` of rank 3 of several; `{rank}` is replaced, too."""
    rank, world = rank_and_world()
    if "{rank}" in path:
        return path.replace("{rank}", str(rank))
    if world <= 1:
        return path
    ending = ending_of(path)
    return f"{path.removesuffix(ending)}-rank{rank}{ending}"


def rank_and_world() -> tuple[int, int]:
    """As torch.distributed knows them, else as the launcher set them."""
    import torch.distributed as job

    if job.is_available() and job.is_initialized():
        return job.get_rank(), job.get_world_size()
    try:
        return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    except ValueError:
        return 0, 1


def _opened(part: str, path: str) -> Any:
    return gzip.open(part, "wb", compresslevel=5) if path.endswith(".gz") else open(part, "wb")


def _detaches_from_graphs() -> bool:
    """Whether CUDA's tracer can be detached from a program with CUDA graphs: from 12.6 (pytorch#150957)."""
    import torch

    version = (torch.version.cuda or "0").split(".")
    return tuple(int(part) for part in version[:2]) >= (12, 6)


def _capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may be waited for then, and no step takes place."""
    import torch

    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())
