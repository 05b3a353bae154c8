"""What a program's torch is hooked into, and what of its events become steps: with a torch that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder import steps
from traceanalyzer.recorder.steps import FORWARD, GRAPH, OPTIMIZER, SURE_AFTER, Watch, watch


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
            for hook in outer.after_step:
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
            Optimizer=self.Optimizer,
            register_optimizer_step_post_hook=lambda hook: self.after_step.append(hook),
        )
        module = SimpleNamespace(register_module_forward_pre_hook=lambda hook: Handle(self.everywhere, hook))
        modules = SimpleNamespace(module=module)
        self.torch: Any = SimpleNamespace(
            optim=SimpleNamespace(optimizer=optimizer),
            nn=SimpleNamespace(Module=self.Module, modules=modules),
            cuda=SimpleNamespace(CUDAGraph=self.Graph),
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


class Told:
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
def told() -> Told:
    return Told()


def hooked(told: Told) -> Watch:
    return watch(told.steps.append, lambda: True)


def test_an_optimizers_step_is_one_and_it_works_as_ever(torch: Torch, told: Told) -> None:
    found = hooked(told)
    one = torch.Optimizer("w")
    assert found.trains
    assert torch.did == ["made of ('w',)"]
    assert told.since(one.step, 5) == [OPTIMIZER] * 3
    assert not found.graphs


def test_what_the_compiler_traces_is_no_step(torch: Torch, told: Told) -> None:
    hooked(told)
    one = torch.Optimizer()
    torch.tracing = True
    assert told.since(one.step, 5) == []
    torch.tracing = False
    assert told.since(one.step, 3) == [OPTIMIZER]


def test_a_graph_is_replayed_before_its_step_ends_and_captured_as_asked(torch: Torch, told: Told) -> None:
    found, graph = hooked(told), torch.Graph()
    graph.capture_begin(1, pool=2)
    assert found.graphs
    assert torch.did == ["captured (1,) {'pool': 2}"]
    ends: list[int] = []
    found._step = lambda kind: ends.append(torch.did.count("replayed"))
    for _ in range(4):
        graph.replay()
    assert ends == [3, 4]


def test_steps_of_an_optimizer_keep_replays_from_taking_over(torch: Torch, told: Told) -> None:
    """Eleven replays after each of its steps: only the twelfth in a row would."""
    hooked(told)
    one, graph = torch.Optimizer(), torch.Graph()
    told.since(one.step, SURE_AFTER)
    for _ in range(3):
        assert told.since(graph.replay, steps.SILENT_AFTER - 1) == []
        assert told.since(one.step) == [OPTIMIZER]
    assert told.since(graph.replay, steps.SILENT_AFTER) == [GRAPH]


def test_the_outermost_module_with_parameters_is_followed(torch: Torch, told: Told) -> None:
    inner = torch.Module()
    model, clip = torch.Module(2, inner, inner), torch.Module(0)
    hooked(told)
    for _ in range(4):
        clip(1)
    assert len(torch.everywhere) == 1
    assert told.since(lambda: model(3), 5) == [FORWARD] * 3
    assert model(7) == 7
    assert torch.everywhere == []
    assert len(model.hooks) == 1
    assert inner.hooks == []


def test_until_a_module_recurs_others_are_looked_at_and_left_again(torch: Torch, told: Told) -> None:
    first, second = torch.Module(), torch.Module()
    hooked(told)
    for _ in range(2):
        first(1)
        second(1)
        assert len(torch.everywhere) == 1
        assert first.hooks == second.hooks == []
    assert told.since(lambda: first(1)) == [FORWARD]
    assert torch.everywhere == []
    assert told.since(lambda: second(1), 5) == []


def test_once_an_optimizer_is_made_no_module_is_entered(torch: Torch, told: Told) -> None:
    model = torch.Module()
    hooked(told)
    model(1)
    torch.Optimizer()
    assert torch.everywhere == []
    assert told.since(lambda: model(1), 5) == []


def test_a_module_that_was_followed_is_left_when_the_program_trains(torch: Torch, told: Told) -> None:
    model = torch.Module()
    hooked(told)
    assert told.since(lambda: model(1), 4) == [FORWARD] * 2
    one = torch.Optimizer()
    assert told.since(lambda: model(1), 2) == []
    assert told.since(one.step, 3) == [OPTIMIZER]
    model(1)
    assert model.hooks == []


def test_an_optimizer_that_is_made_within_a_forward_pass_ends_the_search(torch: Torch, told: Told) -> None:
    class Lazy(torch.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            torch.Optimizer()
            return x

    hooked(told)
    Lazy()(1)
    assert torch.everywhere == []


def test_a_compiled_module_is_a_step_and_nothing_is_hooked_while_it_compiles(
    torch: Torch, told: Told
) -> None:
    hooked(told)
    fast = torch.torch.compile(torch.Module(), backend="eager")
    assert torch.did == ["compiled with 0 hooks"]
    assert told.since(lambda: fast(1), 4) == [FORWARD] * 2
    plain = torch.torch.compile(abs)
    assert plain is abs


def test_a_module_compiled_in_place_is_a_step_and_returns_what_it_does(torch: Torch, told: Told) -> None:
    hooked(told)
    model = torch.Module()
    model.compile(backend="eager")
    assert torch.everywhere == []
    inputs = [object() for _ in range(4)]  # and as many results
    given = iter(inputs)
    assert told.since(lambda: model(next(given)), 4) == [FORWARD] * 2
    assert model(5) == 5


def test_calls_of_a_function_are_steps_instead_of_all_else(
    torch: Torch, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[tuple[str, Any]] = []
    monkeypatch.setattr(steps, "watch_calls", lambda name, returned: watched.append((name, returned)))
    watch(told.steps.append, lambda: True, "job:step")
    assert (torch.everywhere, torch.after_step) == ([], [])
    ((name, returned),) = watched
    assert name == "job:step"
    assert told.since(returned, 2) == ["call", "call"]
