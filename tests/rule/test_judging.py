"""Which hits are reported, and what becomes of rules that fail."""

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import LENGTH, MS, kernels, scope, traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.edits import Drop, Resize
from traceanalyzer.rule.claims import Claims, resolve_claims
from traceanalyzer.rule.grouping import group_hits, typical_duration
from traceanalyzer.rule.hits import Hits, LostTime, clamp_to_floor
from traceanalyzer.rule.judging import judge
from traceanalyzer.rule.registry import Kind, Rule, all_rules
from traceanalyzer.rule.views import Work
from traceanalyzer.rules.kernels.throttling import after_ramp, usual_at_full_clock
from traceanalyzer.timeline.collective_waits import at_most

RULES = [rule for rule in all_rules() if rule.min_share > 0]


@dataclass(frozen=True)
class Told:
    """A forecast that answers the same whatever is edited."""

    share: float
    low_share: float
    idle_share: float = 1.0
    step: Any = field(default_factory=lambda: SimpleNamespace(basis=""))
    program: Any = None

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
def test_cheap_problem_is_shown_if_its_fix_surely_saves(rule: Rule) -> None:
    little = kernels((0, 1_000), fix=Resize([0], [1.0]))
    assert said(rule, little, Told(rule.min_share, 0.001))
    assert not said(rule, little, Told(rule.min_share * 0.99, 0.001))
    assert not said(rule, little, Told(rule.min_share, 0.0))


@pytest.mark.parametrize(("share", "likely"), [(0.1, True), (0.099, False)])
def test_probable_tenth_of_a_step_is_shown_despite_doubt(share: float, likely: bool) -> None:
    little = kernels((0, 1_000), fix=Resize([0], [1.0]))
    assert said(RULES[0], little, Told(share, -0.1)) is likely


def test_lossless_fact_is_shown_if_notable_or_of_the_job() -> None:
    calls = kernels((0, 1_000)).occurrences.launch
    assert said(RULES[0], Hits(calls, "m", "a.", info=True))
    assert not said(RULES[0], Hits(calls, "m", "a.", fix=Resize([0], [1.0])))
    assert said(RULES[0], Hits(calls, "m", "a.", fix=Resize([0], [1.0])), Told(0.5, 0.4))
    outside = kernels((LENGTH + MS, 1_000))
    assert not said(RULES[0], outside)
    assert said(RULES[0], replace(outside, of_job=True))


def test_rule_has_findings_though_one_costs_too_little() -> None:
    work = traced((1 * MS, 5 * MS), (30 * MS, 1_000)).index(Work)
    analysis = Analysis(work.events.trace).with_index(work.events)
    hits = [Hits(work[one : one + 1], "m", "a.", cause="ab"[one]) for one in range(2)]
    for given in (hits, hits[::-1]):
        rule = replace(RULES[0], needs={}, limits=None, causes=("a", "b"), min_share=0.01, kind=Kind.FAULT)
        judgement = judge([replace(rule, function=lambda given=given: iter(given))], analysis, scope(), None)
        assert [found.cause for found in judgement.findings] == ["a"]
        assert [outcome.status for outcome in judgement.outcomes] == [Status.FOUND]


def test_second_failing_rule_is_reported_as_well() -> None:
    """It has time, and a message to fill, only when the first keeps none."""
    hits = kernels((0, 5 * MS), message="{no_such}")
    analysis = Analysis(hits.occurrences.events.trace).with_index(hits.occurrences.events)
    rules = [
        replace(
            RULES[0], slug=slug, needs={}, limits=None, kind=Kind.FAULT, claims=claims,
            function=lambda: iter([hits]),
        )
        for slug, claims in (("first", Claims.RECORDING), ("second", Claims.EVENT))
    ]  # fmt: skip
    judgement = judge(rules, analysis, scope(), None)
    assert [outcome.status for outcome in judgement.outcomes] == [Status.FAILED] * 2
    assert all("{no_such}" in str(outcome.why) for outcome in judgement.outcomes)


@pytest.mark.parametrize(
    ("share", "info", "of_work", "given"),
    [(0.2, False, False, 1), (0.2, True, False, 0), (0.001, False, False, 0), (0.2, False, True, 0)],
)
def test_launch_reduction_is_worth_the_rest_after_cpu_faults(
    share: float, info: bool, of_work: bool, given: int
) -> None:
    """Those above info."""
    work = traced((1 * MS, 5 * MS), (30 * MS, 5 * MS)).index(Work)
    analysis = Analysis(work.events.trace).with_index(work.events)
    fix, graph = Drop(work.launch.rows[:1]), Drop(work.launch.rows[1:])
    at = work[:1] if of_work else work[:1].launch
    lost = None if of_work else LostTime.all_of(work[:1])
    made = (
        ("own", Claims.EVENT, Hits(at, "m", "a.", fix=fix, info=info, lost=lost)),
        ("graph", Claims.LAUNCHES, Hits(work[1:], "m", "a.", fix=graph)),
    )
    rules = [
        replace(RULES[0], slug=slug, needs={}, limits=None, kind=Kind.FAULT, claims=claims,
                function=lambda hits=hits: iter([hits]))
        for slug, claims, hits in made
    ]  # fmt: skip
    asked: list[tuple[Any, Any]] = []

    class Asked(Told):
        def saving(self, edits: Any, given: Any = ()) -> Saving:
            asked.append((edits, given))
            return super().saving(edits, given)

    forecast: Any = Asked(share, share)
    judgement = judge(rules, analysis, scope(), forecast)
    assert len(judgement.findings) == 2
    assert ((graph,), (fix,) * given) in asked
    assert ((fix,), ()) in asked


def rows(**columns: Any) -> Any:
    """What stands for a view, by the columns that a function reads."""
    return SimpleNamespace(**{name: np.array(column) for name, column in columns.items()})


def test_work_is_not_quicker_than_the_floor() -> None:
    found = rows(dur_ns=[8_000, 8_000, 2_000, 5_000])
    least = clamp_to_floor(np.array([10.0, 6_000.0, 10.0, 4_999.0]), found, 5_000)
    assert least.tolist() == [5_000, 6_000, 2_000, 5_000]


def test_the_ramp_ends_after_the_first_kernel_at_full_clock() -> None:
    ramped = after_ramp(rows(start_ns=[0, 10, 20]), np.array([False, True, True]))
    assert ramped.tolist() == [False, False, True]
    assert after_ramp(rows(start_ns=[0, 10]), np.array([False, False])).tolist() == [False, False]


@pytest.mark.parametrize(
    ("durations", "full", "usual"),
    [
        ([3, 1, 2, 90], [True, True, True, False], 2.0),
        ([3, 1], [True, True], 2.0),  # of two the mean
        ([3, 1, 90], [True, False, False], np.nan),  # fewer than two at full clock
    ],
)
def test_the_usual_time_is_the_median_at_full_clock(durations: list[int], full: list[bool], usual: float) -> None:
    same = SimpleNamespace(code=np.zeros(len(durations), np.int64))
    found: Any = SimpleNamespace(dur_ns=np.array(durations), text=lambda column: same)
    np.testing.assert_equal(usual_at_full_clock(found, np.array(full), 2), np.full(len(full), usual))


def a_rule(slug: str, specificity: int = 0, since: str = "0.1") -> Rule:
    return replace(all_rules()[0], slug=slug, specificity=specificity, since=since)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "small",
    [a_rule("z-small", specificity=1, since="0.10"), a_rule("z-small", since="0.2"), a_rule("a-small", since="0.10")],
)
def test_of_one_order_no_loss_decides_but_what_the_rules_declare(small: Rule, turned: bool) -> None:
    """The more specific rule first, then the older, then by name; whichever is given first."""
    large = a_rule("b-large", since="0.10")
    given = [
        replace(pending, precedence=rule.precedence)
        for rule, hits in ((small, kernels((0, MS))), (large, kernels((0, 3 * MS))))
        for pending in group_hits(rule.slug, Claims.EVENT, [hits])
    ]
    whole = scope()
    all_pending = resolve_claims(given[::-1] if turned else given, (whole.start_ns, whole.end_ns))
    owned = {pending.rule: sum(int((end - start).sum()) for start, end in [pending.own]) for pending in all_pending}
    assert owned == {small.slug: MS, large.slug: 2 * MS}


def test_usual_occurrence_reaches_half_of_the_cost() -> None:
    steps = np.array([0, 0, 0])
    assert typical_duration(np.array([9, 1, 1]), np.array([0, 5, 5]), steps) == 2
    assert typical_duration(np.array([9, 1, 1]), np.array([1, 4, 6]), steps) == 2
    assert typical_duration(np.array([9, 1, 1]), np.array([1, 7, 5]), steps) == 1


def test_collective_takes_at_least_its_best_rate_time() -> None:
    """Ten elements that take as long as a thousand waited: latency, and a hundredth of the thousand's time."""
    same, elements, took = (np.array(one) for one in ([0, 0, 0], [1_000, 10, 1_000], [1_000_000, 1_000_000, 2_000_000]))
    assert at_most(same, same, same, elements, took).tolist() == [1_000_000, 110_000, 1_000_000]
