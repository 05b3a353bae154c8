"""A rule is one decorated function in one file under `rules/`; this module finds, describes and configures it."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from traceanalyzer.model.analysis import Analysis, Need, needs_of
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Hit

RuleFunction = Callable[..., Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its slug, the page that explains it, the indexes that it needs and its limits."""

    slug: str
    group: str
    since: str
    title: str
    page: str
    needs: Mapping[str, Need]
    limits: Any
    function: RuleFunction

    def hits(self, analysis: Analysis, limits: Any) -> Iterator[Hit]:
        """Every occurrence in the trace.

        Raises:
            Unavailable: an index that the rule needs cannot be built.
        """
        return self.function(**analysis.given(self.needs), limits=limits)


def rule(*, limits: type, since: str) -> Callable[[RuleFunction], RuleFunction]:
    """Mark a function as a rule; its name is the slug, its docstring the page, its parameters the indexes."""

    def mark(function: RuleFunction) -> RuleFunction:
        function.__rule__ = (limits, since)  # type: ignore[attr-defined]
        return function

    return mark


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule under `traceanalyzer.rules`, sorted by slug."""
    package = importlib.import_module("traceanalyzer.rules")
    names = (info.name for info in pkgutil.walk_packages(package.__path__, "traceanalyzer.rules."))
    modules = (importlib.import_module(name) for name in names)
    marked = (
        f for m in modules for f in vars(m).values() if hasattr(f, "__rule__") and f.__module__ == m.__name__
    )
    return tuple(sorted(map(_describe, marked), key=lambda found: found.slug))


def _describe(function: Any) -> Rule:
    limits, since = function.__rule__
    page = inspect.cleandoc(function.__doc__)
    return Rule(
        slug=function.__name__.replace("_", "-"),
        group=function.__module__.split(".")[-2].replace("_", "-"),
        since=since,
        title=page.splitlines()[0].rstrip("."),
        page=page,
        needs=needs_of(function, skip=frozenset({"limits", "return"})),
        limits=limits(),
        function=function,
    )


def find_rule(slug: str) -> Rule:
    """The rule of that slug.

    Raises:
        BadOption: there is none.
    """
    for known in all_rules():
        if known.slug == slug:
            return known
    raise BadOption(f"no rule is called {slug!r}", remedy=_known_rules())


def select_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules of `select` (all when empty) less those of `ignore`.

    Raises:
        BadOption: a slug names no rule.
    """
    wanted = {find_rule(slug).slug for slug in select} or {known.slug for known in all_rules()}
    wanted -= {find_rule(slug).slug for slug in ignore}
    return tuple(known for known in all_rules() if known.slug in wanted)


def configure(rules: Iterable[Rule], settings: Mapping[str, str]) -> dict[str, Any]:
    """Limits in force by slug, after `settings` like {"scheduler-gap.min_gap_ns": "20000"}.

    Raises:
        BadOption: a setting names no rule, no limit, or its value is no number of the limit's type from 0 on.
    """
    in_force = {known.slug: known.limits for known in rules}
    for key, text in settings.items():
        slug, _, name = key.partition(".")
        known = find_rule(slug)
        current = in_force.get(slug, known.limits)
        names = [f.name for f in fields(current)]
        if name not in names:
            raise BadOption(
                f"rule {slug} has no limit {name!r}", remedy=f"Its limits are: {', '.join(names)}."
            )
        in_force[slug] = replace(current, **{name: _as_type(key, text, type(getattr(current, name)))})
    return in_force


def _as_type(key: str, text: str, wanted: type) -> Any:
    try:
        value = wanted(text)
    except ValueError:
        raise BadOption(f"{key}={text}: not {'a whole number' if wanted is int else 'a number'}") from None
    if not 0 <= value < math.inf:
        raise BadOption(f"{key}={text}: a limit is finite and not negative")
    return value


def _known_rules() -> str:
    return "The rules are: " + ", ".join(known.slug for known in all_rules()) + "."
