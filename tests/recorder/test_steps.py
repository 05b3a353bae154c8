"""Which of a program's events are its steps: of the first owner that recurs, of the best kind that recurs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder.calls import watch_calls
from traceanalyzer.recorder.steps import FORWARD, GRAPH, OPTIMIZER, SILENT_AFTER, SURE_AFTER, Watch


class Program:
    """Events of a program, and what the recorder made of them."""

    def __init__(self, restarts: bool = True) -> None:
        self.steps: list[str] = []
        self.restarted = 0
        self._restarts = restarts
        self.watch = Watch(self.steps.append, self._restart)

    def _restart(self) -> bool:
        self.restarted += 1
        return self._restarts

    def did(self, kind: str, owner: object, times: int = 1) -> list[str]:
        """The steps that so many events make."""
        before = len(self.steps)
        for _ in range(times):
            self.watch.event(kind, owner)
        return self.steps[before:]


@pytest.mark.parametrize("kind", [OPTIMIZER, GRAPH, FORWARD])
def test_what_comes_a_third_time_is_a_step_and_the_same_of_another_owner_is_none(kind: str) -> None:
    """Of a GAN's two optimizers, of two graphs, of two models."""
    first, second = object(), object()
    program = Program()
    assert program.did(kind, first, SURE_AFTER - 1) == []
    assert program.did(kind, second, SURE_AFTER - 1) == []
    assert program.did(kind, first) == [kind]
    assert program.did(kind, second, 5) == []
    assert program.did(kind, first, 2) == [kind] * 2
    assert program.restarted == 0


@pytest.mark.parametrize(("worse", "better"), [(FORWARD, GRAPH), (GRAPH, OPTIMIZER), (FORWARD, OPTIMIZER)])
def test_a_better_kind_that_recurs_takes_over_and_the_worse_is_silent(worse: str, better: str) -> None:
    program, one, other = Program(), object(), object()
    assert program.did(worse, one, 5) == [worse] * 3
    assert not program.watch.silent(worse)
    assert program.did(better, other, SURE_AFTER - 1) == []
    assert program.did(better, other) == [better]
    assert program.restarted == 1
    assert program.watch.silent(worse)
    assert program.did(worse, one, SILENT_AFTER - 1) == []


def test_once_it_is_too_late_to_begin_again_the_steps_stay_as_they_are() -> None:
    program, one, other = Program(restarts=False), object(), object()
    program.did(FORWARD, one, SURE_AFTER)
    assert program.did(OPTIMIZER, other, 5) == []
    assert program.restarted == 1
    assert program.did(FORWARD, one) == [FORWARD]


def test_a_program_that_trains_has_no_forward_pass_as_its_step() -> None:
    program, model = Program(), object()
    program.watch.trains = True
    assert program.did(FORWARD, model, 5) == []
    assert program.watch.silent(FORWARD)
    assert not program.watch.silent(OPTIMIZER)
    assert program.watch.kind is None


@pytest.mark.parametrize(("replays", "taken"), [(SILENT_AFTER - 1, False), (SILENT_AFTER, True)])
def test_an_optimizer_that_stepped_before_it_was_captured_makes_way_for_the_replays(
    replays: int, taken: bool
) -> None:
    program, optimizer, graph = Program(), object(), object()
    program.did(OPTIMIZER, optimizer, SURE_AFTER)
    assert program.did(GRAPH, graph, replays) == ([GRAPH] if taken else [])
    assert program.watch.kind == (GRAPH if taken else OPTIMIZER)


@pytest.mark.parametrize(
    ("function", "module", "counted"),
    [("step", "job", True), ("step", "other", False), ("loss", "job", False), ("loss", "other", False)],
)
def test_from_python_3_12_on_returns_of_the_function_of_that_module_are_counted(
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
    exec("def told(code):\n    return ended(code)", names)
    answer = names["told"](SimpleNamespace(co_qualname=function))
    assert (len(returns), answer) == ((1, None) if counted else (0, "never again"))
