"""The same trace written differently gets the same findings: shuffled, with shifted clocks, renumbered."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.builder import load_bytes
from tests.recorded import TRACES, name_of
from traceanalyzer import diagnose, load
from traceanalyzer.read.text.source import Source
from traceanalyzer.render.data.json import render_json

Document = dict[str, Any]


def _document(path: Path) -> Document:
    return dict(orjson.loads(b"".join(Source(path).blocks())))


def _said(document: Document) -> list[tuple[Any, ...]]:
    trace = load_bytes(orjson.dumps(document))
    origin = trace.meta.origin_ns
    return [
        (
            f.rule,
            f.cause,
            f.severity,
            f.confidence,
            f.message,
            f.count,
            f.cost_ns,
            f.device,
            f.stream,
            f.step,
            f.start_ns - origin,
            f.end_ns - origin,
            len(f.event_ids),
        )
        for f in diagnose(trace).findings
    ]


@pytest.fixture(params=TRACES, ids=name_of)
def document(request: pytest.FixtureRequest) -> Document:
    return _document(request.param)


def test_shuffled_events_give_the_same_findings(document: Document) -> None:
    before = _said(document)
    random.Random(7).shuffle(document["traceEvents"])
    assert _said(document) == before


def test_shifted_clocks_give_the_same_findings(document: Document) -> None:
    before = _said(document)
    for event in document["traceEvents"]:
        event["ts"] += 4_096  # a power of two: the double still holds every nanosecond
    assert _said(document) == before


def test_renumbered_processes_threads_and_ids_give_the_same_findings(document: Document) -> None:
    before = _said(document)
    for event in document["traceEvents"]:
        on_cpu = event.get("cat") in (
            "cpu_op",
            "user_annotation",
            "cuda_runtime",
            "cuda_driver",
            "python_function",
        )
        for key in ("pid", "tid") if on_cpu else ():
            event[key] += 40_000
        args = event.get("args", {})
        for key in ("External id", "correlation"):
            if key in args:
                args[key] += 1_000_000
    assert _said(document) == before


def test_the_same_trace_gives_the_same_bytes() -> None:
    first, second = (render_json(diagnose(load(TRACES[0]))) for _ in range(2))
    assert first == second
