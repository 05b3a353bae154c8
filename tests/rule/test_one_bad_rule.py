"""Whatever one rule does, it is named as failed, takes no time from others, and the others run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.rule.careless import hit, judged, why, yielding
from tests.rule.grouped import traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.text.fitting import put_fitted
from traceanalyzer.render.text.page import Page
from traceanalyzer.report.verdict import _question
from traceanalyzer.rule import Hits, Kind, LostTime, Work
from traceanalyzer.rule.claims import Claims

MS = 1_000_000


class _OfTheAuthor(BaseException):
    """No Exception, and without a text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS), (55 * MS, 2 * MS), (80 * MS, 2 * MS))


def _raising(error: BaseException) -> Callable[..., Any]:
    def careless(work: Work) -> Iterator[Hits]:
        yield hit(work)
        raise error

    return careless


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (GeneratorExit("mine"), "GeneratorExit: mine"),
        (SystemExit(3), "SystemExit: 3"),
        (_OfTheAuthor(), "_OfTheAuthor: its text cannot be made"),
        (StopIteration("mine"), "RuntimeError: generator raised StopIteration"),
        (AssertionError(), "AssertionError (rule/test_one_bad_rule.py, line "),
    ],
)
def test_no_error_of_a_rule_ends_the_others(analysis: Analysis, error: BaseException, said: str) -> None:
    assert said in why(analysis, _raising(error))


def test_the_user_may_end_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        judged(traced((0, MS)), _raising(KeyboardInterrupt()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"message": " \n"}, "ValueError: message is empty"),
        ({"message": "{x}", "evidence": {"x": {}}}, "message '{x}' says nothing: its fields are empty"),
        ({"evidence": {"x": [{("a",): 1}]}}, r"evidence x has the key ('a',): keys are texts"),
        ({"evidence": {"x": {"y": {None: 1}}}}, "evidence x has a part that is {None: 1}: each is a number"),
        ({"evidence": {"x": [[{2: 1}]]}}, "evidence x has the key 2: keys are texts"),
    ],
)
def test_what_no_report_can_say_fails_its_rule(analysis: Analysis, given: dict[str, Any], said: str) -> None:
    failed = why(analysis, yielding(lambda work, _: hit(work, **given)), claims=Claims.RECORDING)
    assert said in failed
    assert "(rule/test_one_bad_rule.py, line " in failed or "(rule/careless.py, line " in failed


def test_a_rule_that_fails_late_keeps_no_time(analysis: Analysis) -> None:
    """It claims before the other, and fails when its message is filled."""
    made = yielding(lambda work, _: hit(work, message="{no_such}"))
    assert "message names {no_such}" in why(analysis, made, claims=Claims.RECORDING)


@pytest.mark.parametrize("evidence", [{}, {"gpu_share": None}, {"gpu_share": {"a": 0.5}}])
def test_a_question_says_what_share_it_is_about(analysis: Analysis, evidence: dict[str, Any]) -> None:
    def question(work: Work) -> Iterator[Hits]:
        yield hit(work, evidence=evidence)

    said = why(analysis, question, kind=Kind.QUESTION)
    assert "evidence of a question has gpu_share, a number from 0 to 1" in said


def test_a_verdict_asks_nothing_that_has_no_share(analysis: Analysis) -> None:
    found = judged(analysis, yielding(lambda work, _: hit(work, lost=LostTime.none()))).findings
    assert _question({1: found[0]}) == ""


def test_an_error_that_a_rule_swallows_is_told(analysis: Analysis) -> None:
    def careless(work: Work) -> Iterator[Any]:
        try:
            yield 3
        except TypeError:
            return

    def again(work: Work) -> Iterator[Any]:
        while True:
            with suppress(TypeError):
                yield 3

    for function in (careless, again):
        assert "TypeError: a rule yields Hits, not int" in why(analysis, function)


def test_an_error_outside_of_the_file_names_where_the_rule_begins(analysis: Analysis) -> None:
    def careless(work: Work) -> Any:
        return [3]

    line = careless.__code__.co_firstlineno
    assert f"(rule/test_one_bad_rule.py, line {line})" in why(analysis, careless)


def test_an_empty_text_takes_no_line() -> None:
    page = Page(80)
    put_fitted(page, "", 2)
    assert page.lines == []
