"""What a rule declares or returns with a wrong shape, bound or unit is one sentence; the edge passes."""

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.advice_marks import unknown_marks
from tests.support.built_findings import LENGTH, MS, traced
from tests.support.failing_rules import hit, left_out_hit, yielding
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay import edits, rewrites
from traceanalyzer.rule import Calls, IdleTime, Kind, LostTime, Work
from traceanalyzer.rule.registry import MIN_SHARE, Rule, all_rules, configured, limits_of
from traceanalyzer.rule.validation import check_edit, check_hits, check_limit


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """Four kernels in 100 ms, on one thread and one stream."""
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS), (55 * MS, 2 * MS), (80 * MS, 2 * MS))


def lost(owner: int, start: int, end: int, device: int = 0) -> LostTime:
    return LostTime(*(np.array([value]) for value in (owner, device, start, end)))


def texts(rows: int) -> Texts:
    return Texts(np.zeros(rows, np.int64), np.array(["a"], object))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)
def test_rules_are_declared_with_names_units_and_sources(rule: Rule) -> None:
    assert rule.function.__name__ in rule.function.__module__.split(".")[-2:]
    assert re.fullmatch(r"\d+(\.\d+)*", rule.since)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cause) for cause in rule.causes)
    assert {*rule.choices} <= {*rule.causes, ""}
    assert not unknown_marks(inspect.getsource(sys.modules[rule.function.__module__]))
    limits = list(limits_of(rule.limits))
    assert MIN_SHARE not in [limit.name for limit in limits]
    assert all(limit.source for limit in limits)
    assert [limit.name for limit in limits if not has_unit(limit.name)] == []
    for name, value in rule.in_force():
        check_limit(name, value)


def has_unit(name: str) -> bool:
    """A unit of ours, or what the limit counts, in the plural; times are in ns."""
    words = name.split("_")
    counted = any(word.endswith("s") and not word.endswith("ss") for word in words)
    return not {"us", "ms", "seconds", "kb", "mb", "gb", "percent"} & {*words} and (
        counted or "share" in words or "speedup" in words
    )


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("hotspot.min_share", "7", "hotspot.min_share=7: finite and not negative, and a share at most 1"),
        ("host-gap.min_gap_ns", "5", "host-gap.min_gap_ns=5: less than any kernel or call takes, give ns"),
    ],
)
def test_settings_have_the_bounds_of_declarations(key: str, value: str, error: str) -> None:
    assert configured(all_rules(), {key: "0"})
    with pytest.raises(BadOption, match=error):
        configured(all_rules(), {key: value})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"cause": "other"}, "does not declare the cause 'other'"),
        ({"normal_share": 2.0}, "normal_share is 2: a share is 0 to 1"),
        ({"recurring_share": -0.5}, "recurring_share is -0.5: a share is 0 to 1"),
        ({"evidence": {"gpu_share": 1.7}}, "evidence gpu_share is 1.7: a share is 0 to 1"),
        ({"evidence": {"gpu_share": -0.1}}, "evidence gpu_share is -0.1: a share is 0 to 1"),
        ({"evidence": {"wait_ns": -3}}, "evidence wait_ns is -3: not below 0"),
        ({"evidence": {"moved_bytes": -3}}, "evidence moved_bytes is -3: not below 0"),
        ({"evidence": {"best_speedup": -1}}, "evidence best_speedup is -1: not below 0"),
        ({"evidence": {"wait_ns": float("nan")}}, "evidence wait_ns is nan: give None where it is not known"),
        ({"evidence": {"ops": {"mm": np.inf}}}, "evidence ops is inf: give None"),
        ({"evidence": {"next": 2**63 - 1}}, "evidence next is 9.22e+18: give None"),
    ],
)
def test_texts_and_evidence_have_names_bounds_and_units(analysis: Analysis, given: dict[str, Any], error: str) -> None:
    assert error in left_out_hit(analysis, yielding(lambda work, _: hit(work, **given)))


def test_evidence_at_the_bounds_passes(analysis: Analysis) -> None:
    work = analysis.index(Work)
    rounded = 1.0 + 1e-12
    evidence = {
        "wait_ns": 2 * LENGTH,
        "moved_bytes": 10**15,
        "gpu_share": rounded,
        "slope": -0.5,
        "sure": True,
        "rows": [{"a": [1, None, "b"]}],
        "times": 3,
        "largest": 2**62 - 1,
        "lines": texts(4),
    }
    check_hits(hit(work, evidence=evidence, normal_share=rounded, recurring_share=rounded))


def test_evidence_is_no_longer_than_all_lanes(analysis: Analysis) -> None:
    """One thread and one stream have 200 ms together."""
    work = analysis.index(Work)
    for longer in (2 * LENGTH + 1, {"mm": 5, "add": 2 * LENGTH + 1}):
        with pytest.raises(ValueError, match=r"all threads and streams have 2e\+08 together, times are ns"):
            check_hits(hit(work, evidence={"wait_ns": longer}))


@pytest.mark.parametrize("evidence", [{}, {"gpu_share": None}, {"gpu_share": {"a": 0.5}}])
def test_a_question_has_its_share_of_gpu_time(analysis: Analysis, evidence: dict[str, Any]) -> None:
    function = yielding(lambda work, _: hit(work, evidence=evidence))
    error = left_out_hit(analysis, function, kind=Kind.QUESTION)
    assert "evidence of a question has gpu_share, a number from 0 to 1" in error


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda w: {"lost": LostTime.all_of(w)}, "lost is of 4 spans or rows, and there are 2 occurrences"),
        (lambda w: {"lost": LostTime.all_of(w, np.arange(4))}, "2 of 4 owners of lost time are not"),
        (lambda w: {"lost": lost(0, MS, 2 * MS, device=7)}, "1 of 1 lost stretches are of a device without"),
        (lambda w: {"lost": lost(0, 0, LENGTH + 1)}, "1 of 1 lost stretches are outside of the trace"),
        (lambda w: {"lost": lost(0, -1, MS)}, "1 of 1 lost stretches are outside of the trace"),
        (lambda w: {"occurrences": w[np.array([1, 0, 1])]}, "1 of 3 occurrences are repeated"),
        (lambda w: {"occurrences": w.op.parent.parent}, "4 of 4 occurrences are missing rows"),
    ],
)
def test_occurrences_and_lost_time_are_parallel(
    analysis: Analysis, given: Callable[[Work], dict[str, Any]], error: str
) -> None:
    work = analysis.index(Work)
    first = work[0:2]
    check_hits(hit(first, lost=LostTime.all_of(first), evidence={"line": texts(2)}, related=[first.launch]))
    check_hits(hit(first, lost=lost(1, 0, LENGTH)))
    with pytest.raises(ValueError, match=error):
        check_hits(hit(first, **given(work)))


def test_stretches_of_one_row_may_be_several_occurrences(analysis: Analysis) -> None:
    calls = analysis.index(Calls)
    again = calls[np.array([1, 0, 1])]
    idle = LostTime.idle_within(analysis.index(IdleTime), again.start_ns, again.end_ns)
    check_hits(hit(again, repeated_rows=True, lost=idle))


def test_no_occurrences_are_no_finding(analysis: Analysis) -> None:
    check_hits(hit(analysis.index(Work)[[]], fix=edits.Drop([10**6])))


TWO = np.array([3, 1])


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (edits.Drop([2, -1]), "1 of 2 rows of Drop are not rows of trace.cpu: calls.rows"),
        (edits.DropWork([3, 4]), "1 of 2 work of DropWork are not entries of DeviceWork: work.entries"),
        (rewrites.Compile([4]), "1 of 1 pointwise of Compile are not entries of DeviceWork"),
        (edits.DropSpans([0, 1], [2]), "DropSpans has 1 ends_ns for 2 rows or spans"),
        (edits.DropSpans([5], [4]), "1 of 1 spans of DropSpans end before they start"),
        (edits.ShrinkGaps([0], [LENGTH + 1]), "1 of 1 spans of ShrinkGaps are outside of the trace"),
        (edits.ShrinkGaps([-1], [5]), "1 of 1 spans of ShrinkGaps are outside of the trace"),
        (edits.Resize(TWO, np.array([1.0, np.nan])), "1 of 2 numbers of dur_ns of Resize are negative or"),
        (edits.Resize(TWO, [1.0, -1.0]), "1 of 2 numbers of dur_ns of Resize are negative or not finite"),
        (edits.Scale(TWO, np.array([0.5, 2.0])), "1 of 2 numbers of factor of Scale are above 1"),
        (edits.SplitAcrossRanks(TWO, 4), "1 of 1 numbers of factor of SplitAcrossRanks are above 1"),
        (edits.Insert(TWO, 99.0), "cpu_ns of Insert is 99: times are ns"),
        (edits.Insert(TWO, 100.0 * MS + 1), "1 of 1 numbers of cpu_ns of Insert are longer than the trace"),
        (edits.Drop(TWO, leaving_ns=-1.0), "1 of 1 numbers of leaving_ns of Drop are negative"),
        (edits.CapOps(-1.0), "1 of 1 numbers of most_ns of CapOps are negative"),
        (rewrites.Replace([5], [9], (2, 5.5), 0.0), "work_ns of Replace is 5.5: times are ns"),
        (rewrites.Fuse(TWO, [0]), "Fuse has 1 group for 2 rows or spans"),
        (rewrites.Fuse(TWO, [0, -1]), "1 of 2 groups of Fuse are out of bounds"),
        (rewrites.Fuse(TWO, [0, 1_000_000]), "1 of 2 groups of Fuse are out of bounds"),
        (rewrites.Batch([1], [2], [0, 1]), "Batch has 2 group for 1 rows or spans"),
    ],
)
def test_edits_have_shapes_bounds_and_units(analysis: Analysis, edit: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        check_edit(edit, analysis.index(Work).events)


@pytest.mark.parametrize(
    "edit",
    [
        edits.Drop([]),
        edits.DropWork([0, 3]),
        edits.DropSpans([0, 5, 5], [5, 9, LENGTH], leaving_ns=LENGTH),
        edits.Resize(TWO, [0, 4e6]),
        edits.MoveToSideStream(TWO),
        edits.Scale(TWO, 1.0),
        edits.Insert(TWO, np.float32(100)),
        edits.Wait([0]),
        rewrites.Replace([1, 5], [2, 6], np.full((2, 3), 500), np.int64(500)),
        rewrites.Replace([1, 5], [2, 6], (200, 300), 0.0),
        rewrites.Fuse(TWO, [0, 999_999]),
        rewrites.Fuse(TWO, [0, 1], [500.0, 600.0, 700.0]),
        rewrites.Batch([1, 3], [2, 4], [0, 0]),
        rewrites.GraphLaunch(),
    ],
)
def test_edits_at_the_bounds_pass(analysis: Analysis, edit: Any) -> None:
    check_edit(edit, analysis.index(Work).events)


def test_a_fix_may_add_10_ms_to_a_short_trace() -> None:
    short = traced().index(Calls)[:0]
    assert len(short) == 0
    events = traced((0, 1_000)).index(Work).events
    check_edit(edits.Insert([0], 100.0 * MS), events)


def test_hits_copy_the_evidence_of_the_rule(analysis: Analysis) -> None:
    evidence = {"spent_ns": 1}
    made = hit(analysis.index(Work), evidence=evidence)
    evidence["spent_ns"] = 2
    assert made.evidence == {"spent_ns": 1}
