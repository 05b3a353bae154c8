"""Finds the steps of a program that nobody edited: optimizer steps, replays of graphs, forward passes, or a function.

An optimizer's step ends a step of training: of several optimizers the first one's. Where none steps, a step is a
replay of a CUDA graph, or else the forward pass of the outermost module that has parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

OPTIMIZER, GRAPH, FORWARD, CALL = "optimizer step", "graph replay", "forward pass", "call"
_PREFERRED = {OPTIMIZER: 0, GRAPH: 1, FORWARD: 2}
SURE_AFTER = 3  # events of a kind before it is taken for steps: models are built and tried before they run
SILENT_AFTER = 12  # replays without a step of the optimizer: then it is in the graph, and stepped only before capture

Step = Callable[[str], None]


class Watch:
    """Counts what could be steps, and hands on those of the best kind that recurs.

    Attributes:
        kind: of the events that are taken for steps; None until one recurs.
        could_step: whether the program has a module with parameters or an optimizer: then no step is worth a word.
    """

    def __init__(self, step: Step, restart: Callable[[], bool]) -> None:
        self.kind: str | None = None
        self.could_step = False
        self._step, self._restart = step, restart
        self._owner = 0  # its id: a reference would keep a model alive
        self._seen: dict[tuple[str, int], int] = {}
        self._replays = 0  # since the optimizer stepped
        self._settled = False

    def event(self, kind: str, owner: object) -> None:
        """Something ended that could be a step; of each kind the owner that recurs first is followed."""
        if not self._settled and (kind != self.kind or id(owner) != self._owner):
            self._compare(kind, owner)
        if kind == self.kind and id(owner) == self._owner:
            self._step(kind)

    def silent(self, kind: str) -> bool:
        """Whether events of this kind no longer matter."""
        return self.kind is not None and _PREFERRED[kind] > _PREFERRED[self.kind]

    def _compare(self, kind: str, owner: object) -> None:
        """Follow this owner from now on where its kind is better, or the kind so far has fallen silent."""
        key = kind, id(owner)
        self._seen[key] = self._seen.get(key, 0) + 1
        self._replays = 0 if kind == OPTIMIZER else self._replays + (kind == GRAPH)
        if self._seen[key] < SURE_AFTER:
            return
        fallen = self.kind == OPTIMIZER and kind == GRAPH and self._replays >= SILENT_AFTER
        better = self.kind is None or _PREFERRED[kind] < _PREFERRED[self.kind] or fallen
        if not better:
            return
        if self.kind is not None and not self._restart():
            self._settled = True
            return
        self.kind, self._owner = kind, id(owner)


def watch(step: Step, restart: Callable[[], bool], every_call_of: str | None = None) -> Watch:
    """Hooks into torch of this process; `step(kind)` is called at the end of each step.

    Raises:
        ValueError: `every_call_of` cannot be watched.
    """
    found = Watch(step, restart)
    if every_call_of is not None:
        found.could_step = True
        _watch_calls(every_call_of, step)
        return found
    _watch_optimizers(found)
    _watch_graphs(found)
    _watch_modules(found)
    return found


def _compiling() -> bool:
    """Whether torch.compile traces this: it must see nothing of the recorder."""
    import torch

    return bool(torch.compiler.is_compiling())


def _watch_optimizers(found: Watch) -> None:
    from torch.optim import optimizer

    def stepped(one: Any, args: Any, kwargs: Any) -> None:
        if not _compiling():
            found.could_step = True
            found._replays = 0
            found.event(OPTIMIZER, one)

    optimizer.register_optimizer_step_post_hook(stepped)


def _watch_graphs(found: Watch) -> None:
    import torch

    replay = torch.cuda.CUDAGraph.replay

    def replayed(self: Any) -> None:
        replay(self)
        found.could_step = True
        found.event(GRAPH, self)

    torch.cuda.CUDAGraph.replay = replayed  # type: ignore[method-assign]


def _watch_modules(found: Watch) -> None:
    """The outermost module's forward passes. While it runs no hook of all modules is there, so none is slowed."""
    from torch.nn.modules import module

    everywhere: Any = None
    followed: Any = None

    def enter(one: Any, args: Any) -> None:
        nonlocal followed
        if _compiling() or next(one.parameters(), None) is None:
            return
        everywhere.remove()
        found.could_step = True
        if not found.silent(FORWARD):
            followed = one.register_forward_hook(leave, always_call=True)

    def leave(one: Any, args: Any, result: Any) -> None:
        nonlocal everywhere
        found.event(FORWARD, one)
        if found.kind != FORWARD:
            followed.remove()
        if found.kind is None:
            everywhere = module.register_module_forward_pre_hook(enter)

    everywhere = module.register_module_forward_pre_hook(enter)


def _watch_calls(named: str, step: Step) -> None:
    """Every return of `pkg.module:function`; `__main__:function` is one of the script itself.

    Raises:
        ValueError: the name has no colon, or this Python is older than 3.12, which cannot watch single functions.
    """
    where, colon, function = named.partition(":")
    if not colon:
        raise ValueError(f"--every-call-of {named}: give pkg.module:function")
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise ValueError(f"--every-call-of needs Python 3.12 or later; the program runs on {version}")
    tool, events = monitoring.PROFILER_ID, monitoring.events
    monitoring.use_tool_id(tool, "traceanalyzer record")

    def returned(code: Any, *_: Any) -> Any:
        if code.co_qualname != function or sys._getframe(1).f_globals.get("__name__") != where:
            return monitoring.DISABLE
        step(CALL)
        return None

    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.set_events(tool, events.PY_RETURN)
