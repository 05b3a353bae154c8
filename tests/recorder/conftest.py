"""A session in a world that notes what it does to torch."""

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.recorder.worlds import Monitor, Profiler, Rivals, Tensors, World
from traceanalyzer.recorder import session, timer


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    cuda = SimpleNamespace(
        is_available=lambda: False,
        is_initialized=lambda: world.capturing or world.device_failed,
        is_current_stream_capturing=lambda: world.capturing,
        current_device=lambda: 0,
        synchronize=world.synchronize,
    )
    profiler = SimpleNamespace(
        profile=lambda **asked: Profiler(world, **asked),
        schedule=lambda **asked: asked,
        supported_activities=lambda: ["cpu", "gpu"],
    )
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="12.4"), profiler=profiler)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)  # type: ignore[arg-type]
    clock = SimpleNamespace(perf_counter=lambda: world.clock_s)
    for module in (session, timer):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(session, "Monitor", lambda root: Monitor(world))
    monkeypatch.setattr(session, "Rivals", lambda patches: Rivals(world))
    monkeypatch.setattr(session, "Tensors", lambda folder: Tensors(world, folder))
    monkeypatch.setattr(session, "described", lambda: {"torch": "2"})
    monkeypatch.setattr(session, "rank_and_world", lambda: world.rank_and_world)
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    yield world
    os.environ.pop("TEARDOWN_CUPTI", None)
