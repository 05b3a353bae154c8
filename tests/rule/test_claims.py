"""Whose time it is where several want it, and which events a finding names."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import LENGTH, MS, STEP, findings, kernels, only, scope, traced
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import MAX_OCCURRENCES, Saving, Severity
from traceanalyzer.rule import judging
from traceanalyzer.rule.claims import Claims, resolve_claims
from traceanalyzer.rule.grouping import Scope, group_hits
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.views import IdleTime, Work


@pytest.mark.parametrize("order", list(Claims)[Claims.GENERAL :])
@pytest.mark.parametrize(("others_ns", "kept"), [(5 * MS, True), (5 * MS + 1, False)])
def test_net_claim_needs_half_of_its_time_left(order: Claims, others_ns: int, kept: bool) -> None:
    """Others have named what most of it is; what is no net keeps the rest whatever it is."""
    work = traced((0, 10 * MS)).index(Work)
    named = Hits(work, "m", "a.", lost=LostTime.excess(work, np.array([others_ns])))
    whole = [Hits(work, "m", "a.")]
    all_pending = [*group_hits("rest", order, whole), *group_hits("named", Claims.EVENT, [named])]
    rest, specific = resolve_claims(all_pending, (0, LENGTH))
    net = order in (Claims.HOST_CATCH_ALL, Claims.CATCH_ALL)
    assert specific.cost_ns == others_ns
    assert rest.cost_ns == (10 * MS - others_ns if kept or not net else 0)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("b", "op", 4 * MS), ("a", "op", 4 * MS - 1)),  # the larger loss
        (("a", "op", 4 * MS), ("b", "op", 4 * MS)),
        (("a", "mm", 4 * MS), ("a", "sum", 4 * MS)),
        (("a", None, 4 * MS), ("a", "mm", 4 * MS)),
    ],
)
def test_larger_loss_of_a_rule_claims_first_then_cause(
    first: tuple[str, str | None, int], second: tuple[str, str | None, int], turned: bool
) -> None:
    """Whichever it yields first."""
    work = traced((0, 10 * MS)).index(Work)
    hits = [
        Hits(work, "m", "a.", cause=cause, named_by=by, lost=LostTime.excess(work, np.array([lost])))
        for cause, by, lost in (first, second)
    ]
    found = resolve_claims(list(group_hits("rule", Claims.EVENT, hits[::-1] if turned else hits)), (0, LENGTH))
    assert [one.cost_ns for one in (found[::-1] if turned else found)] == [4 * MS, 0]


def test_of_occurrences_that_cost_the_same_the_first_are_listed() -> None:
    many = [(number * 20_000, 1_000) for number in range(MAX_OCCURRENCES + 5)]
    found = only(*many, (90 * MS, 1_001))
    assert [one.start_ns for one in found.occurrences] == [
        *(start + 500 for start, _ in many[: MAX_OCCURRENCES - 1]),
        90 * MS + 500,
    ]


def asked(start_ns: int, end_ns: int, steps: int = 1) -> Scope:
    """A window that the user chose."""
    return Scope(None, start_ns, end_ns, steps, asked=True)


@pytest.mark.parametrize(
    ("place", "within"),
    [
        ((10 * MS, 10 * MS), False),
        ((10 * MS, 10 * MS + 1), True),
        ((30 * MS, MS), False),
        ((30 * MS - 1, MS), True),
        ((20 * MS, 0), True),
        ((30 * MS, 0), False),
        ((10 * MS, 30 * MS), True),
    ],
)
def test_event_that_only_touches_a_window_is_outside(place: tuple[int, int], within: bool) -> None:
    """Kernels begin 500 ns after their ops."""
    window = asked(20 * MS + 500, 30 * MS + 500)
    found = findings([kernels((22 * MS, MS), place)], window)
    assert [one.count for one in found] == [1 + within]


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(26 * MS, 2 * MS), (60 * MS, 4 * MS)], "2.00 ms in total"),
        ([(26 * MS, 0), (60 * MS, 0), (70 * MS, 0)], "2.00 ms in total"),
    ],
)
def test_window_totals_are_a_part_by_time_or_number(places: list[tuple[int, int]], said: str) -> None:
    hits = kernels(*places, message="{spent_a_step}", evidence={"spent_ns": 6 * MS})
    (part,) = findings([hits], asked(25 * MS, 50 * MS))
    assert part.message == said
    (whole,) = findings([hits], scope())
    assert whole.message == "6.00 ms in total"


@pytest.mark.parametrize(("share", "severity"), [(0.5, "high"), (0.51, "info"), (0.0, "high")])
def test_what_too_few_steps_have_may_be_chance(share: float, severity: str) -> None:
    """Two of four."""
    found = only((0, 20 * MS), (30 * MS, 15 * MS), recurring_share=share)
    assert (found.steps, found.severity) == (2, severity)


@pytest.mark.parametrize(
    ("share", "normal", "severity", "usual"),
    [(0.05, 0.05, Severity.MEDIUM, False), (0.05, 0.051, Severity.INFO, True), (0.004, 0.05, Severity.INFO, False)],
)
def test_what_healthy_models_pay_too_is_info_and_said_to_be(
    share: float, normal: float, severity: Severity, usual: bool
) -> None:
    saving = Saving(1, 1, 1, share, share, share, "replayed")
    (found,) = findings([kernels((0, 30 * MS), normal_share=normal)], saving=saving)
    assert found.severity is severity
    assert (found.advice == "a. Healthy models also have such work, so its severity is info.") is usual
    assert found.advice.startswith("a.")


def test_fixes_of_the_hundred_largest_claims_are_replayed() -> None:
    class Pending:
        def __init__(self, cost_ns: int) -> None:
            self.cost_ns = cost_ns

    claimed: Any = [Pending(number) for number in range(102)]
    assert judging._replayed(claimed) == set(claimed[2:])


def test_a_step_has_its_part_of_what_all_steps_lost() -> None:
    """The window has four steps, of which one lost 7 ns."""
    found = only((0, 7), (STEP, 0))
    assert (found.cost_per_step_ns, found.evidence["per_step_ns"], found.evidence["total_ns"]) == (1, 1, 7)


def _each_costs(*places: tuple[int, int]) -> list[int]:
    """ms that each of as many kernels costs, of which each lost the stretch (start, end) in ms."""
    work = traced(*[(80 * MS + number * MS, MS) for number in range(len(places))]).index(Work)
    start, end = (np.array(side) * MS for side in zip(*places, strict=True))
    lost = LostTime(np.arange(len(places)), np.zeros(len(places), np.int64), start, end)
    (found,) = findings([Hits(work, "m", "a.", lost=lost)])
    assert sum(one.cost_ns for one in found.occurrences) == found.cost_ns
    return [one.cost_ns // MS for one in found.occurrences]


@pytest.mark.parametrize(
    ("places", "costs"),
    [
        ([(10, 40), (10, 30)], [10, 20]),  # of two that begin together the shorter has its own
        ([(10, 30), (10, 40)], [20, 10]),
        ([(0, 30), (5, 10), (20, 40)], [30, 0, 10]),  # what lies in one is over before it is
        ([(20, 30), (10, 40)], [0, 30]),
        ([(10, 20), (20, 30), (30, 30)], [10, 10, 0]),
    ],
)
def test_what_several_occurrences_lost_is_counted_once(places: list[tuple[int, int]], costs: list[int]) -> None:
    assert _each_costs(*places) == costs


ORDER = (
    "RECORDING", "ONCE", "EVENT", "WORK", "PATTERN", "GENERAL", "HOST_CATCH_ALL", "LAUNCHES", "CATCH_ALL", "REMAINDER"
)  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [*pairwise(ORDER)])
def test_the_specific_has_the_time_before_the_general(first: str, second: str) -> None:
    """Whatever they lost, and whatever their names are."""
    work = traced((0, 10 * MS)).index(Work)
    less = Hits(work, "m", "a.", lost=LostTime.excess(work, np.array([6 * MS])))
    general, specific = resolve_claims(
        [*group_hits("a", Claims[second], [Hits(work, "m", "a.")]), *group_hits("b", Claims[first], [less])],
        (0, LENGTH),
    )
    assert specific.cost_ns == 6 * MS
    assert general.cost_ns == (0 if second in ("HOST_CATCH_ALL", "CATCH_ALL") else 4 * MS)


def test_a_third_rule_has_what_the_first_two_leave_on_its_device() -> None:
    """30 ms of one device, and 10 of another, which nobody else claims."""
    work = traced((0, 30 * MS), (0, 10 * MS, 1)).index(Work)
    one = work[work.device == 0]
    at = int(one.start_ns[0])

    def lost(start: int, end: int) -> LostTime:
        return LostTime(*(np.array([value]) for value in (0, 0, at + start * MS, at + end * MS)))

    partly = [Hits(one, "m", "a.", lost=lost(*span)) for span in ((0, 10), (5, 25))]
    claimed = [*partly, Hits(work, "m", "a.")]
    orders = Claims.RECORDING, Claims.EVENT, Claims.REMAINDER
    every = [
        pending
        for order, hits in zip(orders, claimed, strict=True)
        for pending in group_hits(order.name, order, [hits])
    ]
    assert [(found.device, found.cost_ns // MS) for found in resolve_claims(every, (0, LENGTH))] == [
        (0, 10),
        (0, 15),
        (0, 5),
        (1, 10),
    ]


@pytest.mark.parametrize(("others_ns", "kept"), [(2 * MS, 2 * MS), (2 * MS + 1, 0)])
def test_of_a_window_a_net_keeps_its_rest_by_the_time_within(others_ns: int, kept: int) -> None:
    """The last 4 ms of 10: others have half of these, or more."""
    work = traced((0, 10 * MS)).index(Work)
    end = int(work.end_ns[0])
    named = Hits(work, "m", "a.", lost=LostTime.excess(work, np.array([others_ns])))
    net, _ = resolve_claims(
        [*group_hits("net", Claims.CATCH_ALL, [Hits(work, "m", "a.")]), *group_hits("named", Claims.EVENT, [named])],
        (end - 4 * MS, end),
    )
    assert net.cost_ns == kept


def test_joint_claims_are_decided_by_precedence_then_name() -> None:
    work = traced((0, 10 * MS)).index(Work)
    less = Hits(work, "m", "a.", lost=LostTime.excess(work, np.array([3 * MS])))
    given = [("b", (0, 1), Hits(work, "m", "a.")), ("a", (0, 1), less), ("z", (-1, 2), less)]
    every = [
        replace(one, precedence=precedence)
        for name, precedence, hits in given
        for one in group_hits(name, Claims.EVENT, [hits])
    ]
    assert [one.cost_ns for one in resolve_claims(every[:2], (0, LENGTH))] == [7 * MS, 3 * MS]
    assert [one.cost_ns for one in resolve_claims(every, (0, LENGTH))] == [7 * MS, 0, 3 * MS]


def launching(*devices: int, steps: int = 4) -> tuple[TraceBuilder, list[tuple[int, int, int]]]:
    """A kernel of 2 ms every 10 ms on these devices; event ids of the op, call and kernel of each."""
    trace = TraceBuilder()
    for number in range(steps):
        trace.step(number + 10, number * STEP, STEP)
    made = []
    for number, device in enumerate(devices):
        at = (10 * number + 1) * MS
        op = trace.op("aten::mm", at, 2_000)
        call = trace.launch("cudaLaunchKernel", at + 100, 1_000, number + 1)
        made.append((op, call, trace.kernel(at + 5_000, 2 * MS, number + 1, device=device)))
    return trace, made


def test_work_is_named_before_the_call_and_the_op_that_began_it() -> None:
    trace, ((op, call, kernel),) = launching(0)
    alone = trace.kernel(50 * MS, 2 * MS, 99)  # whose launch is not in the trace
    (found,) = findings([Hits(Analysis(trace.load()).index(Work), "m", "a.")])
    assert [one.event_ids for one in found.occurrences] == [(kernel, call, op), (alone,)]


def test_idle_time_is_named_by_work_before_then_after_it() -> None:
    trace, ((_, first, before), (op, call, after)) = launching(0, 0)
    idle = Analysis(trace.load()).index(IdleTime)
    between = idle[idle.has_next & (idle.before_entries >= 0)]
    (found,) = findings([Hits(between, "m", "a.")])
    for one in found.occurrences:
        assert one.event_ids[:3] == (before, after, call)
        assert set(one.event_ids[3:]) <= {op}
    (found,) = findings([Hits(idle[idle.before_entries < 0], "m", "a.")])
    assert found.occurrences[0].event_ids[:2] == (before, first)  # nothing is before the first


def test_related_events_are_those_of_the_occurrences() -> None:
    """Of each device a finding."""
    trace, made = launching(0, 1, 0)
    work = Analysis(trace.load()).index(Work)
    related = work[np.array([2, 0, 1])]
    first, second = findings([Hits(work, "m", "a.", related=[related])])
    ids = {one.start_ns: one.event_ids for found in (first, second) for one in found.occurrences}
    assert [ids[at] for at in sorted(ids)] == [
        (*made[own][::-1], *made[other][::-1]) for own, other in ((0, 2), (1, 0), (2, 1))
    ]


def test_a_step_is_told_by_its_number_where_steps_are_marked() -> None:
    numbers = []
    for steps in (4, 0):
        trace, _ = launching(0, 0, 0, steps=steps)
        (found,) = findings([Hits(Analysis(trace.load()).index(Work), "m", "a.")])
        numbers.append([one.step for one in found.occurrences])
    assert numbers == [[10, 10, 10], [None, None, None]]
