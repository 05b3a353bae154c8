"""What a program's torch is hooked into, and what of its events become steps: with a torch that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder import steps
from traceanalyzer.recorder.steps import BACKWARD, FORWARD, GRAPH, OPTIMIZER, SURE_AFTER, Watch, watch


class Handle:
    """What removes a hook."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)

    def remove(self) -> None:
        self._hooks.remove(self._hook)


def optimizer_of(outer: Torch) -> type[Any]:
    """Its hooks run after each step."""

    class Optimizer:
        def __init__(self, *parameters: object) -> None:
            outer.did.append(f"made of {parameters}")

        def step(self) -> None:
            outer.did.append("stepped")
            for hook in list(outer.after_step):
                hook(self, (), {})

    return Optimizer


def graph_of(outer: Torch) -> type[Any]:
    """It says what it is asked to do."""

    class CUDAGraph:
        def capture_begin(self, *args: object, **kwargs: object) -> None:
            outer.did.append(f"captured {args} {kwargs}")

        def replay(self) -> None:
            outer.did.append("replayed")

    return CUDAGraph


def module_of(outer: Torch) -> type[Any]:
    """It calls its own hooks, and those of all modules, unless it is compiled."""

    class Module:
        def __init__(self, parameters: int = 1, *parts: Any) -> None:
            self.own, self.parts, self.hooks = parameters, parts, list[Any]()
            self._compiled_call_impl: Any = None

        def parameters(self) -> Any:
            return iter(range(self.own))

        def register_forward_hook(self, hook: Any, always_call: bool = False) -> Handle:
            return Handle(self.hooks, hook)

        def compile(self, backend: str) -> None:
            self._compiled_call_impl = outer.torch.compile(self.forward)

        def forward(self, x: Any) -> Any:
            for part in self.parts:
                part(x)
            return x

        def __call__(self, x: Any) -> Any:
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(x)
            for hook in list(outer.everywhere):
                hook(self, (x,))
            result = self.forward(x)
            for hook in list(self.hooks):
                hook(self, (x,), result)
            return result

    return Module


class Torch:
    """Optimizers, graphs and modules that call the hooks as torch does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after_step: list[Any] = []
        self.everywhere: list[Any] = []
        self.did: list[str] = []
        self.tracing = False
        self.Optimizer, self.Graph, self.Module = optimizer_of(self), graph_of(self), module_of(self)
        optimizer = SimpleNamespace(
            Optimizer=self.Optimizer, register_optimizer_step_post_hook=lambda hook: Handle(self.after_step, hook)
        )
        module = SimpleNamespace(register_module_forward_pre_hook=lambda hook: Handle(self.everywhere, hook))
        modules = SimpleNamespace(module=module)
        self.torch: Any = SimpleNamespace(
            optim=SimpleNamespace(optimizer=optimizer),
            nn=SimpleNamespace(Module=self.Module, modules=modules),
            cuda=SimpleNamespace(CUDAGraph=self.Graph),
            autograd=SimpleNamespace(backward=lambda loss: self.did.append(f"backward of {loss}")),
            compiler=SimpleNamespace(is_compiling=lambda: self.tracing),
            compile=self.compiled,
        )
        names = {"torch": self.torch, "torch.optim": self.torch.optim, "torch.nn.modules": modules}
        for name, one in names.items():
            monkeypatch.setitem(sys.modules, name, one)

    def compiled(self, model: Any, **asked: Any) -> Any:
        """A module for a module, as torch has it, else a function."""
        self.did.append(f"compiled with {len(self.everywhere)} hooks")
        return self.Module(1, model) if isinstance(model, self.Module) else model


class Counted:
    """The steps of the program so far, and whether the recorder begins again when asked."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def since(self, act: Callable[[], Any], times: int = 1) -> list[str]:
        before = len(self.steps)
        for _ in range(times):
            act()
        return self.steps[before:]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


@pytest.fixture
def counted() -> Counted:
    return Counted()


def hooked(counted: Counted) -> Watch:
    return watch(counted.steps.append, lambda already: True)


def test_an_optimizer_step_counts_and_does_its_work(torch: Torch, counted: Counted) -> None:
    found = hooked(counted)
    one = torch.Optimizer("w")
    assert found.trains
    assert torch.did == ["made of ('w',)"]
    assert counted.since(one.step, 5) == [OPTIMIZER] * 3
    assert not found.graphs


def test_what_the_compiler_traces_is_no_step(torch: Torch, counted: Counted) -> None:
    hooked(counted)
    one = torch.Optimizer()
    torch.tracing = True
    assert counted.since(one.step, 5) == []
    torch.tracing = False
    assert counted.since(one.step, 3) == [OPTIMIZER]


def test_a_graph_is_replayed_before_its_step_ends(torch: Torch) -> None:
    ends: list[int] = []
    found = watch(lambda kind: ends.append(torch.did.count("replayed")), lambda already: True)
    graph = torch.Graph()
    graph.capture_begin(1, pool=2)
    assert found.graphs
    assert torch.did == ["captured (1,) {'pool': 2}"]
    for _ in range(6):
        graph.replay()
    assert ends == [4, 5, 6]


def test_a_backward_pass_runs_before_its_step_ends(torch: Torch, counted: Counted) -> None:
    hooked(counted)
    assert counted.since(lambda: torch.torch.autograd.backward("loss"), 4) == [BACKWARD] * 2
    assert torch.did == ["backward of loss"] * 4


def test_nothing_is_left_in_the_program_when_removed(torch: Torch, counted: Counted) -> None:
    changed = (
        *((torch.Graph, "replay"), (torch.Graph, "capture_begin"), (torch.Module, "compile")),
        *((torch.Optimizer, "__init__"), (torch.torch, "compile"), (torch.torch.autograd, "backward")),
    )
    before = [getattr(owner, name) for owner, name in changed]
    found, model = hooked(counted), torch.Module()
    counted.since(lambda: model(1), 4)
    assert [getattr(owner, name) for owner, name in changed] != before
    found.remove()
    assert [getattr(owner, name) for owner, name in changed] == before
    assert (torch.everywhere, torch.after_step, model.hooks) == ([], [], [])


def test_optimizer_steps_keep_replays_from_taking_over(torch: Torch, counted: Counted) -> None:
    """Eleven replays after each of its steps: only the twelfth in a row would."""
    hooked(counted)
    one, graph = torch.Optimizer(), torch.Graph()
    counted.since(one.step, SURE_AFTER)
    for _ in range(3):
        assert counted.since(graph.replay, steps.SILENT_AFTER - 1) == []
        assert counted.since(one.step) == [OPTIMIZER]
    assert counted.since(graph.replay, steps.SILENT_AFTER) == [GRAPH]


def test_the_outermost_module_with_parameters_is_followed(torch: Torch, counted: Counted) -> None:
    inner = torch.Module()
    model, clip = torch.Module(2, inner, inner), torch.Module(0)
    hooked(counted)
    for _ in range(4):
        clip(1)
    assert len(torch.everywhere) == 1
    assert counted.since(lambda: model(3), 5) == [FORWARD] * 3
    assert model(7) == 7
    assert torch.everywhere == []
    assert len(model.hooks) == 1
    assert inner.hooks == []


def test_other_modules_are_hooked_until_one_recurs(torch: Torch, counted: Counted) -> None:
    first, second = torch.Module(), torch.Module()
    hooked(counted)
    for _ in range(2):
        first(1)
        second(1)
        assert len(torch.everywhere) == 1
        assert first.hooks == second.hooks == []
    assert counted.since(lambda: first(1)) == [FORWARD]
    assert torch.everywhere == []
    assert counted.since(lambda: second(1), 5) == []


def test_no_module_is_hooked_once_there_is_an_optimizer(torch: Torch, counted: Counted) -> None:
    model = torch.Module()
    hooked(counted)
    model(1)
    torch.Optimizer()
    assert torch.everywhere == []
    assert counted.since(lambda: model(1), 5) == []


def test_a_followed_module_is_left_when_training_begins(torch: Torch, counted: Counted) -> None:
    model = torch.Module()
    hooked(counted)
    assert counted.since(lambda: model(1), 4) == [FORWARD] * 2
    one = torch.Optimizer()
    assert counted.since(lambda: model(1), 2) == []
    assert counted.since(one.step, 3) == [OPTIMIZER]
    model(1)
    assert model.hooks == []


def test_an_optimizer_made_in_a_forward_pass_ends_the_search(torch: Torch, counted: Counted) -> None:
    class Lazy(torch.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            torch.Optimizer()
            return x

    hooked(counted)
    Lazy()(1)
    assert torch.everywhere == []


def test_no_hook_is_left_while_a_module_is_compiled(torch: Torch, counted: Counted) -> None:
    hooked(counted)
    fast = torch.torch.compile(torch.Module(), backend="eager")
    assert torch.did == ["compiled with 0 hooks"]
    assert counted.since(lambda: fast(1), 4) == [FORWARD] * 2
    plain = torch.torch.compile(abs)
    assert plain is abs


def test_a_module_compiled_in_place_counts_as_a_step(torch: Torch, counted: Counted) -> None:
    hooked(counted)
    model = torch.Module()
    model.compile(backend="eager")
    assert torch.everywhere == []
    inputs = [object() for _ in range(4)]  # and as many results
    given = iter(inputs)
    assert counted.since(lambda: model(next(given)), 4) == [FORWARD] * 2
    assert model(5) == 5


def test_calls_replace_other_steps(torch: Torch, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[tuple[str, Any]] = []
    monkeypatch.setattr(steps, "watch_calls", lambda name, returned: watched.append((name, returned)))
    watch(counted.steps.append, lambda already: True, "job:step")
    assert (torch.everywhere, torch.after_step) == ([], [])
    ((name, returned),) = watched
    assert name == "job:step"
    assert counted.since(returned, 2) == ["call", "call"]
