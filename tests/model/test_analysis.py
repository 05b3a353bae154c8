"""Indexes of a trace: what fills their parameters, in which order, and by how many threads."""

import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial, wraps
from typing import Self

import numpy as np
import pytest

from tests.support.cached_reports import loaded
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model import analysis as module
from traceanalyzer.model.analysis import Analysis, Need, Window, all_needs, needs_of
from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import side_by_side
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.data.json import render_json
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.rule.judging import indexes_of
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.timeline.nesting import Nesting


@dataclass(frozen=True)
class Rowwise:
    rows: int
    at: Rows

    @classmethod
    def build(cls, trace: Trace) -> Self:
        return cls(len(trace.lanes.cpu), np.zeros(1, np.int64))


@dataclass(frozen=True)
class Nowhere:
    @classmethod
    def build(cls, rows: Rowwise) -> Self:
        raise Unavailable("no tea leaves")


@dataclass(frozen=True)
class Within:
    asked: tuple[int, int] | None
    tea: Nowhere | None

    @classmethod
    def build(cls, rows: Rowwise, window: Window, tea: Nowhere | None) -> Self:
        return cls(window.asked_ns, tea)


@dataclass(frozen=True)
class Last:
    within: Within

    @classmethod
    def build(cls, trace: Trace, within: Within) -> Self:
        return cls(within)


@dataclass(frozen=True)
class Without:
    @classmethod
    def build(cls, tea: Nowhere) -> Self:
        return cls()


@pytest.fixture
def analysis() -> Analysis:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    return Analysis(trace.load(), (100, 900))


def test_windows_share_indexes_that_ignore_them(analysis: Analysis) -> None:
    """Directly or through another index."""
    other = analysis.within((200, 300))
    kinds = Trace, Rowwise, Nowhere, Without, Window, Within, Last
    assert [Window in all_needs(one) for one in kinds] == [False] * 4 + [True] * 3
    assert other.index(Rowwise) is analysis.index(Rowwise)
    assert (analysis.index(Last).within.asked, other.index(Last).within.asked) == ((100, 900), (200, 300))
    assert analysis.index(Within) is analysis.index(Last).within
    assert analysis.within(None).index(Within).asked is None


def test_replaced_index_keeps_the_window(analysis: Analysis) -> None:
    """Also where another is given after it."""
    old = analysis.index(Last)
    first = analysis.with_index(Within((1, 2), None)).with_index(Rowwise(7, np.zeros(2, np.int64)))
    assert first.window.asked_ns == (100, 900)
    assert first.index(Within).asked == (1, 2)
    assert first.times is analysis.times
    assert analysis.index(Last) is old
    assert first.within((5, 6)).index(Within).asked == (5, 6)


def test_optional_unavailable_index_is_none_else_raised(analysis: Analysis) -> None:
    assert analysis.index(Within).tea is None
    for _ in range(2):
        with pytest.raises(Unavailable, match="no tea leaves"):
            analysis.index(Without)
    assert analysis.resolve({"tea": Need(Nowhere, optional=True), "rows": Need(Rowwise)}) == {
        "tea": None,
        "rows": analysis.index(Rowwise),
    }
    with pytest.raises(Unavailable, match="no tea leaves"):
        analysis.resolve({"tea": Need(Nowhere)})


def test_what_is_provided_is_for_all_windows_and_read_only(analysis: Analysis) -> None:
    given = Rowwise(3, np.zeros(2, np.int64))
    analysis.provide(given)
    assert analysis.index(Rowwise) is given
    assert analysis.within(None).index(Rowwise) is given
    assert not given.at.flags.writeable


def test_needs_are_classes_that_may_be_missing() -> None:
    def wants(trace: Trace, tea: Nowhere | None, limits: int) -> None: ...

    assert needs_of(wants, frozenset({"limits", "return"})) == {
        "trace": Need(Trace, optional=False),
        "tea": Need(Nowhere, optional=True),
    }

    def several(trace: Trace | Nowhere | None) -> None: ...

    def listed(trace: list[Trace]) -> None: ...

    for function in (several, listed):
        with pytest.raises(TypeError, match="names no index"):
            needs_of(function)


def test_times_are_those_of_each_alone(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 ns with 50 in it, of which 20 are in that, and 5 after it; then 7 more of the first."""
    clock = iter([0, 10, 20, 40, 60, 70, 75, 100, 200, 207])
    monkeypatch.setattr(module, "perf_counter_ns", lambda: next(clock))
    with analysis.timed("outer"):
        with analysis.timed("mid"), analysis.timed("inner"):
            pass
        with analysis.timed("after"):
            pass
    with analysis.timed("outer"):
        pass
    assert analysis.times == {"inner": 20, "mid": 30, "after": 5, "outer": 45 + 7}


def test_a_failing_block_is_timed_as_well(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 9])
    monkeypatch.setattr(module, "perf_counter_ns", lambda: next(clock))
    with pytest.raises(ZeroDivisionError), analysis.timed("one"):
        raise ZeroDivisionError
    assert analysis.times == {"one": 9}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_is_done_once_and_told_in_order(threads: int) -> None:
    done: Counter[int] = Counter()

    def task(number: int) -> int:
        done[number] += 1
        return number * number

    assert side_by_side([partial(task, n) for n in range(50)], threads) == [n * n for n in range(50)]
    assert set(done.values()) == {1}
    assert side_by_side([], threads) == []


def test_two_tasks_are_under_way_at_once() -> None:
    both = threading.Barrier(2, timeout=30)
    assert sorted(side_by_side([both.wait, both.wait], 2)) == [0, 1]


def test_the_first_fault_is_raised_and_no_task_begun_after_it() -> None:
    begun = []

    def task(number: int) -> None:
        begun.append(number)
        if number >= 1:
            raise ValueError(str(number))

    with pytest.raises(ValueError, match=r"^1$"):
        side_by_side([partial(task, n) for n in range(20)], 1)
    assert begun == [0, 1]
    with pytest.raises(ValueError, match=r"^[12]$"):
        side_by_side([partial(task, n) for n in range(20)], 2)


def test_each_index_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: Counter[str] = Counter()
    original = Nesting.build.__func__  # type: ignore[attr-defined]

    @wraps(original)
    def counting(cls: type, trace: object) -> object:
        built["nesting"] += 1
        return original(cls, trace)

    monkeypatch.setattr(Nesting, "build", classmethod(counting))
    analysis = Analysis(loaded(FIXTURES / "healthy" / "train.json.gz"))
    analysis.threads = 4
    analysis.build_all([Forecast, *indexes_of(all_rules())])
    assert built["nesting"] == 1
    assert {"Nesting", "Forecast", "Idle"} <= set(analysis.times)
    assert min(analysis.times.values()) >= 0


@pytest.mark.parametrize("name", ["scheduler-gap", "launch-bound"])
def test_any_number_of_threads_reports_the_same_bytes(name: str) -> None:
    trace = loaded(FIXTURES / name / "bad.json.gz")
    reports = []
    for threads in (1, 2, 4):
        analysis = Analysis(trace)
        analysis.threads = threads
        reports.append(render_json(report_of([(None, analysis)])))
    assert reports[0] == reports[1] == reports[2]
