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
        BadOption: ranks were merged into one file, beside which no track of one rank could be drawn.
    """
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.model.errors import BadOption
    from traceanalyzer.model.trace import Job
    from traceanalyzer.report.diagnosis import analyses_of, report_of
    from traceanalyzer.report.overlay.build import overlays_of

    loaded = load_all(traces)
    if isinstance(loaded, Job) and len({trace.meta.source for trace in loaded.values()}) < len(loaded):
        remedy = "Pass each rank's own file, or their folder."
        raise BadOption("a merged file cannot be drawn beside its ranks' findings", remedy=remedy)
    analysed = analyses_of(loaded, window)
    report = report_of(analysed)
    return report, overlays_of(report, analysed)
