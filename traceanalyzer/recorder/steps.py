"""Finds the steps of a program that nobody edited: optimizer steps, replays of graphs, forward passes, or a function.

An optimizer's step ends a step of training: of several optimizers the first one's. Where none steps, a step is a
replay of a CUDA graph, or else the forward pass of the outermost module that has parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .calls import watch_calls

OPTIMIZER, GRAPH, FORWARD, CALL = "optimizer step", "graph replay", "forward pass", "call"
_PREFERRED = {OPTIMIZER: 0, GRAPH: 1, FORWARD: 2}
SURE_AFTER = 3  # events of a kind before it is taken for steps: models are built and tried before they run
SILENT_AFTER = (
    12  # replays without a step of the optimizer: then it is in the graph, and stepped only before capture
)

Step = Callable[[str], None]


class Watch:
    """Counts what could be steps, and hands on those of the best kind that recurs.

    Attributes:
        kind: of the events that are taken for steps; None until one recurs.
        at_training: called when an optimizer is made.
        trains: whether it has made an optimizer: then no forward pass is a step.
        graphs: whether it has captured a CUDA graph.
    """

    def __init__(self, step: Step, restart: Callable[[], bool]) -> None:
        self.kind: str | None = None
        self.trains = self.graphs = False
        self._step, self._restart = step, restart
        self._owner = 0  # its id: a reference would keep a model alive
        self._seen: dict[tuple[str, int], int] = {}
        self._replays = 0  # since the optimizer stepped
        self._settled = False
        self.at_training: Callable[[], None] = lambda: None

    def event(self, kind: str, owner: object) -> None:
        """Something ended that could be a step; of each kind the owner that recurs first is followed."""
        if kind == FORWARD and self.silent(kind):
            return
        if not self._settled and (kind != self.kind or id(owner) != self._owner):
            self._compare(kind, owner)
        if kind == self.kind and id(owner) == self._owner:
            self._step(kind)

    def silent(self, kind: str) -> bool:
        """Whether events of this kind no longer matter."""
        if kind == FORWARD and self.trains:
            return True
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
        watch_calls(every_call_of, lambda: step(CALL))
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

    made = optimizer.Optimizer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        found.trains = True
        found.at_training()
        made(self, *args, **kwargs)

    def stepped(one: Any, args: Any, kwargs: Any) -> None:
        if not _compiling():
            found._replays = 0
            found.event(OPTIMIZER, one)

    optimizer.Optimizer.__init__ = init
    optimizer.register_optimizer_step_post_hook(stepped)


def _watch_graphs(found: Watch) -> None:
    import torch

    replay, begin = torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_begin

    def began(self: Any, *args: Any, **kwargs: Any) -> None:
        found.graphs = True
        begin(self, *args, **kwargs)

    def replayed(self: Any) -> None:
        replay(self)
        found.event(GRAPH, self)

    torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_begin = replayed, began


class _Modules:
    """The outermost module's forward passes. While it runs no hook of all modules is there, so none is slowed.

    Once an optimizer is made or anything is compiled, there is no such hook at all: the compiler warns of it.
    """

    def __init__(self, found: Watch) -> None:
        self._found = found
        self._everywhere: Any = None
        self._followed: Any = None
        self._look()

    def look_no_more(self) -> None:
        """No module is entered from now on."""
        if self._everywhere is not None:
            self._everywhere.remove()
            self._everywhere = None

    def follow(self, one: Any) -> None:
        """Each call of this module may be a step."""
        self._followed = one.register_forward_hook(self._leave, always_call=True)

    def _look(self) -> None:
        from torch.nn.modules import module

        self._everywhere = module.register_module_forward_pre_hook(self._enter)

    def _enter(self, one: Any, args: Any) -> None:
        if next(one.parameters(), None) is None:
            return
        self.look_no_more()
        if not self._found.silent(FORWARD):
            self.follow(one)

    def _leave(self, one: Any, args: Any, result: Any) -> None:
        self._found.event(FORWARD, one)
        if self._found.kind != FORWARD:
            self._followed.remove()
        if self._found.kind is None and not self._found.trains:
            self._look()


def _watch_modules(found: Watch) -> None:
    import torch

    modules = _Modules(found)
    found.at_training = modules.look_no_more
    compile_any, compile_module = torch.compile, torch.nn.Module.compile

    @wraps(compile_any)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        modules.look_no_more()
        made = compile_any(*args, **kwargs)
        if isinstance(made, torch.nn.Module):
            made.register_forward_hook(lambda one, args, result: found.event(FORWARD, one))
        return made

    @wraps(compile_module)
    def compiled_in_place(one: Any, *args: Any, **kwargs: Any) -> None:
        compile_module(one, *args, **kwargs)
        run = one._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            result = run(*args, **kwargs)
            found.event(FORWARD, one)
            return result

        one._compiled_call_impl = call

    torch.compile, torch.nn.Module.compile = compiled, compiled_in_place
