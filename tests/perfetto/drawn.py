"""Overlays of traces on disk."""

from __future__ import annotations

from pathlib import Path

from tests.perfetto.reader import Drawing, read
from tests.support.cached_reports import analysed, reported
from traceanalyzer.model.overlay import Overlay
from traceanalyzer.render.perfetto.overlay import overlays_of
from traceanalyzer.render.perfetto.track_events import to_track_events


def overlay_of(path: Path) -> Overlay:
    """What is drawn beside the trace."""
    analysis = analysed(path)
    (overlay,) = overlays_of(reported(path), [(analysis.trace.meta.rank, analysis)])
    return overlay


def drawing_of(path: Path) -> Drawing:
    """The same, written and read back."""
    return read(b"".join(to_track_events(overlay_of(path))))
