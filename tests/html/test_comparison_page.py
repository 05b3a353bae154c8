"""The page of a comparison: in a browser without message or request, its numbers those of the JSON, names escaped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.programs import ADDED, MM, built
from tests.support.browser import Visit, violations, visited
from tests.support.fixtures import FIXTURES
from traceanalyzer import Comparison, compare
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


def test_it_has_no_fault_for_readers(opened: Visit) -> None:
    assert violations(opened) == []


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
