"""The page of a job: whose findings are shown, what a rank waits, and how large the page becomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import parsed
from tests.support.browser import panel, ready, visited
from tests.support.cached_reports import loaded
from traceanalyzer.render.html.document import MOST_BYTES, render_html
from traceanalyzer.render.html.page_data import MOST_RANKS, Page, TracePage, page_of, thinner
from traceanalyzer.report.diagnosis import analyses_of, report_of

pytestmark = pytest.mark.xdist_group("browser")


Browser = Any


@pytest.fixture(scope="module")
def job(shared: Callable[[str], Path]) -> Page:
    """The page of two ranks."""
    analyses = analyses_of({rank: loaded(shared(f"ranks/imbalance.bad.rank{rank}")) for rank in (0, 1)})
    return page_of(report_of(analyses), analyses)


def test_a_rank_s_own_findings_wait_for_a_choice(browser: Browser, job: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(render_html(job))
    found = job.report.findings
    own = [i for i, one in enumerate(found) if one.severity == "info" and len(one.ranks) == 1]
    other = next(i for i in own if not found[i].is_of(1))
    with visited(browser, path) as visit:
        ready(visit)
        cards = visit.page.locator(".card:visible")
        assert cards.count() == len(found) - len(own)
        hidden = str(visit.page.locator("#hidden").inner_text())
        assert [int(one) for one in re.findall(r"\d+", hidden)] == [i + 1 for i in own]
        offered = visit.page.locator(".tl-pick option:not([disabled])").evaluate_all(
            "(all) => all.map((one) => Number(one.dataset.finding)).filter(Boolean)"
        )
        assert sorted(offered) == [i + 1 for i in range(len(found)) if i not in own]
        visit.page.locator("#show-hidden").click()
        assert cards.count() == len(found)
        assert not visit.page.locator("#show-hidden").is_visible()
        visit.page.locator("#whose").select_option("1")
        assert cards.count() == sum(one.is_of(1) for one in found)
        visit.page.evaluate(f"location.hash = '#finding-{other + 1}'")
        visit.page.locator(f"#finding-{other + 1}").wait_for(state="visible")
        assert cards.count() == len(found)


def test_a_step_of_a_rank_says_its_wait(browser: Browser, job: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(render_html(job))
    with visited(browser, path) as visit:
        ready(visit)
        for row in (0, 1):
            cell = visit.page.locator(".heat tbody tr").nth(row).locator("a").first
            wait = cell.inner_text()
            cell.click()
            visit.page.locator(".tl:visible .tl-title", has_text="Step ").wait_for()
            assert f"waits for other ranks\n{wait}" in panel(visit, "Step ")


def test_narrow_captions_of_a_job_are_whole(browser: Browser, job: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(render_html(job))
    with visited(browser, path, width=390) as visit:
        ready(visit)
        caption = visit.page.locator("#ranks figcaption")
        assert caption.inner_text().endswith("framed: the others wait for it")
        assert caption.evaluate("(one) => one.getBoundingClientRect().right") <= 390
        assert visit.page.locator(".heat").evaluate("(one) => one.getBoundingClientRect().right") > 390


def test_jobs_of_many_ranks_and_findings_stay_small(job: Page) -> None:
    """Hundreds of findings: first cards, then lines; some ranks one by one."""
    traces, drawn = job.report.traces, job.traces
    many = replace(
        job.report,
        traces=tuple(replace(traces[i % 2], rank=i) for i in range(64)),
        findings=tuple(
            replace(job.report.findings[i % len(job.report.findings)], rank=i % 64) for i in range(400)
        ),
    )
    pages = tuple(
        replace(drawn[i % 2], rank=i) if i < MOST_RANKS else TracePage(i, detailed=False) for i in range(64)
    )
    strips = tuple(job.strips[i % len(job.strips)] for i in range(40)) + (None,) * 360
    html = render_html(replace(job, report=many, traces=pages, strips=strips))
    assert len(html) <= MOST_BYTES
    made = parsed(html)
    assert len(made.of_class("card")) == 40
    assert "240 more are in the JSON of diagnose." in html.decode()
    there = {one.attributes["id"] for one in made.having("id")}
    links = {str(one.attributes["href"])[1:] for one in made.having("href") if one.name == "a"}
    assert links <= there


def test_what_is_thinned_is_drawings_first(job: Page) -> None:
    less = thinner(job)
    assert less is not None
    assert sum(one is not None for one in less.strips) == sum(one is not None for one in job.strips) // 2
    assert less.traces == job.traces
    none = thinner(replace(job, strips=(None,) * len(job.strips)))
    assert none is not None
    culprits = (job.report.job and job.report.job.culprits) or ()
    assert [one.rank for one in none.traces if one.detailed] == [*culprits]


def test_occurrences_without_events_say_where_to_see_them(
    browser: Browser, job: Page, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(render_html(job))
    lines = [one.timeline for one in job.traces if one.timeline is not None]
    every = [(mark, at) for line in lines for mark in line.marks for at in range(len(mark.position))]
    thinned = [(mark.finding, mark.position[at]) for mark, at in every if mark.event[at] == -2]
    assert thinned
    assert all(place >= 12 for _, place in thinned)
    finding, place = thinned[0]
    with visited(browser, path) as visit:
        ready(visit)
        visit.page.evaluate(f"location.hash = '#at-{finding + 1}-{place + 1}'")
        text = panel(visit, "Not in this page: thinned")
        assert f"Occurrence {place + 1} of " in text
        assert "traceanalyzer open " in text
        start = job.report.findings[finding].occurrences[place].start_ns
        assert f"Perfetto timestamp {start}" in text
