"""One window of a training: what each rank says and leaves, and what becomes of an analysis that fails."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import traceanalyzer
from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.integrations import pytest_plugin, watching
from traceanalyzer.integrations.watching import Folder, Watch

SUMMARY = {"lines": {}, "step_ns": 10_000_000, "communication": 0.5, "findings": {}}


class Child:
    """Stands for the process that analyses a window."""

    def __init__(self, summary: bytes, errors: bytes = b"", returncode: int = 0) -> None:
        self.answer, self.returncode, self.killed = (summary, errors), returncode, False

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        assert timeout == 300
        return self.answer

    def kill(self) -> None:
        self.killed = True


def window(rank: int, world: int, exchange: Folder | None = None, number: int = 3) -> watching._Window:
    return watching._Window(number, rank, world, 1_000.0, "cost 0.1 s", exchange)


def finished(rank: int, child: Any, folder: str = "missing") -> list[str]:
    lines: list[str] = []
    Watch(None, lines.append)._finish(window(rank, 1), child, folder)
    return lines


def test_first_rank_reports_and_each_rank_its_errors() -> None:
    summary = json.dumps(SUMMARY).encode()
    assert len(finished(0, Child(summary))) == 5
    assert finished(1, Child(summary)) == []
    failed = Child(b"", b"Warning: slow\nerror: no trace\n", 2)
    assert finished(1, failed) == ["traceanalyzer: rank 1, window 3: error: no trace"]


def test_slow_analysis_is_ended_and_its_folder_removed(tmp_path: Path) -> None:
    class Slow(Child):
        def communicate(self, timeout: float) -> tuple[bytes, bytes]:
            raise subprocess.TimeoutExpired("summary", timeout)

    child = Slow(b"")
    (tmp_path / "window").mkdir()
    (line,) = finished(1, child, str(tmp_path / "window"))
    assert line.startswith("traceanalyzer: rank 1, window 3 is not reported: TimeoutExpired(")
    assert child.killed
    assert list(tmp_path.iterdir()) == []


def test_a_window_is_compared_to_the_last_that_was_told() -> None:
    lines: list[str] = []
    watch = Watch(None, lines.append)
    for step_ns in (10_000_000, 20_000_000):
        watch._finish(window(0, 1), Child(json.dumps({**SUMMARY, "step_ns": step_ns}).encode()), "missing")  # type: ignore[arg-type]
    assert lines[4] == "  Since  this is the first window"
    assert lines[9] == "  Since  step recorded 10.0 ms, now 20.0 ms (+100 %)"


@pytest.mark.parametrize(("rank", "said"), [(0, 1), (1, 0)])
def test_a_window_that_is_left_out_is_said_once(rank: int, said: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(watching, "rank_and_world", lambda: (rank, 2))
    watch = Watch(None, lines.append)
    watch._thread = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    watch(None)
    assert len(lines) == said
    assert watch.cost_s == [0.0]


def test_a_rank_leaves_which_window_its_summary_is_of(tmp_path: Path) -> None:
    exchange = Folder(tmp_path / "new" / "folder")
    told = window(1, 2, exchange).gathered(json.dumps(SUMMARY).encode())
    assert told == {1: SUMMARY}
    left = exchange.get("rank1")
    assert left is not None
    assert json.loads(left) == {**SUMMARY, "at": 1_000.0, "window": 3}
    assert exchange.get("rank2") is None


def test_nobody_waits_once_all_ranks_have_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def slept(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 3

    monkeypatch.setattr(watching.time, "sleep", slept)
    exchange = Folder(tmp_path)
    window(1, 2, exchange).gathered(json.dumps(SUMMARY).encode())
    assert sorted(window(0, 2, exchange).gathered(json.dumps(SUMMARY).encode())) == [0, 1]
    assert len(waits) == 1
    assert list(window(0, 1, exchange).gathered(json.dumps(SUMMARY).encode())) == [0]
    assert list(window(0, 2).gathered(json.dumps(SUMMARY).encode())) == [0]
    assert len(waits) == 1


def test_summaries_use_the_job_store_if_there_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = SimpleNamespace(is_initialized=lambda: False, _get_default_store=dict)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", job)  # type: ignore[arg-type]
    assert Watch(None, print)._exchange() is None
    job.is_initialized = lambda: True
    assert isinstance(Watch(None, print)._exchange(), watching.JobStore)


def test_a_window_that_cannot_be_written_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(watching, "rank_and_world", lambda: (0, 1))
    lines: list[str] = []
    Watch(None, lines.append)(SimpleNamespace(export_chrome_trace=failing))
    assert lines == ["traceanalyzer: rank 0, window 1 is not written: disk is full"]
    assert list(tmp_path.iterdir()) == []


def test_a_summary_without_findings_is_what_it_is() -> None:
    """What makes it long is no finding; of findings the first are kept."""
    long = {**SUMMARY, "lines": {"Fix": "x" * 60_000}}
    assert len(watching.encoded(long)) > watching.MAX_BYTES
    many = {**SUMMARY, "findings": {str(n): "x" * 90 for n in range(600)}}
    assert list(json.loads(watching.encoded(many))["findings"]) == [str(n) for n in range(300)]


def test_the_summary_of_what_is_no_trace_is_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(watching.os, "nice", lambda _: 0, raising=False)
    (tmp_path / "none.json").write_text("{}")
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50_000)
    good = trace.write(tmp_path / "trace.json")
    for path, code in ((tmp_path / "none.json", 2), (good, 0)):
        monkeypatch.setattr(sys, "argv", ["summary", str(path)])
        assert watching.main() == code
        printed = capsysbinary.readouterr()
        assert (bool(printed.out), bool(printed.err)) == (code == 0, code == 2)
    assert json.loads(printed.out)["findings"] == {}


def test_uncountable_limit_skips_and_broken_limit_fails(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50_000)
    cpu = trace.write(tmp_path / "cpu.json")
    limits = [pytest.mark.limit_syncs(0).mark, pytest.mark.limit_idle("1 %").mark]
    with pytest.raises(pytest.skip.Exception, match=r"limit_syncs: no work.*; limit_idle: no work"):
        pytest_plugin._check(cpu, limits)
    trace.step(0, 0, 1_000_000)
    trace.launch("cudaLaunchKernel", 10_000, 5_000, 1)
    trace.kernel(20_000, 100_000, 1)
    gpu = trace.write(tmp_path / "gpu.json")
    with pytest.raises(pytest.fail.Exception, match=r"limit_idle: idle for 90% .*\nthe trace: .*gpu.json"):
        pytest_plugin._check(gpu, limits)
    pytest_plugin._check(gpu, limits[:1])


@pytest.mark.parametrize(
    ("world", "ranks"), [(1, ""), (2, ", 1 of 2 ranks; rank 0 waits least"), (4, ", 1 of 4 ranks; rank 0 waits least")]
)
def test_a_rank_whose_others_are_late_says_how_many_are_missing(world: int, ranks: str) -> None:
    lines = watching.told_lines(window(0, world), {0: SUMMARY}, {})
    assert lines[0] == f"traceanalyzer: window 3{ranks}; it cost 0.1 s"


def test_summary_has_all_findings_above_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50_000)
    monkeypatch.setattr(traceanalyzer, "diagnose", lambda _: samples.report())
    told = watching.summary_of(trace.write(tmp_path / "trace.json"))["findings"].values()
    assert len(told) == 3
    assert all(one.startswith("The GPU waits ") for one in told)


def test_without_a_log_what_is_told_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def export_chrome_trace(self, path: str) -> None:
            raise OSError("the disk is full")

    monkeypatch.setattr(watching, "rank_and_world", lambda: (0, 1))
    watching.watch()(Full())
    said = "traceanalyzer: rank 0, window 1 is not written: the disk is full\n"
    assert capsys.readouterr() == ("", said)


def test_ranks_may_leave_their_summaries_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 leaves all of its own while rank 0 has written its part, and has not called it what it is."""
    folder, replace = Folder(tmp_path), Path.replace

    def meanwhile(part: Path, target: Path) -> Path:
        monkeypatch.undo()
        folder.put("rank1", b"one")
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    folder.put("rank0", b"nought")
    assert (folder.get("rank0"), folder.get("rank1"), folder.get("rank2")) == (b"nought", b"one", None)
