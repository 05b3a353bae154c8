"""What `annotate` and `open` draw: the report of some traces, and one overlay each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceanalyzer.model.overlay import Overlay
    from traceanalyzer.model.report import Report


def overlays_of_files(
    traces: Sequence[Path], window: tuple[int | None, int | None] | None = None
) -> tuple[Report, tuple[Overlay, ...]]:
    """Read and analyse.

    Raises:
        TraceAnalyzerError: as `load_all` and `analyses_of`.
    """
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.report.diagnosis import analyses_of, report_of
    from traceanalyzer.report.overlay.build import overlays_of

    analysed = analyses_of(load_all(traces), window)
    report = report_of(analysed)
    return report, overlays_of(report, analysed)
