"""The program as a process: streams, exit codes, terminals, pipes, interruptions, start-up."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import run as run_here
from traceanalyzer.cli.exits import COULD_NOT_RUN

MS = 1_000_000
PROGRAM = [sys.executable, "-m", "traceanalyzer"]
Here = Callable[..., tuple[int, bytes, bytes]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace on disk."""
    made = TraceBuilder()
    for at in range(4):
        made.launched((at * 3 * MS, 10_000), (at * 3 * MS + 20_000, MS), at + 1)
    return made.write(tmp_path_factory.mktemp("process") / "trace.json")


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """The program, its streams captured."""
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture(scope="module")
def diagnosed(trace: Path) -> subprocess.CompletedProcess[bytes]:
    """The diagnosis of it."""
    return run("diagnose", trace)


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    """here("diagnose", path) is (exit code, stdout, stderr) of the program in this process, which spares its start."""

    def called(*arguments: object) -> tuple[int, bytes, bytes]:
        code = run_here([str(argument) for argument in arguments])
        return code, *capfdbinary.readouterr()

    return called


@cache  # a process of half a second
def on_a_terminal(*arguments: object, errors: bool = False, **environment: str) -> str:
    """What the program prints to a terminal of 90 columns; with `errors` what it says on standard error instead."""
    ours, theirs = pty.openpty()
    asked = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    env = {**asked, "COLUMNS": "90", "TERM": "xterm", **environment}
    command = [*PROGRAM, *map(str, arguments)]
    streams = (subprocess.DEVNULL, theirs) if errors else (theirs, subprocess.DEVNULL)
    with subprocess.Popen(command, stdout=streams[0], stderr=streams[1], env=env) as process:
        os.close(theirs)
        chunks = []
        while chunk := _read(ours):
            chunks.append(chunk)
        process.wait()
    os.close(ours)
    return b"".join(chunks).decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""


def test_a_trace_from_standard_input_is_the_trace_from_the_file(trace: Path, here: Here) -> None:
    _, from_file, _ = here("diagnose", trace, "--format", "json")
    from_stdin = run("diagnose", "-", "--format", "json", input=trace.read_bytes())
    assert (from_stdin.returncode, from_stdin.stderr) == (0, b"")
    findings = [json.loads(said)["findings"] for said in (from_file, from_stdin.stdout)]
    assert findings[0] == findings[1] != []


def test_the_same_trace_gives_the_same_bytes(
    trace: Path, diagnosed: subprocess.CompletedProcess[bytes], here: Here
) -> None:
    """In another process, whose hashes are others."""
    assert here("diagnose", trace) == (0, diagnosed.stdout, b"")
    assert diagnosed.stdout != b""


@pytest.mark.parametrize("content", [None, b"", b"hello", b'{"name": "no trace"}', b'{"traceEvents": []}'])
def test_what_is_no_trace_is_named_in_two_lines(
    tmp_path: Path, content: bytes | None, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.json"
    if content is not None:
        path.write_bytes(content)
    assert run_here(["diagnose", str(path)]) == COULD_NOT_RUN
    streams = capfd.readouterr()
    assert streams.out == ""
    assert streams.err.startswith(f"traceanalyzer: {path}: ")
    assert "Traceback" not in streams.err
    assert len(streams.err.splitlines()) == 2


def test_errors_and_warnings_are_as_wide_as_the_terminal(trace: Path, tmp_path: Path) -> None:
    """Paths stay whole; in a pipe a line is a problem."""
    path = tmp_path / "a name with blanks.json"
    path.write_text('{"a rather long key": 1, "another rather long key": 2, "and a third of them": 3}')
    lines = on_a_terminal("diagnose", path, errors=True).splitlines()
    assert all(len(line) <= 90 or str(path) in line for line in lines)
    assert sum(str(path) in line for line in lines) == 1
    assert lines[-1].startswith("  ")
    joined = " ".join(" ".join(lines).split())
    assert joined == " ".join(run("diagnose", path).stderr.decode().split())
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes(trace.read_bytes()[:-200])
    lines = on_a_terminal("diagnose", damaged, errors=True, COLUMNS="60").splitlines()
    assert any(line.startswith("warning:") for line in lines)
    assert all(len(line) <= 60 or str(damaged) in line for line in lines)


def test_no_colour_in_a_pipe_and_colour_on_a_terminal(
    trace: Path, diagnosed: subprocess.CompletedProcess[bytes]
) -> None:
    assert b"\x1b" not in diagnosed.stdout
    assert "\x1b[" in on_a_terminal("diagnose", trace)


def test_colour_is_forced_in_pipes_and_never_in_files(
    trace: Path,
    tmp_path: Path,
    diagnosed: subprocess.CompletedProcess[bytes],
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coloured = run("diagnose", trace, env={**os.environ, "FORCE_COLOR": "1", "NO_COLOR": ""}).stdout
    assert re.sub(rb"\x1b\[\d+m", b"", coloured) == diagnosed.stdout != coloured
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert here("diagnose", trace) == (0, coloured, b"")
    assert here("diagnose", trace, "-o", tmp_path / "report.txt")[0] == 0
    assert (tmp_path / "report.txt").read_bytes() == diagnosed.stdout


def test_a_dumb_terminal_gets_the_text_of_a_pipe(trace: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    _, piped, _ = here("diagnose", trace)
    assert on_a_terminal("diagnose", trace, TERM="dumb").replace("\r\n", "\n") == piped.decode()


def test_the_page_is_as_wide_as_the_terminal(trace: Path) -> None:
    lines = on_a_terminal("diagnose", trace, NO_COLOR="1").splitlines()
    assert max(len(line) for line in lines if trace.name not in line) == 90  # a path is never cut


def test_ascii_where_the_stream_has_no_more(trace: Path) -> None:
    result = run("diagnose", trace, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert result.stdout.startswith(trace.name.encode())


def imported_by(*arguments: object) -> set[str]:
    """Modules that the program has imported when it ends."""
    given = [str(argument) for argument in arguments]
    code = f"import sys; from traceanalyzer.cli.app import run; run({given}); print(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


def test_help_imports_nothing_heavy() -> None:
    heavy = {"numpy", "pandas", "pyarrow", "orjson", "rich", "torch"}
    assert heavy.isdisjoint(imported_by("--help"))


@pytest.mark.parametrize("arguments", [("rules",), ("explain", "scheduler-gap"), ("explain", "host-code")])
def test_what_needs_no_trace_imports_no_pandas(arguments: tuple[str, ...]) -> None:
    """It takes longer than all else together."""
    assert {"pandas", "pyarrow", "duckdb"}.isdisjoint(imported_by(*arguments))


def test_diagnose_imports_nothing_that_it_does_not_use(trace: Path) -> None:
    """Indexes and rules read columns of numpy; pandas would take as long as a trace of 20 MB."""
    tables = {"pandas", "pyarrow", "rich", "torch", "duckdb", "polars", "dask"}
    other_forms = {"xml.etree.ElementTree", "traceanalyzer.render.data.ci", "traceanalyzer.render.html"}
    other_commands = {"traceanalyzer.cli.compare", "traceanalyzer.cli.record", "traceanalyzer.comparison"}
    rare = {"tarfile", "tempfile", "subprocess", "multiprocessing", "statistics", "random", "logging"}
    rare.add("numpy.ma")  # imported by `np.unique` and `np.median`: 12 ms
    assert (tables | other_forms | other_commands | rare).isdisjoint(imported_by("diagnose", trace))


def test_public_functions_import_only_what_they_use() -> None:
    code = "import sys; from traceanalyzer import diagnose; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pandas", "pyarrow", "click", "dask", "traceanalyzer.cli", "traceanalyzer.render"}
    assert heavy.isdisjoint(result.stdout.split())


def test_a_trace_without_a_gpu_is_said_on_standard_error(tmp_path: Path, here: Here) -> None:
    """Otherwise a recording without the GPU would pass in silence."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    code, out, errors = here("diagnose", trace.write(tmp_path / "cpu.json"), "--quiet", "--fail-on", "low")
    assert (code, out) == (0, b"")
    assert b"cpu.json: the GPU was not judged: no kernels" in errors
