"""`export` writes every frame, of a trace or of every rank of a job, and flame graphs; `ops` its table in each form."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import MS, call, refused, written
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.export import _run_of
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.read.remote import as_path
from traceanalyzer.rule.views import Work


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two kernels of 1 ms."""
    return written(tmp_path / "trace.json")


def test_export_writes_every_frame(trace: Path, tmp_path: Path) -> None:
    result = call("export", trace, tmp_path / "frames")
    assert result.exit_code == 0
    assert "gpu.parquet: 2 rows" in result.stdout
    for name, frame in FRAMES.items():
        table = pq.read_table(tmp_path / "frames" / f"{name}.parquet")
        assert table.column_names == [column.name for column in frame.columns]
    gpu = pd.read_parquet(tmp_path / "frames" / "gpu.parquet")
    assert gpu["dur_ns"].tolist() == [MS, MS]
    assert str(gpu["start_ns"].dtype) == "int64"
    fields = {field.name: field for field in pq.read_schema(tmp_path / "frames" / "gpu.parquet")}
    assert fields["dur_ns"].metadata[b"unit"] == b"ns"
    assert json.loads((tmp_path / "frames" / "meta.json").read_text())["source"] == str(trace)


def test_export_keeps_what_is_there_unless_forced(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    assert call("export", trace, folder).exit_code == 0
    assert "already exists" in refused("export", trace, folder)
    for kept in ("meta.json", "counters.parquet"):
        for file in folder.iterdir():
            file.unlink()
        (folder / kept).touch()
        assert f"{kept}: already exists" in refused("export", trace, folder)
    assert call("export", trace, folder, "--force").exit_code == 0


def test_export_of_a_job_has_a_folder_per_rank(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in (0, 1):
        written(job / f"rank{rank}.json", distributedInfo={"rank": rank})
    assert call("export", job, tmp_path / "frames").exit_code == 0
    for rank in (0, 1):
        assert len(pd.read_parquet(tmp_path / "frames" / f"rank{rank}" / "gpu.parquet")) == 2
        assert json.loads((tmp_path / "frames" / f"rank{rank}" / "meta.json").read_text())["rank"] == rank
    assert not list((tmp_path / "frames").glob("*.*"))
    assert "already exists" in refused("export", job, tmp_path / "frames")


def test_speedscope_has_all_gpu_work_below_its_op(tmp_path: Path) -> None:
    path = FIXTURES / "implicit-sync" / "bad.json.gz"
    assert call("export", path, "--speedscope", tmp_path / "flame.json").exit_code == 0
    document = json.loads((tmp_path / "flame.json").read_text())
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert len(set(names)) == len(names)
    assert [one["name"] for one in document["profiles"]] == ["all GPU work", "all CPU time", "all idle time"]
    for profile in document["profiles"]:
        assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(0 <= number < len(names) for stack in profile["samples"] for number in stack)
    work = document["profiles"][0]
    assert work["endValue"] == analysed(path).index(Work).total_ns
    stacks = {tuple(names[number] for number in stack) for stack in work["samples"]}
    assert any(stack[-2] == "aten::mm" and "::" not in stack[-1] for stack in stacks if len(stack) > 1)


def test_speedscope_names_ranks_and_refuses_empty_traces(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in (0, 1):
        written(job / f"rank{rank}.json", distributedInfo={"rank": rank})
    assert call("export", job, "--speedscope", tmp_path / "flame.json").exit_code == 0
    document = json.loads((tmp_path / "flame.json").read_text())
    assert {"rank 0: all GPU work", "rank 1: all GPU work"} <= {one["name"] for one in document["profiles"]}
    assert "already exists" in refused("export", job, "--speedscope", tmp_path / "flame.json")
    assert "nothing to write" in refused("export", job)
    marks = TraceBuilder()
    marks.gpu_annotation("only a mark", 0, 1_000, external_id=1)
    empty = marks.write(tmp_path / "empty.json")
    assert "no GPU work, ops or calls to draw" in refused(
        "export", empty, "--speedscope", tmp_path / "none.json"
    )
    assert not (tmp_path / "none.json").exists()


def test_ops_as_csv_and_as_markdown_have_the_same_rows() -> None:
    path = FIXTURES / "implicit-sync" / "bad.json.gz"
    rows = list(csv.DictReader(call("ops", path, "--format", "csv").stdout.splitlines()))
    assert {row["op"] for row in rows} == {"aten::mm", "aten::sum", "aten::_local_scalar_dense"}
    assert sum(int(row["gpu_ns"]) for row in rows) == analysed(path).index(Work).total_ns
    text = call("ops", path, "--format", "markdown", "--limit", "2").stdout
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in table[2:]] == ["| aten::mm", "| aten::sum"]


def test_the_curve_of_memory_is_written_beside_the_text(tmp_path: Path) -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 9_000)
    for number, change in enumerate((4_096, 8_192, -4_096)):
        trace.memory(1_000 * number, change, allocated=(4_096, 12_288, 8_192)[number], reserved=1 << 21)
    path, curve = trace.write(tmp_path / "trace.json"), tmp_path / "curve.parquet"
    assert call("memory", path, "--parquet", curve).stdout == call("memory", path).stdout
    rows = pd.read_parquet(curve)
    assert rows["allocated_bytes"].tolist() == [4_096, 12_288, 8_192]
    assert "already exists" in refused("memory", path, "--parquet", curve)


@pytest.mark.parametrize(
    ("trace", "run"),
    [
        ("jobs/run7", "run7"),
        ("jobs/run7/rank0.json", "run7"),
        ("jobs/run7/rank*.json", "run7"),
        ("jobs/*/rank0.json", "jobs"),
        ("jobs/run?/rank[01].json", "jobs"),
        ("memory://bucket/jobs/run8", "run8"),
    ],
)
def test_results_are_of_the_run_that_their_folder_names(
    trace: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs" / "run7").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    if "://" in trace:
        pytest.importorskip("upath")
    assert _run_of(as_path(trace) if "://" in trace else Path(trace)) == run


def test_frames_of_ranks_that_are_there_are_kept_unless_forced(tmp_path: Path) -> None:
    """Whatever else is written to that folder."""
    (tmp_path / "frames" / "rank3").mkdir(parents=True)
    (there := tmp_path / "frames" / "rank3" / "meta.json").write_text("old")
    trace = written(tmp_path / "trace.json")
    assert "meta.json: already exists" in refused("export", trace, tmp_path / "frames")
    assert not (tmp_path / "frames" / "gpu.parquet").exists()
    assert call("export", trace, tmp_path / "frames", "--force").exit_code == 0
    assert there.read_text() == "old"


def test_page_reports_its_findings_on_standard_error(tmp_path: Path) -> None:
    result = call("report", written(tmp_path / "trace.json"), "-o", tmp_path / "page.html")
    assert result.stdout == ""
    assert result.stderr.startswith(f"{tmp_path / 'page.html'}: ")
    assert "findings\n" in result.stderr
    for name in ("page", "page.HTM", "page.Html"):
        assert call("report", tmp_path / "trace.json", "-o", tmp_path / name).exit_code == 0
    assert "a page is HTML, not .pdf" in refused(
        "report", tmp_path / "trace.json", "-o", tmp_path / "page.pdf"
    )


def test_flame_graphs_of_a_job_name_its_first_trace(tmp_path: Path) -> None:
    trace, frames, flame = written(tmp_path / "a.json"), tmp_path / "frames", tmp_path / "flame.json"
    said = call("export", trace, frames, "--speedscope", flame).stdout
    assert f"{frames / 'gpu.parquet'}: 2 rows\n" in said
    assert flame.is_file()
    (job := tmp_path / "job").mkdir()
    for rank in (0, 1):
        marks = TraceBuilder(distributedInfo={"rank": rank, "world_size": 2})
        marks.gpu_annotation("only a mark", 0, 1_000, external_id=1)
        marks.write(job / f"rank{rank}.json")
    assert refused("export", job, "--speedscope", tmp_path / "none.json").startswith(str(job / "rank0.json"))


def test_results_go_into_a_folder_and_beside_no_flame_graph(tmp_path: Path) -> None:
    trace, flame = written(tmp_path / "job.json"), tmp_path / "flame.json"
    for options in ((), ("--speedscope", flame), (tmp_path / "out", "--speedscope", flame)):
        assert "--results takes a folder, and no --speedscope" in refused(
            "export", trace, *options, "--results"
        )
    assert "job.json: is a file, not a folder" in refused("export", trace, trace, "--results")


def test_results_are_written_once_and_failures_are_named(tmp_path: Path) -> None:
    """A folder without iterations; the run's name is its own."""
    (job := tmp_path / "job").mkdir()
    written(job / "rank0.json", distributedInfo={"rank": 0})
    out = tmp_path / "out"
    assert call("export", job, out, "--results").stdout == f"{out}: 1 written, 0 done before, 0 failed\n"
    assert call("export", job, out, "--results").stdout == f"{out}: 0 written, 1 done before, 0 failed\n"
    assert (out / "findings" / "run=job").is_dir()
    (job / "rank1.json").write_text("[")
    result = call("export", job, out, "--results")
    assert result.stdout == f"{out}: 0 written, 1 done before, 1 failed\n"
    assert f"warning: {job / 'rank1.json'}: " in result.stderr
    (job / "rank0.json").unlink()
    (job / "rank2.json").write_text("[")
    assert "none of 2 files could be read" in refused("export", job, tmp_path / "other", "--results")
    (empty := tmp_path / "empty").mkdir()
    assert f"{empty}: no trace of torch.profiler" in refused("export", empty, out, "--results")
