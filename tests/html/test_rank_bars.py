"""Edges of a job's drawings: long and short waits, ranks that hold others up, ranks and traces in other orders."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed
from tests.html.test_job_drawings import ONE, cells, drawn, places
from tests.report.report_samples import MS
from traceanalyzer.model.report import Clock, JobReport, RankReport
from traceanalyzer.render.html.jobs import job_drawings


def step(waits: int, holds: int = 0, **more: Any) -> RankReport:
    """One step of 10 ms."""
    times = {"start_ns": (0,), "dur_ns": (10 * MS,), "waits_ns": (waits,), "holds_up_ns": (holds,)}
    return replace(ONE, step=(7,), **{**times, **more})


@pytest.mark.parametrize(
    ("waits", "bars"),
    [
        (30 * MS, [("0.000%", "100.000%")]),  # it began to wait in the step before
        (300_000, [("97.000%", "3.000%")]),
        (6_000, [("99.940%", "0.060%")]),
        (5_000, []),  # too narrow to be seen
    ],
)
def test_a_wait_is_the_end_of_its_step(waits: int, bars: list[tuple[str, str]]) -> None:
    assert places(drawn([step(waits)]), "waits") == bars


@pytest.mark.parametrize(
    ("waits", "holds", "late"), [(2, 3, True), (3, 3, False), (4, 3, False), (4, 0, False)]
)
def test_step_is_late_if_others_wait_longer_for_it(waits: int, holds: int, late: bool) -> None:
    page = drawn([step(waits * MS, holds * MS)])
    assert len(page.of_class("late")) == late
    assert len(page.of_class("holds")) == late


def test_cells_are_shaded_by_share_of_the_longest_wait() -> None:
    """Also of those for a rank that itself waits less."""
    page = drawn([step(MS, 4 * MS), replace(step(2 * MS), rank=1)])
    styles = [one.attributes["style"] for one in page.having("style") if one.name == "td"]
    assert styles == ["--share: 25%", "--share: 50%"]


def test_a_clock_s_offset_counts_before_its_drift() -> None:
    """It reads 1 s more, and gains a tenth from 1 s of the reference on."""
    clock = Clock(0, 1_000 * MS, drift_ppm=100_000.0, at_ns=1_000 * MS)
    fast = replace(ONE, clock=clock, start_ns=(1_000 * MS, 1_010 * MS))
    page = drawn([replace(ONE, clock=None), fast])
    assert [x for x, _ in places(page, "late")] == ["50.000%", "45.000%"]


def of(ranks: list[RankReport], traces: list[int]) -> Parsed:
    shown = [SimpleNamespace(rank=rank, detailed=True) for rank in traces]
    page: Any = SimpleNamespace(report=SimpleNamespace(job=JobReport(tuple(ranks))), traces=shown)
    return parsed(str(job_drawings(page)).encode())


def test_cells_link_to_the_trace_of_their_rank() -> None:
    """Ranks 3, 4 and 5; the traces of 5 and 3 are in the page."""
    page = of([replace(step(rank), rank=rank) for rank in (3, 4, 5)], [5, 3])
    assert [one.attributes["data-at"] for one in page.having("data-at")] == ["#step-1-7", "#step-0-7"]
    paths = [one.attributes["data-path"] for one in page.having("data-path")]
    assert paths == [f"diagnose#/job/ranks/{place}/waits_ns/0" for place in range(3)]


def test_a_rank_without_steps_has_an_empty_row() -> None:
    bare = replace(ONE, rank=1, step=(), start_ns=(), dur_ns=(), waits_ns=(), holds_up_ns=())
    page = drawn([step(MS), bare])
    assert [one.text for one in cells(page)] == ["1.00 ms", ""]
    assert len(page.of_class("rank-steps")) == 2
