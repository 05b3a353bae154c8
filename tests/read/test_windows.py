"""The result does not depend on how the file is read: window, layout, compression, pipe."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read.same import assert_same
from tests.read.samples import everything
from tests.support.cached_reports import loaded
from tests.support.exporter_layouts import Layout
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import load_bytes
from tests.support.trace_selection import one_of_each_writer
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load, load_file

CONTENT = everything().to_json()
AROUND = ("source", "envelope", "base_time_ns", "devices", "rank", "world_size", "capabilities", "extra", "dialect")


@examples(120)
@given(st.integers(1, len(CONTENT) + 10), st.sampled_from(["kineto", "minified"]))
def test_any_window_gives_the_same(batch_bytes: int, layout: Layout) -> None:
    content = everything().to_json(layout)
    assert_same(load_bytes(content, batch_bytes=batch_bytes), load_bytes(content))


def test_all_layouts_hold_the_same_events() -> None:
    kineto, minified, array = (everything().load(layout) for layout in ("kineto", "minified", "array"))
    assert_same(kineto, minified, but=("source", "extra", "dialect"))
    assert_same(kineto, array, but=AROUND)
    assert (kineto.meta.envelope, array.meta.envelope) == ("object", "array")


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_a_large_window_gives_the_same_on_real_traces(shared_trace: Path) -> None:
    assert_same(loaded(shared_trace), load_file(shared_trace, batch_bytes=1 << 40))


def in_members(content: bytes) -> bytes:
    """As several gzip files behind one another, padded as devices do."""
    return gzip.compress(content[:700]) + gzip.compress(content[700:]) + b"\0" * 64


@pytest.mark.parametrize("pack", [bytes, gzip.compress, in_members])
def test_standard_input(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(pack(CONTENT)))
    monkeypatch.setattr(sys, "stdin", stdin)
    trace = load("-")
    assert isinstance(trace, Trace)
    assert trace.meta.source == "<standard input>"
    assert_same(trace, load_bytes(CONTENT))
    assert not stdin.closed


@pytest.mark.parametrize("batch_bytes", [1, 300, 1 << 20])
def test_threads_that_are_names_are_numbered_by_first_row(batch_bytes: int) -> None:
    rows = [("user_annotation", "d"), ("cpu_op", "c"), ("user_annotation", "b"), ("cpu_op", "a")]
    events = [
        {"ph": "X", "cat": cat, "name": "n", "pid": 1, "tid": tid, "ts": at, "dur": 1, "args": {}}
        for at, (cat, tid) in enumerate(rows)
    ]
    trace = load_bytes(json.dumps({"traceEvents": events}).encode(), batch_bytes=batch_bytes)
    assert trace.cpu["tid"].tolist() == [-1000, -1001, -1002, -1003]


def test_progress_counts_bytes_and_events(tmp_path: Path) -> None:
    path = everything().write(tmp_path / "trace.json")
    calls: list[tuple[int, int | None, int]] = []
    load(path, progress=lambda *call: calls.append(call), batch_bytes=1_000)
    assert len(calls) > 3
    assert [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)
    assert calls[-1] == (len(CONTENT), len(CONTENT), len(everything().events))
