"""Measures what slows steps while no profiler runs: loaders, garbage collections, allocations, threads, the driver.

Everything is read at the ends of steps, by the thread that runs them. Nothing runs beside the program.
"""

import contextlib
import gc
import os
import sys
import threading
import time
from functools import reduce, wraps
from operator import or_
from statistics import median
from typing import Any

from .nvml import Gpu, others, reasons_of
from .patches import Patches

Times = dict[int, tuple[str, float]]
_SAMPLE_S = 0.1  # between samples of the driver, each of which takes about 0.1 ms
_PROBES = 8  # times the interpreter's lock is let go, to see how long it takes to come back
_LISTED = 512  # waits for batches that are stored


class Monitor:
    """Measurements from `start()` to `stop()`, for steps that no profiler slows."""

    def __init__(self, root: int) -> None:
        self._root = root  # process id: processes that descend from it are the program's
        self._patches = Patches()
        self._loader = _Loader()
        self._collections: list[tuple[int, float]] = []
        self._collecting_s = 0.0
        self._samples: list[dict[str, Any]] = []
        self._probes_ms: list[float] = []
        self._begun: dict[str, Any] = {}
        self._gpu: Gpu | None = None
        self._sampled_s = 0.0

    def start(self) -> None:
        self._gpu = Gpu.current()
        self._begun = {**_state(), "processes": self._processes(), "epoch_us": int(time.time() * 1e6)}
        self._loader.watch(self._patches)
        gc.callbacks.append(self._collected)
        self._patches.on_undo(lambda: gc.callbacks.remove(self._collected))

    def step(self) -> None:
        now = time.perf_counter()
        if self._gpu is not None and now - self._sampled_s >= _SAMPLE_S:
            self._sampled_s = now
            try:
                self._samples.append(self._gpu.sample())
            except OSError:
                self._gpu = None
        if len(self._probes_ms) < _PROBES and threading.active_count() > 1:
            began = time.perf_counter()
            time.sleep(0)
            self._probes_ms.append((time.perf_counter() - began) * 1e3)

    def stop(self) -> dict[str, Any]:
        """What was measured, as JSON has it. The program is as it was before `start()`."""
        self._patches.undo()
        if not self._begun:
            return {}
        ended = _state()
        wall_s = max(ended["wall_s"] - self._begun["wall_s"], 1e-9)
        result: dict[str, Any] = {
            "wall_s": round(wall_s, 6),
            "thread_cpu": round((ended["thread_s"] - self._begun["thread_s"]) / wall_s, 4),
            "collections": {
                "count": len(self._collections),
                "ms": round(sum(ms for _, ms in self._collections), 3),
                "full": sum(generation == 2 for generation, _ in self._collections),  # of the oldest
            },
            "loader": self._loader.result(),
            "threads": _busy_threads(self._begun["threads"], ended["threads"], wall_s),
            "lock_ms": round(median(self._probes_ms), 4) if self._probes_ms else None,
        }
        if ended["allocator"]:
            before = self._begun["allocator"]
            result["allocator"] = {name: n - before.get(name, 0) for name, n in ended["allocator"].items()}
        result["gpu"] = self._driver()
        self.drop()
        return result

    def drop(self) -> None:
        self._patches.undo()
        if self._gpu is not None:
            self._gpu.close()
            self._gpu = None

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.perf_counter()
        elif self._collecting_s:
            self._collections.append((info["generation"], (time.perf_counter() - self._collecting_s) * 1e3))

    def _processes(self) -> list[dict[str, int]]:
        with contextlib.suppress(OSError):
            return [] if self._gpu is None else self._gpu.processes()
        return []

    def _driver(self) -> dict[str, Any] | None:
        """Of the GPU's driver: the mean of its samples, and processes of other programs."""
        if self._gpu is None or not self._samples:
            return None
        bits = reduce(or_, (sample["slower"] for sample in self._samples))
        count = len(self._samples)
        use = self._gpu.sm_percent(self._begun["epoch_us"])
        known = {entry["pid"]: entry for entry in [*self._begun["processes"], *self._processes()]}
        strangers = others(list(known.values()), self._root)
        return {
            "samples": count,
            "busy_percent": round(sum(sample["busy_percent"] for sample in self._samples) / count, 1),
            "sm_mhz": round(sum(sample["sm_mhz"] for sample in self._samples) / count),
            "slower": reasons_of(bits),
            "other_processes": [{**entry, "sm_percent": use.get(entry["pid"])} for entry in strangers],
        }


class _Loader:
    """The waits of the step's thread for batches of torch's DataLoader."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._waits: list[tuple[float, int, bool | None]] = []
        self._settings: dict[str, Any] = {}

    def watch(self, patches: Patches) -> None:
        module = sys.modules.get("torch.utils.data.dataloader")
        if module is not None:
            patches.replace(module._BaseDataLoaderIter, "__next__", self._timed)

    def result(self) -> dict[str, Any] | None:
        """Per batch: ms waited, batches that were ready before, and whether the GPU was idle after it."""
        if not self._waits:
            return None
        waits = self._waits[:_LISTED]
        return {
            **self._settings,
            "batches": len(self._waits),
            "wait_ms": [round(wait, 3) for wait, _, _ in waits],
            "ready": [ready for _, ready, _ in waits],
            "idle_after": [idle for _, _, idle in waits],
        }

    def _timed(self, original: Any) -> Any:
        @wraps(original)
        def next_batch(iterator: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(iterator)
            ready = _ready(iterator)
            began = time.perf_counter()
            batch = original(iterator)
            wait_ms = (time.perf_counter() - began) * 1e3
            self._waits.append((wait_ms, ready, _device_idle()))
            self._settings = {
                "workers": getattr(iterator, "_num_workers", None),
                "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
                "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
            }
            return batch

        return next_batch


def _ready(iterator: Any) -> int:
    """Batches that workers have finished; -1 where that is unknown."""
    queues = [getattr(iterator, name, None) for name in ("_data_queue", "_worker_result_queue")]
    try:
        return next((int(queue.qsize()) for queue in queues if queue is not None), -1)
    except NotImplementedError:  # a platform that cannot count them
        return -1


def _device_idle() -> bool | None:
    """Whether the current stream has nothing to do; None without CUDA."""
    import torch

    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return None
    return bool(torch.cuda.current_stream().query())


def _state() -> dict[str, Any]:
    """Clocks and counters of this process now, in s."""
    return {
        "wall_s": time.perf_counter(),
        "thread_s": time.thread_time(),
        "threads": _thread_times(),
        "allocator": _allocator(),
    }


def _allocator() -> dict[str, int]:
    """Counters of torch's allocator on the current device."""
    import torch

    if not torch.cuda.is_initialized():
        return {}
    stats = torch.cuda.memory_stats()
    names = {"num_alloc_retries": "retries", "num_device_alloc": "allocations", "num_device_free": "frees"}
    return {short: int(stats[name]) for name, short in names.items() if name in stats}


def _thread_times() -> Times:
    """native id -> (name, CPU s) of the Python threads of this process but the current one; empty off Linux."""
    times = {}
    for thread in threading.enumerate():
        native = thread.native_id
        if native is None or thread is threading.current_thread():
            continue
        try:
            with open(f"/proc/self/task/{native}/stat", encoding="utf-8", errors="replace") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:
            continue
        times[native] = (thread.name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return times


def _busy_threads(before: Times, after: Times, wall_s: float) -> list[dict[str, Any]]:
    """Python threads that were there all the time and used the CPU, busiest first."""
    used = [
        {"name": name, "cpu": round((cpu_s - before[native][1]) / wall_s, 3)}
        for native, (name, cpu_s) in after.items()
        if native in before and cpu_s > before[native][1]
    ]
    return sorted(used, key=lambda entry: -entry["cpu"])
