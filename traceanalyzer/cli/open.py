"""`traceanalyzer open`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.cli.options import PATH, window_option
from traceanalyzer.cli.output import tell
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.offsets import parse_window

if TYPE_CHECKING:
    from traceanalyzer.model.overlay import Overlay
    from traceanalyzer.model.report import Report

WAIT_S = 300  # for a person to open an address by hand
_BY_HAND = (
    "Pass --print-url and open the address yourself, through `ssh -L 9001:127.0.0.1:9001` where the browser is on "
    "another machine; or write a file with `traceanalyzer annotate` and open that in https://ui.perfetto.dev."
)
_AT_ONCE = (
    "Run it again, and open the address at once, through `ssh -L 9001:127.0.0.1:9001` from another machine."
)


@click.command(name="open", short_help="Perfetto in the browser, at a finding.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
@click.option(
    "--finding",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Which to show; by default the first.",
)
@window_option
@click.option(
    "--print-url", is_flag=True, help="Print the address, and wait 5 minutes for somebody to open it."
)
def open_(traces: tuple[Path, ...], number: int | None, window: str | None, print_url: bool) -> None:
    """Open TRACE with its findings in Perfetto's viewer, at a finding.

    The viewer runs in your browser and keeps the trace there. It gets it from this program, once, from 127.0.0.1; then
    this ends.

    \b
    Examples:
      traceanalyzer open trace.json.gz
      traceanalyzer open trace.json.gz --finding 2
      traceanalyzer open trace.json.gz --print-url
    """
    import tempfile

    from traceanalyzer.cli.originals import refuse_standard_input
    from traceanalyzer.cli.overlays import overlays_of_files
    from traceanalyzer.cli.serving import OneFile
    from traceanalyzer.render.perfetto.address import ORIGIN

    asked = parse_window(window) if window else None
    refuse_standard_input(traces)
    _check_files(traces)
    if not print_url:
        _check_browser()
    with OneFile(ORIGIN) as server, tempfile.TemporaryDirectory() as folder:
        report, overlays = overlays_of_files(traces, asked)
        address = partial(_address, report, overlays, _chosen(report, number))
        _show(address(server.give(_packed(overlays, Path(folder)))), print_url)
        if not server.served.wait(WAIT_S):
            raise TraceAnalyzerError(
                f"nobody fetched the trace within {WAIT_S // 60} minutes",
                remedy=_AT_ONCE if print_url else _BY_HAND,
            )


def _check_files(traces: Sequence[Path]) -> None:
    """
    Raises:
        UnreadableTrace: one is not there, whatever the browser.
    """
    for trace in traces:
        if not trace.exists():
            raise UnreadableTrace("no such file", where=trace, remedy="Check the path.")


def _check_browser() -> None:
    """
    Raises:
        TraceAnalyzerError: there is none.
    """
    import webbrowser

    try:
        webbrowser.get()
    except webbrowser.Error:
        raise TraceAnalyzerError("no browser was found here", remedy=_BY_HAND) from None


def _chosen(report: Report, number: int | None) -> int | None:
    """Which finding is shown; none where there is none.

    Raises:
        BadOption: the report has fewer.
    """
    count = len(report.findings)
    if number is not None and number > count:
        found = f"The report has {count}." if count else "The report has none."
        raise BadOption(f"--finding {number}: there is no such finding", remedy=found)
    return number or (1 if count else None)


def _packed(overlays: Sequence[Overlay], folder: Path) -> Path:
    """The archive that is served: a zip, and a tar where a trace is too large for that."""
    from traceanalyzer.cli.originals import blocks_of
    from traceanalyzer.render.perfetto.archive import Member, TooLarge, write_tar, write_zip

    members = [Member(overlay, partial(blocks_of, overlay.source)) for overlay in overlays]
    for name, write in (("trace.zip", write_zip), ("trace.tar", write_tar)):
        try:
            with (folder / name).open("wb") as stream:
                write(members, stream)
        except TooLarge:
            (folder / name).unlink()
        else:
            return folder / name
    raise AssertionError("a tar holds any trace")


def _address(report: Report, overlays: Sequence[Overlay], number: int | None, file: str) -> str:
    from traceanalyzer.render.perfetto.address import View, viewer_address
    from traceanalyzer.render.perfetto.archive import offset_ns
    from traceanalyzer.render.perfetto.interned import shown_name
    from traceanalyzer.report.overlay.findings import numbered, track_name

    if number is None:
        return viewer_address(file)
    one = numbered(report)[number - 1]
    trace, overlay = next(
        (trace, overlay)
        for trace, overlay in zip(report.traces, overlays, strict=True)
        if trace.rank == one.finding.rank
    )
    pins = [track.name for track in overlay.slices if track.name == track_name(one.finding.severity)]
    pins += [track.name for track in overlay.slices if track.name.startswith("Idle")]
    tell(f"finding {shown_name(one.title)}")
    within = (trace.window.start_ns, trace.window.end_ns)
    return viewer_address(file, View(one.finding, one.title, within, pins, offset_ns(overlays, overlay)))


def _show(address: str, print_url: bool) -> None:
    """
    Raises:
        TraceAnalyzerError: no browser would open it.
    """
    import webbrowser

    if print_url:
        tell("waits until a browser at this address has fetched the trace; Ctrl-C ends")
        click.echo(address)
    elif not webbrowser.open(address):
        raise TraceAnalyzerError("the browser could not be opened", remedy=_BY_HAND)
