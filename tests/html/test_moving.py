"""The timeline in a real browser: by keyboard alone and by mouse, to the raw kernel of an occurrence, and back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import LOOSE, QUOTED, documents, page, rendered, wrong
from tests.support.browser import Visit, ready, visited
from tests.support.cached_reports import analysed, loaded, reported
from tests.support.fixtures import FIXTURES
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.report.diagnosis import analyses_of, report_of

pytestmark = pytest.mark.xdist_group("browser")

ONE = FIXTURES / "exposed-copy" / "bad.json.gz"
Browser = Any


def panel(visit: Visit) -> str:
    return str(visit.page.locator(".tl-panel").inner_text())


def seen(visit: Visit) -> tuple[int, int]:
    """The part of the time that is looked at."""
    view = visit.page.locator(".tl-view")
    return int(view.get_attribute("data-low")), int(view.get_attribute("data-high"))


def third(trace: Path) -> tuple[str, int]:
    """Name and event id of the work of the first finding's third occurrence."""
    ids = reported(trace).findings[0].occurrences[2].event_ids
    gpu = loaded(trace).gpu
    row = gpu[gpu["event_id"].isin(ids)].iloc[0]
    return str(row["name"]), int(row["event_id"])


def test_by_keyboard_to_the_third_occurrence_in_four(opened: Visit) -> None:
    name, event = third(ONE)
    for key in ("Tab", "Enter", "n", "n"):
        opened.page.keyboard.press(key)
    opened.page.locator(".tl-count", has_text="3 of ").wait_for()
    said = panel(opened)
    assert "Occurrence 3 of " in said
    assert name in said
    assert f"event in the file\n{event}" in said
    low, high = seen(opened)
    start = reported(ONE).findings[0].occurrences[2].start_ns - loaded(ONE).meta.origin_ns
    assert low <= start < high
    assert opened.page.evaluate("document.activeElement.className") == "tl-view"
    assert opened.complaints == []


@pytest.mark.slow
def test_keys_choose_findings_and_occurrences_on_a_fresh_page(opened: Visit) -> None:
    page = opened.page
    assert page.evaluate("document.activeElement === document.body")
    page.keyboard.press("2")
    page.locator(".tl-panel", has_text="Occurrence 1 of ").wait_for()
    assert "of finding 2, " in panel(opened)
    page.keyboard.press("1")
    page.keyboard.press("n")
    assert "Occurrence 2 of " in panel(opened)
    assert "of finding 1, " in panel(opened)
    search = page.locator(".tl input[type=search]")
    search.focus()
    page.keyboard.press("n")
    assert "Occurrence 2 of " in panel(opened)
    assert search.input_value() == "n"


@pytest.mark.slow
def test_by_mouse_to_the_third_occurrence_in_three(opened: Visit) -> None:
    name, event = third(ONE)
    opened.page.locator("#finding-1 .to-timeline").click()
    opened.page.get_by_role("button", name="Next").click()
    opened.page.get_by_role("button", name="Next").click()
    assert name in panel(opened)
    assert f"event in the file\n{event}" in panel(opened)
    assert opened.page.evaluate("location.hash") == "#at-1-1"


@pytest.mark.slow
def test_from_work_to_its_launch_and_back(opened: Visit) -> None:
    page = opened.page
    for key in ("Tab", "Enter"):
        page.keyboard.press(key)
    page.locator(".tl-panel", has_text="launched by").wait_for()
    work = panel(opened)
    page.keyboard.press("Enter")
    call = panel(opened)
    assert "started" in call
    assert "runtime call" in call
    page.keyboard.press("Enter")
    assert panel(opened) == work
    page.keyboard.press("ArrowRight")
    assert panel(opened) != work
    page.keyboard.press("ArrowLeft")
    assert panel(opened) == work


@pytest.mark.slow
def test_keys_and_buttons_zoom_and_move(opened: Visit) -> None:
    page = opened.page
    whole = seen(opened)
    page.locator(".tl-view").focus()
    page.keyboard.press("w")
    near = seen(opened)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, abs=2)
    page.keyboard.press("d")
    assert seen(opened)[0] > near[0]
    page.keyboard.press("a")
    assert seen(opened)[0] == pytest.approx(near[0], abs=2)
    page.get_by_role("button", name="Zoom out").click()
    page.keyboard.press("0")
    page.get_by_role("button", name="Whole").click()
    assert seen(opened) == whole


@pytest.mark.slow
def test_the_mouse_drags_and_zooms(opened: Visit) -> None:
    page = opened.page
    whole = seen(opened)
    page.locator(".tl-view").scroll_into_view_if_needed()
    box = page.locator(".tl-over").bounding_box()
    y = box["y"] + 10
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=4)
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    page.mouse.up()
    part = seen(opened)
    assert part[1] - part[0] == pytest.approx(0.2 * (whole[1] - whole[0]), rel=0.05)
    view = page.locator(".tl-view").bounding_box()
    x, y = view["x"] + view["width"] / 2, view["y"] + 12
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=4)
    page.mouse.up()
    moved = seen(opened)
    assert moved[0] < part[0]
    assert moved[1] - moved[0] == pytest.approx(part[1] - part[0], abs=4)
    page.mouse.wheel(0, -100)
    page.locator(f".tl-view:not([data-low='{moved[0]}'])").wait_for()
    assert seen(opened)[1] - seen(opened)[0] < moved[1] - moved[0]


def test_slash_searches_names_and_enter_goes_on(opened: Visit) -> None:
    page = opened.page
    kernels = loaded(ONE).gpu
    copies = int(kernels["name"].str.contains("Memcpy HtoD").sum())
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("memcpy htod")
    page.keyboard.press("Enter")
    page.locator(".tl-count", has_text="1 of ").wait_for()
    kept = int(page.locator(".tl-count").inner_text().split()[2])
    assert 1 < kept <= copies
    assert "Memcpy HtoD" in panel(opened)
    page.keyboard.press("Enter")
    assert page.locator(".tl-count").inner_text() == f"2 of {kept} kept"


def test_an_area_has_sums_by_name_and_a_list_of_events(opened: Visit) -> None:
    """By the mouse with Shift, and by the key `m` of all that is visible."""
    page = opened.page
    page.locator(".tl-view").scroll_into_view_if_needed()
    box = page.locator(".tl-view").bounding_box()
    x, y = box["x"] + box["width"] * 0.4, box["y"] + 60
    page.keyboard.down("Shift")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert "GPU, sums by name" in panel(opened)
    part = page.locator(".tl-panel .note").inner_text()
    page.locator(".tl-view").focus()
    page.keyboard.press("m")
    assert page.locator(".tl-panel .note").inner_text() != part
    gpu = page.locator(".tl-panel table").first
    assert gpu.locator("th").all_inner_texts() == ["name", "kind", "count", "time", "of the part"]
    assert gpu.locator("tbody tr").count() > 1
    page.locator(".tl-panel summary", has_text="Events").click()
    events = page.locator(".tl-panel table").nth(2)
    assert events.locator("th").all_inner_texts()[4:] == ["launched with", "shapes"]
    events.locator("button").first.click()
    assert "event in the file" in panel(opened)


def test_a_kernel_says_its_grid_and_registers(opened: Visit) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("nvjet")
    opened.page.keyboard.press("Enter")
    said = panel(opened)
    assert "launched with\ngrid 2x66x1, block " in said
    assert ", 168 registers" in said


@pytest.mark.slow
def test_links_open_at_an_occurrence(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(rendered(ONE))
    with visited(browser, path) as visit:
        visit.page.goto(f"{path.as_uri()}#at-1-3")
        visit.page.reload()
        ready(visit)
        assert "Occurrence 3 of " in panel(visit)
        said = visit.page.evaluate(QUOTED)
        assert any("/occurrences/2/cost_ns" in one[0] for one in said)
        assert wrong(said, documents(page(ONE), [analysed(ONE)])) == []
        assert visit.page.evaluate(LOOSE) == []


@pytest.mark.slow
def test_a_job_leads_to_the_late_op(browser: Browser, shared: Callable[[str], Path], tmp_path: Path) -> None:
    """Ranks one above the other, the culprit's timeline first; by keyboard to an op of its own."""
    analyses = analyses_of({rank: loaded(shared(f"ranks/imbalance.bad.rank{rank}")) for rank in (0, 1)})
    made = page_of(report_of(analyses), analyses)
    path = tmp_path / "report.html"
    path.write_bytes(render_html(made))
    assert made.report.job is not None
    (culprit,) = made.report.job.culprits
    with visited(browser, path) as visit:
        ready(visit)
        assert visit.page.locator(".tl:visible").get_attribute("aria-label") == f"Timeline of rank {culprit}"
        assert visit.page.locator(".ranks .parts").count() == 2
        assert visit.page.locator(".heat .holds").count() > 0
        for key in ("Tab", "Enter"):
            visit.page.keyboard.press(key)
        visit.page.locator(".tl:visible .tl-panel", has_text="Occurrence ").wait_for()
        said = str(visit.page.locator(".tl:visible .tl-panel").inner_text())
        assert "\nop\n" in said
        assert wrong(visit.page.evaluate(QUOTED), documents(made, [one for _, one in analyses])) == []
        assert visit.page.evaluate(LOOSE) == []
        assert visit.complaints == []
        visit.page.locator(".tl:visible [data-do=whole]").click()
        visit.page.locator(".to-timeline:visible").first.click()  # by mouse
        visit.page.locator(".tl:visible .tl-panel", has_text="Occurrence ").wait_for()
        assert "\nop\n" in str(visit.page.locator(".tl:visible .tl-panel").inner_text())
        visit.page.locator(".heat a").nth(1).click()
        visit.page.locator(".tl:visible .tl-title", has_text="Step ").wait_for()


@pytest.mark.slow
def test_a_finding_is_copied_as_markdown(opened: Visit) -> None:
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.bring_to_front()
    page.locator("#finding-1 .markdown").click()
    page.locator("#finding-1 .markdown").get_by_text("Copied").wait_for()
    text = str(page.evaluate("navigator.clipboard.readText()"))
    found = reported(ONE).findings[0]
    assert text.startswith(f"### 1 {found.title} ({found.severity})\n")
    assert "**Remedy:** " in text
    assert "traceanalyzer open bad.json.gz --finding 1" in text


def test_tables_sort_by_exact_values(opened: Visit) -> None:
    opened.page.locator("#ops-0 summary").first.click()
    table = opened.page.locator(".ops-table")
    values = "(table) => [...table.tBodies].map((body) => Number(body.rows[0].cells[1].querySelector('data').value))"
    head = table.locator("th").nth(1)
    head.locator("button").click()
    down = table.evaluate(values)
    assert down == sorted(down, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert table.evaluate(values) == sorted(down)
