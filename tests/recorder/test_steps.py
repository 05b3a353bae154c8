"""Which of a program's events are its steps: of the first owner that recurs, of the best kind that recurs."""

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder.patches import watch_calls
from traceanalyzer.recorder.steps import BACKWARD, FORWARD, GRAPH, OPTIMIZER, SILENT_AFTER, SURE_AFTER, Watch


class Program:
    """Events of a program, and the steps that the recorder counts."""

    def __init__(self, restarts: bool = True) -> None:
        self.steps: list[str] = []
        self.already: list[int] = []  # of each restart, the steps that count already
        self._restarts = restarts
        self.watch = Watch(self.steps.append, self._restart)

    def _restart(self, already: int) -> bool:
        self.already.append(already)
        return self._restarts

    def did(self, kind: str, owner: object, times: int = 1) -> list[str]:
        """The steps that so many events make."""
        before = len(self.steps)
        for _ in range(times):
            self.watch.event(kind, owner)
        return self.steps[before:]


@pytest.mark.parametrize("kind", [OPTIMIZER, FORWARD])
def test_the_owner_that_recurs_first_is_followed(kind: str) -> None:
    """Of a GAN's two optimizers, of two models."""
    first, second = object(), object()
    program = Program()
    assert program.did(kind, first, SURE_AFTER - 1) == []
    assert program.did(kind, second, SURE_AFTER - 1) == []
    assert program.did(kind, first) == [kind]
    assert program.did(kind, second, 4) == []
    assert program.did(kind, first, 2) == [kind] * 2
    assert program.watch.doubt is None


@pytest.mark.parametrize(("worse", "better"), [(FORWARD, OPTIMIZER), (FORWARD, GRAPH), (GRAPH, OPTIMIZER)])
def test_a_better_kind_that_recurs_takes_over(worse: str, better: str) -> None:
    program, one, other = Program(), object(), object()
    assert program.did(worse, one, 6)[-3:] == [worse] * 3
    assert not program.watch.silent(worse)
    assert program.did(better, other, SURE_AFTER - 1) == []
    assert set(program.did(better, other, 3)) == {better}
    assert program.watch.kind == better
    assert program.watch.silent(worse)
    assert program.did(worse, one, SILENT_AFTER - 1) == []


def test_steps_stay_once_the_profiler_has_started() -> None:
    program, one, other = Program(restarts=False), object(), object()
    program.did(FORWARD, one, SURE_AFTER)
    assert program.did(OPTIMIZER, other, 5) == []
    assert program.did(FORWARD, one) == [FORWARD]


def test_forward_passes_of_training_are_no_steps() -> None:
    program, model = Program(), object()
    program.watch.trains = True
    assert program.did(FORWARD, model, 5) == []
    assert program.watch.silent(FORWARD)
    assert not program.watch.silent(OPTIMIZER)
    assert program.watch.kind is None


def test_backward_passes_are_steps_without_an_optimizer() -> None:
    program = Program()
    assert program.did(BACKWARD, "autograd", 5) == [BACKWARD] * 3
    assert "each backward pass is taken for a step" in str(program.watch.doubt)
    assert program.did(OPTIMIZER, object()) == [OPTIMIZER]
    assert program.watch.doubt is None


@pytest.mark.parametrize(("replays", "kind"), [(SILENT_AFTER - 1, OPTIMIZER), (SILENT_AFTER, GRAPH)])
def test_replays_count_once_the_optimizer_is_silent(replays: int, kind: str) -> None:
    """It stepped before its step was captured."""
    program, optimizer, graph = Program(), object(), object()
    program.did(OPTIMIZER, optimizer, SURE_AFTER)
    program.did(GRAPH, graph, replays)
    assert program.watch.kind == kind


@pytest.mark.parametrize("layers", [1, 3, 24])
def test_graphs_in_a_fixed_order_make_one_step(layers: int) -> None:
    program, graphs = Program(), [object() for _ in range(layers)]
    for _ in range(8):
        for graph in graphs:
            program.did(GRAPH, graph)
    assert sum(len(program.did(GRAPH, graph)) for graph in graphs) == 1
    assert program.watch.doubt is None


def test_graphs_in_no_order_are_a_step_each_and_unsure() -> None:
    """As of a server that replays the graph of the batch size at hand."""
    program, graphs = Program(), [object() for _ in range(4)]
    order = random.Random(1).choices(graphs, k=60)
    for graph in order:
        program.did(GRAPH, graph)
    assert [step for graph in order[:10] for step in program.did(GRAPH, graph)] == [GRAPH] * 10
    assert "4 CUDA graphs are replayed in no fixed order" in str(program.watch.doubt)


@pytest.mark.parametrize(("critic_steps", "followed"), [(1, 0), (3, 1), (8, 1), (9, 0)])
def test_the_slower_of_two_optimizers_ends_a_step(critic_steps: int, followed: int) -> None:
    """Up to eight steps of the quicker one; beyond that the unit is reported as unsure."""
    program, optimizers = Program(), [object(), object()]
    steps: list[list[str]] = []
    for _ in range(6):
        steps = [program.did(OPTIMIZER, optimizers[0], critic_steps), program.did(OPTIMIZER, optimizers[1])]
    assert [len(of_one) for of_one in steps] == ([0, 1] if followed else [critic_steps, 0])
    assert (program.watch.doubt is None) is (critic_steps <= 8)


@pytest.mark.parametrize(
    ("function", "module", "counted"),
    [("step", "job", True), ("step", "other", False), ("loss", "job", False), ("loss", "other", False)],
)
def test_python_3_12_counts_returns_of_that_function_alone(
    function: str, module: str, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python says of every function that it returned, from within that function's frame."""
    callbacks: list[Any] = []
    returns: list[int] = []
    monitoring = SimpleNamespace(
        PROFILER_ID=2,
        DISABLE="never again",
        events=SimpleNamespace(PY_RETURN=4),
        use_tool_id=lambda tool, name: None,
        register_callback=lambda tool, event, callback: callbacks.append(callback),
        set_events=lambda tool, event: None,
    )
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    watch_calls("job:step", lambda: returns.append(1))
    names: dict[str, Any] = {"__name__": module, "ended": callbacks[0]}
    exec("def report(code):\n    return ended(code)", names)
    answer = names["report"](SimpleNamespace(co_qualname=function))
    assert (len(returns), answer) == ((1, None) if counted else (0, "never again"))
