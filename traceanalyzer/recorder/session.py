"""One recording: skip, time without the profiler, record, time again, write. Driven by `step()` at each step's end."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from statistics import median
from typing import Any

from . import notes
from .files import Recording, path_of_rank
from .metadata import described
from .monitor import Monitor
from .options import FEWEST, LONG_STEP_S, SETTLE_STEPS, SHORT_S, WARM_STEPS, Options, enough
from .patches import Patches
from .process import capturing, compilations, device_works, error_name, rank_and_world
from .rivals import Rivals
from .timer import StepTimer, parts_of, rounded, settled
from .window import Tensors, Window

METADATA = "traceanalyzer_recording"
"""The key of the trace's envelope that holds the times without the profiler, and what `described()` says."""

FORMAT = 2
_ATTEMPTS = 3  # to record between the windows of a profiler of the program
_REPEATS = 3  # timings that are thrown away for that
_SHORTEST_MS = 0.5  # a step of less is not marked by itself

SKIPPING, TIMING, WAITING, RECORDING = "skipping", "timing", "waiting", "recording"
OBSERVING, SETTLING, AGAIN = "observing", "settling", "timing_again"


class Session:
    """The phases of a recording in one process.

    Attributes:
        doubt: returns why a step may not be what the user takes for one; None where it is sure.
        closed: whether steps no longer matter.
        device_failed: whether the device failed while the profiler ran: then nothing may touch the profiler.
        at_close: called once, when the session needs the program's steps no more.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.seen = 0
        self.written: str | None = None
        self.closed = self.graphs = self.device_failed = False
        self.doubt: Callable[[], str | None] = lambda: None
        self.at_close: Callable[[], None] = lambda: None
        self._notes = notes.Notes(options.notes)
        self._patches = Patches()
        self._rivals = Rivals(self._patches)
        self._rivals.starting = self._make_way
        self._rivals.observing = self._drop_tensors
        self._unit = "step"
        self._rank, self._world = 0, 1
        self._phase = SKIPPING
        self._phase_steps = 0
        self._already = 0
        self._phase_from_s = self._timing_from_s = time.perf_counter()
        self._timer = StepTimer()
        self._monitor: Monitor | None = None
        self._compiled = 0
        self._window: Window | None = None
        self._tensors: Tensors | None = None
        self._tensors_done = False
        self._settled = True
        self._attempts = 0
        self._repeats = 0  # of timings without a compilation
        self._begun = False
        self._results: dict[str, dict[str, Any]] = {}

    def step(self, unit: str = "step") -> None:
        """One step has ended. Raises SystemExit: the recording is complete, and the program was to stop then."""
        if self.closed:
            return
        try:
            if capturing():
                return
            self._unit = unit
            self.seen += 1
            self._phase_steps += 1
            if not self._begun:
                self._begun, self._phase_from_s = True, time.perf_counter()
                self._remember_rank()
                self._notes.tell(notes.STEPPING, self._unit)
            getattr(self, f"_while_{self._phase}")()
        except Exception as error:  # the program comes first
            self.give_up(error)

    def restart(self, already: int = 0) -> bool:
        """Count from the first step again, of which there were `already` some; False once the profiler has started."""
        if self._phase not in (SKIPPING, TIMING):
            return False
        self._begin_timing_again()
        self.seen = self._phase_steps = self._already = already
        self._phase, self._phase_from_s = SKIPPING, time.perf_counter()
        return True

    @property
    def _alone(self) -> bool:
        return self._world <= 1

    def _enter(self, phase: str) -> None:
        self._phase, self._phase_steps, self._phase_from_s = phase, 0, time.perf_counter()

    def _while_skipping(self) -> None:
        elapsed_s = time.perf_counter() - self._phase_from_s
        if not enough(self._phase_steps - 1, self.options.skip, elapsed_s, alone=self._alone):
            return
        every, known = 1, self._phase_steps - self._already - 1
        if known >= FEWEST and elapsed_s > 0:
            step_ms = elapsed_s * 1e3 / known
            every = max(1, min(int(-(-_SHORTEST_MS // step_ms)), self.options.timed // FEWEST))
        self._timing_from_s = time.perf_counter()
        self._enter(TIMING)
        self._time(every)

    def _time(self, every: int) -> None:
        """Steps are timed from here on, without any profiler."""
        self._compiled = compilations()
        self._timer = StepTimer(every)
        self._monitor = Monitor(self.options.root or os.getpid())
        self._monitor.start()
        self._timer.step()

    def _while_timing(self) -> None:
        if self._rivals.running():
            self._begin_timing_again()
            self._enter(WAITING)
            return
        if not self._timed():
            return
        waited_s = time.perf_counter() - self._timing_from_s
        compiling = self._compiled != compilations()
        waits = self._alone and self.options.max_wait
        long = self._timer.elapsed_s >= SHORT_S
        if waits and (compiling or (long and not settled(self._timer.clock_ms))):
            self._repeats += not compiling
            if waited_s < self.options.max_wait and self._repeats <= _REPEATS:
                self._begin_timing_again()
                self._time(self._timer.every)
                return
            self._settled = False
        self._keep_times("before")
        self._enter(WAITING)
        self._while_waiting()

    def _timed(self) -> bool:
        """Whether enough steps are timed, this one included."""
        assert self._monitor is not None
        self._timer.step()
        self._monitor.step()
        return enough(self._timer.steps, self.options.timed, self._timer.elapsed_s, alone=self._alone)

    def _begin_timing_again(self) -> None:
        if self._monitor is not None:
            self._monitor.drop()
            self._monitor = None

    def _keep_times(self, name: str) -> None:
        assert self._monitor is not None
        timer, monitor, self._monitor = self._timer, self._monitor, None
        measured = monitor.stop()
        self._results[name] = {
            "every": timer.every,
            "step_ms": rounded(timer.step_ms()),
            "clock_ms": rounded(timer.clock_ms),
            "drained_share": timer.drained_share,
            **measured,
        }

    def _while_waiting(self) -> None:
        if self._rivals.running():
            return
        if "before" not in self._results:
            self._timing_from_s = time.perf_counter()
            self._enter(TIMING)
            self._time(1)
            return
        if self._notes.abandoned:
            self._end()
            return
        self._remember_rank()
        times = self._results["before"]["clock_ms"]
        long_steps = bool(times) and median(times) >= LONG_STEP_S * 1e3
        self._attempts += 1
        with self._rivals.recorder_acts():
            steps = min(self.options.steps, 2) if long_steps else self.options.steps
            self._window = Window(self.options, steps)
            self._window.start(graphs=self.graphs)
        self._compiled = compilations()
        self._enter(RECORDING)

    def _while_recording(self) -> None:
        assert self._window is not None
        with self._rivals.recorder_acts():
            if not self._window.step():
                return
            self._finish_window()
        if not self.options.wants_tensors(self._results["before"]["clock_ms"], self._world):
            self._enter(SETTLING)
            return
        try:
            with self._rivals.recorder_acts():
                self._tensors = Tensors(self._notes.workspace(self.options.path))
                self._tensors.start()
        except Exception as error:
            self._without_tensors(error)
        else:
            self._enter(OBSERVING)

    def _finish_window(self) -> None:
        """The window is over: its trace goes to a file of its own until the times after it are known."""
        assert self._window is not None
        self._results["window"] = {"compilations": compilations() - self._compiled}
        self._window.export(self._notes.workspace(self.options.path))
        # If the program is killed from here on, the command publishes this.
        if self._notes.folder is not None:
            self._recording().save()

    def _while_settling(self) -> None:
        if self._phase_steps < SETTLE_STEPS or self._rivals.running():
            return
        every = self._results["before"]["every"]
        self._enter(AGAIN)
        self._time(every)

    def _while_timing_again(self) -> None:
        if self._rivals.running():
            self._begin_timing_again()
            self._enter(SETTLING)
            return
        if not self._timed():
            return
        self._keep_times("after")
        self.close()
        if self.options.stop:
            raise SystemExit(0)

    def _while_observing(self) -> None:
        assert self._tensors is not None
        try:
            with self._rivals.recorder_acts():
                if not self._tensors.step():
                    return
                self._tensors.finish()
            self._tensors_done = True
        except Exception as error:
            self._without_tensors(error)
        else:
            self._enter(SETTLING)

    def _without_tensors(self, error: Exception) -> None:
        self._notes.tell(notes.NOTED, f"no execution trace is recorded: {error}")
        self._drop_tensors()
        self._enter(SETTLING)

    def _drop_tensors(self) -> None:
        """The execution trace is given up; what is complete stays."""
        if self._tensors is None or self._tensors_done:
            return
        tensors, self._tensors = self._tensors, None
        with self._rivals.recorder_acts():
            tensors.drop()
        self._enter(SETTLING)

    def _make_way(self) -> None:
        """A profiler of the program is about to start: torch has room for one."""
        if self.closed:
            return
        try:
            self._drop_tensors()
            if self._phase != RECORDING or self._window is None:
                return
            with self._rivals.recorder_acts():
                if self._window.recorded:
                    self._finish_window()
                    self._enter(SETTLING)
                else:
                    self._window.drop()
                    self._window = None
                    self._enter(WAITING)
            if self._window is None and self._attempts >= _ATTEMPTS:
                self._notes.tell(notes.NOTHING, notes.RIVAL_TEXT, seen=self.seen)
                self._report_rivals()
                self._end()
        except Exception as error:  # the program comes first
            self.give_up(error)

    def _report_rivals(self) -> None:
        for path in self._rivals.traces:
            self._notes.tell(notes.RIVAL, path, path=path)

    def close(self) -> None:
        """Write what there is: the whole recording, or as much as the program had steps for."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._notes.abandoned:
                return
            if not device_works():
                self._leave_failed_device()
            elif self._phase == RECORDING and self._window is not None and self._window.recorded:
                with self._rivals.recorder_acts():
                    self._finish_window()
            # Steps that were timed again before the program ended count, if they fill the three parts.
            if self._phase == AGAIN and self._monitor is not None and self._timer.steps >= FEWEST:
                self._keep_times("after")
            if self._window is not None and self._window.raw is not None:
                self._write()
            else:
                self._notes.tell(notes.NOTHING, self._why_nothing(), seen=self.seen, error=error_name())
        except Exception as error:  # the program ends as it would have ended
            self._notes.tell(notes.NOTHING, f"the recording could not be written: {error}")
        finally:
            self._report_rivals()
            self._end()

    def give_up(self, error: Exception) -> None:
        """Record no more: the program goes on as if nobody had watched."""
        self.closed = True
        if not device_works():
            self._leave_failed_device()
        reason = str(error).partition("\n")[0]
        self._notes.tell(notes.NOTHING, f"the recording failed: {reason}", seen=self.seen)
        self._end()

    def _end(self) -> None:
        """Leave nothing in the program."""
        self.closed = True
        self._begin_timing_again()
        window, self._window = self._window, None
        tensors, self._tensors = self._tensors, None
        with self._rivals.recorder_acts():
            for part in (window, tensors):
                if part is not None:
                    with suppress(Exception):
                        part.drop()
        self.leave()

    def leave(self) -> None:
        """Take every change of the program's modules back."""
        self._patches.undo()
        self.at_close()

    def _leave_failed_device(self) -> None:
        """Nothing may touch the profiler any more, and no time can be read from the device."""
        self._timer = StepTimer()
        if self._phase == RECORDING and self._window is not None:
            self._window.leave_alone()
            self._window = None
            self.device_failed = True
        if self._tensors is not None and not self._tensors_done:
            self._tensors.leave_alone()
            self._tensors = None
            self.device_failed = True

    def _why_nothing(self) -> str:
        running = self._phase != RECORDING and self._rivals.running()
        timing, options = self._phase == TIMING, self.options
        return notes.why_nothing(
            self.seen,
            rival=running or (self._rivals.seen and self._phase in (TIMING, WAITING)),
            device_failed=self.device_failed,
            unsettled=timing and self.seen > options.skip + 2 * options.timed,
            needed=options.skip + options.timed + WARM_STEPS + 2,
        )

    def _remember_rank(self) -> None:
        """The rank while the job is there: at its end it may have been taken down."""
        rank, world = rank_and_world()
        if world >= self._world:
            self._rank, self._world = rank, world

    def _metadata(self, recorded: int) -> dict[str, Any]:
        options = asdict(self.options)
        before, after = (self._results.get(name, {}).get("step_ms", []) for name in ("before", "after"))
        return {
            "format": FORMAT,
            **described(),
            "unit": self._unit,
            "doubt": self.doubt(),
            "recorded_steps": recorded,
            "before_ms": parts_of(before),
            "after_ms": parts_of(after),
            "settled": self._settled,
            "rank": self._rank,
            "world": self._world,
            "error": error_name(),
            "measured": self._results,
            "options": {k: v for k, v in options.items() if k not in ("path", "notes", "root", "force")},
        }

    def _recording(self, **more: Any) -> Recording:
        window = self._window
        assert window is not None
        assert window.raw is not None
        return Recording(
            path=path_of_rank(self.options.path, self._rank, self._world),
            raw=window.raw,
            metadata=self._metadata(window.recorded),
            recorded=window.recorded,
            rank=self._rank,
            world=self._world,
            cut_off=window.cut_off,
            **more,
        )

    def _write(self) -> None:
        """Hand the recording over to the command, or publish it where there is none."""
        assert self._window is not None
        recording = self._recording(
            tensors=self._tensor_file(),
            missing=notes.what_is_missing(
                self.seen,
                self._window.recorded,
                self._window.steps,
                timed_again="after" in self._results,
                rival=self._rivals.seen,
            ),
            notes=tuple(notes.doubts(self.doubt(), self._settled, self.options.max_wait)),
        )
        if self._notes.folder is not None:
            recording.save()
            self.written = recording.path
            self._window.raw = None  # the command needs the file
            self._notes.tell(notes.READY, recording.raw, raw=recording.raw)
            return
        try:
            self.written = recording.publish(METADATA, force=self.options.force)
        finally:
            recording.discard()
        for text in recording.told(self.written):
            self._notes.tell(notes.NOTED, text)

    def _tensor_file(self) -> str | None:
        if self._tensors is None or not self._tensors_done:
            return None
        try:
            return self._tensors.merged()
        except (OSError, ValueError) as error:
            self._notes.tell(notes.NOTED, f"the execution trace could not be written: {error}")
            return None
