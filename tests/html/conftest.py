"""One browser for all tests of pages, and a window of its own for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import rendered
from tests.support.browser import Visit, ready, started, visited


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium; the test is skipped where there is none."""
    with started() as chromium:
        yield chromium


@pytest.fixture
def opened(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Visit]:
    """The page of `ONE`, the trace that the test's module names."""
    path = tmp_path / "report.html"
    path.write_bytes(rendered(request.module.ONE))
    with visited(browser, path) as visit:
        ready(visit)
        yield visit
