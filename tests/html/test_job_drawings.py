"""A job's verdict, its ranks on one axis, and their waits by step: where bars and cells lie, and where they lead."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed, quotes
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.report import Clock, JobReport, RankReport, Verdict
from traceanalyzer.render.html import head
from traceanalyzer.render.html.document import job_drawings

STEPS = {"step": (7, 8), "start_ns": (0, 10 * MS), "dur_ns": (10 * MS, 10 * MS)}
ONE = RankReport(0, 1_000 * MS, Clock(0, uncertainty_ns=2_000), waits_ns=(4 * MS, 0), holds_up_ns=(0, 1 * MS), **STEPS)
BARE = replace(ONE, step=(), start_ns=(), dur_ns=(), waits_ns=(), holds_up_ns=())
# It began half a step later, and its clock reads 2 s more.
LATER = {"start_ns": (2_005 * MS, 2_012 * MS), "dur_ns": (7 * MS, 8 * MS)}
CLOCK = Clock(0, 2_000 * MS, uncertainty_ns=9_000)
TWO = replace(ONE, rank=1, clock=CLOCK, waits_ns=(0, 2_000), holds_up_ns=(4 * MS, 0), **LATER)


def drawn(ranks: Sequence[RankReport], *, culprits: tuple[int, ...] = (), detailed: bool = True) -> Parsed:
    job = JobReport(tuple(ranks), culprits=culprits)
    traces = [SimpleNamespace(rank=one.rank, detailed=detailed) for one in ranks]
    page: Any = SimpleNamespace(report=SimpleNamespace(job=job), traces=traces)
    return parsed(str(job_drawings(page)).encode())


def test_cells_are_as_dark_as_the_wait_and_lead_to_the_step() -> None:
    page = drawn([ONE, replace(TWO, step=(8, 9))], culprits=(1,))
    heat = page.named("td")
    assert [one.text for one in heat] == ["4.00 ms", "0 ns", "", "", "0 ns", "2.00 µs"]
    shares = [one.attributes.get("style") for one in heat if one.text]
    assert shares == ["--share: 100%", "--share: 0%", "--share: 0%", "--share: 0%"]
    assert [one.attributes.get("class") for one in heat] == [None, "holds", None, None, "holds", None]
    links = page.having("data-at")
    assert page.values("data-at") == ["#step-0-7", "#step-0-8", "#step-1-8", "#step-1-9"]
    assert [one.attributes["href"] for one in links] == ["#trace-0"] * 2 + ["#trace-1"] * 2
    assert [one.attributes.get("data-holds") for one in links] == [None, "1.00 ms", "4.00 ms", None]
    assert page.texts_of("culprit") == ["rank 1, and the others wait for it"]
    assert page.values("data-path") == [f"diagnose#/job/ranks/{rank}/waits_ns/{k}" for rank in (0, 1) for k in (0, 1)]
    assert not drawn([ONE, TWO], detailed=False).having("data-at")


@pytest.mark.parametrize(("count", "left"), [(48, 0), (50, 2)])
def test_culprits_and_longest_waiters_of_many_ranks_are_drawn(count: int, left: int) -> None:
    ranks = [replace(ONE, rank=rank, waiting_ns=rank) for rank in range(count)]
    page = drawn(ranks, culprits=(0,))
    names = [text.partition(",")[0] for text in page.texts("th") if text.startswith("rank ")]
    assert names == [f"rank {rank}" for rank in (0, *range(1 + left, count))]
    assert page.texts_of("note") == [f"{left} rank{'s' * (left != 1)} with less waiting left out."] * bool(left)


def test_ranks_without_steps_have_no_drawing() -> None:
    page: Any = SimpleNamespace(report=SimpleNamespace(job=JobReport((BARE,))), traces=[])
    assert job_drawings(page) is None
    page.report.job = None
    assert job_drawings(page) is None


def step(waits: int, holds: int = 0, **more: Any) -> RankReport:
    """One step of 10 ms."""
    times = {"start_ns": (0,), "dur_ns": (10 * MS,), "waits_ns": (waits,), "holds_up_ns": (holds,)}
    return replace(ONE, step=(7,), **{**times, **more})


@pytest.mark.parametrize(("waits", "holds", "late"), [(2, 3, True), (3, 3, False), (4, 3, False), (4, 0, False)])
def test_step_is_late_if_others_wait_longer_for_it(waits: int, holds: int, late: bool) -> None:
    page = drawn([step(waits * MS, holds * MS)])
    assert len(page.of_class("holds")) == late


def test_cells_are_shaded_by_share_of_the_longest_wait() -> None:
    """Also of those for a rank that itself waits less."""
    page = drawn([step(MS, 4 * MS), replace(step(2 * MS), rank=1)])
    styles = [one.attributes["style"] for one in page.having("style") if one.name == "td"]
    assert styles == ["--share: 25%", "--share: 50%"]


def of(ranks: list[RankReport], traces: list[int]) -> Parsed:
    shown = [SimpleNamespace(rank=rank, detailed=True) for rank in traces]
    page: Any = SimpleNamespace(report=SimpleNamespace(job=JobReport(tuple(ranks))), traces=shown)
    return parsed(str(job_drawings(page)).encode())


def test_cells_link_to_the_trace_of_their_rank() -> None:
    """Ranks 3, 4 and 5; the traces of 5 and 3 are in the page."""
    page = of([replace(step(rank), rank=rank) for rank in (3, 4, 5)], [5, 3])
    assert page.values("data-at") == ["#step-1-7", "#step-0-7"]
    paths = [f"diagnose#/job/ranks/{place}/waits_ns/0" for place in range(3)]
    assert page.values("data-path") == paths


def test_a_rank_without_steps_has_an_empty_row() -> None:
    page = drawn([step(MS), replace(BARE, rank=1)])
    assert page.texts("td") == ["1.00 ms", ""]


def verdict(job: JobReport) -> Parsed:
    page: Any = SimpleNamespace(report=replace(samples.report(), job=job))
    return parsed(str(head.verdict(page)).encode())


def test_job_verdict_lines_match_their_json_places() -> None:
    peers = {"1": samples.estimate(), "2, 3": samples.estimate(9 * MS)}
    page = verdict(JobReport((ONE,), summary=Verdict("12 ms", "the GPU", "faster"), as_peers=peers))
    assert [(path, text) for path, _, _, text in quotes(page)] == [
        ("diagnose#/job/summary/step", "12\u00a0ms"),
        ("diagnose#/job/summary/limit", "the GPU"),
        ("diagnose#/job/summary/fix", "faster"),
        ("diagnose#/job/as_peers/1/unprofiled_ns", "18.0 ms"),
        ("diagnose#/job/as_peers/2, 3/unprofiled_ns", "9.00 ms"),
    ]
    assert page.texts("dt") == [*("Step", "Limit", "Fix"), *("What if", "What if")]
    assert page.texts_of("rank") == ["1", "2, 3"]


def test_a_verdict_has_what_is_known_alone() -> None:
    page = verdict(JobReport((ONE,), missing=(7,)))
    assert page.texts("dt")[-1] == "Missing"
    page = verdict(JobReport((ONE,), summary=Verdict("", "the CPU", "")))
    assert "Limit" in page.texts("dt")
    shown = verdict(JobReport((ONE,), step=samples.estimate(), summary=Verdict("12 ms")))
    assert len(shown.of_class("step-bars")) == 1


def test_the_heat_map_has_a_column_for_each_step_of_any_rank() -> None:
    page = drawn([replace(TWO, step=(8, 9)), ONE])
    assert page.texts("th", "thead") == ["rank", "7", "8", "9"]
    assert page.texts("th", "tbody") == ["rank 1", "rank 0"]


def test_of_ranks_that_wait_alike_the_first_are_drawn() -> None:
    page = drawn([replace(ONE, rank=rank, waiting_ns=5) for rank in reversed(range(49))])
    assert page.texts("th", "tbody") == [f"rank {rank}" for rank in reversed(range(48))]
    assert page.texts_of("note") == ["1 rank with less waiting left out."]
