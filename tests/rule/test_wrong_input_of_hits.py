"""What does not belong together in a hit raises a sentence, instead of a number; what does passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.rule.grouped import scope, traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay import edits, rewrites
from traceanalyzer.rule import Calls, Hits, IdleTime, LostTime, Work, registry
from traceanalyzer.rule.checks import check
from traceanalyzer.rule.judging import judge

MS = 1_000_000


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS), (55 * MS, 2 * MS), (80 * MS, 2 * MS))


def hit(found: Any, **given: Any) -> Hits:
    return Hits(**{"occurrences": found, "message": "m", "advice": "a."} | given)


def lost(owner: int, start: int, end: int, device: int = 0) -> LostTime:
    return LostTime(*(np.array([value]) for value in (owner, device, start, end)))


def texts(rows: int) -> Texts:
    return Texts(np.zeros(rows, np.int64), np.array(["a"], object))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            lambda w, c, i: {"lost": LostTime.all_of(w)},
            "lost is of 4 spans or rows, and there are 2 occurrences",
        ),
        (lambda w, c, i: {"lost": LostTime.all_of(w, np.arange(4))}, "owner of 3 with 2 occurrences"),
        (
            lambda w, c, i: {"lost": lost(0, MS, 2 * MS, device=7)},
            "1 of 1 lost stretches are of a device without",
        ),
        (lambda w, c, i: {"lost": lost(0, 0, 900 * MS)}, "lie outside of the trace: times are ns"),
        (
            lambda w, c, i: {"lost": lost(0, 1_000, 3_000)},
            "lie before their occurrences, when the trace",
        ),
        (
            lambda w, c, i: {"lost": lost(1, MS + 1_000, 3 * MS)},
            "all that work lost is the time of other work",
        ),
        (lambda w, c, i: {"lost": w.dur_ns[0:2]}, "lost is LostTime or None, not ndarray"),
        (lambda w, c, i: {"fix": edits.DropWork(w.entries[2:])}, "are these rows of another hit"),
        (lambda w, c, i: {"fix": edits.Scale(w.entries[2:], 0.5)}, "are these rows of another hit"),
        (lambda w, c, i: {"fix": edits.Drop(w.launch.rows[2:])}, "are these rows of another hit"),
        (lambda w, c, i: {"fix": edits.DropSpans(c.start_ns[-1:], c.end_ns[-1:])}, "rows of another hit"),
        (
            lambda w, c, i: {"fix": edits.DropWork([99])},
            "1 of 1 entries of DropWork are no entries of DeviceWork",
        ),
        (lambda w, c, i: {"fix": edits.Drop([0, 999])}, "1 of 2 rows of Drop are no rows of trace.cpu"),
        (lambda w, c, i: {"fix": w.entries}, "fix is an edit or a tuple of edits, not ndarray"),
        (lambda w, c, i: {"fix": edits.Drop}, "fix is an edit or a tuple of edits, not type"),
        (lambda w, c, i: {"fix": ("drop",)}, "fix is an edit or a tuple of edits, not str"),
        (
            lambda w, c, i: {"evidence": {"line": texts(4)}},
            "evidence line has 4 rows: it is parallel to the 2",
        ),
        (lambda w, c, i: {"related": [w]}, r"related\[0\] has 4 rows: it is parallel to the 2 occurrences"),
        (lambda w, c, i: {"info": "yes"}, "info is bool, not str"),
        (lambda w, c, i: {"confidence": "sure"}, "confidence is Confidence, not str"),
        (lambda w, c, i: {"recurring_share": 50.0}, "recurring_share is 50: a share is 0 to 1"),
        (lambda w, c, i: {"occurrences": w.entries}, "occurrences is Calls or Work or IdleTime, not ndarray"),
    ],
)
def test_what_is_not_of_the_occurrences_is_refused(
    analysis: Analysis, given: Callable[..., dict[str, Any]], why: str
) -> None:
    work = analysis.index(Work)
    first = work[0:2]
    check(
        hit(
            first,
            lost=LostTime.all_of(first),
            fix=(edits.DropWork(first.entries), edits.Drop(first.launch.rows)),
            evidence={"line": texts(2)},
            related=[first.launch],
        )
    )
    with pytest.raises((ValueError, TypeError), match=why):
        check(hit(first, **given(work, analysis.index(Calls), analysis.index(IdleTime))))


def test_a_fix_elsewhere_is_said_so(analysis: Analysis) -> None:
    work = analysis.index(Work)
    check(hit(work[0:2], fix=edits.DropWork(work.entries[2:]), fixed_elsewhere=True))
    check(hit(work[0:2], fix=edits.DropWork(work.entries[2:]), lost=None, related=[work[2:]]))


def test_work_may_lose_idle_time(analysis: Analysis) -> None:
    check(hit(analysis.index(Work)[1:2], lost=lost(0, 10 * MS, 11 * MS)))


def test_idle_time_loses_its_own(analysis: Analysis) -> None:
    idle = analysis.index(IdleTime)
    check(hit(idle, lost=LostTime.all_of(idle)))
    with pytest.raises(ValueError, match="lost stretches are not of the idle time that owns them"):
        check(hit(idle, lost=LostTime.all_of(idle, np.arange(len(idle))[::-1])))


def test_calls_lose_nothing_as_early_as_times_in_us_say(analysis: Analysis) -> None:
    calls = analysis.index(Calls)
    late = calls[calls.is_op & (calls.start_ns > 50 * MS)]
    check(hit(late, lost=lost(0, 60 * MS, 61 * MS)))
    check(hit(late, lost=lost(0, 20 * MS, 21 * MS)))  # a call may end what waited for it
    with pytest.raises(ValueError, match="lie before their occurrences, when the trace began: times are ns"):
        check(hit(late, lost=lost(0, 60_000, 61_000)))


def test_no_occurrences_are_no_finding(analysis: Analysis) -> None:
    check(hit(analysis.index(Work)[[]]))


_LISTS: Any = [[0], [0], [1], [2]]
_TWO = np.array([3, 1])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: edits.Drop(np.array([1.0])), "rows of an edit are a list of whole numbers, not float64"),
        (lambda: edits.Drop(3), "rows of an edit are a list of whole numbers, not int64, 0-dimensional"),  # type: ignore[arg-type]
        (lambda: edits.DropSpans([0.5], [1.5]), "starts_ns and ends_ns are lists of whole ns, not float64"),  # type: ignore[list-item]
        (lambda: rewrites.Replace([5], [4], [1.0], 0.0), "1 of 1 spans end before they start"),
        (lambda: rewrites.Replace([4], [5], [-1.0], 0.0), "work_ns is negative or no number"),
        (lambda: rewrites.Replace([4], [5], [1.0], np.nan), "cpu_ns is negative or no number"),
        (lambda: rewrites.Fuse(_TWO, [0]), "1 numbers of group for 2 rows"),
        (lambda: rewrites.Fuse(_TWO, [0, -1]), "1 of 2 rows of an edit are negative"),
        (lambda: rewrites.Fuse(_TWO, [0, 1], [1.0]), "1 dur_ns for groups up to 1"),
        (lambda: rewrites.Compile(np.array([True])), "not a mask"),
        (lambda: rewrites.Batch([1], [2], [0, 1]), "2 numbers of group for 1 rows"),
        (lambda: rewrites.Batch([1], [2], [0], -1.0), "work_factor is negative"),
        (
            lambda: LostTime(*_LISTS),
            "device of lost stretches|owner of lost stretches has integers, not list",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(made: Callable[[], object], why: str) -> None:
    rewrites.Fuse(_TWO, [0, 0], [1.0])
    rewrites.Replace([4], [5], [1.0], 0.0)
    rewrites.Batch([1, 3], [2, 4], [0, 0])
    edits.Drop([])
    with pytest.raises(ValueError, match=why):
        made()


def test_views_say_what_they_are_chosen_and_grouped_by(analysis: Analysis) -> None:
    work = analysis.index(Work)
    with pytest.raises(TypeError, match="by a mask, positions or a slice, not by Work"):
        work[work]  # type: ignore[index]
    with pytest.raises(ValueError, match="a key of 2 rows cannot group 4"):
        list(work.by(work[0:2].device))
    with pytest.raises(ValueError, match="2 excess_ns for 4 pieces of work"):
        LostTime.excess(work, np.zeros(2, np.int64))


def _of_a_test() -> Iterator[Any]:
    """Whatever a test gives."""
    yield from ()


def _nothing() -> Any:
    """As a rule without `yield`."""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: np.zeros(3) + np.zeros(2), "ValueError: operands could not be broadcast"),
        (lambda: 3, "TypeError: a rule yields Hits, not int"),
    ],
)
def test_an_error_names_the_file_and_line_of_the_rule(
    analysis: Analysis, wrong: Callable[[], Any], why: str
) -> None:
    def yields() -> Iterator[Any]:
        yield wrong()

    described = registry._describe(registry.rule(since="0.1")(_of_a_test))
    judged = judge([replace(described, function=yields, needs={})], analysis, scope(), None)
    assert judged.outcomes[0].status is Status.FAILED
    assert why in str(judged.outcomes[0].why)
    assert "(rule/test_wrong_input_of_hits.py, line " in str(judged.outcomes[0].why)
    given = replace(described, function=_nothing, needs={})
    assert "this one returns NoneType" in str(judge([given], analysis, scope(), None).outcomes[0].why)


_RULE = """
from dataclasses import dataclass
from traceanalyzer.rule import Work, limit, rule

@dataclass(frozen=True)
class Limits:
    min_idle_ns: int = limit(5_000, "shorter idle time is ignored")

@rule(since="0.1", limits=Limits)
def my_rule(work: Work, limits: Limits):
    '''A title.'''
    yield from ()
"""
_OTHER = "\n@rule(since='0.1')\ndef other(work: Work):\n    '''A title.'''\n    yield from ()\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_RULE, None),
        (_RULE + _OTHER, "a file has one rule, not my_rule and other"),
        (_RULE.replace("def my_rule", "def other"), "rule other is in a file of another name"),
        (_RULE.replace("5_000", "5"), "limit min_idle_ns=5: less than any kernel or call takes, give ns"),
    ],
)
def test_a_file_has_one_rule_of_its_name_with_limits_in_ns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str | None
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "__init__.py").touch()
    (tmp_path / "host" / "my_rule.py").write_text(text)
    package = ModuleType(f"{tmp_path.name}_of_hits")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    rules, broken = registry.rules_of(package)
    assert [one.slug for one in rules] == (["my-rule"] if why is None else [])
    assert why is None or why in broken[0].error
