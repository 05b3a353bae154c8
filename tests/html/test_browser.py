"""The page in a real browser: nothing leaves, nothing fails, everything moves, everybody can use it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import LOOSE, QUOTED, documents, hostile_trace, page, page_of_job, rendered, wrong
from tests.support.browser import Visit, violations, visited
from tests.support.cached_reports import analysed, loaded
from tests.support.fixtures import FIXTURES
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.finding_order import triage

pytestmark = pytest.mark.xdist_group("browser")

ONE = FIXTURES / "implicit-sync" / "bad.json.gz"
OTHER = FIXTURES / "exposed-copy" / "bad.json.gz"
Browser = Any


def plain(text: str) -> str:
    """Without the blanks that hold numbers and units together."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(rendered(ONE))
    return path


@pytest.fixture(scope="module")
def opened(browser: Browser, file: Path) -> Iterator[Visit]:
    """One window for all tests that only look or that put things back."""
    with visited(browser, file) as visit:
        yield visit


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A page of two ranks, and the documents that it quotes."""
    made, analyses = page_of_job({0: loaded(ONE), 1: loaded(OTHER)})
    path = tmp_path_factory.mktemp("ranks") / "report.html"
    path.write_bytes(render_html(made))
    return path, documents(made, [one for _, one in analyses])


def test_nothing_leaves_and_nothing_fails(opened: Visit, file: Path) -> None:
    assert opened.asked == [file.as_uri()]
    assert opened.complaints == []
    assert opened.page.title() == "bad.json.gz, traceanalyzer report"


def test_every_number_is_the_json_s(opened: Visit) -> None:
    said = opened.page.evaluate(QUOTED)
    assert len(said) > 100
    assert wrong(said, documents(page(ONE), [analysed(ONE)])) == []
    assert opened.page.evaluate(LOOSE) == []


def test_numbers_of_all_ranks_are_the_json_s(browser: Browser, ranks: tuple[Path, dict[str, Any]]) -> None:
    path, documents_ = ranks
    with visited(browser, path) as visit:
        assert wrong(visit.page.evaluate(QUOTED), documents_) == []
        assert visit.page.evaluate(LOOSE) == []
        assert visit.complaints == []
        headings = visit.page.locator("h2").all_inner_texts()
        assert {"Ranks", "Rank 0", "Rank 1"} <= set(headings)
        assert not visit.page.locator("#trace-1 .books").is_visible()
        visit.page.locator(".ranks a").nth(1).click()
        assert visit.page.evaluate("location.hash") == "#trace-1"
        visit.page.locator("#trace-1 .books").wait_for(state="visible")
        assert visit.page.locator(".graph").count() == 2
        assert visit.page.locator(".graph >> nth=1 >> [role=treeitem]").count() > 2


def test_cards_expand(opened: Visit) -> None:
    opened.page.wait_for_function("document.querySelector('.picture canvas').style.height.endsWith('px')")
    card = opened.page.locator(".card").nth(1)
    assert not card.locator(".picture canvas").is_visible()
    card.locator("summary").first.click()
    assert card.locator(".picture canvas").is_visible()
    opened.page.wait_for_function("document.querySelectorAll('.picture canvas')[1].style.height.endsWith('px')")
    card.locator("summary").first.click()
    assert not card.locator(".picture canvas").is_visible()
    opened.page.evaluate("location.hash = '#finding-3'")
    opened.page.wait_for_selector("#finding-3 .message", state="visible")


def test_the_flame_graph_zooms_and_moves_the_timeline(opened: Visit) -> None:
    page, graph = opened.page, opened.page.locator(".graph")
    assert graph.locator("[role=treeitem]").first.inner_text() == "step"
    frame = graph.locator(".f-op", has_text="aten::sum").first
    before, view = frame.bounding_box()["width"], page.locator(".tl-view").get_attribute("data-low")
    frame.click()
    zoomed = graph.locator("[role=treeitem][aria-selected=true]")
    assert zoomed.inner_text() == "aten::sum"
    assert zoomed.bounding_box()["width"] > 5 * before
    told = page.locator(".told").inner_text()
    assert re.match(r"aten::sum; [\d.]+ µs, [\d.]+ % of GPU time a step; CPU time ", told)
    assert page.locator(".tl-view").get_attribute("data-low") != view
    page.locator(".leads").click()
    assert page.evaluate("document.activeElement.className") == "tl-view"
    frame = graph.locator("[aria-selected=true]")
    frame.focus()
    page.keyboard.press("Escape")
    assert graph.locator("[aria-selected=true]").inner_text() == "step"
    page.locator("select.which").select_option("idle")
    assert "of idle time of the GPU a step" in str(graph.locator("[role=treeitem]").nth(1).get_attribute("aria-label"))
    page.locator("select.which").select_option("gpu")


def test_the_search_finds(opened: Visit) -> None:
    page = opened.page
    field = page.locator(".flame input")
    field.fill("aten::SUM")
    found = page.locator(".flame .found")
    assert re.match(r"\d+ regions?: [\d.]+ µs, [\d.]+ % of GPU time", found.inner_text())
    assert page.locator(".graph .hit").count() >= 1
    field.fill("no such region")
    assert found.inner_text().startswith("0 regions: 0 ns")
    field.fill("")
    assert found.inner_text() == ""
    assert page.locator(".graph.searched").count() == 0


def test_the_table_of_ops_is_filtered(opened: Visit) -> None:
    page = opened.page
    page.locator("#ops-0 summary").first.click()
    rows = page.locator("#ops-0 tbody:visible")
    whole = rows.count()
    page.get_by_label("Filter").fill("aten::SUM")
    assert rows.count() == 1
    assert page.locator("#ops-0 .found").inner_text() == f"1 of {whole} ops"
    page.get_by_label("Filter").fill("")
    assert rows.count() == whole


@pytest.mark.slow
def test_commands_are_copied(opened: Visit) -> None:
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.bring_to_front()
    page.locator(".commands summary").first.click()
    page.locator(".commands .copy").first.click()
    page.get_by_role("button", name="Copy: Open in Perfetto here").first.get_by_text("Copied").wait_for()
    shown = page.locator(".commands code").first.inner_text()
    assert page.evaluate("navigator.clipboard.readText()") == shown
    assert shown == "traceanalyzer open bad.json.gz --finding 1"


@pytest.mark.slow
def test_light_and_dark(opened: Visit) -> None:
    page = opened.page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    button = page.locator("#theme")
    assert button.inner_text() == "Dark"
    button.click()
    assert page.evaluate(colour) != light
    button.click()
    assert page.evaluate(colour) == light


@pytest.mark.slow
def test_on_paper_all_is_open(opened: Visit) -> None:
    page = opened.page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert all(part.is_visible() for part in page.locator(".picture canvas, .books, .ops-table").all())
    assert not page.locator("nav").is_visible()
    assert not page.locator(".copy").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert not page.locator("#finding-2 .picture").is_visible()


def test_everybody_can_use_it(browser: Browser, file: Path) -> None:
    """axe-core finds nothing; the page is no wider than the window."""
    pytest.importorskip("axe_playwright_python.sync_playwright")
    with visited(browser, file) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        for width in (1280, 390):
            visit.page.set_viewport_size({"width": width, "height": 900})
            assert violations(visit) == [], width
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.page.emulate_media(color_scheme="dark")
        assert violations(visit, "color-contrast") == []  # all that colours decide


def test_narrow_tables_show_that_they_scroll(browser: Browser, file: Path) -> None:
    """Without scripts; dark at the edge behind which there is more, and only there."""
    with visited(browser, file, width=390, java_script_enabled=False) as visit:
        visit.page.locator("#ops-0 summary").first.click()
        table = visit.page.locator("#ops-0 .scroll").first
        assert table.evaluate("(box) => box.scrollWidth > box.clientWidth + 60")
        at_start = table.screenshot()
        looks = table.evaluate("(box) => getComputedStyle(box).backgroundAttachment")
        assert looks == "local, local, scroll, scroll"
        table.evaluate("(box) => { box.style.background = 'none'; }")
        assert table.screenshot() != at_start


def test_it_can_be_read_without_scripts(browser: Browser, file: Path) -> None:
    with visited(browser, file, java_script_enabled=False) as visit:
        report = page(ONE).report
        said = plain(visit.page.locator(".verdict").inner_text())
        assert report.traces[0].summary.limit in said
        assert report.traces[0].summary.fix in said
        texts = [plain(text) for text in visit.page.locator(".card .message").all_text_contents()]
        parts = triage(report)
        first = [finding.message for finding in parts.others.values()]
        assert texts[: len(first)] == first
        assert sorted(texts) == sorted(finding.message for finding in report.findings)
        visit.page.locator(".card summary").nth(2).click()
        assert not visit.page.locator(".copy").first.is_visible()
        assert not visit.page.locator(".graph").is_visible()
        visit.page.locator(".table > summary").click()
        assert "10 x (mm, sum, item)" in visit.page.locator(".regions").inner_text()
        assert visit.page.locator(".books").is_visible()


def test_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """Names that are scripts, handlers, ends of elements, marks that turn the writing."""
    analyses = [(None, Analysis(hostile_trace().load()))]
    path = tmp_path / "report.html"
    path.write_bytes(render_html(page_of(report_of(analyses), analyses)))
    with visited(browser, path) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        search = visit.page.locator(".tl input[type=search]")
        search.fill("<script>")
        search.press("Enter")
        visit.page.locator(".tl-count", has_text="1 of ").wait_for()
        assert "<script>alert(1)</script>" in visit.page.locator("body").inner_text()
        visit.page.locator(".tl-view canvas").hover()
        assert visit.page.evaluate("typeof hacked") == "undefined"
        assert visit.page.locator("img, main script, .card style").count() == 0
        assert visit.complaints == []
        assert visit.asked == [path.as_uri()]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1280


WANTED = ("public/hta_cpu_only", "public/tracelens_mi210_gpu_only", "real/gpt2_train.eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", WANTED)
def test_shared_traces_open(browser: Browser, shared: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    trace = shared(name)
    path = tmp_path / "report.html"
    path.write_bytes(rendered(trace))
    with visited(browser, path, width=390) as visit:
        assert visit.complaints == []
        assert visit.asked == [path.as_uri()]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert wrong(visit.page.evaluate(QUOTED), documents(page(trace), [analysed(trace)])) == []
        assert visit.page.evaluate(LOOSE) == []
