"""What is measured outside the profiler: times of steps, waits for batches, collections, threads, the driver."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from traceanalyzer.recorder import monitor, process, timer
from traceanalyzer.recorder.monitor import Monitor
from traceanalyzer.recorder.nvml import others, reasons_of
from traceanalyzer.recorder.timer import StepTimer, parts_of


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitor]:
    """A monitor in a program that uses no GPU."""
    cuda = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    watcher = Monitor(os.getpid())
    yield watcher
    watcher.drop()


def test_garbage_collections_are_counted_by_generation(measuring: Monitor) -> None:
    gc.disable()
    try:
        gc.collect(2)
        measuring.start()
        gc.collect(0)
        gc.collect(2)
        result = measuring.stop()["collections"]
        gc.collect(2)
    finally:
        gc.enable()
    assert (result["count"], result["full"]) == (2, 1)
    assert result["ms"] > 0


def test_waits_and_ready_batches_are_listed(measuring: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    class Batches:
        _num_workers, _prefetch_factor, _pin_memory = 2, 3, True
        _worker_result_queue = SimpleNamespace(qsize=lambda: 1)

        def __next__(self) -> str:
            time.sleep(0.005)
            return "batch"

    loader: Any = ModuleType("torch.utils.data.dataloader")
    loader._BaseDataLoaderIter = Batches
    original = Batches.__next__
    monkeypatch.setitem(sys.modules, loader.__name__, loader)
    measuring.start()
    batches = Batches()
    assert [next(batches) for _ in range(3)] == ["batch"] * 3
    result = measuring.stop()["loader"]
    assert Batches.__next__ is original
    assert (result["workers"], result["prefetch_factor"], result["pin_memory"]) == (2, 3, True)
    assert (result["batches"], result["ready"]) == (3, [1] * 3)
    assert min(result["wait_ms"]) >= 5
    assert result["idle_after"] == [None] * 3


def test_a_thread_that_computes_is_listed_with_its_share(measuring: Monitor) -> None:
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, name="augment")
    thread.start()
    time.sleep(0.05)
    measuring.start()
    time.sleep(0.3)
    measuring.step()
    result = measuring.stop()
    stop.set()
    thread.join()
    (entry,) = [entry for entry in result["threads"] if entry["name"] == "augment"]
    assert 0 < entry["cpu"] <= 1.2
    assert result["lock_ms"] is not None


def test_measuring_leaves_nothing_in_the_process(measuring: Monitor) -> None:
    before = list(gc.callbacks)
    measuring.start()
    assert len(gc.callbacks) == len(before) + 1
    measuring.stop()
    assert gc.callbacks == before


def test_driver_and_programs_are_sampled(measuring: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    (child := subprocess.Popen(["sleep", "30"]))
    processes = [{"pid": os.getpid(), "bytes": 9}, {"pid": child.pid, "bytes": 5}, {"pid": 1, "bytes": 7}]
    gpu = SimpleNamespace(
        sample=lambda: {"busy_percent": 80, "sm_mhz": 1500, "slower": 0x4},
        processes=lambda: processes,
        sm_percent=lambda since_us: {1: 40.0},
        close=lambda: None,
    )
    monkeypatch.setattr(monitor.Gpu, "current", lambda: gpu)
    measuring.start()
    measuring.step()
    result = measuring.stop()["gpu"]
    child.kill()
    child.wait()
    assert result == {
        "samples": 1,
        "busy_percent": 80.0,
        "sm_mhz": 1500,
        "slower": ["power cap"],
        "other_processes": [{"pid": 1, "bytes": 7, "sm_percent": 40.0}],
    }


def test_in_a_container_the_largest_process_is_this_one() -> None:
    """Its driver may number processes as the host does."""
    processes = [{"pid": 1 << 30, "bytes": 9}, {"pid": 1 << 29, "bytes": 5}]
    assert others(processes, os.getpid()) == [{"pid": 1 << 29, "bytes": 5}]


def test_reasons_for_low_clocks_are_named() -> None:
    assert reasons_of(0x1 | 0x20) == ["software thermal slowdown"]


# -- times of steps


class Event:
    """Of a device on which steps end at 1, 9 and 29 ms."""

    ends: ClassVar = [1.0, 9.0, 29.0]
    waits: ClassVar[list[float]] = []

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = self.ends.pop(0)

    def synchronize(self) -> None:
        self.waits.append(self.at_ms)

    def elapsed_time(self, end: Event) -> float:
        return end.at_ms - self.at_ms


class Device:
    """The device that was current at the first mark."""

    def __init__(self, number: int) -> None:
        assert number == 2

    def __enter__(self) -> None:
        """It is current."""

    def __exit__(self, *_: object) -> None:
        """It is current no more."""


def test_the_device_times_groups_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of 4 steps take 8 and 20 ms; only the last mark is waited for."""
    drained = iter([False, True, False])
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        current_device=lambda: 2,
        current_stream=lambda: SimpleNamespace(query=lambda: next(drained)),
        device=Device,
        Event=Event,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    step_timer = StepTimer(4)
    assert step_timer.step_ms() == []
    for _ in range(9):
        step_timer.step()
    assert step_timer.steps == 8
    assert step_timer.step_ms() == [2.0, 5.0]
    assert Event.waits == [29.0]
    assert step_timer.drained_share == pytest.approx(1 / 3)


def test_a_clock_times_steps_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    clock = iter([1.0, 1.008, 1.028])
    monkeypatch.setattr(timer, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    step_timer = StepTimer()
    for _ in range(3):
        step_timer.step()
    assert step_timer.step_ms() == [pytest.approx(8.0), pytest.approx(20.0)]
    assert step_timer.drained_share is None


@pytest.mark.parametrize(("available", "cuda", "waits"), [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_accelerator_waits(available: bool, cuda: bool, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    accelerator = SimpleNamespace(is_available=lambda: available, synchronize=lambda: waited.append(1))
    torch: Any = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: cuda, is_initialized=lambda: False), accelerator=accelerator
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    StepTimer().step()
    assert len(waited) == waits


@pytest.mark.parametrize(
    ("times", "parts"), [([1.0, 3.0, 4.0, 6.0, 5.0, 9.0], [2.0, 5.0, 7.0]), ([4.0, 6.0], [4.0, 6.0]), ([], [])]
)
def test_the_three_parts_of_the_times_have_means(times: list[float], parts: list[float]) -> None:
    assert parts_of(times) == parts


@pytest.mark.parametrize(
    ("available", "initialized", "environment", "known"),
    [
        (True, True, {"RANK": "1", "WORLD_SIZE": "2"}, (5, 8)),
        (True, False, {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        (False, True, {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        (True, False, {}, (0, 1)),
        (True, False, {"RANK": "", "WORLD_SIZE": "2"}, (0, 2)),
        (True, False, {"RANK": "first", "WORLD_SIZE": "2"}, (0, 1)),
    ],
)
def test_the_rank_is_that_of_the_job_or_the_launcher(
    available: bool,
    initialized: bool,
    environment: dict[str, str],
    known: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job: Any = SimpleNamespace(
        is_available=lambda: available, is_initialized=lambda: initialized, get_rank=lambda: 5, get_world_size=lambda: 8
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=job))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.distributed", job)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert process.rank_and_world() == known
