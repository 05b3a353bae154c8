"""`export`: frames, flame graphs, and `--results`: what each rank says."""

import csv
import io
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import MS, call, refused, written
from tests.job.ranks import Reductions
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.cli import export
from traceanalyzer.cli.export import run_name
from traceanalyzer.job import ranks as here
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.read.folders import layout_of
from traceanalyzer.read.load import load_file
from traceanalyzer.read.remote import as_path
from traceanalyzer.render.data import results
from traceanalyzer.render.data.results import TABLES, rank_tables, store
from traceanalyzer.report.rank_pool import Elsewhere, Pool
from traceanalyzer.report.rank_states import RankFile
from traceanalyzer.rule.views import Work
from traceanalyzer.runtime.processes import Processes

STEPS = {0: (500, 500, 500), 1: (900, 900, 900), 2: (500, 510, 500)}


def job_in(place: Path) -> Path:
    """Three ranks in two iterations."""
    for iteration in (10, 20):
        for rank, trace in Reductions(STEPS).traces().items():
            folder = place / "job" / f"iteration_{iteration}"
            folder.mkdir(parents=True, exist_ok=True)
            trace.write(folder / f"rank{rank}_trace.json")
    return place / "job"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return job_in(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run writes that nothing breaks off."""
    place = tmp_path_factory.mktemp("whole")
    call("export", job_in(place), place / "whole", "--results")
    return files(place / "whole")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read, as they are."""
    found: list[str] = []

    def counted(path: str) -> Any:
        found.append(path)
        return load_file(path)

    monkeypatch.setattr(here, "load_file", counted)
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Every file in the folder, with its bytes."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_pyarrow_and_duckdb_read_the_partitions(job: Path, tmp_path: Path) -> None:
    said = call("export", job, tmp_path / "out", "--results")
    assert said.stdout == f"{tmp_path / 'out'}: 6 written, 0 done before, 0 failed\n"
    for name in TABLES:
        table = ds.dataset(tmp_path / "out" / name, partitioning="hive").to_table()
        places = set(zip(*(table[key].to_pylist() for key in ("run", "iteration", "rank")), strict=True))
        assert places == {("job", iteration, rank) for iteration in (10, 20) for rank in (0, 1, 2)}
    pattern = tmp_path / "out" / "steps" / "**" / "*.parquet"
    rows = duckdb.sql(
        "select iteration, rank, count(*), max(dur_ns) > 900000"
        f" from read_parquet('{pattern}', hive_partitioning = true) group by all order by all"
    )
    assert rows is not None
    assert rows.fetchall() == [(iteration, rank, 3, True) for iteration in (10, 20) for rank in (0, 1, 2)]


def test_findings_are_those_of_the_rank_alone(job: Path, tmp_path: Path) -> None:
    call("export", job, tmp_path / "out", "--results", "--run", "a/b")
    (path,) = (tmp_path / "out" / "findings" / "run=a%2Fb" / "iteration=20" / "rank=1").iterdir()
    alone = diagnose(job / "iteration_20" / "rank1_trace.json")
    table = pq.read_table(path, partitioning=None)
    assert table["rule"].to_pylist() == [one.rule for one in alone.findings]
    assert table["cost_ns"].to_pylist() == [one.cost_ns for one in alone.findings]
    collectives = ds.dataset(tmp_path / "out" / "collectives", partitioning="hive").to_table().to_pylist()
    assert {one["collective"] for one in collectives} == {"allreduce"}
    assert {one["seq"] for one in collectives} == {None}
    (run,) = {one["run"] for one in pq.read_table(tmp_path / "out" / "files.parquet").to_pylist()}
    assert run == "a/b"


def test_what_is_done_is_not_read_again(job: Path, tmp_path: Path, reads: list[str]) -> None:
    out = tmp_path / "out"
    call("export", job, out, "--results")
    before = files(out)
    assert len(reads) == 6
    assert "0 written, 6 done before" in call("export", job, out, "--results").stdout
    assert len(reads) == 6
    assert files(out) == before
    changed = job / "iteration_10" / "rank1_trace.json"
    changed.write_text(changed.read_text().replace("aten::mm", "aten::addmm"))
    assert "1 written, 5 done before" in call("export", job, out, "--results").stdout
    assert reads[6:] == [str(changed)]


def test_another_version_does_all_again(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("export", job, tmp_path / "out", "--results")
    monkeypatch.setattr(results, "__version__", "9.9")
    assert "6 written, 0 done before" in call("export", job, tmp_path / "out", "--results").stdout


@pytest.mark.parametrize("writes", [0, 3, 11, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 4, 5, 24))])
def test_a_run_that_is_broken_off_goes_on(
    writes: int, job: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    put, left = export._put_bytes, writes

    def breaking(path: Path, content: bytes) -> None:
        nonlocal left
        if left == 0:
            (path.parent / f".{path.name}.1.part").write_bytes(content[:10])
            raise KeyboardInterrupt
        left -= 1
        put(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(export, "_put_bytes", breaking)
        assert call("export", job, tmp_path / "out", "--results").exit_code != 0
    del reads[:]
    call("export", job, tmp_path / "out", "--results")
    assert len(reads) == 6 - writes // len(TABLES)
    assert files(tmp_path / "out") == whole


def test_a_file_that_fails_is_named_and_costs_no_other(job: Path, tmp_path: Path) -> None:
    bad = job / "iteration_20" / "rank1_trace.json"
    whole = bad.read_text()
    bad.write_text("[")
    shutil.copy(job / "iteration_20" / "rank0_trace.json", job / "iteration_20" / "rank9_trace.json")
    said = call("export", job, tmp_path / "out", "--results")
    assert said.exit_code == 0
    assert "5 written, 0 done before, 2 failed" in said.stdout
    assert f"warning: {bad}: " in said.stderr
    assert "another file is of rank 0, too: rank0_trace.json" in said.stderr
    table = pq.read_table(tmp_path / "out" / "files.parquet").to_pylist()
    failed = [(one["iteration"], one["source"]) for one in table if one["status"] == "failed"]
    assert failed == [("20", "rank1_trace.json"), ("20", "rank9_trace.json")]
    bad.write_text(whole)
    assert "1 written, 5 done before, 1 failed" in call("export", job, tmp_path / "out", "--results").stdout


def test_runs_stand_beside_each_other(job: Path, tmp_path: Path) -> None:
    (job / "iteration_10" / "rank0_trace.json").write_text("[")
    for name in ("one", "two"):
        call("export", job, tmp_path / "out", "--results", "--run", name)
    table = pq.read_table(tmp_path / "out" / "files.parquet").to_pylist()
    assert [(one["run"], one["status"]) for one in table].count(("one", "failed")) == 1
    assert len(table) == 12


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("[")
    assert "none of 1 files could be read" in refused("export", tmp_path, tmp_path / "out", "--results")
    assert "takes a folder" in refused("export", tmp_path, "--results")


@pytest.mark.slow
def test_a_process_that_is_killed_changes_nothing(job: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    with closing(Processes(2, "traceanalyzer.report.rank_states:States")) as pool:
        assert stored(pool, job, tmp_path / "out", pool.workers[0].process.pid) >= 6
    assert files(tmp_path / "out") == whole


def stored(pool: Pool, job: Path, out: Path, victim: int) -> int:
    """Write the results of a job in a pool, of which one process is killed after the first file; files told."""
    told: list[str] = []

    def killing(file: str, so_far: int, count: int) -> None:
        told.append(file)
        if len(told) == 1:
            os.kill(victim, signal.SIGKILL)

    ranks = Elsewhere(pool, {}, RankFile(), killing)

    def once(some: Sequence[str], hashes: Mapping[str, str]) -> Any:
        return ranks.once(rank_tables, some, hashes)

    assert store(out, "job", layout_of([job]), once, export._put_bytes).failed == {}
    return len(told)


@pytest.fixture
def in_memory(job: Path) -> Iterator[str]:
    """The job in a bucket of fsspec's memory, and room for results beside it."""
    bucket = pytest.importorskip("upath").UPath("memory://bucket")
    for file in job.rglob("*.json"):
        there = bucket / "jobs" / "job" / file.relative_to(job)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(file.read_bytes())
    yield str(bucket)
    bucket.rmdir(recursive=True)


def test_jobs_and_results_may_be_in_a_bucket(job: Path, in_memory: str, tmp_path: Path) -> None:
    """What is written there is what is written here, but for where the trace was; begun again it goes on."""
    bucket = pytest.importorskip("upath").UPath(in_memory)
    source, results = f"{in_memory}/jobs/job", f"{in_memory}/results"
    first = call("export", source, results, "--results")
    assert first.stdout == f"{results}: 6 written, 0 done before, 0 failed\n"
    call("export", job, tmp_path / "out", "--results")
    here, there = (
        files(tmp_path / "out"),
        {str(one.path).partition("/results/")[2]: one for one in (bucket / "results").rglob("*.parquet")},
    )
    assert there.keys() == here.keys()
    for name, content in here.items():
        with there[name].open("rb") as stream:
            table = pq.read_table(stream)
        expected = pq.read_table(pa.BufferReader(content))
        kept = [column for column in expected.column_names if column != "source"]
        assert table.select(kept).equals(expected.select(kept))

    (bucket / "jobs" / "job" / "iteration_20" / "rank1_trace.json").write_bytes(b"[]")
    lost = next(one for name, one in there.items() if name.startswith("steps/") and "iteration=10/rank=0" in name)
    lost.unlink()
    again = call("export", source, results, "--results")
    assert again.stdout == f"{results}: 1 written, 4 done before, 1 failed\n"
    assert lost.exists()


def test_frames_do_not_go_into_a_bucket(job: Path) -> None:
    assert "frames go to this machine" in refused("export", job, "memory://bucket/frames")


def test_what_is_0_is_said_and_only_what_is_not_known_is_null() -> None:
    """Columns of the collectives against the index that they are of: the first has number 0 in step 0."""
    analysis = Analysis(Reductions(STEPS, seq=True).traces()[0].load())
    made = rank_tables(analysis, None, {analysis.trace.meta.source: "here"})
    table, runs = pq.read_table(io.BytesIO(made.tables["collectives"])), analysis.index(CollectiveRuns)
    assert 0 in runs.seq.tolist()
    for name in ("seq", "step", "elements", "start_ns", "end_ns"):
        known = [value if value >= 0 else None for value in getattr(runs, name).tolist()]
        assert table[name].to_pylist() == known, name


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
    assert "no GPU work, ops or calls to draw" in refused("export", empty, "--speedscope", tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_ops_as_csv_and_as_markdown_have_the_same_rows() -> None:
    path = FIXTURES / "implicit-sync" / "bad.json.gz"
    rows = list(csv.DictReader(call("ops", path, "--format", "csv").stdout.splitlines()))
    assert {row["op"] for row in rows} == {"aten::mm", "aten::sum", "aten::_local_scalar_dense"}
    assert sum(int(row["gpu_ns"]) for row in rows) == analysed(path).index(Work).total_ns
    text = call("ops", path, "--format", "markdown", "--limit", "2").stdout
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in table[2:]] == ["| aten::mm", "| aten::sum"]


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
    assert run_name(as_path(trace) if "://" in trace else Path(trace)) == run


def test_frames_of_ranks_that_are_there_are_kept_unless_forced(tmp_path: Path) -> None:
    """Whatever else is written to that folder."""
    (tmp_path / "frames" / "rank3").mkdir(parents=True)
    (there := tmp_path / "frames" / "rank3" / "meta.json").write_text("old")
    trace = written(tmp_path / "trace.json")
    assert "meta.json: already exists" in refused("export", trace, tmp_path / "frames")
    assert not (tmp_path / "frames" / "gpu.parquet").exists()
    assert call("export", trace, tmp_path / "frames", "--force").exit_code == 0
    assert there.read_text() == "old"


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
        assert "--results takes a folder, and no --speedscope" in refused("export", trace, *options, "--results")
    assert "job.json: is a file, not a folder" in refused("export", trace, trace, "--results")
