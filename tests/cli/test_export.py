"""`export` writes every frame, of a trace or of every rank of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import MS, call, refused, written
from traceanalyzer.model.schema import FRAMES


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
    assert "is already there" in refused("export", trace, folder)
    assert call("export", trace, folder, "--force").exit_code == 0


def test_export_of_a_job_has_a_folder_per_rank(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in (0, 1):
        written(job / f"rank{rank}.json", distributedInfo={"rank": rank})
    assert call("export", job, tmp_path / "frames").exit_code == 0
    assert len(pd.read_parquet(tmp_path / "frames" / "rank1" / "gpu.parquet")) == 2
    assert "is already there" in refused("export", job, tmp_path / "frames")
