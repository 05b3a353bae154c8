"""Finds the steps of a program that nobody edited: optimizer steps, graph replays, backward or forward passes, calls.

An optimizer's step ends a step of training. Without one a step is a replay of a CUDA graph, or else a backward pass,
or else a forward pass of the outermost module that has parameters.
"""

from collections.abc import Callable
from typing import Any

from .patches import Patches, watch_calls

OPTIMIZER, GRAPH, CALL = "optimizer step", "graph replay", "call"
BACKWARD, FORWARD = "backward pass", "forward pass"
_PREFERRED = {OPTIMIZER: 0, GRAPH: 1, BACKWARD: 2, FORWARD: 3}
SURE_AFTER = 3  # events of a kind before it is a step: models are built and tried before they run
# Replays of one graph without a step of the optimizer: the graph contains the optimizer then.
SILENT_AFTER = 12
SLOWER_FROM, SLOWER_TO = 2, 8  # steps of the first optimizer per step of another that ends a longer period

Step = Callable[[str], None]
Restart = Callable[[int], bool]

_REMEMBERED = 512  # replays: three cycles of models whose layers are graphs of their own
_AGREEING = 3  # replays in a row that show the same cycle before it counts


class Replays:
    """The order of graph replays of a program, and `graphs`, the ids of all graphs replayed so far.

    A `cycle` is graphs per step: 1 where each replay is a step; 0 while that is undecided.
    """

    def __init__(self) -> None:
        self.cycle = 0
        self.graphs: set[int] = set()
        self._order: list[int] = []
        self._anchor = 0
        self._candidate = self._agreed = 0

    def add(self, graph: int) -> int:
        """Add one replay; the cycle that the last replays show where it is not the current one, else 0."""
        self.graphs.add(graph)
        self._order.append(graph)
        del self._order[:-_REMEMBERED]
        cycle = self._last_cycle()
        self._agreed = self._agreed + 1 if cycle == self._candidate else 1
        self._candidate = cycle
        agrees = self._agreed >= min(_AGREEING, max(cycle, 1) + 1)
        return cycle if agrees and cycle != self.cycle else 0

    def adopt(self, cycle: int) -> None:
        """Steps have this many replays from now on."""
        self.cycle, self._anchor = cycle, self._order[-cycle]

    def ends_step(self, graph: int) -> bool:
        """Whether a replay of this graph ends a step."""
        return self.cycle == 1 or (self.cycle > 1 and graph == self._anchor)

    def _last_cycle(self) -> int:
        """Graphs between the last three replays of the newest graph; 1 where they differ, 0 if there are none."""
        order, last = self._order, len(self._order) - 1
        ends = [at for at in range(last - 1, -1, -1) if order[at] == order[last]][:2]
        if len(ends) < 2:
            return 0
        middle, first = ends
        same = order[first + 1 : middle + 1] == order[middle + 1 :]
        return last - middle if same else 1


class Watch:
    """Counts events that could be steps, and hands on those of the best kind that recurs: `kind`, None until one does.

    Once an optimizer was constructed, the program `trains`, and no forward pass is a step.
    """

    def __init__(self, step: Step, restart: Restart) -> None:
        self.kind: str | None = None
        self.trains = self.graphs = False
        self.patches = Patches()
        self.at_training: Callable[[], None] = lambda: None
        self._step, self._restart = step, restart
        self._owner = 0  # its id: a reference would keep a model alive
        self._counts: dict[tuple[str, int], int] = {}
        self._replays = Replays()
        self._replayed: dict[int, int] = {}  # per graph, since the optimizer stepped
        self._optimizer_is_back = self._settled = False

    @property
    def doubt(self) -> str | None:
        """Why a step may be something else than the program's author takes for one; None where it is sure."""
        if self.kind == BACKWARD:
            return "no step of an optimizer was seen, so each backward pass is taken for a step"
        if self.kind == GRAPH and self._replays.cycle == 1 and len(self._replays.graphs) > 1:
            graphs = len(self._replays.graphs)
            return f"{graphs} CUDA graphs are replayed in no fixed order, so each replay is taken for a step"
        slowest = min((count for (kind, _), count in self._counts.items() if kind == OPTIMIZER), default=0)
        steps = self._counts.get((OPTIMIZER, self._owner), 0)
        if self.kind == OPTIMIZER and steps >= SLOWER_FROM * max(slowest, SURE_AFTER):
            return "several optimizers step at different rates, so a step may be a part of an iteration"
        return None

    def event(self, kind: str, owner: object) -> None:
        """Something ended that could be a step; of each kind the owner that recurs first is followed."""
        if kind == FORWARD and self.silent(kind):
            return
        key = self._counted(kind, id(owner))
        if not self._settled and (kind != self.kind or key != self._owner):
            self._compare(kind, key)
        if kind == self.kind and key == self._owner and (kind != GRAPH or self._replays.ends_step(id(owner))):
            self._step(kind)

    def silent(self, kind: str) -> bool:
        """Whether events of this kind no longer matter."""
        if kind == FORWARD and self.trains:
            return True
        return self.kind is not None and _PREFERRED[kind] > _PREFERRED[self.kind]

    def remove(self) -> None:
        self.patches.undo()

    def _counted(self, kind: str, owner: int) -> int:
        """The key of the event's owner, whose events are counted. All graphs are one owner."""
        if kind == GRAPH:
            self._replayed[owner] = self._replayed.get(owner, 0) + 1
            cycle = self._replays.add(owner)
            if cycle and (self.kind != GRAPH or self._restart(0)):
                self._replays.adopt(cycle)
            owner = 0
        elif kind == OPTIMIZER:
            self._optimizer_is_back |= self.kind == GRAPH
            self._replayed.clear()
        self._counts[kind, owner] = self._counts.get((kind, owner), 0) + 1
        return owner

    def _compare(self, kind: str, owner: int) -> None:
        """Follow this owner from now on where it is better than what is followed."""
        count = self._counts[kind, owner]
        takes_over = kind == OPTIMIZER and self.kind in (BACKWARD, GRAPH)
        if count < SURE_AFTER and not (takes_over and self.kind == BACKWARD):
            return
        if kind == BACKWARD and any(known == OPTIMIZER for known, _ in self._counts):
            return
        if kind == GRAPH and not self._replays.cycle:
            return
        better = self.kind is None or _PREFERRED[kind] < _PREFERRED[self.kind]
        if self.kind == OPTIMIZER and kind == GRAPH and not self._optimizer_is_back:
            # The optimizer stepped only before its step was captured in a graph.
            better |= max(self._replayed.values(), default=0) >= SILENT_AFTER
        if not better and not self._slower(kind, count):
            return
        if not self._restart(count - 1) and self.kind is not None:
            self._settled = True
            return
        self.kind, self._owner = kind, owner

    def _slower(self, kind: str, count: int) -> bool:
        """Whether this optimizer steps once for several steps of the one that is followed."""
        if kind != OPTIMIZER or self.kind != OPTIMIZER:
            return False
        return SLOWER_FROM * count <= self._counts[OPTIMIZER, self._owner] <= SLOWER_TO * count


def watch(step: Step, restart: Restart, every_call_of: str | None = None) -> Watch:
    """Hooks into torch of this process; `step(kind)` is called at the end of each step.

    Raises ValueError: `every_call_of` cannot be watched.
    """
    events = Watch(step, restart)
    if every_call_of is not None:
        events.kind = CALL
        events.patches.on_undo(watch_calls(every_call_of, lambda: step(CALL)))
        return events
    import torch

    def capturing(*args: Any, **kwargs: Any) -> None:
        events.graphs = True

    def ended(*args: Any, **kwargs: Any) -> None:
        if not _compiling():
            events.event(BACKWARD, torch)

    _watch_optimizers(events)
    events.patches.watch(torch.cuda.CUDAGraph, "capture_begin", before=capturing)
    events.patches.watch(torch.cuda.CUDAGraph, "replay", after=lambda _, graph: events.event(GRAPH, graph))
    events.patches.watch(torch.autograd, "backward", after=ended)
    _watch_modules(events)
    return events


def _compiling() -> bool:
    """Whether torch.compile traces this: it must see nothing of the recorder."""
    import torch

    return bool(torch.compiler.is_compiling())


def _watch_optimizers(events: Watch) -> None:
    from torch.optim import optimizer

    def constructing(*args: Any, **kwargs: Any) -> None:
        events.trains = True
        events.at_training()

    def stepped(stepping: Any, args: Any, kwargs: Any) -> None:
        if not _compiling():
            events.event(OPTIMIZER, stepping)

    events.patches.watch(optimizer.Optimizer, "__init__", before=constructing)
    events.patches.on_undo(optimizer.register_optimizer_step_post_hook(stepped).remove)


class _Modules:
    """The outermost module's forward passes. While it runs no hook of all modules is there, so none is slowed.

    Once an optimizer is constructed or anything is compiled, there is no such hook at all: the compiler warns of it.
    """

    def __init__(self, events: Watch) -> None:
        self._events = events
        self._everywhere: Any = None
        self._followed: Any = None
        self._look()

    def look_no_more(self) -> None:
        """No module is entered from now on."""
        if self._everywhere is not None:
            self._everywhere.remove()
            self._everywhere = None

    def leave(self) -> None:
        self.look_no_more()
        if self._followed is not None:
            self._followed.remove()
            self._followed = None

    def _look(self) -> None:
        from torch.nn.modules import module

        self._everywhere = module.register_module_forward_pre_hook(self._enter)

    def _enter(self, module: Any, args: Any) -> None:
        if next(module.parameters(), None) is None:
            return
        self.look_no_more()
        if not self._events.silent(FORWARD):
            self._followed = module.register_forward_hook(self._leave_module, always_call=True)

    def _leave_module(self, module: Any, args: Any, result: Any) -> None:
        self._events.event(FORWARD, module)
        if self._events.kind != FORWARD and self._followed is not None:
            self._followed.remove()
            self._followed = None
        if self._events.kind is None and not self._events.trains:
            self._look()


def _watch_modules(events: Watch) -> None:
    import torch

    modules = _Modules(events)
    events.at_training = modules.look_no_more
    events.patches.on_undo(modules.leave)

    def compiling(*args: Any, **kwargs: Any) -> None:
        modules.look_no_more()

    def compiled(result: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(result, torch.nn.Module):
            hook = result.register_forward_hook(lambda module, args, out: events.event(FORWARD, module))
            events.patches.on_undo(hook.remove)

    def compiled_in_place(_: None, module: Any, *args: Any, **kwargs: Any) -> None:
        events.patches.watch(module, "_compiled_call_impl", after=lambda *args, **kwargs: events.event(FORWARD, module))

    events.patches.watch(torch, "compile", before=compiling, after=compiled)
    events.patches.watch(torch.nn.Module, "compile", before=compiling, after=compiled_in_place)
