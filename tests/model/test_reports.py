"""Reports as frames: of one trace without a rank, of two devices, of nothing; and what is no idle time."""

from __future__ import annotations

import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.report import AnalysedWindow, DeviceTime, IdleCause, Report, TraceReport
from traceanalyzer.model.step_times import Saving

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
    findings = (
        samples.finding(0),
        samples.finding(0, saving=Saving(-5, -7, 2, -0.05, -0.07, 0.02, "replayed")),
    )
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
