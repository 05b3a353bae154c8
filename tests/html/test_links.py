"""What leads where on a page in the browser: steps, idle stretches, ops and findings, and the ranks of a job."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import page, parsed, rendered
from tests.support.browser import Visit, panel, ready, visited
from tests.support.cached_reports import analysed, loaded
from tests.support.fixtures import FIXTURES
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.report import Report
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.document import MOST_BYTES, render_html
from traceanalyzer.render.html.page_data import MOST_RANKS, Page, TracePage, page_of
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.rule.views import Work

pytestmark = pytest.mark.xdist_group("browser")

ONE = FIXTURES / "implicit-sync" / "bad.json.gz"


Browser = Any


def test_a_step_says_where_its_gpu_time_went() -> None:
    series = page(ONE).traces[0].steps
    assert series is not None
    work = analysed(ONE).index(Work)
    for position, step in enumerate(series.steps):
        own = work[(work.step == position) & (work.device == series.device)]
        sums = sorted(own.op.name.or_else(own.name).sums(own.dur_ns).values(), reverse=True)
        assert [ns for _, ns in step.ops] == sums[: len(step.ops)]
        assert step.ops
        assert step.cause is not None
        assert step.cause.startswith("idle:")


def test_a_step_leads_to_the_timeline(opened: Visit) -> None:
    opened.page.locator("#steps-0 summary").first.click()
    row = opened.page.locator(".steps-table tbody tr").nth(1)
    op = row.locator("code").first.inner_text()
    number = row.locator("a").inner_text()
    row.locator("a").click()
    said = panel(opened, f"Step {number}")
    assert f"most GPU time in\n{op}" in said
    assert opened.page.evaluate("location.hash") == f"#step-0-{number}"


def test_the_longest_gap_says_what_the_cpu_did(opened: Visit) -> None:
    stretches = page(ONE).traces[0].stretches
    longest = stretches[0].end_ns - stretches[0].start_ns
    assert longest == analysed(ONE).index(Idle).gap_dur_ns.max()
    opened.page.locator("#idle-0 summary").first.click()
    opened.page.locator(".stretches tbody a").first.click()
    said = panel(opened, "Nothing runs on GPU 0")
    assert f"for\n{format_ns(longest)}" in said
    assert "because\nidle: " in said
    assert "meanwhile on the CPU\n" in said


def test_idle_stretches_name_the_line(shared: Callable[[str], Path]) -> None:
    """Where stacks were recorded; and no line on a confidential page."""
    trace = shared("real/cnn_lab.eager")
    lines = [one.line for one in page(trace).traces[0].stretches]
    assert all(line is not None and ".py(" in line for line in lines[:3])
    hidden = page(trace, True).traces[0].stretches
    assert [one.line for one in hidden] == [None] * len(lines)
    assert str(lines[0]) not in rendered(trace, True).decode()


def test_an_op_leads_to_its_work(opened: Visit) -> None:
    drawn = page(ONE).traces[0].timeline
    assert drawn is not None
    row = opened.page.locator(".ops-table tbody").first
    name = str(row.get_attribute("data-name"))
    places = [at for one in drawn.tracks if one.kind == "stream" for at in range(one.first, one.first + one.size)]
    pieces = sum(drawn.events.op[at] == drawn.texts.index(name) for at in places)
    assert pieces > 1
    opened.page.locator("#ops-0 summary").first.click()
    row.get_by_role("button", name="timeline").click()
    assert f"\nop\n{name}\n" in panel(opened, f"1 of {pieces} pieces of {name}")
    opened.page.get_by_role("button", name="Next").click()
    assert "starts at" in panel(opened, f"2 of {pieces} pieces of {name}")


def test_findings_lead_to_ops(opened: Visit) -> None:
    opened.page.evaluate("document.querySelectorAll('.card details').forEach((one) => { one.open = true; })")
    link = opened.page.locator(".card a[href^='#op-']").first
    name = link.inner_text()
    link.click()
    anchor = str(opened.page.evaluate("location.hash"))
    row = opened.page.locator(anchor)
    assert row.get_attribute("data-name") == name
    assert row.is_visible()


def test_narrow_steps_stack_without_a_box(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(rendered(FIXTURES / "launch-bound" / "bad.json.gz"))
    with visited(browser, path, width=390) as visit:
        ready(visit)
        visit.page.locator("#steps-0 summary").first.click()
        box = visit.page.locator("#steps-0 .scroll").first
        assert box.evaluate("(one) => one.scrollHeight <= one.clientHeight + 1")
        assert box.evaluate("(one) => one.scrollWidth <= one.clientWidth + 1")
        assert box.locator("tbody td").first.evaluate("(one) => one.dataset.label") == "time"
        assert visit.page.locator(".stacks thead:visible").count() == 0


def test_nothing_is_said_of_a_whole_report_twice(shared: Callable[[str], Path]) -> None:
    """A trace without GPU work: the verdict says what could not be judged, and the rules why."""
    html = parsed(rendered(shared("public/hta_cpu_only")))
    body = next(one.text for one in html.elements if one.name == "main")
    assert body.count("the trace holds no GPU work") == 1
    assert body.count("no kernels, copies or memsets") == 1
    report: Report = page(shared("public/hta_cpu_only")).report
    assert report.traces[0].accounting == ()


def test_damage_is_said_in_the_verdict() -> None:
    trace = FIXTURES / "broken" / "truncated.json"
    html = parsed(rendered(trace))
    verdict = html.of_class("verdict")[0].text
    for damage in page(trace).report.traces[0].meta.damage:
        assert damage.message in verdict.replace("\N{NO-BREAK SPACE}", " ")


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
        findings=tuple(replace(job.report.findings[i % len(job.report.findings)], rank=i % 64) for i in range(400)),
    )
    pages = tuple(replace(drawn[i % 2], rank=i) if i < MOST_RANKS else TracePage(i, detailed=False) for i in range(64))
    html = render_html(replace(job, report=many, traces=pages))
    assert len(html) <= MOST_BYTES
    made = parsed(html)
    assert len(made.of_class("card")) == 40
    assert "240 more are in the JSON of diagnose." in html.decode()
    there = {one.attributes["id"] for one in made.having("id")}
    links = {str(one.attributes["href"])[1:] for one in made.having("href") if one.name == "a"}
    assert links <= there


def test_eventless_occurrences_say_where_to_see_them(browser: Browser, job: Page, tmp_path: Path) -> None:
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
