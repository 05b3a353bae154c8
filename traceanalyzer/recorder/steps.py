"""Finds the steps of a program that nobody edited: optimizer steps, replays of graphs, forward passes, or a function.

An optimizer's step ends a step of training: of several optimizers the first one's. Where none is made, a step is a
replay of a CUDA graph that holds no call of torch, or else the forward pass of the outermost module without gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_FORWARD = "forward pass"
SURE_AFTER = 3  # events of a kind before it is taken for steps: models are built and tried before they run

Step = Callable[[str], None]


class Watch:
    """Counts what could be steps, and hands on those of the first kind that recurs.

    Attributes:
        kind: of the events that are taken for steps; None until one recurs.
        could_step: whether the program has a module or an optimizer at all: then no step is worth a word.
        trains: whether it has made an optimizer.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.kind: str | None = None
        self._owner: object = None
        self._seen: dict[tuple[str, int], int] = {}
        self.could_step = False
        self.trains = False

    def event(self, kind: str, owner: object) -> None:
        """Something ended that could be a step; of each kind the owner that comes first is followed."""
        if self.kind is None:
            key = kind, id(owner)
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] < SURE_AFTER:
                return
            self.kind, self._owner = kind, owner
        if kind == self.kind and owner is self._owner:
            self.step(kind)


def watch(step: Step, every_call_of: str | None = None) -> Watch:
    """Hooks into torch of this process; `step(kind)` is called at the end of each step."""
    found = Watch(step)
    if every_call_of is not None:
        found.could_step = True
        _watch_calls(every_call_of, found)
        return found
    _watch_optimizers(found)
    _watch_graphs(found)
    _watch_modules(found)
    return found


def _watch_optimizers(found: Watch) -> None:
    from torch.optim import optimizer

    made = optimizer.Optimizer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        found.could_step = found.trains = True
        made(self, *args, **kwargs)

    optimizer.Optimizer.__init__ = init  # type: ignore[method-assign]
    optimizer.register_optimizer_step_post_hook(lambda one, args, kwargs: found.event("optimizer step", one))


def _watch_graphs(found: Watch) -> None:
    import torch

    replay = torch.cuda.CUDAGraph.replay

    def replayed(self: Any) -> None:
        replay(self)
        found.event("graph replay", self)

    torch.cuda.CUDAGraph.replay = replayed  # type: ignore[method-assign]


def _watch_modules(found: Watch) -> None:
    """The outermost module's forward passes. While it runs no hook of all modules is there, so none is slowed."""
    import torch
    from torch.nn.modules import module

    followed: Any = None

    def enter(one: Any, args: Any) -> None:
        nonlocal followed, everywhere
        everywhere.remove()
        found.could_step = True
        if not found.trains and found.kind in (None, _FORWARD):
            followed = one.register_forward_hook(leave, always_call=True)

    def leave(one: Any, args: Any, result: Any) -> None:
        nonlocal everywhere
        if not found.trains and not torch.is_grad_enabled():
            found.event(_FORWARD, one)
        if found.kind != _FORWARD:
            followed.remove()
        if found.kind is None:
            everywhere = module.register_module_forward_pre_hook(enter)

    everywhere = module.register_module_forward_pre_hook(enter)


def _watch_calls(named: str, found: Watch) -> None:
    """Every return of `pkg.module:function`; `__main__:function` is one of the script itself.

    Raises:
        ValueError: the name has no colon, or this Python is older than 3.12, which cannot watch single functions.
    """
    where, colon, function = named.partition(":")
    if not colon:
        raise ValueError(f"--every-call-of {named}: give pkg.module:function")
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        raise ValueError("--every-call-of needs Python 3.12 or later")
    tool, events = monitoring.PROFILER_ID, monitoring.events
    monitoring.use_tool_id(tool, "traceanalyzer record")

    def returned(code: Any, *_: Any) -> Any:
        if code.co_qualname != function or sys._getframe(1).f_globals.get("__name__") != where:
            return monitoring.DISABLE
        found.step("call")
        return None

    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.set_events(tool, events.PY_RETURN)
