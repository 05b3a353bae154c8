"""What holds of every page, in a real browser: small, quiet, soon in use, as wide as the window, and true.

Each page is opened once; `TRACEANALYZER_ALL=1` tries all shared traces and jobs.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import LOOSE, QUOTED, documents, page, wrong
from tests.support.browser import Visit, ready, violations, visited
from tests.support.cached_reports import analysed, loaded
from tests.support.paths import SHARED
from tests.support.trace_selection import ALL
from traceanalyzer.render.html.document import MOST_BYTES, render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.report.diagnosis import analyses_of, report_of

pytestmark = pytest.mark.xdist_group("browser")

MOST_CPU_S = 2.0  # of the page's main thread, from opening to first use
WIDTHS = (1280, 800, 390)
SOME = ("public/hta_cpu_only", "real/cnn_lab.eager")
SOME_JOBS = ("ranks/imbalance.bad",)
_RANK = re.compile(r"^(.*?)[./]?rank(\d+)\.json\.gz$")
_KEPT = os.environ.get("TRACEANALYZER_PAGES")  # a folder: pages stay there to be looked at


# At 390 pixels: tables that are wider than the window, but for ranks x steps.
SIDEWAYS = """() => [...document.querySelectorAll(".scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1 && !box.querySelector(".heat"))
  .map((box) => [box.getAttribute("aria-label"), box.scrollWidth])"""


def jobs_of(folder: Path) -> Mapping[str, Mapping[int, Path]]:
    """Name -> rank -> file, of jobs of which more than one rank is there."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.rglob("*.json.gz")):
        named = _RANK.match(str(path.relative_to(folder)))
        if named:
            found.setdefault(named[1], {})[int(named[2])] = path
    return {name: ranks for name, ranks in found.items() if len(ranks) > 1}


JOBS = {name: ranks for name, ranks in jobs_of(SHARED).items() if ALL or name in SOME_JOBS}


def cpu_s(visit: Visit) -> float:
    """Seconds that the page's main thread computes from opening to first use; it is opened once more for that."""
    session = visit.page.context.new_cdp_session(visit.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    visit.page.reload()
    ready(visit)
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["TaskDuration"])


def check(browser: Any, path: Path, said: Mapping[str, Any]) -> None:
    """The page in the file, and the documents that it quotes; all that is wrong is told at once."""
    with visited(browser, path) as visit:
        took = cpu_s(visit)
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")  # all is drawn and open, as on paper
        faults: list[object] = []
        for scheme in ("light", "dark"):
            visit.page.emulate_media(color_scheme=scheme)
            for width in WIDTHS:
                visit.page.set_viewport_size({"width": width, "height": 900})
                shown = visit.page.evaluate("document.documentElement.scrollWidth")
                faults += [(scheme, width, shown)] * (shown > width)
        faults += visit.page.evaluate(SIDEWAYS)
        faults += violations(visit)
        faults += wrong(visit.page.evaluate(QUOTED), said) + visit.page.evaluate(LOOSE) + visit.complaints
        faults += [("size", path.stat().st_size)] * (path.stat().st_size > MOST_BYTES)
        faults += [("seconds", took)] * (took > MOST_CPU_S)
        assert set(visit.asked) == {path.as_uri()}
    assert faults == []


@pytest.mark.of_shared(wanted=lambda name: ALL or name in SOME)
def test_pages_of_traces(browser: Any, shared_trace: Path, tmp_path: Path) -> None:
    made = page(shared_trace)
    path = written(render_html(made), f"{shared_trace.parent.name}-{shared_trace.name}", tmp_path)
    check(browser, path, documents(made, [analysed(shared_trace)]))


@pytest.mark.parametrize("name", JOBS)
def test_pages_of_jobs(browser: Any, name: str, tmp_path: Path) -> None:
    analyses = analyses_of({rank: loaded(path) for rank, path in JOBS[name].items()})
    made = page_of(report_of(analyses), analyses)
    path = written(render_html(made), name.replace("/", "-"), tmp_path)
    check(browser, path, documents(made, [one for _, one in analyses]))


def written(html: bytes, name: str, folder: Path) -> Path:
    """Where the page is."""
    path = Path(_KEPT or folder) / f"{name.removesuffix('.json.gz')}.html"
    path.write_bytes(html)
    return path
