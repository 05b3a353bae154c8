"""Overlays of traces on disk and of tracks made by hand; archives of them, and what is in these."""

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.perfetto.reader import Drawing, read
from tests.support.cached_reports import analysed, reported
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.overlay import Counter, Overlay, Slices
from traceanalyzer.render.perfetto.archive import write_tar, write_zip
from traceanalyzer.render.perfetto.chrome import to_chrome_events
from traceanalyzer.render.perfetto.overlay import overlays_of
from traceanalyzer.render.perfetto.track_events import shown_name, to_track_events
from traceanalyzer.report.diagnosis import analyses_of, report_of


def overlay_of(path: Path) -> Overlay:
    """What is drawn beside the trace."""
    analysis = analysed(path)
    (overlay,) = overlays_of(reported(path), [(analysis.trace.meta.rank, analysis)])
    return overlay


def drawing_of(path: Path) -> Drawing:
    """The same, written and read back."""
    return read(b"".join(to_track_events(overlay_of(path))))


TRACE = b'{"traceEvents": [\n' + b" " * 100_000 + b"]}"
BASE = 1790857026000000000
EVIL = ["<script>alert(1)</script>", "\x1b[31mred\u202egnirts\x07\u2028\x9b2J", 'quo"ted\\ \0 null', "k" * 100_000]


def drawn(*slices: Slices, counters: tuple[Counter, ...] = ()) -> Overlay:
    """An overlay with these tracks."""
    return Overlay(None, "trace.json", 0, slices, counters)


def track(spans: list[tuple[int, int]], name: str = "track", text: str = "slice", **more: object) -> Slices:
    """A track with slices of one kind."""
    start, end = np.array(spans, np.int64).reshape(-1, 2).T
    kind = np.zeros(len(start), np.int64)
    return Slices(name, start, end, kind, [text], [{}], **more)  # type: ignore[arg-type]


def written(overlay: Overlay) -> bytes:
    """The whole file."""
    return b"".join(to_track_events(overlay))


def overlay(rank: int | None = None, source: str = "runs/trace.json.gz", base: int = BASE) -> Overlay:
    """One slice."""
    return Overlay(rank, source, base, (track([(1, 2)]),), ())


def in_blocks(_: Overlay, content: bytes = TRACE) -> Iterator[bytes]:
    """The trace of any overlay."""
    return (content[at : at + 4_096] for at in range(0, len(content), 4_096))


def unpacked(overlays: Sequence[Overlay], form: str, content: bytes = TRACE) -> dict[str, bytes]:
    """The archive's files, in order."""
    trace = partial(in_blocks, content=content)
    stream = io.BytesIO()
    if form == "zip":
        write_zip(overlays, stream, trace)
        with zipfile.ZipFile(stream) as packed:
            return {name: packed.read(name) for name in packed.namelist()}
    write_tar(overlays, stream, trace)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tape:
        return {entry.name: tape.extractfile(entry).read() for entry in tape}  # type: ignore[union-attr]


def events_of(one: Overlay) -> list[dict[str, Any]]:
    return [*map(json.loads, to_chrome_events(one))]


def evil_overlay() -> tuple[Overlay, list[str]]:
    """Of a trace whose ops, kernels and calls have such names; and these as they are shown."""
    made = TraceBuilder()
    for at, name in enumerate(EVIL, 1):
        made.op(name, at * 1_000_000, 500_000)
        made.launched((at * 1_000_000 + 1_000, 5_000), (at * 1_000_000 + 20_000, 100_000), at, name=name)
    made.step(0, 0, 10 * 1_000_000)
    analysed_ = analyses_of(made.load())
    (overlay,) = overlays_of(report_of(analysed_), analysed_)
    return overlay, [shown_name(name) for name in EVIL]
