"""Indexes of a trace: what fills their parameters, which of them windows share, and the time that each takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model import analysis as module
from traceanalyzer.model.analysis import Analysis, Need, Window, depends_on_window, needs_of
from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace


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
    assert [depends_on_window(one) for one in kinds] == [False] * 4 + [True] * 3
    assert other.index(Rowwise) is analysis.index(Rowwise)
    assert (analysis.index(Last).within.asked, other.index(Last).within.asked) == ((100, 900), (200, 300))
    assert analysis.index(Within) is analysis.index(Last).within
    assert analysis.within(None).index(Within).asked is None


def test_replaced_index_keeps_the_window(
    analysis: Analysis,
) -> None:
    """Also where another is given after it."""
    old = analysis.index(Last)
    first = analysis.with_index(Within((1, 2), None)).with_index(Rowwise(7, np.zeros(2, np.int64)))
    assert first.window.asked_ns == (100, 900)
    assert first.index(Within).asked == (1, 2)
    assert first.times is analysis.times
    assert analysis.index(Last) is old
    assert first.within((5, 6)).index(Within).asked == (5, 6)


def test_optional_unavailable_index_is_none_else_raised(
    analysis: Analysis,
) -> None:
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
