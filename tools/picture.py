"""Make docs/images/report.png, README's picture of `traceanalyzer report`: one fixture's page as a browser shows it.

python tools/picture.py            # needs chromium and the extra `test`
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from tests.support.browser import executable

REPOSITORY = Path(__file__).resolve().parent.parent
PICTURED = Path("fixtures/exposed-copy/bad.json.gz")
PICTURE = REPOSITORY / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1120, 1130  # pixels: verdict, step, and the first finding with its timeline
LARGEST = 200_000  # bytes


def page() -> bytes:
    """The fixture's page; the file is named as README names it."""
    from traceanalyzer.read.load import load
    from traceanalyzer.render.html.document import render_html
    from traceanalyzer.render.html.page_data import page_of
    from traceanalyzer.report.diagnosis import analyses_of, report_of

    with chdir(REPOSITORY):
        analyses = analyses_of(load(PICTURED))
    return render_html(page_of(report_of(analyses), analyses))


def main() -> int:
    """Write the picture; 1 where it is larger than a README should load."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder, "report.html")
        path.write_bytes(page())
        browser = driver.chromium.launch(executable_path=executable(), args=["--no-sandbox", "--disable-gpu"])
        window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        window.goto(path.as_uri())
        PICTURE.parent.mkdir(exist_ok=True)
        window.screenshot(path=PICTURE)
        browser.close()
    print(f"{PICTURE.relative_to(REPOSITORY)}: {PICTURE.stat().st_size:,} bytes")
    return int(PICTURE.stat().st_size > LARGEST)


if __name__ == "__main__":
    sys.exit(main())
