"""What the whole report says of one trace: its devices, window, steps, and what was not recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.report import AnalysedWindow, DeviceBusy, TraceReport
from traceanalyzer.model.trace import Device
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import put_trace


def said(trace: TraceReport, *, several: bool = False) -> dict[str, str]:
    """Label -> its text."""
    page = Page(120)
    put_trace(page, trace, several=several)
    told: dict[str, str] = {}
    for line in filter(None, page.lines):
        label = line[:11].strip() or list(told)[-1]  # else it goes on below
        told[label] = f"{told.get(label, '')} {line[11:]}".strip()
    return told


@pytest.mark.parametrize(
    ("several", "of_file", "begin"),
    [(False, None, ""), (True, None, "rank 3: "), (False, 3, "rank 3: "), (True, 3, "rank 3: ")],
)
def test_rank_is_named_among_several_or_if_in_the_file(
    several: bool, of_file: int | None, begin: str
) -> None:
    trace = samples.trace(3, meta=samples.meta("a.json", rank=of_file))
    assert said(trace, several=several)["trace"] == f"{begin}a.json"


def test_devices_are_described_or_working_ones() -> None:
    known = (Device(2, "NVIDIA H200", 132, None, None), Device(0, None, None, 1 << 30, None))
    trace = samples.trace(
        meta=samples.meta(devices=known), busy=(DeviceBusy(1, MS, 0.25), DeviceBusy(2, 0, 0.0))
    )
    told = said(trace)
    assert [(label, text) for label, text in told.items() if label.startswith("device")] == [
        ("device 0", "name not recorded, 1.00 GiB"),
        ("device 1", "name not recorded; busy 25.0 % of the window"),
        ("device 2", "NVIDIA H200, 132 SMs; busy 0 % of the window"),
    ]
    only_busy = samples.trace(meta=samples.meta(devices=()), busy=(DeviceBusy(1, MS, 0.25),))
    assert "device" not in said(only_busy)
    none = replace(only_busy, busy=(), unavailable={"busy": "no kernels"})
    assert said(none)["device"] == "none: no kernels"
    assert said(replace(none, unavailable=None))["device"] == "none: no event of a GPU"


@pytest.mark.parametrize(("asked", "end"), [(False, ""), (True, ", as asked for with --window")])
def test_a_window_counts_from_the_first_event(asked: bool, end: str) -> None:
    window = AnalysedWindow(ORIGIN + 2 * MS, ORIGIN + 5 * MS, asked=asked)
    assert said(samples.trace(window=window))["window"] == f"3.00 ms, from 2.000 ms to 5.000 ms{end}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
        ({"every": samples.times(1_200)}, "1,200; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
        ({"every": samples.times(2)}, "2; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
        ({"every": samples.times(1)}, "1; 25.0 ms (marks)"),
        ({"empty": 2}, "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks); 2 more launched nothing"),
        ({"cut": 3}, "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks); 3 more cut by --window"),
        ({"marked": False}, "marks"),
        (
            {"steady": samples.times(3, 20 * MS)},
            "3; median 20.0 ms, from 19.0 ms to 22.0 ms, device busy 37.0 % (marks)",
        ),
        (
            {"steady": replace(samples.times(3), busy_share=None)},
            "3; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)",
        ),
    ],
)
def test_steps_are_the_steady_ones_where_there_is_a_cold_start(changes: dict[str, Any], text: str) -> None:
    assert said(samples.trace(steps=samples.steps(source="marks", **changes)))["steps"] == text


def test_a_cold_start_is_told_in_all() -> None:
    cold = replace(samples.times(1, 60 * MS), total_ns=61 * MS)
    steps = samples.steps(cold=cold, steady=samples.times(3))
    told = said(samples.trace(steps=steps))
    assert told["cold start"] == "apart from these: the first step took 61.0 ms, device busy 37.0 %"
    two = replace(steps, cold=samples.times(2, 60 * MS))
    assert said(samples.trace(steps=two))["cold start"] == (
        "apart from these: the first 2 steps took 120 ms, device busy 37.0 %"
    )
    assert "cold start" not in said(samples.trace())


@pytest.mark.parametrize(
    ("traced_ms", "end"),
    [(25, ""), (26, "; the recorded step of 26.0 ms is the mean of those replayed, 2 of 4 steps")],
)
def test_a_recorded_step_that_is_no_median_is_explained(traced_ms: int, end: str) -> None:
    step = samples.estimate(traced_ns=traced_ms * MS, basis="2 of 4 steps replayed, and so on")
    every = "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"
    assert said(samples.trace(steps=samples.steps(source="marks"), step=step))["steps"] == every + end
    steady = samples.steps(source="marks", every=samples.times(4, 40 * MS), steady=samples.times(3))
    assert said(samples.trace(steps=steady, step=step))["steps"].endswith(f"(marks){end}")


def test_what_is_missing_and_what_failed_is_said() -> None:
    trace = samples.trace(steps=None, unavailable={"steps": "no marks", "step": "failed: ValueError"})
    told = said(trace)
    assert told["steps"] == "none: no marks"
    assert told["failed"] == "step: failed: ValueError"
    assert told["without"] == "stacks, memory (not recorded)"
    assert told["events"] == "12,412 read"
    plain = said(samples.trace(steps=None, missing=()))
    assert plain["steps"] == "none: unknown"
    assert not {"failed", "without"} & set(plain)
