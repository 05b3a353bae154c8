"""Work side by side: every task once, results in order, the first fault told; and the same report from any number."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial, wraps

import pytest

from tests.support.cached_reports import loaded
from tests.support.fixtures import FIXTURES
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.interpreter import side_by_side
from traceanalyzer.render.data.json import render_json
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.rule.judging import indexes_of
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.timeline.nesting import Nesting


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
