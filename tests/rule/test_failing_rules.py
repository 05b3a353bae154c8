"""Whatever one rule does, it is named as failed, takes no time from others, and the others run."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.built_findings import traced
from tests.support.failing_rules import described, hit, judged, why, yielding
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Hits, Work
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
        (AssertionError(), "AssertionError (rule/test_failing_rules.py, line "),
    ],
)
def test_no_error_of_a_rule_ends_the_others(analysis: Analysis, error: BaseException, said: str) -> None:
    assert said in why(analysis, _raising(error))


def test_the_user_may_end_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        judged(traced((0, MS)), _raising(KeyboardInterrupt()))


def test_a_rule_that_fails_late_keeps_no_time(analysis: Analysis) -> None:
    """It claims before the other, and fails when its message is filled."""
    made = yielding(lambda work, _: hit(work, message="{no_such}"))
    assert "message names {no_such}" in why(analysis, made, claims=Claims.RECORDING)


def test_only_the_hit_that_fails_a_check_is_left_out(analysis: Analysis) -> None:
    """The rule goes on, and finds the other two of four kernels; the one beside it has the rest."""

    def half_right(work: Work) -> Iterator[Hits]:
        yield hit(work[:2], cause="early", evidence={"wait_ns": -3})
        yield hit(work[2:], cause="late", message="{count} late pieces")

    said = judged(analysis, half_right, causes=("early", "late"), claims=Claims.RECORDING)
    assert [found.message for found in said.findings] == ["2 late pieces", "4 pieces"]
    assert [str(outcome.status) for outcome in said.outcomes] == ["found", "found"]
    left_out = "half-right (early) left out, bounds: evidence wait_ns is -3: not below 0"
    assert [str(failure) for failure in said.failures] == [left_out]


def test_a_hit_that_fails_a_check_fails_tests_of_its_rule(analysis: Analysis) -> None:
    made = described(yielding(lambda work, _: hit(work, evidence={"wait_ns": -3})))
    with pytest.raises(ValueError, match="evidence wait_ns is -3: not below 0"):
        list(made.hits(analysis))


def test_error_outside_the_file_names_the_rule_start(analysis: Analysis) -> None:
    def careless(work: Work) -> Any:
        return [3]

    line = careless.__code__.co_firstlineno
    assert f"(rule/test_failing_rules.py, line {line})" in why(analysis, careless)
