"""A torch that notes what a session does to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.recorder.worlds import Profiler, Timer, World
from traceanalyzer.recorder import session


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: made.capturing)
    profiler = SimpleNamespace(
        profile=lambda **asked: Profiler(made, **asked),
        schedule=lambda **told: told,
        supported_activities=lambda: ["cpu", "gpu"],
    )
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="12.4"), profiler=profiler)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)  # type: ignore[arg-type]
    monkeypatch.setattr(session, "StepTimer", lambda block: Timer(made, block))
    monkeypatch.setattr(session, "described", lambda: {"torch": "2"})
    monkeypatch.setattr(session, "rank_and_world", lambda: (0, 1))
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    yield made
    os.environ.pop("TEARDOWN_CUPTI", None)
