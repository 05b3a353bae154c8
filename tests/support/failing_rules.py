"""Rules as a careless author writes them, run beside one that finds something."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.support.built_findings import scope
from traceanalyzer.model.analysis import Analysis, needs_of
from traceanalyzer.rule import Calls, Hits, Work, registry
from traceanalyzer.rule.judging import Judgement, judge


def _careful(work: Work) -> Iterator[Hits]:
    """Finds all work."""
    yield Hits(occurrences=work, message="{count} pieces", advice="Drop them.")


def described(function: Callable[..., Any], **changes: Any) -> registry.Rule:
    """The rule of a function, under its name."""
    marked = registry.describe(registry.rule(since="0.1")(_careful))
    slug = function.__name__.strip("_<>").replace("_", "-")
    return replace(marked, **{"slug": slug, "function": function, "needs": needs_of(function)} | changes)


def judged(analysis: Analysis, function: Callable[..., Any], **changes: Any) -> Judgement:
    """What comes of a rule beside one that finds all work, and claims it later."""
    return judge([described(function, **changes), described(_careful)], analysis, scope(), None)


def why(analysis: Analysis, function: Callable[..., Any], **changes: Any) -> str:
    """Why a rule failed; the one beside it found what it finds alone."""
    said = judged(analysis, function, **changes)
    failed, careful = said.outcomes
    assert (str(failed.status), str(careful.status)) == ("failed", "found"), failed
    work = analysis.index(Work)
    assert [found.message for found in said.findings] == [f"{len(work)} pieces"]
    return str(failed.why)


def left_out_hit(analysis: Analysis, function: Callable[..., Any], **changes: Any) -> str:
    """Why the only hit of a rule is left out; the rule does not fail."""
    said = judged(analysis, function, **changes)
    assert [str(outcome.status) for outcome in said.outcomes] == ["clear", "found"], said.outcomes
    (failure,) = said.failures
    return str(failure)


def yielding(made: Callable[[Work, Calls], Any]) -> Callable[..., Any]:
    """A rule that yields what this makes of all work and calls."""

    def careless(work: Work, calls: Calls) -> Iterator[Any]:
        yield made(work, calls)

    return careless


def hit(found: Any, **given: Any) -> Hits:
    return Hits(**{"occurrences": found, "message": "m", "advice": "a."} | given)
