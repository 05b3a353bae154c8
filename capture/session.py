"""Runs a plan: warm-up, times without the profiler, then the profiled window."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capture.device import Device
from capture.errors import CaptureError
from capture.workload import Plan, Window

REPEATS = 3
ROW_FIELDS = (
    "key",
    "count",
    "self_cpu_time_total",
    "cpu_time_total",
    "self_device_time_total",
    "device_time_total",
    "self_cpu_memory_usage",
    "cpu_memory_usage",
    "self_device_memory_usage",
    "device_memory_usage",
    "device_type",
    "is_user_annotation",
)


@dataclass(frozen=True, slots=True)
class Switches:
    """What the profiler records beside times; each costs time in the window."""

    memory: bool = False
    shapes: bool = False
    stacks: bool = False
    flops: bool = False
    modules: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that one run yields, not yet scrubbed. `rows`: times in us, memory in bytes."""

    trace_text: str
    table_text: str
    rows: list[dict[str, Any]]
    unprofiled_step_ms: list[float]
    timed: str


@dataclass(frozen=True, slots=True)
class Session:
    """How to record: device, window, switches, steps per repeat of the unprofiled times."""

    device: Device
    window: Window
    switches: Switches = Switches()
    scheduled: bool = True
    timed_steps: int = 10

    def record(self, plan: Plan) -> Recording:
        """Warm up, time without the profiler, profile. A cold plan is timed afterwards."""
        cold = plan.warm_steps == 0
        with plan.company():
            self._warm_up(plan)
            before = [] if cold else self._unprofiled_step_ms(plan)
            trace_text, table_text, rows = self._profile(plan)
            times = self._unprofiled_step_ms(plan) if cold else before
        return Recording(trace_text, table_text, rows, times, "after" if cold else "before")

    def _warm_up(self, plan: Plan) -> None:
        """At least `warm_steps` steps and, on a GPU, `warm_seconds` seconds."""
        seconds = plan.warm_seconds if self.device.is_gpu and plan.warm_steps else 0.0
        deadline = time.perf_counter() + seconds
        done = 0
        while done < plan.warm_steps or time.perf_counter() < deadline:
            plan.step()
            done += 1
            if done % 10 == 0:
                self.device.synchronize()
        self.device.synchronize()

    def _unprofiled_step_ms(self, plan: Plan) -> list[float]:
        """Milliseconds per step without the profiler: three repeats, sorted."""
        times = []
        for _ in range(REPEATS):
            self.device.synchronize()
            start = time.perf_counter_ns()
            for _ in range(self.timed_steps):
                plan.step()
            self.device.synchronize()
            times.append((time.perf_counter_ns() - start) / self.timed_steps / 1e6)
        return sorted(round(value, 4) for value in times)

    def _profile(self, plan: Plan) -> tuple[str, str, list[dict[str, Any]]]:
        """The trace's text, the table and its rows."""
        from torch.profiler import profile

        window = self.window
        results: list[tuple[str, str, list[dict[str, Any]]]] = []
        with _expected_warnings():
            options = self._profiler_options()

        def collect(profiler: Any) -> None:
            results.append(self._collect(profiler))

        plan.arm(window)
        with _expected_warnings(), profile(on_trace_ready=collect, **options) as profiler:
            for _ in range(window.steps if self.scheduled else window.active):
                plan.step()
                if self.scheduled:
                    profiler.step()
            if not self.scheduled:
                self.device.synchronize()
        # With a schedule no call of ours ends the window: torch's profiler waits for the device
        # itself when the last step is over. A call inside the step would look like the user's.
        if not results:
            raise CaptureError("the profiler kept nothing: check --wait, --warmup and --active")
        return results[0]

    def _profiler_options(self) -> dict[str, Any]:
        """Keyword arguments of torch.profiler.profile."""
        from torch.profiler import ProfilerActivity, schedule

        window = self.window
        steps = None
        if self.scheduled:
            steps = schedule(wait=window.wait, warmup=window.warmup, active=window.active, repeat=1)
        activities = [ProfilerActivity.CPU]
        if self.device.is_gpu:
            activities.append(ProfilerActivity.CUDA)
        return {
            "activities": activities,
            "schedule": steps,
            "profile_memory": self.switches.memory,
            "record_shapes": self.switches.shapes,
            "with_stack": self.switches.stacks,
            "with_flops": self.switches.flops,
            "with_modules": self.switches.modules,
        }

    def _collect(self, profiler: Any) -> tuple[str, str, list[dict[str, Any]]]:
        """Export while the profiler still holds the window."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            trace_text = path.read_text(encoding="utf-8", errors="surrogateescape")
        averages = profiler.key_averages()
        table_text = averages.table(
            sort_by="cuda_time_total" if self.device.is_gpu else "cpu_time_total",
            row_limit=40,
            max_name_column_width=80,
        )
        return trace_text, str(table_text), [_row(average) for average in averages]


@contextmanager
def _expected_warnings() -> Iterator[None]:
    """Without torch's warnings about what is wanted here: one cycle, and at times no warm-up."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Profiler won't be using warmup")
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events at the end of each cycle")
        yield


def _row(average: Any) -> dict[str, Any]:
    """One row of `key_averages()`, exact; torch 2.4 still says cuda where later ones say device."""
    row: dict[str, Any] = {}
    for name in ROW_FIELDS:
        older = name.replace("device", "cuda")
        row[name] = getattr(average, name, getattr(average, older, None))
    row["device_type"] = str(row["device_type"])
    row["is_user_annotation"] = bool(row["is_user_annotation"])
    return row
