"""Hits to findings: what is one finding, whose time it is, what it costs, and what its message may name."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.built_findings import LENGTH, MS, STEP, findings, kernels, only, scope, traced
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding, Occurrence, Saving, Severity
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule import grouping
from traceanalyzer.rule.claims import Claims, resolve_claims
from traceanalyzer.rule.grouping import Scope, build_finding, group_hits
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.views import Calls, IdleTime, Work


def test_hits_are_one_finding_per_device() -> None:
    found = findings([kernels((0, MS), (2 * MS, MS), (0, 2 * MS, 1), named_by="aten::mm", cause="slow")], scope(rank=3))
    assert [(f.cause, f.by, f.device, f.count, f.cost_ns, f.rank) for f in found] == [
        ("slow", "aten::mm", 0, 2, 2 * MS, 3),
        ("slow", "aten::mm", 1, 1, 2 * MS, 3),
    ]


def test_only_overlap_with_the_window_is_counted() -> None:
    places = [(MS, 9 * MS), (26 * MS, 2 * MS), (51 * MS, 2 * MS), (76 * MS, 3 * MS)]
    within = Scope(None, 27 * MS, 60 * MS, 2, asked=True)
    (found,) = windowed(kernels(*places, message="{times_a_step}"), within)
    assert (found.count, found.steps, found.message) == (2, 2, "once a step")
    assert found.cost_ns == 3 * MS + 1_000 - 500
    assert [span.start_ns for span in found.occurrences] == [26 * MS + 500, 51 * MS + 500]
    assert found.start_ns in (26 * MS + 500, 51 * MS + 500)
    assert windowed(kernels(*places), Scope(None, 30 * MS, 40 * MS, 1, asked=True)) == []


def test_call_before_the_window_counts_but_is_no_example() -> None:
    calls = traced((0, MS), (30 * MS, MS), (60 * MS, MS)).index(Calls)
    ops = calls[calls.name.one_of("aten::mm")]
    starts = np.array([28 * MS, 31 * MS, 70 * MS])
    lost = LostTime(np.arange(3), np.zeros(3, np.int64), starts, starts + MS)
    (found,) = windowed(Hits(ops, "m", "a.", lost=lost), Scope(None, 27 * MS, 50 * MS, 1, asked=True))
    assert (found.count, found.cost_ns, found.start_ns) == (2, 2 * MS, 30 * MS)


def test_each_occurrence_is_made_once_where_all_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = only(*((number * 100_000, 50_000) for number in range(200)))
    made = []

    def counted(*values: Any) -> Occurrence:
        made.append(values)
        return Occurrence(*values)

    monkeypatch.setattr(grouping, "Occurrence", counted)
    assert [one.cost_ns for one in found.occurrences] == [50_000] * 200
    assert len(made) == 200


def windowed(hits: Hits, within: Scope) -> list[Finding]:
    all_pending = resolve_claims(
        list(group_hits("some-rule", Claims.EVENT, [hits], within)), (within.start_ns, within.end_ns)
    )
    return [build_finding(pending, within, None, None) for pending in all_pending]


def test_place_is_a_typical_occurrence_with_device_and_step() -> None:
    found = only((MS, 4 * MS), (30 * MS, 2 * MS), (60 * MS, 3 * MS, 0))
    assert (found.start_ns, found.end_ns) == (60 * MS + 500, 63 * MS + 500)
    assert (found.device, found.stream, found.thread, found.step) == (0, 7, 1000, 2)
    assert [o.step for o in found.occurrences] == [0, 1, 2]
    assert [o.cost_ns for o in found.occurrences] == [4 * MS, 2 * MS, 3 * MS]


def test_place_is_one_of_those_that_cost_most_of_it() -> None:
    many = [(number * MS, MS // 100) for number in range(20)]
    found = only(*many, (40 * MS, 8 * MS), (60 * MS, 9 * MS), (80 * MS, 7 * MS))
    assert (found.start_ns, found.count) == (40 * MS + 500, 23)


def test_the_thread_of_a_finding_is_no_process() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 2_000, pid=4_000, tid=17)
    trace.launch("cudaLaunchKernel", 100, 1_000, 1, pid=4_000, tid=17)
    trace.kernel(500, MS, 1)
    analysis = Analysis(trace.load())
    assert analysis.index(Calls).thread.tolist() == [17, 17]
    (found,) = findings([Hits(occurrences=analysis.index(Work), message="m", advice="a.")])
    assert found.thread == found.occurrences[0].thread == 17


def test_device_and_stream_are_those_of_the_work() -> None:
    (found,) = findings([kernels((0, MS, 3))])
    assert (found.device, found.stream) == (3, 10)
    assert {(o.device, o.stream) for o in found.occurrences} == {(3, 10)}


def test_events_are_the_work_its_launch_and_its_op() -> None:
    assert only((0, MS)).event_ids == (6, 5, 4)


def test_shared_idle_time_is_weighed_by_each_findings_part() -> None:
    analysis = traced((0, MS), (10 * MS, MS), (30 * MS, MS))
    idle = analysis.index(IdleTime)
    idle = idle[np.flatnonzero(idle.dur_ns >= 8 * MS)[:2]]  # before the second kernel and after it
    texts = Texts(np.arange(2), np.array(["first", "second"], object))
    net = Hits(idle, "{times} before {ops}", "a.", evidence={"ops": texts})
    for part, said in (
        (idle.dur_ns // np.array([1, 2]), "once before second"),
        (idle.dur_ns // 2, "twice before second (61 % of this time), first (39 %)"),
    ):
        named = Hits(idle, "m", "a.", lost=LostTime(np.arange(2), idle.device, idle.start_ns, idle.start_ns + part))
        pending = [*group_hits("event", Claims.EVENT, [named]), *group_hits("rest", Claims.REMAINDER, [net])]
        _, rest = resolve_claims(pending, (0, LENGTH))
        assert build_finding(rest, scope(), None, None).message == said


@pytest.mark.parametrize("excess", [0, 2 * MS, 5 * MS])
def test_work_loses_no_less_than_nothing_and_no_more_than_itself(excess: int) -> None:
    work = traced((30 * MS, 5 * MS)).index(Work)
    lost = LostTime.excess(work, np.array([excess]))
    assert (lost.end_ns - lost.start_ns).tolist() == [excess]
    assert lost.end_ns.tolist() == work.end_ns.tolist()
    with pytest.raises(ValueError, match="1 of 1 excesses are longer than their work"):
        LostTime.excess(work, np.array([9 * MS]))


def test_losses_outside_the_window_are_not_counted() -> None:
    (found,) = findings([kernels((8 * MS, 10 * MS))], scope(length=10 * MS))
    assert found.cost_ns == 2 * MS - 500
    assert found.cost_share == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize(
    ("marks", "steps", "per_step", "said"),
    [
        (4, 4, 3 * MS, "3.00 ms a step"),
        (4, 1, 3 * MS, "3.00 ms a step"),  # as many have GPU work of their own
        (0, 1, 20 * MS, "20.0 ms in total"),
        (0, 0, 20 * MS, "20.0 ms in total"),
    ],
)
def test_what_is_lost_before_the_first_step_is_lost_in_none(marks: int, steps: int, per_step: int, said: str) -> None:
    """8 ms before the first of four, and 3 ms in each; without marks all of it counts."""
    trace = TraceBuilder()
    for number in range(marks):
        trace.step(number, (number + 1) * STEP, STEP)
    for number in range(5):
        start = number * STEP + MS
        trace.op("aten::mm", start, 2_000)
        trace.launched((start + 100, 1_000), (start + 500, 3 * MS if number else 8 * MS), number + 1)
    hits = Hits(Analysis(trace.load()).index(Work), "{total_a_step}", "a.")
    (found,) = findings([hits], scope(5 * STEP, steps))
    assert (found.cost_ns, found.count, found.steps, found.message) == (20 * MS, 5, marks, said)
    assert found.cost_per_step_ns == found.evidence["per_step_ns"] == per_step


def test_no_window_no_share() -> None:
    (found,) = findings([kernels((0, MS))], scope(length=0))
    assert (found.cost_ns, found.cost_share) == (0, 0.0)


def test_hits_without_occurrences_are_no_finding() -> None:
    work = traced((0, MS)).index(Work)
    assert findings([Hits(occurrences=work[np.array([], np.int64)], message="m", advice="a.")]) == []


def test_calls_lose_nothing_on_a_device_unless_it_is_said() -> None:
    analysis = traced((0, 4 * MS))
    calls, work = analysis.index(Calls), analysis.index(Work)
    ops = calls[calls.is_op]
    (cpu_only,) = findings([Hits(occurrences=ops, message="m", advice="a.")])
    assert (cpu_only.device, cpu_only.cost_ns, cpu_only.thread) == (None, 0, 1000)
    (lost,) = findings([Hits(occurrences=ops, lost=LostTime.all_of(work, np.array([0])), message="m", advice="a.")])
    assert (lost.device, lost.cost_ns, lost.start_ns) == (0, 4 * MS, 0)


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=6)


# A net gives up what is mostly others'.
_KEEP_ALL = [order for order in Claims if order not in (Claims.HOST_CATCH_ALL, Claims.CATCH_ALL)]


@given(st.lists(st.tuples(st.sampled_from(_KEEP_ALL), spans), min_size=1, max_size=4))
def test_every_nanosecond_belongs_to_one_finding(rules: list[tuple[Claims, list[tuple[int, int]]]]) -> None:
    work = traced(*((start, dur) for _, of_rule in rules for start, dur in of_rule)).index(Work)
    all_pending, begin = [], 0
    for order, of_rule in rules:
        number = np.argsort(work.launch.start_ns, kind="stable")[begin : begin + len(of_rule)]
        all_pending += group_hits(f"rule-{begin}", order, [Hits(occurrences=work[number], message="m", advice="a.")])
        begin += len(of_rule)
    done = resolve_claims(all_pending, (0, LENGTH))
    owned = [set(range(int(s), int(e))) for pending in done for s, e in zip(*pending.own, strict=True)]
    every = {at for start, end in zip(work.start_ns, work.end_ns, strict=True) for at in range(start, end)}
    assert set().union(*owned) == every
    assert sum(map(len, owned)) == len(every)
    for pending in done:
        assert (pending.costs_ns() >= 0).all()
        assert pending.costs_ns().sum() == pending.cost_ns


@pytest.mark.parametrize(
    ("cost", "severity"),
    [(10 * MS, "high"), (10 * MS - 1, "medium"), (3 * MS, "medium"), (MS // 2, "low"), (MS // 2 - 1, "info")],
)
def test_severity_is_the_window_share_without_replay(cost: int, severity: str) -> None:
    assert only((0, cost)).severity == severity


def test_a_fix_that_makes_the_step_longer_is_not_advised() -> None:
    (found,) = findings([kernels((0, 50 * MS))], saving=Saving(-9, -12, 3, -0.3, -0.4, 0.1, "replayed"))
    assert found.severity is Severity.INFO
    assert found.advice == "Not worth it here: the predicted step gets 9 ns longer. Elsewhere: a."
    (found,) = findings([kernels((0, 50 * MS))], saving=Saving(-1, -2, 3, -0.001, -0.002, 0.1, "replayed"))
    assert found.advice == "a."


def test_nobodys_loss_stays_info() -> None:
    assert only((0, 50 * MS), info=True).severity is Severity.INFO


def test_what_work_loses_on_another_device_is_no_findings() -> None:
    work = traced((0, MS), (2 * MS, MS, 1)).index(Work)
    lost = LostTime(np.arange(2), np.zeros(2, np.int64), work.start_ns, work.end_ns)
    found = findings([Hits(work, "m", "a.", lost=lost)])
    assert [(f.device, f.count, f.cost_ns) for f in found] == [(0, 1, MS), (1, 1, 0)]
    assert [[o.cost_ns for o in f.occurrences] for f in found] == [[MS], [0]]
