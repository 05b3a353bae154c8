"""Which indexes are made first and by how many threads, and how lanes and names of pandas come to be."""

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest

import traceanalyzer
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model import analysis as module
from traceanalyzer.model import interpreter, lanes
from traceanalyzer.model.analysis import Analysis, Window
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import threads_for
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Trace, ints


@dataclass(frozen=True)
class Alone:
    @classmethod
    def build(cls, trace: Trace) -> Self:
        return cls()


@dataclass(frozen=True)
class Above:
    @classmethod
    def build(cls, alone: Alone, window: Window) -> Self:
        return cls()


@dataclass(frozen=True)
class Top:
    """Needs `Above`, and through it what that needs."""

    @classmethod
    def build(cls, above: Above) -> Self:
        return cls()


@dataclass(frozen=True)
class Broken:
    @classmethod
    def build(cls, trace: Trace, alone: Alone | None) -> Self:
        raise ZeroDivisionError


@pytest.fixture
def analysis() -> Analysis:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    return Analysis(trace.load())


def test_largest_need_is_begun_first_and_once(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many needs by name; by as many threads as the analysis has."""
    begun: list[tuple[list[str], int]] = []

    def side_by_side(tasks: Sequence[Callable[[], object]], threads: int) -> None:
        begun.append(([task.args[0].__name__ for task in tasks], threads))  # type: ignore[attr-defined]

    monkeypatch.setattr(module, "side_by_side", side_by_side)
    analysis.threads = 3
    analysis.build_all([Alone, Broken, Top, Alone, Above])
    assert begun == [(["Top", "Above", "Broken", "Alone"], 3)]
    analysis.threads = 1
    analysis.build_all([Alone, Top])
    assert len(begun) == 1
    assert analysis.times == {}


def test_what_cannot_be_made_side_by_side_is_left_for_who_asks(analysis: Analysis) -> None:
    analysis.threads = 2
    analysis.build_all([Broken, Top])
    assert set(analysis.times) == {"Broken", "Alone", "Above", "Top"}
    with pytest.raises(ZeroDivisionError):
        analysis.index(Broken)


def test_pickled_analysis_keeps_window_times_and_indexes(analysis: Analysis) -> None:
    """Of no window, and of one; none is made again, and what was unavailable still is."""
    for window in (None, (5, 90)):
        one = analysis.within(window)
        one.index(Top)
        one.provide(Unavailable("no tea"))
        again = pickle.loads(pickle.dumps(one))
        assert (again.window, again.times) == (Window(window), one.times)
        before = dict(again.times)
        again.index(Top)
        again.index(Alone)
        assert again.times == before
        assert "Top" in before
        assert repr(again).endswith(f"window={window})")


@pytest.mark.parametrize(
    ("rows", "cores", "threads"), [(199_999, 8, 1), (200_000, 8, 2), (200_000, 2, 2), (200_000, 1, 1), (0, 8, 1)]
)
@pytest.mark.parametrize("affinity", [True, False])
def test_a_second_thread_is_for_large_traces_and_a_second_core(
    rows: int, cores: int, threads: int, affinity: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cores that this process may use, where the system tells, else all."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    if not affinity:
        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert threads_for(rows) == threads


def test_cores_that_nobody_tells_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads_for(1_000_000) == 1


@pytest.mark.parametrize(
    ("version", "dtype"), [("2.3.1", object), ("3.0.0", "str"), ("10.0", "str"), ("1.5.3", object)]
)
def test_texts_have_the_type_of_pandas(version: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd, "__version__", version)
    assert lanes.text_dtype.__wrapped__() == dtype


def test_columns_are_those_of_the_frame_once_there_is_one(analysis: Analysis) -> None:
    """Also before another analysis begins, and in what goes to another process."""
    trace = analysis.trace
    assert ints(trace.lanes.cpu, "dur_ns").tolist() == [1_000]
    trace.cpu["dur_ns"] = np.array([7])
    assert ints(trace.lanes.cpu, "dur_ns").tolist() == [7]
    assert pickle.loads(pickle.dumps(trace)).cpu["dur_ns"].tolist() == [7]


def test_names_of_pandas_are_fetched_once() -> None:
    later = type(interpreter.pd)()
    assert vars(later) == {}
    assert later.Index is pd.Index
    assert vars(later) == {"Index": pd.Index}
    for name in ("__version__", "__wrapped__", "Nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(later, name)
    assert list(vars(later)) == ["Index"]


def test_package_installs_drawing_at_first_use_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever name that is, and once."""
    monkeypatch.setattr(Report, "drawn", None)
    assert traceanalyzer.Finding is not None
    monkeypatch.delitem(vars(traceanalyzer), "Finding")
    assert traceanalyzer.Finding.__name__ == "Finding"
    assert vars(traceanalyzer)["Finding"] is traceanalyzer.Finding
    assert Report.drawn is not None
    assert dir(traceanalyzer) == sorted(traceanalyzer.__all__)
