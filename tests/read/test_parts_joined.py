"""What stands in one part of a file alone, and parts that do not meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.read.same import assert_same
from tests.support.trace_files import WINDOW, in_this_process, long_trace
from traceanalyzer.read import parallel
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.load import finished, load_file
from traceanalyzer.read.parallel import receive


def test_what_stands_in_the_second_part_alone_is_of_the_whole(tmp_path: Path) -> None:
    """Declarations, odd and foreign events, impossible durations, and metadata at the end; each counted once."""
    trace = long_trace()
    for number in range(3):
        trace.event(ph="M", name="thread_name", pid=1, tid=number, ts=0.0, args={"name": f"t{number}"})
        trace.event(ph="B", cat="odd", name="begun", pid=1, tid=2, ts=1.0)
        trace.op("wrong", 1_000, -5_000)
        trace.op("foreign", 1_000, 5_000, category="mine")
    path = trace.write(tmp_path / "trace.json")
    read = parallel.read_in_parts(str(path), 2, WINDOW, lambda source, events: None)
    assert read is not None
    found = finished(*read)
    assert found.meta.thread_names == {f"1/{number}": f"t{number}" for number in range(3)}
    assert found.meta.unknown_categories == {"mine": 3}
    assert found.meta.events == len(trace.events)
    assert found.meta.counted["phase B"] == 3
    assert_same(found, load_file(path, jobs=1))


def test_last_part_declares_processes_and_window_for_all(tmp_path: Path) -> None:
    """A process is called a device, and what the profiler recorded is marked, as kineto does at the end."""
    trace = long_trace()
    trace.event(ph="M", name="process_labels", pid=4321, tid=0, ts=0.0, args={"labels": "GPU 3"})
    trace.event(ph="X", cat="Trace", name="PyTorch Profiler (0)", pid="Spans", tid="x", ts=0.0, dur=5e6)
    trace.event(ph="X", cat="kernel", name="k", pid=4321, tid=7, ts=4.9e6, dur=2.0, args={"stream": 7})
    path = trace.write(tmp_path / "trace.json")
    read = parallel.read_in_parts(str(path), 2, WINDOW, lambda source, events: None)
    assert read is not None
    collector = read[1]
    assert collector.declared.processes["4321"] == {"process_labels": "GPU 3"}
    assert collector.declared.window_ns == (0, 5_000_000_000)
    assert_same(finished(*read), load_file(path, jobs=1))


def test_parts_that_do_not_meet_are_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long_trace().write(tmp_path / "trace.json")
    for by in (-1, 1):

        def apart(collector: Collector, stream: Any, by: int = by) -> tuple[int, int | None, dict[str, Any]]:
            begin, end, header = receive(collector, stream)
            return begin + by, end, header

        monkeypatch.setattr(parallel, "receive", apart)
        assert parallel.read_in_parts(str(path), 2, WINDOW, lambda source, events: None) is None


def test_events_of_the_first_part_are_told_as_those_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "WORTH_BYTES", 2_000)
    monkeypatch.setattr(parallel, "_workers", in_this_process)
    path, told = long_trace().write(tmp_path / "trace.json"), list[int]()
    trace = load_file(path, jobs=2, progress=lambda *call: told.append(call[2]), batch_bytes=WINDOW)
    assert told == sorted(told)
    assert 0.9 < told[-1] / trace.meta.events < 1.1
