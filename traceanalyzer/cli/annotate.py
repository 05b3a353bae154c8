"""`traceanalyzer annotate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.options import PATH, Window, file_option, force_option, window_option
from traceanalyzer.cli.output import check_outputs, written
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, UnreadableTrace

if TYPE_CHECKING:
    from traceanalyzer.model.overlay import Overlay
    from traceanalyzer.model.report import Report

MOST_MERGED_BYTES = 256 << 20  # of JSON: Perfetto's viewer takes 555 MB of memory for 270 MB of it

_REMEDY = "Name it .pftrace for the overlay alone, .zip or .tar for trace and overlay, .json or .json.gz for one JSON."
Writer = Callable[[Sequence["Overlay"], BinaryIO], None]
_MOST_HEAD_BYTES = 64 << 20  # of metadata before the events; some jobs write megabytes of it


@click.command(short_help="Findings as tracks for Perfetto, beside the trace.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
@file_option("-o", "--output", text="Output file; its ending sets the format.", required=True)
@window_option
@force_option
def annotate(traces: tuple[Path, ...], output: Path, window: Window | None, force: bool) -> None:
    """Write the findings of TRACE as tracks that Perfetto draws beside it; the trace itself stays as it is.

    \b
    FILE may end in
      .pftrace          the overlay alone; open it together with the trace
      .zip, .tar        trace and overlay in one archive, for Perfetto from v58 on
      .json, .json.gz   trace and overlay in one JSON, up to 256 MB, any version

    Several TRACEs, or a folder, are the ranks of one job: they go into one archive, on one timeline. Where a rank's
    clock drifts, the copy of its trace has the times of a clock that does not.

    \b
    Examples:
      traceanalyzer annotate trace.json.gz -o findings.pftrace
      traceanalyzer annotate trace.json.gz -o trace.zip
      traceanalyzer annotate rank0.json rank1.json -o job.zip
    """
    write = next((write for ending, write in _WRITERS.items() if output.name.lower().endswith(ending)), None)
    if write is None:
        raise BadOption("its ending sets no known format", where=output, remedy=_REMEDY)
    check_outputs([output], inputs=traces, force=force)
    if write is not _overlay_alone:
        refuse_standard_input(traces)
    _, overlays = overlays_of_files(traces, window)
    check_outputs([output], inputs=[Path(overlay.source) for overlay in overlays], force=force)
    with written(output) as stream:
        write(overlays, stream)
    slices = sum(len(track) for overlay in overlays for track in overlay.slices)
    shown = "open it at ui.perfetto.dev and expand the group traceanalyzer"
    emit(f"{output}: {slices:,} slices; {shown}\n".encode(errors="backslashreplace"))


def _overlay_alone(overlays: Sequence[Overlay], stream: BinaryIO) -> None:
    from traceanalyzer.render.perfetto.track_events import to_track_events

    for part in to_track_events(_only(overlays)):
        stream.write(part)


def _only(overlays: Sequence[Overlay]) -> Overlay:
    if len(overlays) > 1:
        problem = f"{len(overlays)} traces do not go into one file of this kind"
        raise BadOption(problem, remedy="Write an archive with -o FILE.zip or -o FILE.tar.")
    return overlays[0]


def _archive(overlays: Sequence[Overlay], stream: BinaryIO, *, tar: bool) -> None:
    from traceanalyzer.render.perfetto.archive import TooLarge, write_tar, write_zip

    try:
        (write_tar if tar else write_zip)(overlays, stream)
    except TooLarge:
        remedy = "Write a tar archive with -o FILE.tar."
        raise TraceAnalyzerError("a trace of 2 GiB or more does not go into a zip", remedy=remedy) from None


def _merged(overlays: Sequence[Overlay], stream: BinaryIO) -> None:
    from traceanalyzer.read.text.source import Source
    from traceanalyzer.render.perfetto.chrome import merged, to_chrome_events

    overlay = _only(overlays)
    if (Source(overlay.source).plain_bytes() or 0) > MOST_MERGED_BYTES:
        problem = f"more than {MOST_MERGED_BYTES >> 20} MB of JSON are too much for one file"
        raise BadOption(problem, where=overlay.source, remedy="Write an archive with -o FILE.zip or -o FILE.tar.")
    head, rest = split_at_events(overlay.source)
    for part in merged(head, to_chrome_events(overlay), rest):
        stream.write(part)


def _merged_and_packed(overlays: Sequence[Overlay], stream: BinaryIO) -> None:
    import gzip

    with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as packed:
        _merged(overlays, packed)  # type: ignore[arg-type]


_WRITERS: Mapping[str, Writer] = {
    ".pftrace": _overlay_alone,
    ".perfetto-trace": _overlay_alone,
    ".zip": partial(_archive, tar=False),
    ".tar": partial(_archive, tar=True),
    ".json": _merged,
    ".json.gz": _merged_and_packed,
}


def overlays_of_files(traces: Sequence[Path], window: Window | None = None) -> tuple[Report, tuple[Overlay, ...]]:
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.model.trace import Job
    from traceanalyzer.render.perfetto.overlay import overlays_of
    from traceanalyzer.report.diagnosis import analyses_of, report_of

    loaded = load_all(traces)
    if isinstance(loaded, Job) and len({trace.meta.source for trace in loaded.values()}) < len(loaded):
        remedy = "Pass each rank's own file, or their folder."
        raise BadOption("a merged file cannot be drawn beside its ranks' findings", remedy=remedy)
    analysed = analyses_of(loaded, window)
    report = report_of(analysed)
    return report, overlays_of(report, analysed)


def refuse_standard_input(paths: Sequence[Path]) -> None:
    """Raises BadOption: what is to be copied can be read only once."""
    from traceanalyzer.read.text.source import STDIN, Source

    remedy = "Save it to a file first, or write the overlay alone with -o FILE.pftrace."
    for path in paths:
        if str(path) == STDIN or (path.exists() and not path.is_file() and not path.is_dir()):
            raise BadOption("can be read only once and is not copied", where=Source(path).name, remedy=remedy)


def split_at_events(source: str) -> tuple[bytes, Iterator[bytes]]:
    """(the trace up to where its first event may begin, the rest)."""
    from traceanalyzer.read.text.envelope import Envelope
    from traceanalyzer.read.text.source import Source

    blocks, envelope, buffer = Source(source).blocks(), Envelope(source), bytearray()
    for block in blocks:
        buffer += block
        start = envelope.find_events(buffer)
        if start is not None:
            return bytes(buffer[:start]), chain([bytes(buffer[start:])], blocks)
        if len(buffer) > _MOST_HEAD_BYTES:
            break
    raise UnreadableTrace("has no events that others could be put among", where=source)
