"""What findings, savings, steps and reports contain, and steps that the recorder measured."""

import gc
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.device_times import DeviceTime, IdleCause
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.interpreter import uncollected
from traceanalyzer.model.overlay import Counter, Drift, Overlay, Slices
from traceanalyzer.model.report import AnalysedWindow, Clock, Fault, Report, TraceReport, Verdict, fixed_along
from traceanalyzer.model.step_times import RECORDING, MeasuredStep, Saving, StepEstimate, measured_step
from traceanalyzer.model.trace import Job, Skipped

MS = 1_000_000


@pytest.mark.parametrize(("low", "sure"), [(0.005, False), (0.0051, True), (0.0, False), (-0.2, False)])
def test_saving_is_sure_above_zero_in_whole_percent(low: float, sure: bool) -> None:
    assert Saving(1, 1, 1, 0.3, low, 0.4, "replayed").sure is sure


@pytest.mark.parametrize(
    ("share", "name", "below"),
    [
        (1.0, "high", "medium"),
        (0.1, "high", "medium"),
        (0.0999, "medium", "low"),
        (0.03, "medium", "low"),
        (0.0299, "low", "info"),
        (0.005, "low", "info"),
        (0.00499, "info", "info"),
        (-3.0, "info", "info"),
        (float("nan"), "info", "info"),
    ],
)
def test_a_severity_begins_at_its_share_of_the_step(share: float, name: str, below: str) -> None:
    assert (Severity.of(share), Severity.of(share).below) == (name, below)


def test_the_lower_of_two_severities_has_the_larger_rank() -> None:
    assert [one.rank for one in (Severity.HIGH, Severity.MEDIUM, Severity.LOW, Severity.INFO)] == [0, 1, 2, 3]
    for one, most, lower in (("high", "low", "low"), ("low", "high", "low"), ("info", "info", "info")):
        assert Severity(one).at_most(Severity(most)) == lower


def test_step_waits_for_the_cpu_outside_work_and_gaps() -> None:
    step = StepEstimate(120, 100, 80, 160, "gpu", "replayed", ("gpu", "cpu"), gpu_ns=60, gap_ns=12)
    assert step.device_ns == 72
    assert step.idle_shares == pytest.approx((0.1, 0.55))
    assert (step.open, step.measured) == (True, False)
    given = StepEstimate(120, 100, 100, 100, "gpu", "given", ("gpu",), gpu_ns=110)
    assert given.idle_shares == (0.0, 0.0)
    assert (given.open, given.measured) == (False, True)
    assert not StepEstimate(120, 100, 100, 130, "gpu", "replayed").measured
    assert StepEstimate(0, 0, 0, 0, "gpu", "replayed", gpu_ns=5).idle_shares == (0.0, 0.0)
    assert not StepEstimate(120, 100, 80, 100, "gpu", "replayed").measured


@pytest.mark.parametrize(
    ("advice", "settled"), [("Nothing to do: it is busy.", True), ("Wait. Nothing to do", False), ("Drop it.", False)]
)
def test_a_finding_is_settled_where_its_advice_begins_so(advice: str, settled: bool) -> None:
    assert samples.finding(0, advice=advice).settled is settled


def test_a_finding_is_of_its_rank_or_of_all_that_have_it() -> None:
    one = samples.finding(0, rank=3)
    assert [one.is_of(rank) for rank in (3, 2, None)] == [True, False, False]
    several = samples.finding(0, rank=3, ranks=(3, 5))
    assert [several.is_of(rank) for rank in (3, 5, 2)] == [True, True, False]
    assert samples.finding(0, rank=None).is_of(None)


def test_all_findings_of_a_fault_but_the_first_go_along_with_it() -> None:
    faults = [
        Fault(f"F{number}", "a", None, Severity.LOW, findings)
        for number, findings in enumerate(((4, 2, 1), (3,)), start=1)
    ]
    assert fixed_along(faults) == {1, 2}


def test_clock_offset_includes_drift_since_its_reference() -> None:
    """1 s after 5 s on the reference's clock, at 20 us a second."""
    second = 10**9
    clock = Clock(0, offset_ns=3 * MS, drift_ppm=20.0, at_ns=5 * second)
    own = 5 * second + 3 * MS
    ahead = clock.ahead_ns(np.array([own, own + second, own - second]))
    assert ahead.tolist() == [3 * MS, 3 * MS + 20_000, 3 * MS - 20_000]
    assert clock.ahead_within_ns(own, own + 2 * second) == 3 * MS + 20_000


def test_overlay_without_drift_has_times_of_an_even_clock() -> None:
    """Of 1000 us a second from 1 s on: 2 ms after 2 s."""
    second = 10**9
    drift = Drift(1_000.0, second)
    at = np.array([second, 2 * second, 3 * second])
    even = [second, 2 * second - MS, 3 * second - 2 * MS]
    assert [drift.evened(int(one)) for one in at] == drift.all_evened(at).tolist() == even
    slices = Slices("track", at[:2], at[1:], np.zeros(2, np.int64), ["a"], [{}])
    made = Overlay(0, "t.json", 7, (slices, slices), (Counter("power", at, np.ones(3), "W"),)).evened(drift)
    for one in made.slices:
        assert (one.start_ns.tolist(), one.end_ns.tolist()) == (even[:2], even[1:])
    assert made.counters[0].at_ns.tolist() == even
    assert (made.drift, made.base_time_ns, len(made.slices[0])) == (drift, 7, 2)


def test_a_window_is_no_shorter_than_nothing() -> None:
    assert [AnalysedWindow(*one).length_ns for one in ((3, 10), (3, 3), (10, 3))] == [7, 0, 0]


def _of_ranks() -> Report:
    """Two ranks, with other origins and windows."""
    traces = []
    for rank, origin in ((0, 1_000), (3, 500)):
        causes = (IdleCause("idle:late", "aten::mm", 30), IdleCause("unknown", None, 10))
        time = DeviceTime(rank, 0, 100 * (rank + 1), {}, causes)
        meta = samples.meta(origin_ns=origin)
        traces.append(TraceReport(rank, meta, AnalysedWindow(0, 999), accounting=(time,)))
    saving = Saving(30, 20, 40, 0.3, 0.2, 0.4, "replayed")
    findings = (
        samples.finding(0, rank=3, start_ns=500 + 2 * 10**9, end_ns=500 + 3 * 10**9, saving=saving),
        samples.finding(0, rank=0, start_ns=1_000, end_ns=1_000 + 10**9, severity=Severity.LOW),
    )
    return Report(tuple(traces), findings, (), {})


def test_findings_frame_has_seconds_and_savings() -> None:
    frame = _of_ranks().to_frame()
    assert frame[["start_s", "end_s"]].to_numpy().tolist() == [[2.0, 3.0], [0.0, 1.0]]
    numbers = ["saving_ns", "saving_low_ns", "saving_high_ns", "saving_share", "saving_low_share", "saving_high_share"]
    assert frame[numbers].iloc[0].tolist() == [30, 20, 40, 0.3, 0.2, 0.4]
    assert frame[numbers].iloc[1].isna().all()
    assert [str(frame[name].dtype) for name in numbers] == ["Int64"] * 3 + ["float64"] * 3
    for name in ("rank", "device", "stream", "thread", "step"):
        assert isinstance(frame[name].dtype, pd.Int64Dtype), name
    severity = frame["severity"]
    assert severity.cat.categories.tolist() == ["info", "low", "medium", "high"]
    assert (severity > "low").tolist() == [True, False]
    assert frame["confidence"].cat.categories.tolist() == ["low", "medium", "high"]


def test_only_lines_of_a_verdict_that_say_something_are_said() -> None:
    verdict = Verdict("25.0 ms recorded", "", "fuse it")
    assert list(verdict.lines.items()) == [("Step", "25.0 ms recorded"), ("Fix", "fuse it")]
    assert verdict.sentence == "Step: 25.0 ms recorded; Fix: fuse it"


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_afterwards(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_what_nobody_misses_is_understood() -> None:
    counted = {"flow:ac2g": 1, "metadata": 2, "window mark": 3, "of another rank": 4, "unreadable": 5, "odd flow:": 6}
    assert samples.meta(counted=counted).not_understood == {"unreadable": 5, "odd flow:": 6}


def test_a_job_keeps_what_was_passed_over() -> None:
    job = Job(skipped=[Skipped("a.json", "no trace")], iterations={"1": ("b.json",)})
    assert (len(job), job.skipped, job.iterations) == (0, (Skipped("a.json", "no trace"),), {"1": ("b.json",)})
    assert (Job().skipped, Job().iterations) == ((), {})


IDLE_TYPES = {"rank": "Int64", "device": "int64", "ns": "int64", "share": "float64"}


def of_device(device: int, length: int, *causes: IdleCause) -> DeviceTime:
    """A window that begins at 100."""
    return DeviceTime(device, 100, 100 + length, {}, causes)


def test_idle_frame_has_null_rank_and_shares_per_device() -> None:
    """Of 1000 ns and of 200: in the report's order, not by size."""
    times = (
        of_device(1, 1_000, IdleCause("idle:late", "aten::mm", 50)),
        of_device(0, 200, IdleCause("late", "aten::mm", 50), IdleCause("waiting:idle:x", None, 200)),
    )
    trace = TraceReport(None, samples.meta(), AnalysedWindow(0, 5_000), accounting=times)
    frame = Report((trace,), (), (), {}).idle
    assert frame["rank"].isna().all()
    assert frame["device"].tolist() == [1, 0, 0]
    assert frame["cause"].tolist() == ["late", "late", "waiting:idle:x"]
    assert frame["ns"].tolist() == [50, 50, 200]
    assert frame["share"].tolist() == [0.05, 0.25, 1.0]
    assert {name: str(frame[name].dtype) for name in IDLE_TYPES} == IDLE_TYPES


def test_frames_of_nothing_have_the_columns_and_types_of_others() -> None:
    bare = samples.report(samples.trace(accounting=()), findings=())
    assert len(bare.idle) == len(bare.to_frame()) == 0
    assert {name: str(bare.idle[name].dtype) for name in IDLE_TYPES} == IDLE_TYPES
    assert bare.idle.columns.tolist() == ["rank", "device", "cause", "op", "ns", "share"]
    full = samples.report().to_frame()
    assert bare.to_frame().columns.tolist() == full.columns.tolist()
    for name in ("rank", "step", "saving_ns", "saving_share", "severity", "confidence"):
        assert bare.to_frame()[name].dtype == full[name].dtype, name


def test_frame_sorts_severity_and_confidence_ascending() -> None:
    findings = tuple(
        samples.finding(0, confidence=confidence, severity=severity, stream=None, step=3)
        for confidence, severity in zip(
            (Confidence.MEDIUM, Confidence.HIGH, Confidence.LOW),
            (Severity.INFO, Severity.MEDIUM, Severity.HIGH),
            strict=True,
        )
    )
    frame = samples.report(findings=findings).to_frame()
    assert frame.sort_values("confidence")["confidence"].tolist() == ["low", "medium", "high"]
    assert frame["severity"].max() == "high"
    assert (frame["severity"] >= "medium").tolist() == [False, True, True]
    assert frame["stream"].isna().all()
    assert frame["step"].tolist() == [3, 3, 3]


def test_negative_saving_stays_and_missing_one_is_null() -> None:
    """Each of the six numbers under its own name."""
    findings = (samples.finding(0), samples.finding(0, saving=Saving(-5, -7, 2, -0.05, -0.07, 0.02, "replayed")))
    frame = samples.report(findings=findings).to_frame()
    names = [f"saving_{name}" for name in ("ns", "low_ns", "high_ns", "share", "low_share", "high_share")]
    assert frame[names].iloc[1].tolist() == [-5, -7, 2, -0.05, -0.07, 0.02]
    assert frame[names].iloc[0].isna().all()


def test_only_a_class_that_begins_with_idle_is_idle_time() -> None:
    time = DeviceTime(0, 0, 30, {"idler": 7, "copy_idle:late": 8, "idle:late": 10, "idle:idle:x": 5})
    assert time.idle_ns == {"late": 10, "idle:x": 5}
    assert list(time.classes_ns.items()) == [("idler", 7), ("copy_idle:late", 8), ("idle", 15)]
    busy = DeviceTime(0, 0, 10, {"compute": 10})
    assert (busy.idle_ns, busy.classes_ns) == ({}, {"compute": 10, "idle": 0})


def test_a_notebook_shows_nothing_where_no_package_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    report = samples.report()
    monkeypatch.setattr(Report, "drawn", None)
    assert report._repr_html_() is None
    monkeypatch.setattr(Report, "drawn", lambda shown: f"<svg {shown is report}>")
    assert report._repr_html_() == "<svg True>"


def test_objects_say_in_a_line_what_they_hold() -> None:
    two = [samples.finding(0, severity=Severity.LOW, rule="compile", cause="x", cost_ns=1_240_000)] * 2
    report = samples.report(samples.trace(3, verdict="w " * 200), findings=(*two, samples.finding(0)))
    severity = samples.finding(0).severity
    counts = {level: 2 * (level is Severity.LOW) + (level is severity) for level in Severity}
    told = ", ".join(f"{count} {level}" for level, count in counts.items())
    assert repr(report) == f"Report(1 traces, findings: {told})"
    assert repr(two[0]) == "Finding(compile: x, low, cost 1.24 ms)"
    head = repr(report.traces[0])
    assert head.startswith("TraceReport(rank=3, ")
    assert head.endswith(" w ...')")
    assert repr(samples.meta("a.json", rank=2, events=1_234)) == "Meta('a.json', 1,234 events, rank=2)"


@pytest.mark.parametrize(
    ("told", "ms", "unit"),
    [
        ({"before_ms": [10, 12.0, 20.0], "after_ms": [50.0], "unit": "optimizer step"}, 12.0, "optimizer step"),
        ({"before_ms": [], "after_ms": [50.0, 60.0], "unit": "mark"}, 55.0, "mark"),
        ({"before_ms": [30.0], "after_ms": [20.0, 22.0]}, 21.0, "step"),  # it had not settled before
        ({"before_ms": [30.0], "after_ms": [20.0], "measured": {"before": {"loader": {"workers": 2}}}}, 30.0, "step"),
        ({"before_ms": [10.0], "unit": 7}, 10.0, "step"),
        ({"before_ms": [86_399_999]}, 86_399_999.0, "step"),
        ({"before_ms": [86_400_000]}, None, ""),  # a day
        ({"before_ms": [0, 10.0]}, None, ""),  # one that is none: none is taken
        ({"before_ms": [True]}, None, ""),
        ({"before_ms": [float("inf")]}, None, ""),
        ({"before_ms": ["10"], "after_ms": [11.0]}, 11.0, "step"),
        ({"before_ms": 10.0}, None, ""),
        ({}, None, ""),
        (None, None, ""),
    ],
)
def test_measured_step_is_the_shorter_median_and_with_workers_the_one_before(
    told: Any, ms: float | None, unit: str
) -> None:
    found = measured_step({RECORDING: told})
    assert (found and found.ms, found and found.unit) == ((ms, unit) if ms else (None, None))


@pytest.mark.parametrize(
    ("before", "after", "differ", "parts"),
    [
        ((), (10.0, 12.0), False, (None, 11.0)),
        ((10.0, 12.0), (), False, (11.0, None)),
        ((100.0,), (102.0,), False, (100.0, 102.0)),  # clocks differ by as much
        ((100.0,), (102.1,), True, (100.0, 102.1)),
        ((102.1,), (100.0,), True, (102.1, 100.0)),
        ((90.0, 100.0), (106.0, 106.0), True, (95.0, 106.0)),
        ((90.0, 100.0), (105.0, 105.0), False, (95.0, 105.0)),  # blocks of one side spread as far
        ((105.0, 105.0), (90.0, 100.0), False, (105.0, 95.0)),
    ],
)
def test_times_before_and_after_differ_by_over_two_percent(
    before: tuple[float, ...], after: tuple[float, ...], differ: bool, parts: tuple[float | None, float | None]
) -> None:
    step = MeasuredStep(100.0, before, after, "step")
    assert (step.differ, step.parts_ms) == (differ, parts)
