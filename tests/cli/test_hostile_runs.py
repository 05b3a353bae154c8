"""Streams, files and rules as nobody wants them: the command says so in a line, or does its work all the same."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, refused, written
from tests.support.failing_rules import described, hit, yielding
from tests.support.paths import REPOSITORY
from tests.support.sample_rules import sample_rules as sample_rules
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.output import written as replacing
from traceanalyzer.model.errors import BadOption
from traceanalyzer.read import load, remote
from traceanalyzer.read.remote import fetched
from traceanalyzer.rule import registry

PROGRAM = f"{sys.executable} -m traceanalyzer"


def piped(path: Path, content: bytes) -> Path:
    """A named pipe into which the content is written once."""
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()
    return path


@pytest.mark.parametrize("command", ["diagnose", "ops", "facts", "table"])
def test_a_named_pipe_is_read_as_a_file(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "pipe").mkdir()
    trace = written(tmp_path / "file" / "trace.json")
    pipe = piped(tmp_path / "pipe" / "trace.json", trace.read_bytes())
    assert call(command, pipe).stdout.replace("/pipe/", "/file/") == call(command, trace).stdout


def test_two_pipes_of_compressed_ranks_are_a_job(tmp_path: Path) -> None:
    ranks = [written(tmp_path / f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2}) for rank in (0, 1)]
    pipes = [piped(tmp_path / f"pipe{rank}", gzip.compress(trace.read_bytes())) for rank, trace in enumerate(ranks)]
    result = call("diagnose", "--cache", *pipes)
    assert result.exit_code == 0
    assert "2 ranks" in result.stdout


def test_a_pipe_is_not_copied_beside_findings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "can be read only once" in refused("annotate", tmp_path / "pipe", "-o", tmp_path / "out.zip")


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [("<&-", 2, "the file is empty"), (">&-", 0, ""), ("2>&-", 0, ""), ("<&- >&- 2>&-", 2, "")],
)
def test_closed_streams_raise_no_error(closed: str, code: int, said: str, tmp_path: Path) -> None:
    trace = "-" if "<" in closed else written(tmp_path / "trace.json")
    command = f"{PROGRAM} diagnose {trace} --format json {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, check=False, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr
    assert said in done.stderr
    assert done.stdout.startswith("{") == (closed == "2>&-")


@pytest.mark.usefixtures("sample_rules")
def test_a_failed_rule_is_reported_and_passes_no_gate(tmp_path: Path) -> None:
    trace = written(tmp_path / "trace.json")
    said = "warning: rule always-failing failed, so its fault may be there: ZeroDivisionError: division by zero"
    plain, gate = call("diagnose", trace), call("diagnose", trace, "--fail-on", "high")
    assert (plain.exit_code, gate.exit_code) == (0, 2)
    assert said in plain.stderr
    assert said in gate.stderr


@pytest.mark.usefixtures("sample_rules")
def test_a_hit_out_of_bounds_is_left_out_and_shown_by_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = described(yielding(lambda work, _: hit(work, evidence={"wait_ns": -3})), slug="odd")
    monkeypatch.setattr(registry, "all_rules", lambda: (odd,))
    result = call("diagnose", written(tmp_path / "trace.json"), "--fail-on", "high", "--profile")
    assert result.exit_code == 0
    assert "     check  odd left out, bounds: evidence wait_ns is -3: not below 0\n" in result.stderr


def test_steps_without_gpu_work_are_compared_and_saved(tmp_path: Path) -> None:
    """The one kernel lies before the one step."""
    trace = TraceBuilder()
    trace.step(5, 100_000, 25_000)
    trace.kernel(0, 86_000, 33)
    idle, busy = trace.write(tmp_path / "idle.json"), written(tmp_path / "busy.json")
    for sides in ((idle, busy), (busy, idle)):
        result = call("compare", *sides)
        assert (result.exit_code, result.exception) == (0, None)
    assert call("baseline", "save", tmp_path / "kept.parquet", idle).exit_code == 0


class Unreachable:
    """A URL whose protocol fails with a class of its own."""

    name = "x.json.gz"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def open(self, mode: str) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [ImportError("Install s3fs to access S3"), RuntimeError("connection refused")])
def test_why_a_url_is_not_fetched_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "as_path", lambda url: Unreachable(error))
    with pytest.raises(load.UnreadableTrace, match=f"cannot be fetched: {error}"), fetched("s3://bucket/x.json.gz"):
        pass


@pytest.mark.parametrize("command", [("annotate", "-o", "x.zip"), ("open", "--print-url")])
def test_commands_that_copy_a_trace_refuse_urls(command: tuple[str, ...]) -> None:
    assert "is a URL: fetch it" in call(*command, "http://h/x.json").stderr


@pytest.mark.parametrize("command", ["ops", "report"])
def test_a_url_keeps_its_slashes_in_every_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_path(url: object) -> Path:
        raise BadOption(f"asked for {url}")

    monkeypatch.setattr(remote, "as_path", as_path)
    assert "asked for http://h/x.json" in refused(
        command, "http://h/x.json", *(["-o", "p.html"] * (command == "report"))
    )


def test_a_leftover_of_a_killed_run_is_in_nobodys_way(tmp_path: Path) -> None:
    leftover = tmp_path / f".page.html.{os.getpid()}.part"
    leftover.write_text("half")
    with replacing(tmp_path / "page.html") as stream:
        stream.write(b"whole")
    assert (tmp_path / "page.html").read_bytes() == b"whole"
    assert leftover.read_text() == "half"


def test_memory_that_does_not_suffice_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(load, "_read", read)
    trace = written(tmp_path / "trace.json")
    assert refused("diagnose", trace).startswith(f"{trace}: needs more memory than there is\n  Record fewer steps")


def test_names_of_files_with_odd_digits_are_ordered(tmp_path: Path) -> None:
    for name in ("a1\u00b22.json", "b.json"):
        written(tmp_path / name)
    assert call("diagnose", tmp_path).exit_code == 0


def test_a_rank_of_5000_digits_is_no_rank(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        text = written(tmp_path / name, distributedInfo={"rank": 12345}).read_text()
        (tmp_path / name).write_text(text.replace("12345", "9" * 5000) if name == "a.json" else text)
    assert "declare no rank" in call("diagnose", tmp_path).stderr


def test_of_many_skipped_files_five_are_named(tmp_path: Path) -> None:
    written(tmp_path / "trace.json")
    for number in range(40):
        (tmp_path / f"f{number}.json").write_text("x")
    warning = call("diagnose", tmp_path).stderr
    assert warning.count("was skipped") == 5
    assert warning.rstrip().endswith("35 more files were skipped")


def test_a_long_name_of_many_words_keeps_the_first_screen_short(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for step in range(4):
        trace.step(step, step * 10_000_000, 10_000_000)
        trace.op("ab cd " * 34_000, step * 10_000_000, 5_000_000)
        trace.launched((step * 10_000_000, 10_000), (step * 10_000_000 + 20_000, 1_000_000), step + 1)
    assert len(call("diagnose", trace.write(tmp_path / "trace.json")).stdout) < 10_000


def test_names_and_grids_of_5000_digits_fail_no_rule(tmp_path: Path) -> None:
    digits = "9" * 5_000
    names = (f"vectorized_gather_kernel<{digits}", f"elementwise_kernel<128, {digits}", f"step[DECODE bs={digits}]")
    trace = TraceBuilder()
    for number, name in enumerate(names):
        begin = number * 1_000_000
        trace.annotation(name, begin, 900_000)
        trace.op("aten::index", begin, 500_000, **{"Input Dims": [[int("9" * 18), 4]], "Input type": ["float"]})
        trace.launched((begin + 1_000, 5_000), (begin + 20_000, 800_000), number + 1, name=name)
        trace.events[-1]["args"]["grid"] = f"[{digits}, {digits}, 1]"
    assert "failed" not in call("diagnose", trace.write(tmp_path / "trace.json")).stderr


@pytest.mark.parametrize("name", ["aten::mm", "aten::sum"])
@pytest.mark.parametrize("lost", ["Input Dims", "Input type", "Input Strides"])
def test_an_op_that_lost_a_list_of_its_inputs_fails_no_rule(name: str, lost: str, tmp_path: Path) -> None:
    whole = json.loads(gzip.decompress((REPOSITORY / "fixtures/implicit-sync/bad.json.gz").read_bytes()))
    changed = [event for event in whole["traceEvents"] if event["name"] == name and event["args"].pop(lost)]
    assert changed
    (path := tmp_path / "trace.json").write_text(json.dumps(whole))
    assert call("diagnose", path, "--fail-on", "high").stderr == ""


def test_strides_that_are_no_lists_fail_no_rule(tmp_path: Path) -> None:
    whole = json.loads(gzip.decompress((REPOSITORY / "fixtures/implicit-sync/bad.json.gz").read_bytes()))
    for event in whole["traceEvents"]:
        if "Input Strides" in event.get("args", {}):
            event["args"]["Input Strides"] = [1.5, "x", None, {}]
    (path := tmp_path / "trace.json").write_text(json.dumps(whole))
    assert call("diagnose", path, "--fail-on", "high").stderr == ""


@pytest.mark.parametrize("dur", [0, 0.001])
def test_durations_of_nothing_fail_no_rule(dur: float, tmp_path: Path) -> None:
    whole = json.loads(gzip.decompress((REPOSITORY / "fixtures/exposed-copy/bad.json.gz").read_bytes()))
    for event in whole["traceEvents"]:
        event.update({"dur": dur} if "dur" in event else {})
    (path := tmp_path / "trace.json").write_text(json.dumps(whole))
    assert "failed" not in call("diagnose", path, "--fail-on", "high").stderr


def test_names_of_files_put_no_command_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "nl\n::error::pwn\x1b[31m.json"
    path.write_text("x")
    process = subprocess.run([*PROGRAM.split(), "diagnose", str(path)], capture_output=True, check=False, text=True)
    assert process.stderr.startswith(f"traceanalyzer: {tmp_path}/nl ::error::pwn\\x1b[31m.json: is not JSON")


def test_without_a_home_folder_nothing_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert call("diagnose", "--cache", written(tmp_path / "trace.json")).exit_code == 0
