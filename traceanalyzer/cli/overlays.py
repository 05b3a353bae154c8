"""What `annotate` and `open` draw: the report of traces, one overlay each, and copies of the files, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer.model.errors import BadOption, UnreadableTrace
from traceanalyzer.read.text.envelope import Envelope
from traceanalyzer.read.text.source import STDIN, Source

if TYPE_CHECKING:
    from traceanalyzer.model.overlay import Overlay
    from traceanalyzer.model.report import Report


def overlays_of_files(
    traces: Sequence[Path], window: tuple[int | None, int | None] | None = None
) -> tuple[Report, tuple[Overlay, ...]]:
    """Read and analyse."""
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


_MOST_HEAD_BYTES = 64 << 20  # of metadata before the events; some jobs write megabytes of it


def refuse_standard_input(paths: Sequence[Path]) -> None:
    """Raises BadOption: what is to be copied can be read only once."""
    remedy = "Save it to a file first, or write the overlay alone with -o FILE.pftrace."
    for path in paths:
        if str(path) == STDIN or (path.exists() and not path.is_file() and not path.is_dir()):
            raise BadOption("can be read only once and is not copied", where=Source(path).name, remedy=remedy)


def split_at_events(source: str) -> tuple[bytes, Iterator[bytes]]:
    """(the trace up to where its first event may begin, the rest)."""
    blocks, envelope, buffer = Source(source).blocks(), Envelope(source), bytearray()
    for block in blocks:
        buffer += block
        start = envelope.find_events(buffer)
        if start is not None:
            return bytes(buffer[:start]), chain([bytes(buffer[start:])], blocks)
        if len(buffer) > _MOST_HEAD_BYTES:
            break
    raise UnreadableTrace("has no events that others could be put among", where=source)
