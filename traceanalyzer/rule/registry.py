"""A rule is one decorated function in one file under `rules/`; this module finds, describes and configures it."""

import ast
import importlib
import inspect
import math
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from numbers import Real
from types import ModuleType
from typing import Any

from traceanalyzer.model.analysis import Analysis, Need, needs_of
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Severity
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.claims import Kind as Kind
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.messages import FORMS
from traceanalyzer.rule.validation import MIN_SHARE as MIN_SHARE
from traceanalyzer.rule.validation import check_hits, check_limit
from traceanalyzer.timeline.selection import Events

RuleFunction = Callable[..., Iterator[Hits]]
LeaveOut = Callable[[Hits, ValueError], None]


@dataclass(frozen=True, slots=True)
class Broken:
    """A file of rules that cannot be imported or declares them wrongly, by the `slug` that it should hold."""

    slug: str
    file: str
    error: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its slug, the page that explains it, the indexes that it needs and its limits.

    Attributes:
        specificity: of rules that claim at once, the higher first.
        choices: causes whose findings are choices, whatever the rule's other findings are.
        min_share: findings that cost and save less are not said: a share of the window, or of the step.
        causes: what its findings may name as their cause; empty where they name none.
        limits: an instance of the rule's own dataclass, None where it has no limits.
    """

    slug: str
    group: str
    since: str
    title: str
    page: str
    needs: Mapping[str, Need]
    claims: Claims
    min_share: float
    causes: tuple[str, ...]
    limits: Any
    function: RuleFunction
    kind: Kind = Kind.FAULT
    specificity: int = 0
    choices: tuple[str, ...] = ()

    @property
    def paragraphs(self) -> list[str]:
        """The page's parts, without line breaks: one begins with what it is about, "Bad: ...", or as a list's item."""
        return [" ".join(part.split()) for part in re.split(r"\n(?:\n|(?=[A-Z][^.:]*:)|(?=- ))", self.page)]

    @property
    def precedence(self) -> tuple[int, ...]:
        """Of rules that claim at once the smaller first: the more specific, then the older."""
        return (-self.specificity, *map(int, self.since.split(".")))

    def hits(self, analysis: Analysis, left_out: LeaveOut | None = None) -> Iterator[Hits]:
        """Every occurrence in the trace, each checked first.

        `left_out` is called with each hit that is out of bounds, instead of raising ValueError.

        Raises:
            Unavailable: an index that the rule needs cannot be built.
            ValueError, TypeError: what `rule/validation.py` finds wrong, such as a cause that is none of `causes`.
        """
        limits = {} if self.limits is None else {"limits": self.limits}
        for hits in self.function(**analysis.resolve(self.needs), **limits):
            try:
                if hits.cause and hits.cause not in self.causes:
                    raise ValueError(f"{self.slug} does not declare the cause {hits.cause!r}")
                # The verdict weighs questions by that.
                if self.kind is Kind.QUESTION and not isinstance(hits.evidence.get("gpu_share"), Real):
                    raise ValueError("evidence of a question has gpu_share, a number from 0 to 1")
                check_hits(hits, analysis.index_or_none(Events))
            except ValueError as error:
                if left_out is None:
                    raise
                left_out(hits, error)
            else:
                yield hits

    def in_force(self) -> Iterator[tuple[str, int | float]]:
        yield MIN_SHARE, self.min_share
        if self.limits is not None:
            yield from ((limit.name, getattr(self.limits, limit.name)) for limit in fields(self.limits))


def rule(
    *bare: Any,
    since: str = "",
    claims: Claims = Claims.EVENT,
    min_share: float = Severity.LOW.least_share,
    causes: tuple[str, ...] = (),
    limits: type | None = None,
    kind: Kind = Kind.FAULT,
    specificity: int = 0,
    choices: tuple[str, ...] = (),
) -> Callable[[RuleFunction], RuleFunction]:
    """Mark a function as a rule; its name is the slug, its docstring the page, its parameters the indexes.

    Args:
        since: the version that has it first; never left out.
        min_share: by default the share from which on the severity is `low`.
        specificity: more than 0 where it knows more of its time than others of its order, and goes first.
        causes: what its hits may have as `cause`: `traceanalyzer explain CAUSE` finds the rule by them.
        limits: a class whose fields are `limit`s; it becomes a frozen dataclass.
        choices: those of `causes` that cost time for another gain, where the rule's other findings are faults.

    Raises TypeError: it is written without parentheses, or stands before something else than a function.
    """
    if bare:
        raise TypeError("write @rule(since=...), with parentheses and names")

    def mark(function: RuleFunction) -> RuleFunction:
        if not inspect.isfunction(function):
            raise TypeError(f"a rule is a function, not {type(function).__name__}")
        if limits is not None and not is_dataclass(limits):
            dataclass(frozen=True)(limits)
        fields_of_rule = {"since": since, "claims": claims, "min_share": min_share, "causes": causes}
        fields_of_rule |= {"limits": limits, "kind": kind, "specificity": specificity, "choices": choices}
        function.__rule__ = fields_of_rule  # type: ignore[attr-defined]
        return function

    return mark


def all_rules() -> tuple[Rule, ...]:
    """Every rule under `traceanalyzer.rules`, sorted by slug; without those of `broken_files()`."""
    return _imported()[0]


def broken_files() -> tuple[Broken, ...]:
    """The files under `traceanalyzer.rules` whose rules are left out, with the reason."""
    return _imported()[1]


def kind_of(slug: str, cause: str = "") -> Kind:
    """What the findings of a rule, with this cause, are; faults of a rule that is not known."""
    described = next((described for described in all_rules() if described.slug == slug), None)
    if described is None:
        return Kind.FAULT
    return Kind.CHOICE if cause in described.choices else described.kind


@cache
def _imported() -> tuple[tuple[Rule, ...], tuple[Broken, ...]]:
    return rules_of(importlib.import_module("traceanalyzer.rules"))


def rules_of(package: ModuleType) -> tuple[tuple[Rule, ...], tuple[Broken, ...]]:
    """The rules in the files of a package, sorted by slug, and the files that are left out."""
    rules: dict[str, Rule] = {}
    broken = []
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", lambda _: None):
        steps = info.name.removeprefix(f"{package.__name__}.").split(".")
        try:
            module = importlib.import_module(info.name)
            # In files and folders of a group, not in what helps one rule.
            for described in _rules_in(module, needed=len(steps) == 2 and not steps[-1].startswith("_")):
                if described.slug in rules:
                    holder = rules[described.slug].function.__module__
                    raise ValueError(f"{holder} has a rule of this name, too")
                rules[described.slug] = described
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever an author's file does: the others run
            file = "/".join([package.__path__[0], *steps]) + ("/__init__.py" if info.ispkg else ".py")
            broken.append(Broken(steps[-1].replace("_", "-"), file, f"{type(error).__name__}: {error}"))
    return tuple(rules[slug] for slug in sorted(rules)), tuple(broken)


def _rules_in(module: ModuleType, *, needed: bool) -> Iterator[Rule]:
    members = vars(module).values()
    marked = [
        candidate
        for candidate in members
        if inspect.isfunction(candidate) and hasattr(candidate, "__rule__") and candidate.__module__ == module.__name__
    ]
    if len({id(candidate) for candidate in marked}) > 1:
        raise ValueError(f"a file has one rule, not {' and '.join(candidate.__name__ for candidate in marked)}")
    if needed and not marked:
        raise ValueError(f"no @rule in {module.__name__.rpartition('.')[2]}")
    yield from map(describe, marked)


def describe(function: Any) -> Rule:
    """The rule that a function marked with `@rule(...)` is, unchecked."""
    given: dict[str, Any] = function.__rule__
    if not (page := inspect.cleandoc(function.__doc__ or "")):
        raise ValueError("a rule's docstring is its page, and there is none")
    return Rule(
        slug=function.__name__.replace("_", "-"),
        group=function.__module__.split(".")[-2].replace("_", "-"),
        title=page.splitlines()[0].rstrip("."),
        page=page,
        needs=needs_of(function, skip=frozenset({"limits", "return"})),
        function=function,
        **given | {"limits": given["limits"] and given["limits"]()},
    )


def find_rule(slug: str) -> Rule:
    """The rule of that slug; else the one that has findings of that cause, as a rule's slug of earlier versions is.

    Raises BadOption: there is none, or its file is left out.
    """
    from difflib import get_close_matches

    for described in all_rules():
        if described.slug == slug:
            return described
    of_cause = [described for described in all_rules() if slug in described.causes]
    if len(of_cause) == 1:
        return of_cause[0]
    for left_out in broken_files():
        if left_out.slug == slug:
            raise BadOption(f"{left_out.file} is left out: {left_out.error}")
    slugs = [described.slug for described in all_rules()]
    close = get_close_matches(slug, slugs)
    remedy = f"Did you mean {' or '.join(close)}?" if close else f"The rules are: {', '.join(slugs)}."
    raise BadOption(f"no rule is called {slug!r}", remedy=remedy)


def select_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules of `select` (all when empty) less those of `ignore`; raises BadOption if a slug names no rule."""
    wanted = {find_rule(slug).slug for slug in select} or {described.slug for described in all_rules()}
    wanted -= {find_rule(slug).slug for slug in ignore}
    return tuple(described for described in all_rules() if described.slug in wanted)


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One limit of a rule, as `explain` prints it; `source` is empty where none is given."""

    name: str
    value: int | float
    source: str

    @property
    def explained(self) -> str:
        """What the number is for and where it comes from, in a sentence: `chosen` says that nobody measured it."""
        return self.source.replace("; chosen", " (set by judgement, not measured)")

    @property
    def shown(self) -> str:
        """The value with its unit, `2.00 µs`; empty where the name has none."""
        words = self.name.split("_")
        form = FORMS.get("share" if "share" in words else words[-1])
        return form(self.value) if form else ""


def limits_of(limits: Any) -> Iterator[LimitInfo]:
    """Every limit in the order of declaration, of an instance of a rule's `Limits`, or of None for a rule without."""
    if limits is not None:
        sources = _sentences(type(limits))
        for declared in fields(limits):
            yield LimitInfo(declared.name, getattr(limits, declared.name), sources.get(declared.name, ""))


def _sentences(kind: type) -> dict[str, str]:
    """The sentence below each field of a class, which Python itself does not keep; by the field's name."""
    try:
        text = textwrap.dedent(inspect.getsource(kind))
    except OSError:  # an installation without its sources
        return {}
    declared: Any = ast.parse(text).body[0]
    return {
        named.target.id: " ".join(ast.literal_eval(below.value).split())
        for named, below in pairwise(declared.body)
        if isinstance(below, ast.Expr)
    }


def configured(rules: Iterable[Rule], settings: Mapping[str, str | float]) -> tuple[Rule, ...]:
    """The rules with limits overridden by `settings` like {"scheduler-gap.min_gap_ns": 20_000}.

    Raises BadOption: a setting names no rule, no limit, or its value is no number of the limit's type from 0 on.
    """
    by_slug = {described.slug: described for described in rules}
    for key, value in settings.items():
        slug, _, name = key.partition(".")
        described = by_slug.get(slug, find_rule(slug))
        current = dict(described.in_force())
        if name not in current:
            names = ", ".join(current)
            raise BadOption(f"rule {slug} has no threshold {name!r}", remedy=f"Its thresholds are: {names}.")
        number = _as_type(key, name, value, type(current[name]))
        if name == MIN_SHARE:
            by_slug[slug] = replace(described, min_share=number)
        else:
            by_slug[slug] = replace(described, limits=replace(described.limits, **{name: number}))
    return tuple(by_slug[described.slug] for described in rules)


def _as_type(key: str, name: str, text: str | float, wanted: type) -> Any:
    try:
        value = wanted(text)
        if isinstance(text, float) and math.isfinite(text) and value != text:
            raise ValueError
    except (ValueError, OverflowError):
        raise BadOption(f"{key}={text}: not {'a whole number' if wanted is int else 'a number'}") from None
    if not 0 <= value < math.inf:
        raise BadOption(f"{key}={text}: a threshold is finite and not negative")
    try:
        check_limit(name, value)
    except ValueError as error:
        raise BadOption(f"{key}={text}: {str(error).partition(': ')[2]}") from None
    return value
