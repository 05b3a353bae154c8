"""Recorded traces compared with themselves, written as they are and differently: identical, and the sums hold."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.comparison.programs import sums
from tests.support.fixtures import SHOWING, name_of
from tests.support.trace_builder import load_bytes
from tests.support.trace_changes import all_at_once
from tests.support.trace_selection import ALL
from traceanalyzer import Trace, compare
from traceanalyzer.comparison.result import Word
from traceanalyzer.read.text.source import Source

GIVEN = SHOWING if ALL else SHOWING[::6]


def rewritten(path: Path) -> Trace:
    """The trace with its events in another order, a later clock, and other ids of processes, threads and launches."""
    document = orjson.loads(b"".join(Source(path).blocks()))
    document = document if isinstance(document, dict) else {"traceEvents": document}
    all_at_once(document["traceEvents"])
    return load_bytes(orjson.dumps(document))


@pytest.mark.no_cover
@pytest.mark.parametrize("path", GIVEN, ids=name_of)
def test_a_recording_written_differently_is_identical(path: Path) -> None:
    found = compare(path, rewritten(path))
    assert found.verdict.word is Word.IDENTICAL
    assert found.axes.device is None or found.axes.device.real_ns == 0
    assert {row.word for row in found.rows} <= {Word.SAME}
    assert found.waterfall is None or sums(found)
