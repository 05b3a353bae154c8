"""`traceanalyzer collectives`: groups by their ranks, rates, clocks, and how uneven the ranks are."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.commands import call, refused
from tests.job.ranks import Reductions
from tests.support.trace_builder import TraceBuilder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks that reduce together, of which rank 1 is late, and one without any collective."""
    made = Reductions({0: (500,) * 5, 1: (900,) * 5}, group="mesh_dp").traces()
    alone = TraceBuilder(distributedInfo={"rank": 2, "world_size": 3})
    alone.op("aten::mm", 0, 9_000)
    alone.launch("cudaLaunchKernel", 1_000, 5_000, 1)
    alone.kernel(10_000, 5_000, 1)
    for rank, trace in (made | {2: alone}).items():
        trace.write(tmp_path / f"rank{rank}.json")
    return tmp_path


def test_text_of_at_most_80_columns_names_groups_by_their_ranks(folder: Path) -> None:
    lines = call("collectives", folder).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("g1: ranks 0-1: mesh_dp")
    assert any(line.split()[:2] == ["g1", "allreduce"] for line in lines)
    assert "rank 2: no collective in common with another rank" in lines
    assert any("with one uneven rank alone: rank 1" in line for line in lines)


def test_json_and_parquet_have_every_field(folder: Path, tmp_path: Path) -> None:
    found = json.loads(call("collectives", folder, "--format", "json").stdout)
    (rate,) = found["collectives"]
    assert (rate["ranks"], rate["count"], rate["transfer_ns"]) == ([0, 1], 5, 100_000)
    assert (rate["exposed_ns"], rate["overlap"], rate["waiting_ns"]) == (500_000, 0.0, 5 * 400_000)
    assert found["alone"] == [2]
    assert found["slowdown"]["s"] == pytest.approx(found["slowdown"]["by_rank"]["1"], abs=0.01)
    assert found["slowdown"]["s"] > 1.1
    assert sorted(found["clocks"]) == ["0", "1"]
    call("collectives", folder, "--format", "parquet", "--output", tmp_path / "out.parquet")
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert row == rate


def test_all_collectives_are_listed_and_files_are_not_replaced(tmp_path: Path) -> None:
    """Twelve sizes, each once: in CSV as in JSON, in the same order."""
    traces = Reductions(
        dict.fromkeys((0, 1), (500,) * 12), elements=tuple(1 << 8 + at for at in range(12))
    ).traces()
    paths = []
    for rank, trace in traces.items():
        for event in trace.events:
            if "Collective name" in event.get("args", {}):
                event["args"]["dtype"] = "Float"
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    found = json.loads(call("collectives", *paths, "--format", "json").stdout)["collectives"]
    rows = list(csv.DictReader(call("collectives", *paths, "--format", "csv").stdout.splitlines()))
    sizes = [int(row["bytes"]) for row in rows]
    assert sizes == [one["bytes"] for one in found]
    assert sorted(sizes) == [1 << 10 + at for at in range(12)]
    (there := tmp_path / "there.csv").write_text("mine")
    given = ("collectives", *paths, "--format", "csv", "-o", there)
    assert "already exists" in refused(*given)
    assert there.read_text() == "mine"
    assert call(*given, "--force").stdout == ""
    assert len(there.read_text().splitlines()) == 13
