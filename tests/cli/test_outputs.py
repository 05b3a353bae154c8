"""Where text goes, and what is never written over."""

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.cli.commands import call, refused, written
from tests.job.ranks import Reductions
from tests.support.fixtures import FIXTURES
from tests.support.remembered_calls import remembering
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli import output
from traceanalyzer.cli.app import cli

TRACE = FIXTURES / "exposed-copy" / "bad.json.gz"
OTHER = FIXTURES / "exposed-copy" / "good.json.gz"
NARROW = {"COLUMNS": "60", "FORCE_COLOR": "1", "NO_COLOR": ""}


@pytest.mark.parametrize(
    "command", ["diagnose", "diagnose --quiet", "compare", "facts", "memory", "ops", "ops --format markdown", "table"]
)
def test_a_file_has_the_same_bytes_whatever_the_terminal_is(command: str, tmp_path: Path) -> None:
    """Which is narrow, coloured and shows ASCII alone."""
    name, *options = command.split()
    traces = {"compare": [TRACE, OTHER], "memory": [remembering(tmp_path / "m.json")]}.get(name, [TRACE])
    given = [name, *map(str, traces), *options]
    for file, charset, environment in (("a.txt", "utf-8", {}), ("b.txt", "ascii", NARROW)):
        result = CliRunner(charset=charset, env=environment).invoke(cli, [*given, "-o", str(tmp_path / file)])
        assert (result.exception, result.stdout) == (None, "")
    content = (tmp_path / "a.txt").read_bytes()
    assert (tmp_path / "b.txt").read_bytes() == content
    assert b"\x1b" not in content
    assert content == call(*given).stdout_bytes


@pytest.mark.parametrize("command", ["diagnose", "compare", "facts", "ops", "rules"])
def test_standard_output_is_what_it_can_show(command: str) -> None:
    traces = {"compare": [TRACE, OTHER], "rules": []}.get(command, [TRACE])
    shown = CliRunner(charset="ascii", env=NARROW).invoke(cli, [command, *map(str, traces)]).stdout_bytes
    assert shown.isascii()
    assert b"\\u" not in shown
    assert b"\\x" not in shown
    assert (b"\x1b[" in shown) is (command in ("diagnose", "compare"))


@pytest.mark.parametrize(
    ("encoding", "ascii_only"),
    [*[(name, False) for name in ("utf-8", "UTF-8", "utf8", "UTF-8-sig")], ("latin-1", True), (None, True)],
)
def test_blocks_are_drawn_where_the_stream_has_them(
    encoding: str | None, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(encoding=encoding))
    assert output.ascii_only() is ascii_only
    assert not output.ascii_only(Path("report.txt"))


def test_unencodable_characters_are_escaped_only_on_streams(tmp_path: Path) -> None:
    made = TraceBuilder()
    made.op("aten::mm", 0, 9_000)
    made.launched((1_000, 2_000), (5_000, 9_000), 1, name="größer")
    trace = made.write(tmp_path / "trace.json")
    given = ["ops", str(trace), "--format", "csv"]
    assert b"gr\xc3\xb6\xc3\x9fer" in CliRunner(charset="ascii").invoke(cli, given).stdout_bytes
    given = ["table", str(trace)]
    assert b"gr\\xf6\\xdfer" in CliRunner(charset="ascii").invoke(cli, given).stdout_bytes
    CliRunner(charset="ascii").invoke(cli, [*given, "-o", str(tmp_path / "table.txt")])
    assert "größer" in (tmp_path / "table.txt").read_text("utf-8")


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_told_is_wrapped_on_a_terminal_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path stays on one line, and what is indented keeps that."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    path = "a folder/of many words/that is longer than one line of it.json"
    output.tell(f"warning: {path}: " + "word " * 20 + "end\n  " + "remedy " * 20 + "end", path)
    lines = stream.getvalue().splitlines()
    assert len(lines) == (2 if not terminal else len(lines)) > 1
    assert sum(path in line for line in lines) == 1
    if terminal:
        assert max(len(line) for line in lines if path not in line) <= 60
        first = next(at for at, line in enumerate(lines) if "remedy" in line)
        assert all(line.startswith("  ") and line[2] != " " for line in lines[1:])
        assert lines[first].startswith("  remedy")


def test_the_collectives_go_into_a_file_in_each_form(tmp_path: Path) -> None:
    """The table names the first of the traces as its source, and so does what is said of traces without any."""
    traces = [
        trace.write(tmp_path / f"rank{rank}.json")
        for rank, trace in Reductions({0: (500,) * 5, 1: (900,) * 5}).traces().items()
    ]
    for form in ("text", "json", "csv"):
        shown = call("collectives", *traces, "--format", form).stdout_bytes
        assert call("collectives", *traces, "--format", form, "-o", tmp_path / form).stdout == ""
        assert (tmp_path / form).read_bytes() == shown != b""
    call("collectives", *traces, "--format", "parquet", "-o", tmp_path / "table.parquet")
    assert pq.read_schema(tmp_path / "table.parquet").metadata[b"traceanalyzer.source"].endswith(b"rank0.json")
    alone = [written(tmp_path / f"{name}.json", distributedInfo={"rank": at}) for at, name in enumerate("ab")]
    assert refused("collectives", *alone).startswith(f"{alone[0]}: the traces have no collective in common")


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_facts_as_data_are_those_of_the_text(form: str, tmp_path: Path) -> None:
    target = tmp_path / f"facts.{form}"
    assert call("facts", TRACE, "--format", form, "-o", target).stdout == ""
    document = json.loads(call("facts", TRACE, "--format", "json").stdout)
    names = [fact["name"] for fact in document["facts"]]
    assert "bound" in names
    if form == "json":
        assert json.loads(target.read_text()) == document
    elif form == "csv":
        assert len(target.read_text().splitlines()) > len(names)
    else:
        assert set(pq.read_table(target).column("name").to_pylist()) == set(names)
    assert os.path.getsize(target) > 200
