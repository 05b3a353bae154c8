"""What leads where on the page: steps, idle stretches, ops and findings."""

from __future__ import annotations

from collections.abc import Callable
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
from traceanalyzer.render.html.markup import kernel_names, said, told_apart
from traceanalyzer.render.html.timelines import flame_data
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


def test_an_op_leads_to_its_work_and_to_the_flame_graph(opened: Visit) -> None:
    drawn = page(ONE).traces[0].timeline
    assert drawn is not None
    row = opened.page.locator(".ops-table tbody").first
    name = str(row.get_attribute("data-name"))
    places = [
        at for one in drawn.tracks if one.kind == "stream" for at in range(one.first, one.first + one.size)
    ]
    pieces = sum(drawn.events.op[at] == drawn.texts.index(name) for at in places)
    assert pieces > 1
    row.get_by_role("button", name="timeline").click()
    assert f"\nop\n{name}\n" in panel(opened, f"1 of {pieces} pieces of {name}")
    opened.page.get_by_role("button", name="Next").click()
    assert "starts at" in panel(opened, f"2 of {pieces} pieces of {name}")
    row.get_by_role("button", name="flame graph").click()
    assert opened.page.locator(".flame .found").inner_text().startswith("1 frame found")
    opened.page.get_by_role("button", name="Clear").click()
    assert opened.page.get_by_label("Search").input_value() == ""


def test_findings_lead_to_ops(opened: Visit) -> None:
    link = opened.page.locator(".card a[href^='#op-']").first
    name = link.inner_text()
    link.click()
    anchor = str(opened.page.evaluate("location.hash"))
    row = opened.page.locator(anchor)
    assert row.get_attribute("data-name") == name
    assert row.is_visible()


def test_the_flame_graph_by_op_alone(opened: Visit) -> None:
    ops = page(ONE).traces[0].ops
    assert ops is not None
    opened.page.locator("select.by").select_option("op")
    frames = opened.page.locator(".graph [role=treeitem][aria-level='2']")
    names = frames.all_inner_texts()
    assert len(set(names)) == len(names)
    assert names[0] == ops.rows[0].name
    assert format_ns(ops.rows[0].gpu_ns) in str(frames.first.get_attribute("aria-label"))
    opened.page.locator("select.which").select_option("2")
    assert opened.page.locator(".graph [role=treeitem]").first.inner_text() == "all idle time"
    assert opened.page.locator(".graph .f-idle").count() > 0


def test_the_search_knows_every_name_that_is_shown(browser: Browser, tmp_path: Path) -> None:
    """Of a kernel the short name of findings, the name that is drawn, and the whole one of the trace."""
    trace = FIXTURES / "dense-gradient" / "bad.json.gz"
    data = flame_data(page(trace).traces[0].flame)
    assert data is not None
    whole = {name for name in loaded(trace).gpu["name"] if len(name) > 160 and "elementwise" in name}
    drawn = [name for name in whole if said(name, 160) in data["names"]]
    assert len(drawn) > 3
    assert "vectorized_elementwise_kernel(BinaryFunctor)" in data["told"].values()
    path = tmp_path / "report.html"
    path.write_bytes(rendered(trace))
    with visited(browser, path) as visit:
        ready(visit)
        for name in {*data["told"].values(), *data["shorts"], *drawn}:
            visit.page.get_by_label("Search").fill(name)
            assert not visit.page.locator(".flame .found").inner_text().startswith("0 "), name
        visit.page.get_by_label("Search").fill(f"no {drawn[0]}")
        assert visit.page.locator(".flame .found").inner_text().startswith("0 ")


def test_narrow_steps_stack_without_a_box(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(rendered(FIXTURES / "launch-bound" / "bad.json.gz"))
    with visited(browser, path, width=390) as visit:
        ready(visit)
        box = visit.page.locator(".scroll.short").first
        assert box.evaluate("(one) => one.scrollHeight <= one.clientHeight + 1")
        assert box.evaluate("(one) => one.scrollWidth <= one.clientWidth + 1")
        assert box.locator("tbody td").first.evaluate("(one) => one.dataset.label") == "time"
        assert visit.page.locator(".stacks thead:visible").count() == 0


def test_alike_names_show_where_they_differ() -> None:
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, std::array<char*, 3ul> >({})"
    one, other = (long.format("x" * 80 + end, "int, " * 40) for end in ("first", "second"))
    assert told_apart(["plain"], 20) == ["plain"]
    shown = told_apart([one, other], 60)
    assert len(set(shown)) == 2
    assert all(len(text) <= 60 for text in shown)
    assert kernel_names([one], 60) == ["vectorized_elementwise_kernel"]
    assert len(set(kernel_names([one, other], 60))) == 2


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
