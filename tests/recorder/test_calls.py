"""Calls of one function are counted wherever the program reaches it from, and it stays what it was."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.recorder.calls import _look_for_first_call, _wrap, watch_calls

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


def counted(job: Any, function: str) -> list[int]:
    returns: list[int] = []
    _wrap("recorded_job", function, lambda: returns.append(1))
    return returns


def test_a_function_is_counted_under_every_name_that_a_module_gives_it(job: Any) -> None:
    user: Any = ModuleType("recorded_user")
    user.step, user.renamed, user.other = job.other, job.step, job.step
    sys.modules["recorded_user"] = user
    returns = counted(job, "step")
    assert [job.step(1), user.renamed(x=2), user.other(3), user.step(4), job.other(5)] == [2, 3, 4, 4, 5]
    assert len(returns) == 3
    assert (job.step.__name__, job.step.__doc__) == ("step", "One step.")


@pytest.mark.parametrize("name", ["run", "static", "of_class", "inherited"])
def test_a_method_keeps_what_it_is_called_with(name: str, job: Any) -> None:
    """Of an object, of a class, of neither, or of a class further up."""
    model = job.Model()
    before = getattr(model, name)(7)
    returns = counted(job, f"Model.{name}")
    assert getattr(model, name)(7) == before
    assert len(returns) == 1
    if name in ("static", "of_class"):
        assert getattr(job.Model, name)(7) == before
        assert len(returns) == 2
    assert job.Base().inherited(3)[1] == 3
    assert len(returns) == 1 + (name in ("static", "of_class"))


def test_a_method_of_a_class_within_a_class_is_another_one(job: Any) -> None:
    returns = counted(job, "Model.Inner.run")
    job.Model().run(1)
    assert job.Model.Inner().run(2) == 2
    assert len(returns) == 1


def test_a_call_that_fails_is_no_step(job: Any) -> None:
    returns = counted(job, "step")
    with pytest.raises(TypeError):
        job.step("x")
    assert returns == []


@pytest.mark.parametrize("thread", [False, True])
def test_the_first_call_counts_as_the_others_do_and_nothing_is_looked_at_afterwards(
    thread: bool, job: Any
) -> None:
    """Where a call of another function, or of the same name elsewhere, does not end the search."""
    returns: list[int] = []
    namesake: dict[str, Any] = {"__name__": "another_job"}
    exec("def step(x): return x", namesake)
    inside: list[int] = []

    def program() -> None:
        namesake["step"](1)
        job.other(1)
        job.Model().run(1)
        inside.append(len(returns))
        for _ in range(3):
            job.step(1)
            inside.append(len(returns))

    before = sys.getprofile()
    try:
        _look_for_first_call("recorded_job", "step", lambda: returns.append(1))
        if thread:
            (runs := threading.Thread(target=program)).start()
            runs.join()
        else:
            program()
            assert sys.getprofile() is None
        job.step(1)  # here nothing has been called so far where the first call was in a thread
        assert threading.getprofile() is None
    finally:
        threading.setprofile(None)
        sys.setprofile(before)
    assert inside == [0, 1, 2, 3]
    assert len(returns) == 4


def test_a_step_is_counted_when_it_ends(job: Any) -> None:
    seen: list[int] = []
    returns: list[int] = []
    vars(job)["seen"] = lambda: seen.append(len(returns))
    exec("def step():\n    seen()", vars(job))
    before = sys.getprofile()
    try:
        _look_for_first_call("recorded_job", "step", lambda: returns.append(1))
        job.step()
        job.step()
    finally:
        threading.setprofile(None)
        sys.setprofile(before)
    assert (seen, len(returns)) == ([0, 1], 2)


def test_a_name_that_the_program_has_deleted_counts_once(job: Any) -> None:
    returns: list[int] = []
    exec("def step():\n    pass", vars(job))
    step = job.step
    del job.step
    before = sys.getprofile()
    try:
        _look_for_first_call("recorded_job", "step", lambda: returns.append(1))
        step()
        step()
    finally:
        threading.setprofile(None)
        sys.setprofile(before)
    assert len(returns) == 1


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("recorded_job", "--every-call-of recorded_job: give pkg.module:function"),
        ("recorded_job.step", "give pkg.module:function"),
        ("job:train.<locals>.step", "before Python 3.12 name a function of a module or a class"),
    ],
)
def test_what_cannot_be_watched_is_refused(named: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "monitoring", raising=False)
    with pytest.raises(ValueError, match=said):
        watch_calls(named, lambda: None)


def test_python_3_12_watches_functions_within_functions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monitoring = SimpleNamespace(
        PROFILER_ID=2,
        events=SimpleNamespace(PY_RETURN=4),
        use_tool_id=lambda tool, name: told.append(tool),
        register_callback=lambda tool, event, callback: told.append((tool, event)),
        set_events=lambda tool, event: told.append((tool, event)),
    )
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    watch_calls("job:train.<locals>.step", lambda: None)
    assert told == [2, (2, 4), (2, 4)]
