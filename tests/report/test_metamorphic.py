"""Recorded traces written differently have the same findings: order, clock and ids say nothing of a program."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.paths import SHARED, shared_names
from tests.support.trace_builder import load_bytes
from tests.support.trace_changes import Events, renumber, shift, shuffle, whole_microseconds
from traceanalyzer import diagnose
from traceanalyzer.read.text.source import Source
from traceanalyzer.render.data.json import render_json

_LARGEST_BYTES = 400_000
_TRACES, _QUICK = 25, 3
# What a shift, a shuffle or other ids do change.
_TIMES = {"start_ns", "end_ns", "window_ns"}
_PLACES = _TIMES | {"event_ids", "thread", "stream", "source", "occurrences", "events"}


def _shared() -> list[str]:
    small = [n for n in shared_names() if 20_000 < (SHARED / f"{n}.json.gz").stat().st_size < _LARGEST_BYTES]
    return small[:: max(len(small) // _TRACES, 1)][:_TRACES]


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        left = {key: entry for key, entry in value.items() if key not in _PLACES and "event" not in key}
        return {key: _without_places(entry) for key, entry in left.items() if key != "origin_ns"}
    return [_without_places(entry) for entry in value] if isinstance(value, list) else value


@cache
def _content(path: Path) -> bytes:
    return b"".join(Source(path).blocks())


@cache
def reported(path: Path, *changes: Callable[[Events], None]) -> dict[str, Any]:
    """Findings, statuses of rules, the step and the accounting of a trace after these changes, without places."""
    document = orjson.loads(_content(path))
    document = document if isinstance(document, dict) else {"traceEvents": document}
    for change in changes:
        change(document["traceEvents"])
    report = orjson.loads(render_json(diagnose(load_bytes(orjson.dumps(document)))))
    kept = {key: report[key] for key in ("findings", "accounting")}
    statuses = {outcome["rule"]: outcome["status"] for outcome in report["outcomes"]}
    return _without_places(kept | {"statuses": statuses, "step": report["traces"][0]["step"]})  # type: ignore[no-any-return]


PATHS = [
    pytest.param(SHARED / f"{name}.json.gz", id=name, marks=[pytest.mark.slow] * (at >= _QUICK))
    for at, name in enumerate(_shared())
]


@pytest.mark.no_cover
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("change", [shuffle, shift, renumber], ids=lambda change: change.__name__)
def test_order_clock_and_ids_change_no_finding(path: Path, change: Callable[[Events], None]) -> None:
    assert reported(path, change) == reported(path)


@pytest.mark.no_cover
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("change", [shuffle, list.reverse], ids=["shuffle", "reverse"])
def test_order_decides_no_tie_of_whole_microseconds(path: Path, change: Callable[[Events], None]) -> None:
    assert reported(path, whole_microseconds, change) == reported(path, whole_microseconds)
