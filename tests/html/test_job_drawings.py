"""Ranks on one axis and their waits by step: bars are where and as long as the steps are, cells lead to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Element, Parsed, parsed
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.report import Clock, JobReport, RankReport, Verdict
from traceanalyzer.render.html.jobs import job_drawings, job_verdict

ONE = RankReport(
    0,
    1_000 * MS,
    Clock(0, uncertainty_ns=2_000),
    step=(7, 8),
    start_ns=(0, 10 * MS),
    dur_ns=(10 * MS, 10 * MS),
    waits_ns=(4 * MS, 0),
    holds_up_ns=(0, 1 * MS),
)
# It began half a step later, and its clock reads 2 s more.
TWO = replace(
    ONE,
    rank=1,
    clock=Clock(0, 2_000 * MS, uncertainty_ns=9_000),
    start_ns=(2_000 * MS + 5 * MS, 2_000 * MS + 12 * MS),
    dur_ns=(7 * MS, 8 * MS),
    waits_ns=(0, 2_000),
    holds_up_ns=(4 * MS, 0),
)


def drawn(ranks: Sequence[RankReport], *, culprits: tuple[int, ...] = (), detailed: bool = True) -> Parsed:
    job = JobReport(tuple(ranks), culprits=culprits)
    traces = [SimpleNamespace(rank=one.rank, detailed=detailed) for one in ranks]
    page: Any = SimpleNamespace(report=SimpleNamespace(job=job), traces=traces)
    return parsed(str(job_drawings(page)).encode())


def places(page: Parsed, look: str) -> list[tuple[str | None, str | None]]:
    return [(one.attributes["x"], one.attributes["width"]) for one in page.of_class(look)]


def test_steps_of_ranks_lie_on_the_reference_s_clock() -> None:
    """From 0 to 20 ms: what is held up is drawn otherwise, and the wait is the end of a step, if it can be seen."""
    page = drawn([ONE, TWO])
    assert places(page, "works") == [("0.000%", "50.000%"), ("60.000%", "40.000%")]
    assert places(page, "late") == [("50.000%", "50.000%"), ("25.000%", "35.000%")]
    assert places(page, "waits") == [("30.000%", "20.000%")]
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles[0] == "rank 0, step 7: 10.0 ms, waits 4.00 ms for others"
    assert titles[-2] == "rank 1, step 7: 7.00 ms, waits 0 ns for others, the others wait 4.00 ms for it"
    (caption,) = [one.text for one in page.elements if one.name == "caption"]
    assert caption.startswith("Steps of all ranks on one axis, 20.0 ms long;")
    assert caption.endswith(" Clocks are aligned to within 9.00 µs.")


def test_a_clock_that_drifts_is_evened() -> None:
    """It gains a tenth: its second step began 9 ms after the first, whatever it reads."""
    fast = replace(ONE, clock=Clock(0, 0, drift_ppm=100_000.0, at_ns=1_000 * MS), start_ns=(0, 10 * MS))
    page = drawn([replace(ONE, clock=None), fast])
    second = [x for x, _ in places(page, "late")]
    assert second == ["50.000%", "45.000%"]


def cells(page: Parsed) -> list[Element]:
    """Of the heat map, without the ranks' names."""
    return [one for one in page.elements if one.name == "td" and "svg" not in one.parents][2:]


def test_cells_are_as_dark_as_the_wait_and_lead_to_the_step() -> None:
    page = drawn([ONE, replace(TWO, step=(8, 9))], culprits=(1,))
    heat = cells(page)
    assert [one.text for one in heat] == ["4.00 ms", "0 ns", "", "", "0 ns", "2.00 µs"]
    shares = [one.attributes.get("style") for one in heat if one.text]
    assert shares == ["--share: 100%", "--share: 0%", "--share: 0%", "--share: 0%"]
    assert [one.attributes.get("class") for one in heat] == [None, "holds", None, None, "holds", None]
    links = page.having("data-at")
    assert [one.attributes["data-at"] for one in links] == [
        "#step-0-7",
        "#step-0-8",
        "#step-1-8",
        "#step-1-9",
    ]
    assert [one.attributes["href"] for one in links] == ["#trace-0"] * 2 + ["#trace-1"] * 2
    assert [one.attributes.get("data-holds") for one in links] == [None, "1.00 ms", "4.00 ms", None]
    assert [one.text for one in page.of_class("culprit")] == ["rank 1, and the others wait for it"] * 2
    paths = [one.attributes["data-path"] for one in page.having("data-path")]
    assert paths == [f"diagnose#/job/ranks/{rank}/waits_ns/{k}" for rank in (0, 1) for k in (0, 1)]
    assert not drawn([ONE, TWO], detailed=False).having("data-at")


@pytest.mark.parametrize(("count", "left"), [(48, 0), (50, 2)])
def test_culprits_and_longest_waiters_of_many_ranks_are_drawn(count: int, left: int) -> None:
    ranks = [replace(ONE, rank=rank, waiting_ns=rank) for rank in range(count)]
    page = drawn(ranks, culprits=(0,))
    names = [
        one.text.partition(",")[0]
        for one in page.elements
        if one.name == "th" and one.text.startswith("rank ")
    ]
    assert names == [f"rank {rank}" for rank in (0, *range(1 + left, count))] * 2
    notes = [one.text for one in page.of_class("note")]
    assert notes == [f"{left} rank{'s' * (left != 1)} with less waiting left out."] * bool(left)


def test_of_many_steps_the_first_forty_are_drawn() -> None:
    many = replace(
        ONE,
        step=tuple(range(50)),
        start_ns=tuple(at * 10 * MS for at in range(50)),
        dur_ns=(10 * MS,) * 50,
        waits_ns=(0,) * 50,
        holds_up_ns=(0,) * 50,
    )
    page = drawn([many])
    assert len(page.of_class("works")) == 40
    assert len(page.having("data-at")) == 40
    assert places(page, "works")[-1] == ("97.500%", "2.500%")


def test_ranks_without_steps_have_no_drawing() -> None:
    bare = replace(ONE, step=(), start_ns=(), dur_ns=(), waits_ns=(), holds_up_ns=())
    page: Any = SimpleNamespace(report=SimpleNamespace(job=JobReport((bare,))), traces=[])
    assert job_drawings(page) is None
    page.report.job = None
    assert job_drawings(page) is None


def test_job_verdict_has_what_ifs_and_missing_ranks() -> None:
    """The step is not said again where bars show it."""
    job = JobReport((ONE,), missing=(2, 3), summary=Verdict("not known", "the GPU", "nothing"))
    job = replace(job, as_peers={"1": samples.estimate()})
    for step, first in ((None, ["Stepnot known"]), (samples.estimate(), [])):
        page = parsed(str(job_verdict(replace(job, step=step))).encode())
        assert [one.text for one in page.elements if one.name == "div"] == [
            *first,
            "Limitthe GPU",
            "Fixnothing",
            "What ifwith rank 1 as its peers: predicted 18.0 ms a step",
            "Missingrank 2, 3",
        ]
    assert job_verdict(JobReport((ONE,))) is None
