"""A stand-in for torch that computes nothing, and is imported in no time. Like torch it has room for one profiler.

Programs of tests find it as `torch`. It has what the recorder hooks into: optimizers, modules, graphs and profilers.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

__version__ = "0.0"
__path__: list[str] = []


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(f"torch.{name}")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    return module


class Handle:
    """What removes a hook."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)

    def remove(self) -> None:
        self._hooks.remove(self._hook)


class Optimizer:
    """Its step takes as long as it is told."""

    after: ClassVar[list[Any]] = []

    def __init__(self, step_s: float = 0.0) -> None:
        self.step_s = step_s

    def step(self) -> None:
        time.sleep(self.step_s)
        for hook in list(Optimizer.after):
            hook(self, (), {})


class Module:
    """A module without parameters."""

    def compile(self) -> None:
        """Nothing is compiled."""


class CUDAGraph:
    """A graph without work."""

    def capture_begin(self) -> None:
        """Nothing is captured."""

    def replay(self) -> None:
        """Nothing is replayed."""


def _prepare() -> None:
    if _profiler._is_profiler_enabled:
        raise RuntimeError("a profiler is enabled already")


def _enable() -> None:
    _profiler._is_profiler_enabled = True


def _disable() -> None:
    if not _profiler._is_profiler_enabled:
        raise RuntimeError("no profiler is enabled")
    _profiler._is_profiler_enabled = False


class _Profile:
    """As torch's: `step()` ends a step; its export has the marks of steps."""

    def __init__(self, *, schedule: dict[str, int] | None = None, **switches: Any) -> None:
        self._schedule = schedule or {"wait": 0, "warmup": 0, "active": 1 << 30}
        self._ends_us: list[float] = []

    def start(self) -> None:
        _profiler._prepare_profiler()
        _profiler._enable_profiler()
        self._ends_us.append(time.perf_counter() * 1e6)

    def step(self) -> None:
        self._ends_us.append(time.perf_counter() * 1e6)
        skipped = self._schedule["wait"] + self._schedule["warmup"]
        if len(self._ends_us) == 1 + skipped + self._schedule["active"]:
            self.stop()

    def stop(self) -> None:
        if _profiler._is_profiler_enabled:
            _profiler._disable_profiler()

    def export_chrome_trace(self, path: str) -> None:
        first = self._schedule["wait"] + self._schedule["warmup"]
        spans = list(itertools.pairwise(self._ends_us))[first:]
        events = [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{first + n}", "pid": 1, "tid": 1}
            | {"ts": begin, "dur": end - begin}
            for n, (begin, end) in enumerate(spans)
        ]
        with open(path, "w", encoding="utf-8") as stream:
            json.dump({"traceEvents": events}, stream)

    def __enter__(self) -> _Profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def backward(loss: object = None) -> None:
    """Nothing is differentiated."""


def compile(model: Any, **options: Any) -> Any:
    """The model."""
    return model


def _none(*_: Any, **__: Any) -> None:
    """Nothing."""


_profiler: Any = _module(
    "autograd.profiler",
    _prepare_profiler=_prepare,
    _enable_profiler=_enable,
    _disable_profiler=_disable,
    _is_profiler_enabled=False,
    profile=type("profile", (), {"export_chrome_trace": _none}),
)
autograd = _module("autograd", backward=backward, profiler=_profiler)
_kineto = _module("profiler.profiler", _KinetoProfile=_Profile, _add_execution_trace_observer=_none)
profiler = _module(
    "profiler", profiler=_kineto, profile=_Profile, schedule=lambda **steps: steps, supported_activities=list
)
_optimizer = _module(
    "optim.optimizer", Optimizer=Optimizer, register_optimizer_step_post_hook=lambda hook: Handle(Optimizer.after, hook)
)
optim = _module("optim", optimizer=_optimizer, SGD=Optimizer)
_hooks: list[Callable[..., None]] = []
_one_module = _module("nn.modules.module", register_module_forward_pre_hook=lambda hook: Handle(_hooks, hook))
nn = _module("nn", Module=Module, modules=_module("nn.modules", module=_one_module))
distributed = _module("distributed", is_available=lambda: False)
compiler = SimpleNamespace(is_compiling=lambda: False)
version = SimpleNamespace(cuda=None, hip=None)
cuda = SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False, CUDAGraph=CUDAGraph)
