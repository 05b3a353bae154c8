"""`export` writes every frame, of a trace or of every rank of a job, and flame graphs; `ops` its table in each form."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.builder import TraceBuilder
from tests.cli.commands import MS, call, refused, written
from tests.loaded import analysed
from tests.recorded import FIXTURES
from traceanalyzer.model.schema import FRAMES
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
    assert call("export", trace, folder, "--force").exit_code == 0


def test_export_of_a_job_has_a_folder_per_rank(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in (0, 1):
        written(job / f"rank{rank}.json", distributedInfo={"rank": rank})
    assert call("export", job, tmp_path / "frames").exit_code == 0
    assert len(pd.read_parquet(tmp_path / "frames" / "rank1" / "gpu.parquet")) == 2
    assert "already exists" in refused("export", job, tmp_path / "frames")


def test_speedscope_gets_every_nanosecond_of_gpu_work_below_its_op(tmp_path: Path) -> None:
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


def test_speedscope_names_ranks_and_refuses_what_has_nothing_to_draw(tmp_path: Path) -> None:
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
