"""What is said and what is kept quiet: the least share of every rule, as cost and as saving."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.rule.grouped import LENGTH, MS, kernels, scope
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.saving import Saving
from traceanalyzer.replay.edits import Resize
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.judging import judge
from traceanalyzer.rule.registry import Kind, Rule, all_rules

RULES = [rule for rule in all_rules() if rule.min_share > 0]


@dataclass(frozen=True)
class Told:
    """A forecast that answers the same whatever is edited."""

    share: float
    low_share: float
    idle_share: float = 1.0

    def saving(self, _: Any, given: Any = ()) -> Saving:
        return Saving(1, 1, 1, self.share, self.low_share, self.share, "replayed")


def said(rule: Rule, hits: Hits, told: Any = None) -> bool:
    """Whether these hits become a finding, were they the rule's."""
    saying = replace(rule, needs={}, limits=None, kind=Kind.FAULT, function=lambda: iter([hits]))
    analysis = Analysis(hits.occurrences.events.trace).with_index(hits.occurrences.events)
    judgement = judge([saying], analysis, scope(), told)
    assert [outcome.rule for outcome in judgement.outcomes] == [rule.slug]
    return bool(judgement.findings)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_what_costs_less_than_the_least_share_is_not_said(rule: Rule) -> None:
    least = math.ceil(rule.min_share * LENGTH)
    assert said(rule, kernels((0, least)))
    assert not said(rule, kernels((0, least - 1)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_what_costs_little_is_said_where_its_fix_surely_saves_enough(rule: Rule) -> None:
    little = kernels((0, 1_000), fix=Resize([0], [1.0]))
    assert said(rule, little, Told(rule.min_share, 0.001))
    assert not said(rule, little, Told(rule.min_share * 0.99, 0.001))
    assert not said(rule, little, Told(rule.min_share, 0.0))


@pytest.mark.parametrize(("share", "likely"), [(0.1, True), (0.099, False)])
def test_what_probably_saves_a_tenth_of_the_step_is_said_though_it_may_save_nothing(
    share: float, likely: bool
) -> None:
    little = kernels((0, 1_000), fix=Resize([0], [1.0]))
    assert said(RULES[0], little, Told(share, -0.1)) is likely


def test_what_loses_nothing_is_said_where_it_is_worth_knowing_or_of_the_job() -> None:
    calls = kernels((0, 1_000)).occurrences.launch
    assert said(RULES[0], Hits(calls, "m", "a.", info=True))
    assert not said(RULES[0], Hits(calls, "m", "a.", fix=Resize([0], [1.0])))
    assert said(RULES[0], Hits(calls, "m", "a.", fix=Resize([0], [1.0])), Told(0.5, 0.4))
    outside = kernels((LENGTH + MS, 1_000))
    assert not said(RULES[0], outside)
    assert said(RULES[0], replace(outside, of_job=True))
