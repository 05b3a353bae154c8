"""What findings, savings, steps, clocks and overlays say of themselves."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.interpreter import uncollected
from traceanalyzer.model.overlay import Counter, Drift, Overlay, Slices
from traceanalyzer.model.report import (
    AnalysedWindow,
    Clock,
    DeviceTime,
    Fault,
    IdleCause,
    Report,
    TraceReport,
    Verdict,
    fixed_along,
)
from traceanalyzer.model.step_times import Saving, StepEstimate
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
    ("advice", "settled"),
    [("Nothing to do: it is busy.", True), ("Wait. Nothing to do", False), ("Drop it.", False)],
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


def test_idle_time_of_a_device_is_one_class_of_several_causes() -> None:
    parts = {"compute": 50, "idle:late": 20, "copy_h2d": 10, "idle:waiting": 15, "idle:unknown": 5}
    time = DeviceTime(0, 1_000, 1_100, parts)
    assert time.length_ns == 100
    assert time.idle_ns == {"late": 20, "waiting": 15, "unknown": 5}
    assert list(time.classes_ns.items()) == [("compute", 50), ("copy_h2d", 10), ("idle", 40)]


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


def test_idle_time_is_a_frame_with_the_share_of_each_window() -> None:
    frame = _of_ranks().idle
    assert frame.assign(op=frame["op"].fillna("-")).to_numpy(object).tolist() == [
        [0, 0, "late", "aten::mm", 30, 0.3],
        [0, 0, "unknown", "-", 10, 0.1],
        [3, 3, "late", "aten::mm", 30, 0.075],
        [3, 3, "unknown", "-", 10, 0.025],
    ]
    assert frame.dtypes.astype(str).to_dict() | {"cause": "", "op": ""} == {
        "rank": "Int64",
        "device": "int64",
        "cause": "",
        "op": "",
        "ns": "int64",
        "share": "float64",
    }


def test_findings_frame_has_seconds_and_savings() -> None:
    frame = _of_ranks().to_frame()
    assert frame[["start_s", "end_s"]].to_numpy().tolist() == [[2.0, 3.0], [0.0, 1.0]]
    numbers = [
        "saving_ns",
        "saving_low_ns",
        "saving_high_ns",
        "saving_share",
        "saving_low_share",
        "saving_high_share",
    ]
    assert frame[numbers].iloc[0].tolist() == [30, 20, 40, 0.3, 0.2, 0.4]
    assert frame[numbers].iloc[1].isna().all()
    assert [str(frame[name].dtype) for name in numbers] == ["Int64"] * 3 + ["float64"] * 3
    for name in ("rank", "device", "stream", "thread", "step"):
        assert isinstance(frame[name].dtype, pd.Int64Dtype), name
    severity = frame["severity"]
    assert severity.cat.categories.tolist() == ["info", "low", "medium", "high"]
    assert (severity > "low").tolist() == [True, False]
    assert frame["confidence"].cat.categories.tolist() == ["low", "medium", "high"]


def test_columns_without_findings_are_of_the_same_kinds() -> None:
    some, none = _of_ranks(), replace(_of_ranks(), findings=())
    names = [name for name in some.to_frame() if name not in ("start_s", "end_s")]
    kinds = [frame.dtypes[names].astype(str).to_dict() for frame in (some.to_frame(), none.to_frame())]
    assert len(none.to_frame()) == 0
    assert kinds[0] | {"by": "", "fault": ""} == kinds[1] | {"by": "", "fault": ""}
    assert {kinds[1][name] for name in ("start_ns", "end_ns", "cost_ns", "count", "steps")} == {"int64"}


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
    counted = {
        "flow:ac2g": 1,
        "metadata": 2,
        "window mark": 3,
        "of another rank": 4,
        "unreadable": 5,
        "odd flow:": 6,
    }
    assert samples.meta(counted=counted).not_understood == {"unreadable": 5, "odd flow:": 6}


def test_a_job_keeps_what_was_passed_over() -> None:
    job = Job(skipped=[Skipped("a.json", "no trace")], iterations={"1": ("b.json",)})
    assert (len(job), job.skipped, job.iterations) == (
        0,
        (Skipped("a.json", "no trace"),),
        {"1": ("b.json",)},
    )
    assert (Job().skipped, Job().iterations) == ((), {})
