"""A real browser for tests: Debian's chromium, driven by Playwright; nothing is downloaded, nothing leaves.

Without one the tests are skipped. `TRACEANALYZER_BROWSER=required` makes that a failure, as `.ci/run` does;
any other value is the path of the browser.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_ASKED = os.environ.get("TRACEANALYZER_BROWSER", "")
_REQUIRED = _ASKED == "required"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--js-flags=--liftoff-only",  # WebAssembly is compiled once: it runs too briefly for a second time to pay
]


def executable() -> str | None:
    """The browser's path, None where there is none."""
    named = None if _REQUIRED or not _ASKED else _ASKED
    return named or next((path for path in map(shutil.which, _NAMES) if path), None)


def missing(what: str) -> None:
    """Skips, or fails where a browser is required."""
    why = f"{what}: the page is not tried in a browser (apt-get install chromium; make .venv/tested)"
    if _REQUIRED:
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def started() -> Iterator[Any]:
    """A browser; skips or fails where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no playwright")
    path = executable()
    if path is None:
        missing("no chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            _FREE.clear()
            browser.close()


@dataclass
class Visit:
    """A page that was opened from a file: what it asked for, and what it complained of."""

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def visited(browser: Any, path: Path, *, width: int = 1280, scheme: str = "light", **options: Any) -> Iterator[Visit]:
    """The file in a window of its own; whatever it asks of a network is refused and noted.

    Windows are used again: to open one takes ten times as long as to open a page in it.
    """
    free = _FREE.setdefault((browser, repr(options)), [])
    page = free.pop() if free else _window(browser, options)
    visit = Visit(page)
    heard: dict[str, Callable[[Any], None]] = {
        "request": lambda request: visit.asked.append(request.url),
        "console": lambda said: visit.complaints.append(f"{said.type}: {said.text}"),
        "pageerror": lambda error: visit.complaints.append(str(error)),
    }
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media="screen", color_scheme=scheme)
    for event, hears in heard.items():
        page.on(event, hears)
    try:
        page.goto(path.as_uri())
        yield visit
    finally:
        for event, hears in heard.items():
            page.remove_listener(event, hears)
        page.context.clear_permissions()
        page.mouse.move(0, 0)
        page.goto("about:blank")
        free.append(page)


_FREE: dict[tuple[Any, str], list[Any]] = {}


def _window(browser: Any, options: dict[str, Any]) -> Any:
    context = browser.new_context(**options)
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    return context.new_page()


def ready(visit: Visit) -> None:
    """Until all that is drawn at first is there; the page's policy forbids to ask it by a script's text."""
    visit.page.locator("html[data-ready=yes]").wait_for(state="attached")


def violations(visit: Visit, *rules: str) -> list[tuple[str, str]]:
    """All that axe-core holds against the page, however slight, (rule, HTML): by these of its rules, or by all."""
    from axe_playwright_python.sync_playwright import Axe

    only = {"runOnly": {"type": "rule", "values": [*rules]}} if rules else {}
    options = {"resultTypes": ["violations"], **only}
    found = Axe().run(visit.page, options=options).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found]


def panel(visit: Visit, expected: str) -> str:
    """The timeline's panel, once it says so."""
    found = visit.page.locator(".tl:visible .tl-panel", has_text=expected)
    found.wait_for()
    return str(found.inner_text())
