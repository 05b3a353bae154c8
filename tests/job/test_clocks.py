"""Planted clocks are recovered from the ends of collectives, within what is said of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.ranks import Recording, Reductions, job_of
from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.waits import measured
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.report.overlay.build import overlays_of

JITTER_NS = 5_000  # by which ends differ between ranks; 2 H200


def runs_of(start_ns: np.ndarray, end_ns: np.ndarray) -> CollectiveRuns:
    count = len(start_ns)
    every = np.arange(count)
    what, group = np.full(count, "allreduce", object), np.full(count, "0 [0, 1]", object)
    return CollectiveRuns(every, start_ns, end_ns, what, group, np.full(count, 1_000), every, every)


def recorded(
    offset_ns: int, drift_ppm: float, count: int, apart_ns: int, seed: int
) -> dict[int, CollectiveRuns]:
    """Two ranks: the second one's clock is off and drifts, and it comes early or late at random."""
    chance = np.random.default_rng(seed)
    end = np.cumsum(chance.integers(apart_ns // 2, apart_ns * 2, count)) + 10**15
    arrival = [end - 50_000 - chance.integers(0, apart_ns // 4, count) for _ in (0, 1)]
    arrival[0] = np.where(chance.random(count) < 0.5, end - 50_000, arrival[0])
    ends = [end + chance.integers(-JITTER_NS, JITTER_NS, count) for _ in (0, 1)]

    def shown(at: np.ndarray) -> np.ndarray:
        return at + offset_ns + np.rint((at - 10**15) * (drift_ppm * 1e-6)).astype(np.int64)

    return {0: runs_of(arrival[0], ends[0]), 1: runs_of(shown(arrival[1]), shown(ends[1]))}


@given(
    offset_ns=st.integers(-10_000_000, 10_000_000),
    drift_ppm=st.sampled_from([0.0, 40.0, -40.0, 8.0, -150.0]),
    count=st.integers(12, 200),
    apart_ns=st.integers(2_000_000, 50_000_000),
    seed=st.integers(0, 1_000),
)
def test_a_planted_shift_and_drift_are_recovered(
    offset_ns: int, drift_ppm: float, count: int, apart_ns: int, seed: int
) -> None:
    runs = recorded(offset_ns, drift_ppm, count, apart_ns, seed)
    clock = clocks_of(runs, measured(runs), {0: 0, 1: 0})[1]
    true = offset_ns + np.rint((runs[0].end_ns - 10**15) * (drift_ppm * 1e-6)).astype(np.int64)
    said = clock.ahead_ns(runs[1].end_ns)
    assert abs(said - true).max() <= clock.uncertainty_ns + 4 * JITTER_NS
    assert clock.broken == 0


def test_minus_three_milliseconds_and_forty_microseconds_a_second() -> None:
    runs = recorded(-3_000_000, 40.0, 100, 20_000_000, 1)
    clock = clocks_of(runs, measured(runs), {0: 0, 1: 0})[1]
    assert abs(clock.drift_ppm - 40.0) < 5.0
    true = -3_000_000 + 40 * (runs[0].end_ns[0] - 10**15) // 1_000_000
    assert abs(clock.offset_ns - true) <= clock.uncertainty_ns
    assert clock.uncertainty_ns < 40_000


def test_the_base_times_of_files_are_part_of_the_clocks() -> None:
    runs = recorded(0, 0.0, 50, 5_000_000, 2)
    clock = clocks_of(runs, measured(runs), {0: 0, 1: 7_000_000})[1]
    assert abs(clock.offset_ns - 7_000_000) <= clock.uncertainty_ns


@pytest.mark.parametrize("ahead_ns", [0, 3_000_000, -3_000_000])
def test_overlays_of_a_job_are_on_one_clock(ahead_ns: int, tmp_path: Path) -> None:
    compute = {0: (500, 300) * 6, 1: (500, 700) * 6}
    job = job_of(Reductions(compute, recordings={1: Recording(ahead_ns)}), tmp_path)
    analysed = analyses_of(job)
    report = report_of(analysed)
    apart = [one.base_time_ns - job[one.rank or 0].meta.base_time_ns for one in overlays_of(report, analysed)]
    assert report.job is not None
    clock = report.job.ranks[1].clock
    assert clock is not None
    assert clock.uncertainty_ns < 100_000
    assert apart[0] - apart[1] == pytest.approx(ahead_ns, abs=clock.uncertainty_ns)


def test_the_overlay_of_a_clock_that_drifts_is_right_in_the_middle(tmp_path: Path) -> None:
    """Perfetto takes one offset for a file: at either end half of the drift is left."""
    compute = dict.fromkeys((0, 1), (5_000,) * 60)
    job = job_of(Reductions(compute, recordings={1: Recording(3_000_000, drift_ppm=100.0)}), tmp_path)
    analysed = analyses_of(job)
    report = report_of(analysed)
    apart = [one.base_time_ns - job[one.rank or 0].meta.base_time_ns for one in overlays_of(report, analysed)]
    window = report.traces[0].window
    middle_ns = (window.start_ns + window.end_ns) // 2 - job[0].meta.origin_ns
    assert apart[0] == 0
    assert -apart[1] == pytest.approx(3_000_000 + middle_ns * 100e-6, abs=2_000)
