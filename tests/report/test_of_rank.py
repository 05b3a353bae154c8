"""What one trace is asked for a report: its measured step, its findings in brief, and these whole."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.report.test_cost_items import steps_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.step_times import GIVEN, RECORDING
from traceanalyzer.report import rank_report
from traceanalyzer.report.job_replay import InJob, Said
from traceanalyzer.report.rank_report import Brief, whole_findings

US = 1_000


@pytest.mark.parametrize(
    ("before_ms", "step_ms", "ns", "unused"),
    [
        (0.9, None, 900 * US, None),
        (0.9, 0.8, 800 * US, GIVEN),
        (0.2, None, None, "the GPU alone is busy for 400 µs of each step"),
        (0.2, 0.8, 800 * US, GIVEN),
        (1.2, None, None, "a step takes only 1.00 ms even with the profiler"),
    ],
)
def test_recorder_time_is_the_step_unless_doubted(
    before_ms: float, step_ms: float | None, ns: int | None, unused: str | None
) -> None:
    """Steps of 1 ms, in which the device works for 400 us."""
    recorded = {RECORDING: {"before_ms": [before_ms], "after_ms": [], "unit": "optimizer step"}}
    trace = TraceBuilder(**recorded)
    for step in range(4):
        trace.step(step, step * MS, MS)
    steps_of(("aten::mm", "gemm", 300, 400), into=trace)
    report = diagnose(trace.load(), step_ms=step_ms)
    (head,) = report.traces
    assert head.step is not None
    assert head.measured is not None
    assert head.measured.unused == unused
    assert head.step.measured is (ns is not None)
    assert ns is None or head.step.unprofiled_ns == ns
    (share,) = [one.evidence["part_share"] for one in report.findings if one.rule == "hotspot"]
    assert share == pytest.approx(400 * US / head.step.unprofiled_ns)


def test_finding_has_the_requested_number_of_occurrences() -> None:
    finding = samples.finding(*(at * 20 * MS for at in range(4)))
    analysis = Analysis(steps_of(("aten::mm", "gemm", 300, 400)).load())
    said: Any = SimpleNamespace(findings=(finding, replace(finding, by="other")))
    analysis.provide(Said(said))
    whole = whole_findings(analysis, {1: 2}, None)
    assert list(whole) == [1]
    assert whole[1].by == "other"
    assert whole[1].occurrences == finding.occurrences[:2]
    assert whole[1].count == 4


@pytest.mark.parametrize(("saved", "share"), [(None, 0.2), (0.1, 0.1), (0.0, 0.0)])
def test_a_finding_is_compared_by_what_it_saves_or_else_costs(saved: float | None, share: float) -> None:
    brief = Brief(0, 0, "host-gap", "late", None, Severity.HIGH, 0.2, 5, saved, fixable=True, fault=0)
    assert brief.share == share


@pytest.mark.parametrize(("busy_us", "bound"), [(960, "gpu"), (700, "cpu")])
def test_open_step_of_an_always_busy_device_is_bound_by_it(
    monkeypatch: pytest.MonkeyPatch, busy_us: int, bound: str
) -> None:
    """Of steps of 1 ms; what the replay leaves open the recording tells."""
    monkeypatch.setattr(rank_report, "_estimates", lambda *_: (samples.estimate(bounds=("gpu", "cpu")), None))
    (head,) = diagnose(steps_of(("aten::mm", "gemm", 30, busy_us)).load()).traces
    assert head.step is not None
    assert head.step.bound == bound


def test_what_only_a_job_or_the_rules_give_is_not_there_before() -> None:
    analysis = Analysis(steps_of(("aten::mm", "gemm", 300, 400)).load())
    for index, why in ((InJob, "not replayed with other ranks"), (Said, "not judged yet")):
        with pytest.raises(Unavailable, match=why):
            analysis.index(index)
