"""The page of a comparison: in a browser without message or request, its numbers those of the JSON, names escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.programs import ADDED, MM, built
from tests.html.pages import QUOTED, wrong
from tests.support.browser import Visit, violations, visited
from tests.support.fixtures import FIXTURES
from traceanalyzer import Comparison, compare
from traceanalyzer.comparison.baseline import baseline_bytes
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.render.data.comparison import comparison_json
from traceanalyzer.render.html.comparison import render_comparison_page

pytestmark = pytest.mark.xdist_group("browser")

PAIR = FIXTURES / "implicit-sync"


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(PAIR / "bad.json.gz", PAIR / "good.json.gz")


@pytest.fixture(scope="module")
def opened(browser: Any, found: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_bytes(render_comparison_page(found))
    with visited(browser, path) as visit:
        yield visit


def test_the_page_says_nothing_and_asks_for_nothing(opened: Visit) -> None:
    assert opened.complaints == []
    assert [url for url in opened.asked if not url.startswith("file:")] == []
    assert len(opened.asked) == 1


def test_its_numbers_are_those_of_the_json(opened: Visit, found: Comparison) -> None:
    quotes = opened.page.evaluate(QUOTED)
    assert len(quotes) > 30
    assert wrong(quotes, {"compare": json.loads(comparison_json(found))}) == []


def test_it_has_no_fault_for_readers(opened: Visit) -> None:
    assert violations(opened) == []


def test_both_steps_are_drawn_on_one_axis(opened: Visit, found: Comparison) -> None:
    strips = [strip for strip in found.strips if strip is not None]
    assert opened.page.locator(".strip .ground").count() == len(strips) == 2
    widths = [float(one.get_attribute("width")) for one in opened.page.locator(".strip .ground").all()]
    assert widths[0] / widths[1] == pytest.approx(strips[0].length_ns / strips[1].length_ns, rel=0.01)
    drawn = opened.page.locator(".strip .b").count()
    assert drawn == sum(len(strip.pieces) for strip in strips)


def test_the_waterfall_has_a_bar_for_each_part(opened: Visit, found: Comparison) -> None:
    assert found.waterfall is not None
    parts = [part for part in found.waterfall.parts if part.delta_ns]
    assert opened.page.locator("#waterfall svg rect").count() == min(len(parts), 15) + 2


def test_the_same_comparison_gives_the_same_bytes(found: Comparison) -> None:
    assert render_comparison_page(found) == render_comparison_page(found)


def test_names_never_become_markup(browser: Any, tmp_path: Path) -> None:
    hostile = built([MM, ADDED])
    for event in hostile.events:
        if event.get("name") == "aten::add":
            event["name"] = "<img src=x onerror=alert(1)>&\"'"
    path = tmp_path / "hostile.html"
    page = render_comparison_page(compare(built([MM]).load(), hostile.load()))
    path.write_bytes(page)
    assert b"<img" not in page
    with visited(browser, path) as visit:
        assert visit.complaints == []
        assert visit.page.locator("img").count() == 0


def test_a_baseline_has_no_step_to_draw(tmp_path: Path) -> None:
    path = tmp_path / "kept.parquet"
    path.write_bytes(baseline_bytes(side_of(built([MM]).load())))
    found = compare(f"baseline:{path}", f"baseline:{path}")
    assert found.strips == (None, None)
    assert b"A baseline file, or a recording without work, has no step" in render_comparison_page(found)
