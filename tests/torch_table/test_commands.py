"""The commands table, memory and ops: options, formats, files, exit codes and notes."""

import io
import json
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.support.matmul_traces import matmuls
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import run
from traceanalyzer.version import SCHEMA_VERSION


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A small trace with an op, a kernel, stacks, shapes and memory."""
    built = matmuls()
    built.header |= {"profile_memory": 1, "with_stack": 1}
    built.python("train.py(7): step | main", 0, 900_000, python_id=1)
    built.memory(10_500, 4096, allocated=4096, reserved=8192)
    return built.write(tmp_path / "trace.json")


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_table_is_sorted_by_device_time(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table", str(trace)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[1].split()[:3] == ["Name", "Self", "CPU"]
    assert "ProfilerStep*" in lines[3]
    assert lines[-1] == "Self CUDA time total: 9.700us"
    assert "note: 1 python_function rows are left out" in printed.err


def test_table_sorts_limits_and_cuts(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = ("--sort-by", "count", "--row-limit", 1, "--max-name-width", 12)
    lines = output_of(capsys, "table", trace, *how).splitlines()
    assert (len(lines), lines[3].split()[0]) == (7, "cudaLaunc...")


def test_table_by_shape_and_stack(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "table", trace, "--group-by-input-shape", "--group-by-stack-n", 2)
    assert "[[1024, 1024], [1024, 1024]]" in text
    assert "train.py(7): step | main" in text
    assert "Source Location" in text


def test_table_unsorted_is_in_order_of_first_sight(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output_of(capsys, "table", trace, "--sort-by", "none", "--format", "json"))["rows"]
    assert [row["name"] for row in rows][:3] == ["ProfilerStep*", "aten::mm", "cudaLaunchKernel"]


def test_table_as_json_is_exact(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(output_of(capsys, "table", trace, "--format", "json", "--row-limit", 1))
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["self_device_total_ns"] == 9_700
    assert document["notes"]
    (row,) = document["rows"]
    assert (row["name"], row["calls"]) == ("ProfilerStep*", 1)
    assert document["self_cpu_total_ns"] != document["self_device_total_ns"]
    every = json.loads(output_of(capsys, "table", trace, "--format", "json"))["rows"]
    assert row == every[0]
    assert row["device_ns"] == max(one["device_ns"] for one in every)
    assert sum(one["self_cpu_ns"] for one in every) == document["self_cpu_total_ns"]


def test_table_as_csv(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "table", trace, "--format", "csv", "--group-by-stack-n", 1)
    frame = pd.read_csv(io.StringIO(text))
    assert frame.loc[frame["name"] == "aten::mm", "device_ns"].tolist() == [8_000]
    assert json.loads(frame.loc[frame["name"] == "aten::mm", "stack"].item()) == ["train.py(7): step | main"]


def test_table_as_markdown_escapes_pipes(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "table", trace, "--format", "markdown", "--python-functions")
    assert "train.py(7): step \\| main" in text
    assert text.splitlines()[-1].strip() == "Self CUDA time total: 9.700us"
    assert {line.count(" | ") for line in text.splitlines() if line.startswith("| ")} == {14}


def test_table_as_parquet_reads_back_with_its_metadata(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    assert run(["table", str(trace), "--format", "parquet", "--output", str(path)]) == 0
    metadata = pq.read_schema(path).metadata
    assert metadata[b"traceanalyzer.source"].endswith(b"trace.json")
    assert b"python_function rows are left out" in metadata[b"traceanalyzer.notes"]
    with duckdb.connect() as connection:
        found = connection.execute(f"select device_ns from '{path}' where name = 'aten::mm'").fetchall()
    assert found == [(8_000,)]


def test_parquet_is_not_printed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table", str(trace), "--format", "parquet"]) == 2
    assert "--output FILE" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["table", "memory", "ops"])
def test_files_are_replaced_only_when_forced(
    trace: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("mine")
    assert run([command, str(trace), "--output", str(path)]) == 2
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert run([command, str(trace), "--output", str(path), "--force"]) == 0
    assert "aten::mm" in path.read_text()


def test_memory_text_json_curve(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve = tmp_path / "curve.parquet"
    assert "CUDA:0: peak 4.00 KiB" in output_of(capsys, "memory", trace, "--parquet", curve)
    assert pd.read_parquet(curve)["allocated_bytes"].tolist() == [4096]
    document = json.loads(output_of(capsys, "memory", trace, "--format", "json"))
    assert document["devices"][0]["alive_at_peak"][0]["op"] == "aten::mm"
    assert document["devices"][0]["fragmentation_at_peak_bytes"] == 4096


def test_memory_without_events_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = matmuls().write(tmp_path / "trace.json")
    assert run(["memory", str(path)]) == 2
    error = capsys.readouterr().err
    assert "no memory events" in error
    assert "profile_memory=True" in error


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_ops_as_data(trace: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "ops"
    assert run(["ops", str(trace), "--format", form, "--output", str(path)]) == 0
    if form == "json":
        kernels = json.loads(path.read_text())["kernels"]
    else:
        kernels = (pd.read_csv(path) if form == "csv" else pd.read_parquet(path)).to_dict("records")
    assert [row["kernel"] for row in kernels][:2] == ["gemm", "softmax"]


def test_ops_of_a_trace_without_a_gpu_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder()
    built.op("aten::mm", 0, 10)
    assert run(["ops", str(built.write(tmp_path / "trace.json"))]) == 2
    assert "ProfilerActivity.CUDA" in capsys.readouterr().err


def test_limits_list_rows_and_data_has_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of ops as text and Markdown, and of owners of memory, whose times count from the first op."""
    built = TraceBuilder(profile_memory=1)
    for at in range(3):
        built.op(f"aten::op{at}", at * 100_000, 90_000)
        built.memory(at * 100_000 + 500, 4_096 * (at + 1), address=at + 1, allocated=4_096 * (at + 1))
        built.launch("cudaLaunchKernel", at * 100_000 + 1_000, 2_000, at + 1, external_id=at + 1)
        built.kernel(at * 100_000 + 50_000, 9_000, at + 1, external_id=at + 1)
    path = built.write(tmp_path / "trace.json")
    ops = {"aten::op0", "aten::op1", "aten::op2"}

    def named(*options: object) -> int:
        text = output_of(capsys, options[0], path, *options[1:])
        return sum(op in text for op in ops)

    for command in (("ops",), ("ops", "--format", "markdown"), ("memory",)):
        assert named(*command) == 3
        assert named(*command, "--limit", 1) < 3
        assert named(*command, "--limit", 1) <= named(*command, "--limit", 2)
    for form in ("json", "csv"):
        assert named("ops", "--format", form, "--limit", 1) == 3
    plain = output_of(capsys, "memory", path).splitlines()
    built.shifted(77_000_000).write(path)
    shifted = output_of(capsys, "memory", path).splitlines()
    for one, other in zip(plain, shifted, strict=True):
        assert one == other or "▃" in one  # the curve's columns are rounded


def test_a_table_may_have_one_row_but_not_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder(devices=())
    built.op("aten::add", 0, 10)
    assert "aten::add" in output_of(capsys, "table", built.write(tmp_path / "one.json"))
    marks = TraceBuilder()
    marks.python("train.py(1): step", 0, 1_000, python_id=1)
    path = marks.write(tmp_path / "none.json")
    assert run(["table", str(path)]) == 2
    assert f"{path}: no events to make a table of" in capsys.readouterr().err


def test_text_has_a_hundred_rows_data_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder(devices=())
    for number in range(101):
        built.op(f"op{number:03}", number * 100, 10 + number)
    path = built.write(tmp_path / "trace.json")
    for form, rows in (("text", 100), ("markdown", 100), ("csv", 101), ("json", 101)):
        assert output_of(capsys, "table", path, "--format", form).count("op") - rows in (0, 1), form
    assert "op000" not in output_of(capsys, "table", path)
    for limit in (101, -1):
        assert "op000" in output_of(capsys, "table", path, "--row-limit", limit)


def test_a_cpu_trace_is_sorted_by_cpu_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder(devices=())
    built.op("aten::add", 0, 10)
    built.op("aten::mm", 20, 30)
    lines = output_of(capsys, "table", built.write(tmp_path / "trace.json")).splitlines()
    assert lines[3].split()[0] == "aten::mm"
    assert "CUDA" not in lines[1]
    assert lines[-1] == "Self CPU time total: 0.040us"


def test_a_folder_must_have_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (0, 1):
        built = matmuls()
        built.header["distributedInfo"] = {"rank": rank, "world_size": 2}
        built.write(folder / f"rank{rank}.json")
    assert run(["table", str(folder)]) == 2
    assert "holds several traces: rank0.json and rank1.json" in capsys.readouterr().err
    (folder / "rank1.json").unlink()
    assert "aten::mm" in output_of(capsys, "table", folder)


def test_notes_tell_what_is_not_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder(with_flops=1)
    del built.header["baseTimeNanoseconds"]
    built.op("aten::mm", 5_000, 10_000)
    built.event(ph="s", id=1, pid=1, tid=1, ts=5, cat="ac2g", name="ac2g")
    built.work("cuda_sync", "Stream Sync", 6_000, 1_000, 0, 7, {"correlation": 1})
    for event in built.events:
        event |= {key: int(event[key]) for key in ("ts", "dur") if key in event}
    assert run(["table", str(built.write(tmp_path / "trace.json"))]) == 0
    notes = capsys.readouterr().err
    assert "whole microseconds" in notes
    assert "when the recording began" in notes
    assert "synchronisation records" in notes
    assert "FLOPs need shapes" in notes


@pytest.mark.parametrize("form", ["text", "json", "csv", "markdown"])
def test_a_row_limit_of_minus_one_is_all(trace: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    every = output_of(capsys, "table", trace, "--format", form)
    assert output_of(capsys, "table", trace, "--format", form, "--row-limit", -1) == every
    assert len(output_of(capsys, "table", trace, "--format", form, "--row-limit", 1)) < len(every)


@pytest.mark.parametrize("limit", [0, -2])
def test_other_row_limits_are_refused(trace: Path, limit: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table", str(trace), "--row-limit", str(limit)]) == 2
    assert "-1 for all of them" in capsys.readouterr().err


def test_ops_in_ascii_are_ascii(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceanalyzer.cli.output.stream_encoding", lambda: "ascii")
    for command in ("ops", "memory"):
        assert output_of(capsys, command, trace).isascii()
