"""Reading in parts gives what reading as one gives, and gives up where it cannot."""

import gzip
import io
import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.read.same import assert_same
from tests.support.cached_reports import loaded
from tests.support.exporter_layouts import Layout
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_files import WINDOW, in_this_process, long_trace
from tests.support.trace_selection import one_of_each_writer
from traceanalyzer.model.errors import NotATrace
from traceanalyzer.read import parallel
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.load import finished, load_file
from traceanalyzer.read.parallel import Part, receive, work
from traceanalyzer.read.text.batches import Batches
from traceanalyzer.read.text.source import Source


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORTH_BYTES", 2_000)


def pieces(path: Path, bounds: list[int | None], batch_bytes: int = WINDOW) -> tuple[Part, Collector]:
    """The file read part by part in this process; bounds as [0, ..., None]."""
    style = Batches(Source(path)).style()
    first, collector = Part(Source(path), batch_bytes, 0, bounds[1], style), Collector()
    for batch in first.batches():
        collector.add(batch, first.text_of_batch)
    end = first.end
    for start, stop in pairwise(bounds[1:]):
        assert start is not None
        out = io.BytesIO()
        work(out, str(path), batch_bytes, start, stop, style)
        out.seek(0)
        begin, after, header = receive(collector, out)
        assert begin == end
        end = after
        first.envelope.header |= header
    return first, collector


@examples(60)
@given(data=st.data())
def test_any_parts_and_windows_give_the_same(data: st.DataObject, tmp_path_factory: Any) -> None:
    layout: Layout = data.draw(st.sampled_from(["kineto", "minified", "array"]))
    path = long_trace().write(tmp_path_factory.mktemp("parts") / "trace.json", layout)
    size = path.stat().st_size
    inner = st.integers(10, size // 2_000 - 10)
    offset = data.draw(st.integers(0, 1_999))
    middle = [2_000 * k + offset for k in sorted(data.draw(st.sets(inner, min_size=1, max_size=4)))]
    batch_bytes = data.draw(st.integers(1_000, size))
    part, collector = pieces(path, [0, *middle, None], batch_bytes)
    assert_same(finished(part, collector), load_file(path, jobs=1))


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_parts_of_real_traces_give_the_same(
    small_parts: None, shared_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most real traces hold nothing that prevents it; those that do are read as one."""
    monkeypatch.setattr(parallel, "workers", in_this_process)
    assert_same(load_file(shared_trace, jobs=3), loaded(shared_trace))


@pytest.mark.of_shared(wanted=lambda name: name == "pairs/addmm_copy.bad")
def test_workers_read_a_real_trace(small_parts: None, shared_trace: Path) -> None:
    read = parallel.read_in_parts(str(shared_trace), 3, WINDOW, lambda source, events: None)
    assert read is not None
    assert_same(finished(*read), loaded(shared_trace))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("jobs", [2, 4])
def test_compressed_files_are_read_in_parts(small_parts: None, tmp_path: Path, pack: Any, jobs: int) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(long_trace().to_json()))
    read = parallel.read_in_parts(str(path), jobs, WINDOW, lambda source, events: None)
    assert read is not None
    assert_same(finished(*read), load_file(path, jobs=1))


def test_parts_are_equal() -> None:
    size = 300 << 20
    assert parallel.bounds_of(size, 3) == [0, size // 3, size // 3 * 2, None]


def test_processes_are_as_many_as_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORTH_BYTES", 1_000)
    path = tmp_path / "trace.json"
    path.write_bytes(b" " * 4_500)
    assert parallel.parts_of(Source(path), 8) == 4
    assert parallel.parts_of(Source(path), 3) == 3
    assert parallel.parts_of(Source(path), None) >= 1
    assert parallel.parts_of(Source("-"), 8) == 1
    assert parallel.parts_of(Source(tmp_path / "missing"), 8) == 1
    path.write_bytes(zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 4_500))
    assert parallel.parts_of(Source(path), 8) == 1
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 4_500)
    assert parallel.parts_of(Source(path), 8) == 1
    monkeypatch.setattr("sys.executable", "")
    assert parallel.parts_of(Source(path), 8) == 1


@pytest.mark.parametrize(
    "damage",
    [
        (b'"op1"', b'"op\xff"'),
        (b"\n  ],\n", b"\n"),
        (b'"name": "op2"', b'"name": "x},\n  {"'),
        (b'"built.json"', b"nan"),
        (b'"schemaVersion": 1', b'"schemaVersion": nan'),
    ],
)
def test_odd_files_are_read_as_one(small_parts: None, tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(long_trace().to_json().replace(*damage))
    assert_same(load_file(path, jobs=4), load_file(path, jobs=1))


def test_files_without_events_are_refused_in_the_same_words(small_parts: None, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"a": "' + b"x" * 9_000 + b'"}')
    with pytest.raises(NotATrace, match="holds no traceEvents"):
        load_file(path, jobs=4)
    path.write_bytes(TraceBuilder(note="x" * 9_000).to_json())
    with pytest.raises(NotATrace, match="the list of events is empty"):
        load_file(path, jobs=4)


def test_nested_events_are_no_events(small_parts: None, tmp_path: Path) -> None:
    """A separator within args: whoever ends there cannot parse it, and the file is read as one."""
    trace = TraceBuilder()
    for number in range(200):
        trace.op("op", number * 1_000, 900, nested=[{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}] * 5)
    path = trace.write(tmp_path / "trace.json", "minified")
    assert_same(load_file(path, jobs=6), load_file(path, jobs=1))


def test_a_worker_that_dies_costs_nothing(small_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long_trace().write(tmp_path / "trace.json")
    as_one = load_file(path, jobs=1)
    monkeypatch.setattr(parallel, "_PROGRAM", "import os; os._exit(3)")
    assert_same(load_file(path, jobs=3), as_one)
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    assert_same(load_file(path, jobs=3), as_one)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_no_process_is_left_behind(
    small_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    path = long_trace().write(tmp_path / "trace.json")
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def recorded(*args: Any, **kwargs: Any) -> Any:
        started.append(popen(*args, **kwargs))
        return started[-1]

    def interrupted(*call: Any) -> None:
        raise error

    monkeypatch.setattr(subprocess, "Popen", recorded)
    with pytest.raises(error):
        load_file(path, jobs=3, progress=interrupted, batch_bytes=WINDOW)
    assert len(started) == 2
    for worker in started:
        assert worker.returncode is not None
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def test_progress_of_all_parts(small_parts: None, tmp_path: Path) -> None:
    path = long_trace().write(tmp_path / "trace.json")
    calls: list[tuple[int, int | None, int]] = []
    load_file(path, jobs=2, progress=lambda *call: calls.append(call), batch_bytes=WINDOW)
    assert calls
    assert all(total == path.stat().st_size for _, total, _ in calls)


@pytest.fixture(autouse=True)
def _no_warnings_about_processes(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    assert [str(warning.message) for warning in recwarn if warning.category is ResourceWarning] == []


def test_metadata_costs_little_to_hand_over(tmp_path: Path) -> None:
    """What declares a thread is kept as its name alone: events as they are made two processes slower than one."""
    trace = TraceBuilder()
    for number in range(4_000):
        named = {"name": f"thread {number % 100}"}
        trace.event(ph="M", name="thread_name", pid=1, tid=number % 100, ts=0.0, args=named)
        trace.event(ph="M", name="process_sort_index", pid=number, tid=0, ts=0.0, args={"sort_index": number})
    trace.op("op", 1_000, 900)
    path = trace.write(tmp_path / "trace.json")
    out = io.BytesIO()
    work(out, str(path), WINDOW, path.stat().st_size // 2, None, Batches(Source(path)).style())
    assert len(out.getvalue()) < path.stat().st_size / 100
    part, collector = pieces(path, [0, path.stat().st_size // 2, None])
    assert_same(finished(part, collector), load_file(path, jobs=1))


def test_metadata_after_events_comes_from_the_last_part(
    small_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "workers", in_this_process)
    text = long_trace().write(tmp_path / "trace.json", "minified").read_text().rstrip()
    (path := tmp_path / "ended.json").write_text(f'{text[:-1]},"baseTimeNanoseconds":1234567890}}')
    trace = load_file(path, jobs=3)
    assert trace.meta.base_time_ns == 1_234_567_890
    assert_same(trace, load_file(path, jobs=1))


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


def test_events_of_the_first_part_are_told_as_those_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORTH_BYTES", 2_000)
    monkeypatch.setattr(parallel, "workers", in_this_process)
    path, told = long_trace().write(tmp_path / "trace.json"), list[int]()
    trace = load_file(path, jobs=2, progress=lambda *call: told.append(call[2]), batch_bytes=WINDOW)
    assert told == sorted(told)
    assert 0.9 < told[-1] / trace.meta.events < 1.1
