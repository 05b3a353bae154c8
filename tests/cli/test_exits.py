"""How the program ends, and memory that it frees."""

import ctypes
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import click
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli import exits
from traceanalyzer.cli.exits import BROKEN_PIPE, COULD_NOT_RUN, INTERRUPTED, TERMINATED, emit, guarded
from traceanalyzer.cli.loading import reuse_freed_memory
from traceanalyzer.cli.output import written

PROGRAM = [sys.executable, "-m", "traceanalyzer"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace on disk."""
    made = TraceBuilder()
    made.launched((0, 10_000), (20_000, 1_000_000), 1)
    return made.write(tmp_path_factory.mktemp("exits") / "trace.json")


def test_a_reader_that_leaves_is_no_error(trace: Path) -> None:
    command = [*PROGRAM, "diagnose", str(trace), "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == BROKEN_PIPE


def test_nor_one_that_leaves_the_warnings(trace: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(trace.read_bytes()[:-20])  # which is warned of
    command = [*PROGRAM, "diagnose", str(cut)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait() == BROKEN_PIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_in_a_line(trace: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, "diagnose", str(trace)], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == COULD_NOT_RUN
    assert done.stderr.startswith(b"traceanalyzer: error: standard output cannot be written: No space left")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_interrupted_quietly(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    os.mkfifo(tmp_path / "slow.json")
    command = [*PROGRAM, "diagnose", str(tmp_path / "slow.json")]

    # A process that a shell starts in the background ignores SIGINT, and its children inherit that.
    def restore() -> None:
        signal.signal(sent, signal.SIG_DFL)

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore)
    # The pipe opens once the program reads.
    with process, (tmp_path / "slow.json").open("wb"):
        time.sleep(0.2)
        process.send_signal(sent)
        try:
            out, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out) == (code, b"")
    assert b"Traceback" not in errors


def test_a_half_written_file_goes_away_on_sigterm(tmp_path: Path) -> None:
    def program() -> int:
        with written(tmp_path / "out.bin") as stream:
            stream.write(b"half")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert guarded(program) == TERMINATED
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_guarded_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def ends_with(error: BaseException) -> int:
        def program() -> int:
            raise error

        return guarded(program)

    assert ends_with(KeyboardInterrupt()) == INTERRUPTED
    assert ends_with(click.Abort()) == INTERRUPTED
    assert capsys.readouterr().err == ""
    assert ends_with(RuntimeError("oops")) == COULD_NOT_RUN
    told = capsys.readouterr()
    assert "please report it" in told.err
    assert "RuntimeError: oops" in told.err
    assert told.out == ""
    assert guarded(lambda: 7) == 7


def test_handlers_stay_when_run_in_a_thread() -> None:
    """Only the first thread of a process may set them."""
    before, codes = signal.getsignal(signal.SIGTERM), list[int]()
    thread = threading.Thread(target=lambda: codes.append(guarded(lambda: 7)))
    thread.start()
    thread.join()
    assert codes == [7]
    assert signal.getsignal(signal.SIGTERM) == before
    assert guarded(lambda: signal.getsignal(signal.SIGTERM) == before) is False


def test_what_is_emitted_is_there_at_once_and_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    below = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(cast(Any, below))))
    emit(b"text")
    assert below.getvalue() == b"text"


def test_warnings_that_nobody_reads_end_it_as_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> int:
        raise BrokenPipeError

    silenced: list[int] = []
    monkeypatch.setattr(exits, "_silence", silenced.append)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    assert guarded(broken) == BROKEN_PIPE
    assert silenced == [2]


def test_silenced_streams_lead_nowhere() -> None:
    reader, writer = os.pipe()
    exits._silence(writer)
    os.write(writer, b"gone")
    os.close(writer)
    assert os.read(reader, 10) == b""
    os.close(reader)


@pytest.mark.parametrize("error", [AttributeError, TypeError], ids=["another C library", "Windows"])
def test_memory_of_other_systems_is_left_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Mock(side_effect=error))
    assert not reuse_freed_memory()


@pytest.mark.parametrize(
    ("answers", "kept", "asked"), [((1, 1), True, 2), ((1, 0), False, 2), ((0, 1), False, 1), ((0, 0), False, 1)]
)
def test_memory_is_kept_where_both_settings_are_taken(
    answers: tuple[int, int], kept: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks up to 32 MiB, and 1 GiB of them in all; the numbers -3 and -1 are those of glibc's malloc.h."""
    told: list[tuple[int, int]] = []

    def mallopt(name: int, value: int) -> int:
        told.append((name, value))
        return answers[len(told) - 1]

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert reuse_freed_memory() is kept
    assert told == [(-3, 33_554_432), (-1, 1_073_741_824)][:asked]
