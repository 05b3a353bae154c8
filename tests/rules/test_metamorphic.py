"""The same trace written differently gets the same findings: shuffled, with shifted clocks, renumbered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.cached_reports import reported
from tests.support.fixtures import SHOWING, TRACES, name_of
from tests.support.trace_builder import load_bytes
from tests.support.trace_changes import Events, all_at_once, renumber, shift, shuffle
from tests.support.trace_selection import ALL
from traceanalyzer import Report, diagnose, load
from traceanalyzer.read.text.source import Source
from traceanalyzer.render.data.json import render_json

CHANGES: list[Callable[[Events], None]] = [all_at_once, *([shuffle, shift, renumber] if ALL else [])]


def said(report: Report) -> list[tuple[Any, ...]]:
    """The findings in the report's order, with times since the trace's first event, without event ids."""
    origin = report.traces[0].meta.origin_ns
    return [
        (
            *(f.rule, f.cause, f.severity, f.confidence, f.message, f.count, f.cost_ns),
            *(f.device, f.stream, f.step, f.start_ns - origin, f.end_ns - origin, len(f.event_ids)),
        )
        for f in report.findings
    ]


@pytest.mark.no_cover  # what it runs, the reports of the same traces run
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("path", SHOWING, ids=name_of)
def test_what_means_nothing_changes_no_finding(path: Path, change: Callable[[Events], None]) -> None:
    document = orjson.loads(b"".join(Source(path).blocks()))
    change(document["traceEvents"])
    assert said(diagnose(load_bytes(orjson.dumps(document)))) == said(reported(path))


def test_the_same_trace_gives_the_same_bytes() -> None:
    first, second = (render_json(diagnose(load(TRACES[0]))) for _ in range(2))
    assert first == second
