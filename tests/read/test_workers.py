"""What a worker is asked, what it hands over, and what becomes of that where other parts have been read."""

import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from tests.support.trace_files import WINDOW, long_trace
from traceanalyzer.read import parallel
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.parallel import Part, Unsplittable, receive, send, work
from traceanalyzer.read.text.batches import Batches, Style
from traceanalyzer.read.text.source import Source


def small(*names: str) -> TraceBuilder:
    """A few ops, the last two of which are in the second part."""
    trace = TraceBuilder()
    for number, name in enumerate(names):
        trace.op(name, number * 1_000, 900, tid=1_000 + number % 2)
    return trace


def read_part(path: Path, start: int, stop: int | None) -> tuple[Part, Collector]:
    part = Part(Source(path), WINDOW, start, stop, Batches(Source(path)).style())
    collector = Collector()
    for batch in part.batches():
        collector.add(batch, part.text_of_batch)
    return part, collector


def names_of(collector: Collector) -> list[tuple[int, str]]:
    """(place in the file, name) of every row."""
    heads = list(collector.heads)
    found = []
    for group in collector.groups.values():
        pairs = zip(group.array("id").tolist(), group.array("head").tolist(), strict=True)
        found += [(number, str(heads[code][0])) for number, code in pairs]
    return sorted(found)


def test_parts_handed_over_are_freed_and_appended(tmp_path: Path) -> None:
    """Texts have other codes in each part, and places count on."""
    path = small("a", "b", "c", "b", "d", "a").write(tmp_path / "trace.json")
    middle = path.read_bytes().index(b'"c"')
    _, first = read_part(path, 0, middle)
    before = names_of(first)
    second, later = read_part(path, middle, None)
    assert [name for _, name in names_of(later)] == ["b", "d", "a"]
    out = io.BytesIO()
    send(second, later, out)
    assert later.groups == {}
    out.seek(0)
    begin, end, _ = receive(first, out)
    assert (begin, end) == (second.begin, None)
    assert names_of(first) == [*before, (3, "b"), (4, "d"), (5, "a")]
    assert [number for number, _ in names_of(first)] == list(range(6))
    assert first.events == 6
    assert out.read() == b""


def test_what_a_part_counts_and_declares_is_added(tmp_path: Path) -> None:
    trace = small("a", "b")
    for _ in range(2):
        trace.event(ph="B", cat="odd", name="begun", pid=1, tid=2, ts=1.0)
    trace.event(ph="M", name="thread_name", pid=1, tid=2, ts=0.0, args={"name": "worker"})
    path = trace.write(tmp_path / "trace.json")
    part, own = read_part(path, 0, None)
    counted, threads = dict(own.counted), dict(own.declared.threads)
    assert counted["phase B"] == 2
    out = io.BytesIO()
    send(part, own, out)
    both = Collector()
    for times in (1, 2):
        out.seek(0)
        receive(both, out)
        assert dict(both.counted) == {name: times * count for name, count in counted.items()}
    assert both.declared.threads == threads == {"1/2": "worker"}


@pytest.mark.parametrize("name", ["missing.json", "folder"])
def test_a_part_that_cannot_be_read_hands_nothing_over(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    out = io.BytesIO()
    with pytest.raises(Unsplittable):
        work(out, str(tmp_path / name), WINDOW, 100, None, Style("kineto", b"},\n  {"))
    assert out.getvalue() == b""


def test_each_worker_reads_one_part_and_this_process_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long_trace().write(tmp_path / "trace.json")
    asked: list[Any] = []

    @contextmanager
    def none(tasks: list[Any]) -> Iterator[list[io.BytesIO]]:
        asked.extend(tasks)
        yield [io.BytesIO() for _ in tasks]  # they have died

    monkeypatch.setattr(parallel, "workers", none)
    told: list[tuple[str, int]] = []
    read = parallel.read_in_parts(str(path), 3, WINDOW, lambda source, events: told.append((source.name, events)))
    assert read is None
    size = path.stat().st_size
    assert [task[:4] for task in asked] == [
        (str(path), WINDOW, size // 3, size * 2 // 3),
        (str(path), WINDOW, size * 2 // 3, None),
    ]
    assert {task[4] for task in asked} == {Batches(Source(path)).style()}
    assert {name for name, _ in told} == {str(path)}
    assert [events for _, events in told] == sorted(events for _, events in told)
    assert 800 / 3 - 20 < told[-1][1] < 800 / 3 + 20


def test_a_file_of_one_event_is_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No separator is known."""
    monkeypatch.setattr(parallel, "workers", lambda tasks: pytest.fail("a worker was asked"))
    path = small("a").write(tmp_path / "trace.json")
    assert parallel.read_in_parts(str(path), 2, WINDOW, lambda source, events: None) is None


class Worker:
    """Stands for a process."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.options = command, options
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO()
        self.stdin.close = self._closed  # type: ignore[method-assign]
        self.ended: list[str] = []

    def _closed(self) -> None:
        self.ended.append("closed")

    def kill(self) -> None:
        self.ended.append("killed")

    def __exit__(self, *_: object) -> None:
        self.ended.append("left")


@pytest.mark.parametrize("fails", [False, True])
def test_workers_get_path_and_task_and_end_with_reading(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Worker] = []

    def start(*args: Any, **options: Any) -> Worker:
        started.append(Worker(*args, **options))
        return started[-1]

    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    tasks: list[tuple[object, ...]] = [("a", 1), ("b", 2)]
    try:
        with parallel.workers(tasks) as outputs:
            assert outputs == [worker.stdout for worker in started]
            assert [worker.ended for worker in started] == [["closed"]] * 2
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    for worker, task in zip(started, tasks, strict=True):
        assert worker.ended == ["closed", "killed", "left"]
        said = io.BytesIO(worker.stdin.getvalue())
        assert (pickle.load(said), pickle.load(said), said.read()) == (sys.path, task, b"")
        environment = worker.options["env"]
        assert [environment[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS")] == ["1", "1"]
        assert environment["KEPT"] == "yes"
        assert worker.command[:3] == [sys.executable, "-P", "-c"]
