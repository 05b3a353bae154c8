"""Hits to findings: what is grouped, what it costs, what the message may name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.report_samples import MS, ORIGIN, hit, scope
from traceanalyzer.model.finding import Confidence, Finding, Hit, Severity
from traceanalyzer.rule.grouping import findings_of, ranked


def only(*hits: Hit) -> Finding:
    """The one finding that these hits make."""
    (found,) = findings_of("some-rule", hits, scope())
    return found


def test_one_finding_per_cause_and_device() -> None:
    hits = [hit(0, MS), hit(2 * MS, MS), hit(0, MS, cause="other"), hit(0, MS, device=1)]
    found = findings_of("some-rule", hits, scope(rank=3))
    assert [(f.cause, f.device, f.count, f.rank) for f in found] == [
        ("late-launch", 0, 2, 3),
        ("other", 0, 1, 3),
        ("late-launch", 1, 1, 3),
    ]


def test_place_is_the_costliest_occurrence_and_occurrences_go_by_time() -> None:
    found = only(hit(40 * MS, 2 * MS, step=2), hit(10 * MS, 5 * MS, step=1), hit(60 * MS, MS, step=3))
    assert (found.start_ns - ORIGIN, found.step, found.event_ids) == (10 * MS, 1, (10 * MS, 10 * MS + 1))
    assert [o.step for o in found.occurrences] == [1, 2, 3]


def test_of_equally_costly_occurrences_the_first_is_the_place() -> None:
    assert only(hit(40 * MS, MS), hit(10 * MS, MS)).start_ns == ORIGIN + 10 * MS


def test_overlapping_costs_count_once() -> None:
    assert only(hit(0, 10 * MS), hit(5 * MS, 10 * MS)).cost_ns == 15 * MS


def test_a_hit_costs_no_more_than_it_claims() -> None:
    found = only(hit(0, 10 * MS, cost=MS), hit(20 * MS, 2 * MS))
    assert found.cost_ns == 3 * MS
    assert [o.cost_ns for o in found.occurrences] == [MS, 2 * MS]


def test_a_wide_cheap_hit_hides_no_overlap_elsewhere() -> None:
    wide = hit(0, 10 * MS, cost=MS)
    doubled = [hit(50 * MS, 4 * MS) for _ in range(3)]
    assert only(wide, *doubled).cost_ns == 5 * MS


def test_cost_lies_in_the_cost_spans_not_in_the_span() -> None:
    spans = ((ORIGIN + 50 * MS, ORIGIN + 52 * MS), (ORIGIN + 60 * MS, ORIGIN + 61 * MS))
    found = only(hit(0, 10 * MS, cost=3 * MS, cost_spans=spans), hit(51 * MS, 4 * MS))
    assert found.cost_ns == 6 * MS


def test_a_claim_of_several_spans_is_spread_to_the_nanosecond() -> None:
    spans = tuple((ORIGIN + at, ORIGIN + at + length) for at, length in ((0, 7), (100, 11), (300, 3)))
    assert only(hit(0, 400, cost=10, cost_spans=spans)).cost_ns == 10


def test_cost_spans_may_touch_overlap_and_come_in_any_order() -> None:
    spans = tuple((ORIGIN + start, ORIGIN + end) for start, end in ((50, 90), (0, 40), (40, 60)))
    assert only(hit(0, 100, cost=90, cost_spans=spans)).cost_ns == 90


def test_cost_outside_the_window_is_not_counted() -> None:
    found = only(hit(98 * MS, 10 * MS), hit(200 * MS, 5 * MS))
    assert (found.cost_ns, found.cost_share, found.count) == (2 * MS, 0.02, 2)


@given(st.lists(st.tuples(*[st.integers(0, 200)] * 3), min_size=1, max_size=12))
def test_cost_lies_between_the_largest_claim_and_the_least_of_union_and_sum(
    parts: list[tuple[int, int, int]],
) -> None:
    hits = [hit(start, length, cost=min(cost, length)) for start, length, cost in parts]
    instants = {at for start, length, _ in parts for at in range(start, start + length)}
    claims = [h.cost_ns for h in hits]
    assert max(claims) <= only(*hits).cost_ns <= min(sum(claims), len(instants))


@pytest.mark.parametrize(
    ("cost", "severity"),
    [(10 * MS, "high"), (10 * MS - 1, "medium"), (3 * MS, "medium"), (MS // 2, "low"), (MS // 2 - 1, "info")],
)
def test_severity_is_the_share_of_the_window(cost: int, severity: str) -> None:
    assert only(hit(0, cost)).severity == severity


def test_nobodys_loss_stays_info_unless_a_hit_is_a_loss() -> None:
    assert only(hit(0, 50 * MS, info=True)).severity is Severity.INFO
    assert only(hit(0, 50 * MS, info=True), hit(60 * MS, MS)).severity is Severity.HIGH


@pytest.mark.parametrize(
    ("high", "low", "expected"), [(5, 4, Confidence.HIGH), (4, 5, Confidence.LOW), (5, 5, Confidence.LOW)]
)
def test_confidence_is_the_lowest_that_covers_most_of_the_cost(
    high: int, low: int, expected: Confidence
) -> None:
    found = only(hit(0, high), hit(100, low, confidence=Confidence.LOW))
    assert found.confidence is expected


def test_confidence_of_costless_hits_goes_by_their_number() -> None:
    unsure = [hit(at, 5, cost=0, confidence=Confidence.MEDIUM) for at in (0, 10)]
    assert only(*unsure, hit(20, 5, cost=0)).confidence is Confidence.MEDIUM


def test_evidence_has_the_costliest_numbers_the_prevailing_text_and_totals() -> None:
    small = [hit(at * MS, 2 * MS, evidence={"op": "aten::add", "delay_ns": 1}, step=at) for at in (0, 10, 20)]
    found = only(*small, hit(40 * MS, 5 * MS, evidence={"op": "aten::mm", "delay_ns": 9}, step=40))
    expected = {"op": "aten::add", "delay_ns": 9, "count": 4, "total_ns": 11 * MS, "steps": 4}
    assert expected.items() <= found.evidence.items()
    assert (found.evidence["median_ns"], found.evidence["worst_ns"]) == (2 * MS, 5 * MS)


def test_evidence_may_differ_from_hit_to_hit() -> None:
    found = only(hit(0, 2 * MS, message="{op}", evidence={"op": "aten::mm"}), hit(10 * MS, MS, evidence={}))
    assert found.message == "aten::mm"


def test_evidence_that_a_rule_names_wins_over_totals() -> None:
    assert only(hit(0, MS, evidence={"count": 77}, message="{count}")).message == "77"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{op} {delay} {moved} {ratio}", "aten::mm 12.3 µs 1.00 MiB 0.25"),
        ("{delay_ns} {count} {times}", "12,345 1 once"),
        ("{total} {share} {median} {worst}", "1.00 ms 1.0 % 1.00 ms 1.00 ms"),
        ("{in_steps}", "over the window"),
        ("{nothing} {shape} {flag}", "unknown 4, 1,024 True"),
    ],
)
def test_message_fields(template: str, text: str) -> None:
    more = {"nothing": None, "shape": [4, 1024], "flag": True}
    given_hit = hit(0, MS, message=template)
    assert only(hit(0, MS, message=template, evidence={**given_hit.evidence, **more})).message == text


def test_a_unit_alone_is_a_name() -> None:
    assert only(hit(0, MS, message="{bytes}", evidence={"bytes": 4096})).message == "4.00 KiB"


@pytest.mark.parametrize(
    ("steps", "text"), [([0, 1, 2, 3], "in every step"), ([2, 2], "in step 2"), ([1, 3], "in 2 of 4 steps")]
)
def test_message_says_in_which_steps(steps: list[int], text: str) -> None:
    hits = [hit(at * MS, MS, step=step, message="{in_steps}") for at, step in enumerate(steps)]
    assert only(*hits).message == text


def test_a_single_step_recurs_in_nothing() -> None:
    (found,) = findings_of("some-rule", [hit(0, MS, step=2, message="{in_steps}")], scope(steps=1))
    assert found.message == "in the only step"


def test_message_says_that_there_are_other_ops() -> None:
    ops = ["aten::mm", "aten::mm", "aten::add", "aten::sum"]
    hits = [hit(2 * at * MS, MS, message="{times} at {op}", evidence={"op": op}) for at, op in enumerate(ops)]
    assert only(*hits).message == "4 times at aten::mm and 2 others"
    assert only(*hits[1:3]).message == "twice at aten::mm and 1 other"


def test_a_message_without_its_evidence_is_a_fault_of_the_rule() -> None:
    with pytest.raises(KeyError, match="absent"):
        only(hit(0, MS, message="{absent}"))


def test_numpy_scalars_become_python_numbers() -> None:
    found = only(
        hit(0, MS, step=np.int64(3), message="", evidence={"size": np.int64(5), "shape": np.array([1, 2])})
    )
    assert type(found.step) is int
    assert (found.evidence["size"], found.evidence["shape"]) == (5, [1, 2])
    assert type(found.evidence["size"]) is int


def test_no_window_no_share() -> None:
    (found,) = findings_of("some-rule", [hit(0, MS)], scope(length=0))
    assert (found.cost_ns, found.cost_share) == (0, 0.0)


def test_ranked_by_cost_with_info_last_whatever_the_order_of_rules() -> None:
    made = [
        *findings_of("b", [hit(0, 4 * MS)], scope()),
        *findings_of("a", [hit(0, 4 * MS)], scope()),
        *findings_of("c", [hit(0, 50 * MS, info=True)], scope()),
        *findings_of("d", [hit(0, 20 * MS)], scope()),
    ]
    assert [f.rule for f in ranked(made)] == ["d", "a", "b", "c"]
    assert ranked(reversed(made)) == ranked(made)
