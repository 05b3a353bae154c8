"""Calls of one function are counted wherever the program reaches it from, and it stays what it was."""

import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder.patches import watch_calls

SOURCE = """
def step(x):
    "One step."
    return x + 1

def other(x):
    return x

class Base:
    def inherited(self, x):
        return self, x

class Model(Base):
    def run(self, x):
        return self, x
    @staticmethod
    def static(x):
        return x
    @classmethod
    def of_class(cls, x):
        return cls, x
    class Inner:
        def run(self, x):
            return x
"""


@pytest.fixture
def job() -> Iterator[Any]:
    """A module that the program has imported."""
    module = ModuleType("recorded_job")
    sys.modules["recorded_job"] = module
    exec(SOURCE, vars(module))
    yield module
    del sys.modules["recorded_job"]
    sys.modules.pop("recorded_user", None)


@pytest.fixture
def counted() -> Iterator[Callable[[str], list[int]]]:
    """Starts to count the returns of a function of the module; the counting ends with the test."""
    ends: list[Callable[[], None]] = []

    def count(function: str) -> list[int]:
        returns: list[int] = []
        ends.append(watch_calls(f"recorded_job:{function}", lambda: returns.append(1)))
        return returns

    yield count
    for end in ends:
        end()


Count = Callable[[str], list[int]]


def test_calls_count_under_every_name_of_the_function(job: Any, counted: Count) -> None:
    user: Any = ModuleType("recorded_user")
    user.step, user.renamed, user.other = job.other, job.step, job.step
    sys.modules["recorded_user"] = user
    returns = counted("step")
    assert [job.step(1), user.renamed(x=2), user.other(3), user.step(4), job.other(5)] == [2, 3, 4, 4, 5]
    assert len(returns) == 3
    assert (job.step.__name__, job.step.__doc__) == ("step", "One step.")


@pytest.mark.parametrize("name", ["run", "static", "of_class"])
def test_a_counted_method_gets_the_same_arguments(name: str, job: Any, counted: Count) -> None:
    model = job.Model()
    before = getattr(model, name)(7)
    returns = counted(f"Model.{name}")
    assert [getattr(model, name)(7) for _ in range(2)] == [before] * 2
    assert job.Base().inherited(3)[1] == 3
    assert len(returns) == 2
    if name != "run":
        assert getattr(job.Model, name)(7) == before
        assert len(returns) == 3


def test_an_inherited_method_counts_for_every_class(job: Any, counted: Count) -> None:
    returns = counted("Base.inherited")
    model = job.Model()
    assert [model.inherited(1), model.inherited(2)] == [(model, 1), (model, 2)]
    assert len(returns) == 2


def test_a_method_of_an_inner_class_is_another_one(job: Any, counted: Count) -> None:
    returns = counted("Model.Inner.run")
    job.Model().run(1)
    assert [job.Model.Inner().run(2) for _ in range(2)] == [2, 2]
    assert len(returns) == 2


def test_a_call_that_fails_is_no_step(job: Any, counted: Count) -> None:
    returns = counted("step")
    job.step(1)
    with pytest.raises(TypeError):
        job.step("x")
    assert len(returns) == 1


@pytest.mark.parametrize("thread", [False, True])
def test_the_first_call_counts_and_ends_the_search(thread: bool, job: Any, counted: Count) -> None:
    """Calls of another function, or of one of the same name elsewhere, do not end the search."""
    namesake: dict[str, Any] = {"__name__": "another_job"}
    exec("def step(x): return x", namesake)
    inside: list[int] = []
    returns = counted("step")

    def program() -> None:
        namesake["step"](1)
        job.other(1)
        job.Model().run(1)
        inside.append(len(returns))
        for _ in range(3):
            job.step(1)
            inside.append(len(returns))

    if thread:
        (runs := threading.Thread(target=program)).start()
        runs.join()
    else:
        program()
        assert sys.getprofile() is None
    job.step(1)
    assert threading.getprofile() is None
    assert inside == [0, 1, 2, 3]
    assert len(returns) == 4


def test_a_step_is_counted_when_it_ends(job: Any, counted: Count) -> None:
    seen: list[int] = []
    vars(job)["seen"] = lambda: seen.append(len(returns))
    exec("def step():\n    seen()", vars(job))
    returns = counted("step")
    job.step()
    job.step()
    assert (seen, len(returns)) == ([0, 1], 2)


def test_a_deleted_function_does_not_break_its_caller(job: Any, counted: Count) -> None:
    exec("def step():\n    pass", vars(job))
    step = job.step
    del job.step
    returns = counted("step")
    step()
    assert len(returns) == 1


def test_the_function_is_itself_again_when_counting_ends(job: Any) -> None:
    original, returns = job.step, list[int]()
    end = watch_calls("recorded_job:step", lambda: returns.append(1))
    job.step(1)
    end()
    job.step(1)
    assert (job.step, len(returns), sys.getprofile()) == (original, 1, None)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("recorded_job", "--every-call-of recorded_job: give pkg.module:function"),
        ("recorded_job.step", "give pkg.module:function"),
        ("job:train.<locals>.step", "before Python 3.12 name a function of a module or a class"),
    ],
)
def test_unwatchable_names_are_refused(named: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "monitoring", raising=False)
    with pytest.raises(ValueError, match=problem):
        watch_calls(named, lambda: None)


def test_python_3_12_watches_nested_functions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monitoring = SimpleNamespace(
        PROFILER_ID=2,
        events=SimpleNamespace(PY_RETURN=4),
        use_tool_id=lambda tool, name: calls.append(tool),
        register_callback=lambda tool, event, callback: calls.append((tool, event, callback is not None)),
        set_events=lambda tool, event: calls.append((tool, event)),
        free_tool_id=lambda tool: calls.append("free"),
    )
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    end = watch_calls("job:train.<locals>.step", lambda: None)
    assert calls == [2, (2, 4, True), (2, 4)]
    end()
    assert calls[3:] == [(2, 0), (2, 4, False), "free"]
