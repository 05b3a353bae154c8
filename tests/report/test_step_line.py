"""The line on the step, and what limits it where the recording tells that and the replay does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.report.rank_report import as_recorded
from traceanalyzer.report.step_line import step_line


def test_profiler_overhead_is_stated_and_not_negative() -> None:
    for unprofiled in (25 * MS, 26 * MS):
        step = samples.estimate(unprofiled)
        said = step_line(samples.trace(step=step))
        assert said.startswith("25.0 ms recorded and 25.0 ms predicted without the profiler (2")


def test_a_measured_step_is_said_to_be_the_users() -> None:
    step = samples.estimate(low_ns=18 * MS, high_ns=18 * MS)
    assert step_line(samples.trace(step=step)) == (
        "25.0 ms recorded, 18.0 ms without the profiler, as you measured it"
    )


@pytest.mark.parametrize(
    ("basis", "others"),
    [
        ("5 of 6 steps", "the longest of 8 steps, 48.0 ms, is left out"),
        ("4 of 8 steps", "4 of 8 steps, with 50 % of the recorded time, are left out"),
        ("the window", "long steps are left out, 30 % of the time"),
    ],
)
def test_what_is_left_out_is_said(basis: str, others: str) -> None:
    every = replace(samples.times(8), max_ns=2 * samples.times(8).min_ns)
    step = samples.estimate(left_out_share=0.3, basis=basis)
    told = step_line(samples.trace(step=step, steps=samples.steps(every=every)))
    assert told.endswith(f"; {others}")


def test_without_a_replay_the_step_is_the_recorded_one() -> None:
    assert step_line(samples.trace()) == "25.0 ms recorded (median of 4 steps)"
    steady = samples.steps(cold=samples.times(1, 900 * MS), steady=samples.times(3, 20 * MS))
    assert step_line(samples.trace(steps=steady)) == "20.0 ms recorded (median of 3 steps)"
    unmarked = samples.trace(steps=samples.steps(marked=False))
    assert step_line(unmarked) == "not known, since no step is marked; the recording takes 100 ms"


def test_left_out_step_is_shown_if_the_window_is_far_longer() -> None:
    for total_ms, told in ((4 * 26, False), (4 * 25 + 60, True)):
        every = replace(samples.times(4), total_ns=total_ms * MS, max_ns=85 * MS)
        head = samples.trace(step=samples.estimate(), steps=samples.steps(every=every))
        assert step_line(head).endswith("; the longest of 4 steps, 85.0 ms, is left out") is told


@pytest.mark.parametrize(
    ("compute_ms", "beside_ms", "gpu"),
    [(91, 0, True), (1, 90, True), (90, 0, False), (80, 0, False)],
)
def test_always_busy_profiled_device_is_the_bound(compute_ms: int, beside_ms: int, gpu: bool) -> None:
    parts = {
        "compute": compute_ms * MS,
        "compute_over_communication": beside_ms * MS,
        "communication": 7 * MS,
    }
    busy = replace(samples.accounting(), parts_ns=parts)
    open_step = samples.estimate(bounds=("gpu", "cpu"))
    found = as_recorded(open_step, [busy])
    assert found is not None
    assert (found.bound, found.bounds) == (("gpu", ("gpu",)) if gpu else ("cpu", ("gpu", "cpu")))
    assert as_recorded(open_step, [busy, samples.accounting()]) == open_step
    assert as_recorded(open_step, []) == open_step
    known = samples.estimate(bounds=("cpu",))
    assert as_recorded(known, [busy]) == known
    assert as_recorded(None, [busy]) is None
