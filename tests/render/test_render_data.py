"""The report as JSON, JSON lines and Parquet, and tables of the files of a job."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import Report
from traceanalyzer.read.folders import Layout
from traceanalyzer.render.data.ci import render_markdown
from traceanalyzer.render.data.json import render_json, render_jsonl
from traceanalyzer.render.data.results import (
    FINDINGS,
    TABLES,
    RankTables,
    Stored,
    parquet_bytes,
    store,
    write_accounting,
    write_findings,
)
from traceanalyzer.version import SCHEMA_VERSION, __version__

REPORTS = {"one": samples.report, "two_ranks": samples.two_ranks}
REPORTS |= {"replayed": samples.replayed, "empty": samples.empty}
DOCS = Path(__file__).parents[2] / "docs" / "output.md"


def parquet(report: Report, path: Path) -> Path:
    """The report's findings, written."""
    with path.open("wb") as stream:
        write_findings(report, stream)
    return path


def from_parquet(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the JSON has them: evidence is JSON text in Parquet."""
    return [row | {"evidence": json.loads(row["evidence"])} for row in rows]


def test_json_says_schema_tool_and_every_field_of_a_finding() -> None:
    document = json.loads(render_json(samples.report()))
    assert (document["schema_version"], document["tool"]["version"]) == (SCHEMA_VERSION, __version__)
    head, lists = ["schema_version", "tool", "limits"], ["traces", "accounting", "findings", "outcomes"]
    assert list(document) == head + lists
    for written in document["findings"]:
        assert list(written) == [field.name for field in fields(Finding)]


def test_json_keeps_numbers_and_words() -> None:
    report = samples.report()
    document = json.loads(render_json(report))
    first = report.findings[0]
    found = document["findings"][0]
    assert (found["severity"], found["start_ns"]) == ("high", first.start_ns)
    assert found["event_ids"] == list(first.event_ids)
    why = {"status": "not applicable", "why": "no ProfilerStep marks: call prof.step()"}
    assert document["outcomes"][4] == {"rule": "kernel-variance", "rank": None, "group": "", **why}
    assert sum(document["accounting"][0]["parts_ns"].values()) == 100 * MS
    assert document["traces"][0]["meta"]["damage"][0]["byte_offset"] == 1_048_576


def test_json_of_numpy_and_missing_values() -> None:
    plain = {"none": None, "shape": [1, 2]}
    numbers = plain | {"size": np.int64(5), "rate": np.float64(0.5), "by_device": {0: 1}}
    found = samples.finding(0, evidence=numbers)
    evidence = json.loads(render_json(samples.report(findings=(found,))))["findings"][0]["evidence"]
    assert evidence == plain | {"size": 5, "rate": 0.5, "by_device": {"0": 1}}


@pytest.mark.parametrize("name", REPORTS)
def test_lines_hold_what_the_document_holds(name: str) -> None:
    report = REPORTS[name]()
    document = json.loads(render_json(report))
    head = {key: document[key] for key in ("schema_version", "tool", "limits")}
    kinds = {"traces": "trace", "accounting": "accounting", "findings": "finding", "outcomes": "outcome"}
    items = [{"record": kind, **item} for key, kind in kinds.items() for item in document[key]]
    records = [json.loads(line) for line in render_jsonl(report).splitlines()]
    assert records == [{"record": "report", **head}, *items]


@pytest.mark.parametrize("name", REPORTS)
def test_the_same_report_gives_the_same_bytes(name: str) -> None:
    for render in (render_json, render_jsonl):
        assert render(REPORTS[name]()) == render(REPORTS[name]())
    written = [io.BytesIO(), io.BytesIO()]
    for stream in written:
        write_findings(REPORTS[name](), stream)
    assert written[0].getvalue() == written[1].getvalue()


@pytest.mark.parametrize("name", REPORTS)
def test_parquet_read_back_is_the_json_field_by_field(name: str, tmp_path: Path) -> None:
    report = REPORTS[name]()
    path = parquet(report, tmp_path / "findings.parquet")
    document = json.loads(render_json(report))
    table = pq.read_table(path)
    assert from_parquet(table.to_pylist()) == document["findings"]
    rest = {key: value for key, value in document.items() if key != "findings"}
    assert json.loads(table.schema.metadata[b"traceanalyzer.report"]) == rest


def test_parquet_is_typed_and_signed(tmp_path: Path) -> None:
    path = parquet(samples.report(), tmp_path / "findings.parquet")
    file = pq.ParquetFile(path)
    assert file.schema_arrow.remove_metadata() == FINDINGS
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    metadata = file.schema_arrow.metadata
    assert metadata[b"traceanalyzer.schema_version"] == str(SCHEMA_VERSION).encode()
    assert metadata[b"traceanalyzer.version"] == __version__.encode()
    assert json.loads(metadata[b"traceanalyzer.sources"]) == ["trace.json.gz"]


def test_duckdb_polars_and_pandas_read_the_same(tmp_path: Path) -> None:
    path = parquet(samples.two_ranks(), tmp_path / "findings.parquet")
    expected = pq.read_table(path).to_pylist()
    with duckdb.connect() as connection:
        by_duckdb = connection.sql(f"select * from '{path}'").to_arrow_table().to_pylist()
    assert by_duckdb == expected
    assert pl.read_parquet(path).to_dicts() == expected
    in_pandas = pd.read_parquet(path, dtype_backend="pyarrow")
    assert in_pandas["start_ns"].tolist() == [row["start_ns"] for row in expected]
    assert [list(ids) for ids in in_pandas["event_ids"]] == [row["event_ids"] for row in expected]
    assert in_pandas["stream"].isna().tolist() == [row["stream"] is None for row in expected]


def test_duckdb_reaches_into_occurrences_and_evidence(tmp_path: Path) -> None:
    path = parquet(samples.report(), tmp_path / "findings.parquet")
    query = f"select len(occurrences), occurrences[1].cost_ns, evidence->>'op' from '{path}'"
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall()[0] == (4, 12 * MS, "aten::mm")


def test_accounting_keeps_its_columns_and_types() -> None:
    frame = pd.DataFrame({"device": [0, 0], "step": pd.array([0, None], "Int64"), "ns": [5, 7]})
    stream = io.BytesIO()
    write_accounting(frame, ["trace.json"], stream)
    table = pq.read_table(io.BytesIO(stream.getvalue()))
    assert table.to_pydict() == {"device": [0, 0], "step": [0, None], "ns": [5, 7]}
    assert {str(field.type) for field in table.schema} == {"int64"}
    assert b"traceanalyzer.schema_version" in table.schema.metadata


def test_a_report_becomes_a_frame_for_pandas() -> None:
    report = samples.report()
    frame = report.to_frame()
    assert frame["cost_ns"].tolist() == [finding.cost_ns for finding in report.findings]
    assert str(frame["stream"].dtype) == "Int64"


def test_every_field_is_described_in_the_documentation() -> None:
    text = DOCS.read_text(encoding="utf-8")
    document = json.loads(render_json(samples.replayed()))
    trace, finding = document["traces"][0], document["findings"][0]
    assert trace["step"] is not None
    keys = {*document, *trace, *trace["steps"], *trace["meta"], *trace["step"]}
    keys |= {*finding, *finding["occurrences"][0], *finding["saving"]}
    assert {key for key in keys if f"`{key}`" not in text} == set()
    assert f"`schema_version` is {SCHEMA_VERSION}" in text


def test_markdown_has_a_nonempty_bar_per_window_part() -> None:
    parts = {"compute": 62_600_000, "idle:python": 37_399_000, "memset": 1_000}
    device = replace(samples.accounting(), parts_ns=parts)
    text = render_markdown(samples.report(samples.trace(accounting=(device,))))
    bars = [line.count("█") for line in text.splitlines() if "█" in line]
    assert bars == [13, 1, 7]  # idle time comes last


def test_markdown_counts_info_findings_per_rank() -> None:
    """And lists the others of that rank."""
    texts = render_markdown(samples.two_ranks()).split("## ")[1:]
    for text in texts:
        assert text.count("\n1 more for information.\n") == 1
        assert len([line for line in text.splitlines() if line.startswith("- **")]) == 3
        assert "12.3" not in text
    late, quiet = samples.findings(0)[0], samples.findings(1)[3]
    report = replace(samples.two_ranks(), findings=(late, quiet, replace(quiet, cause="other")))
    first, second = render_markdown(report).split("## ")[1:]
    assert "for information" not in first
    assert "\nNo finding above `info`. 2 more for information.\n" in second
    none = render_markdown(samples.report(findings=()))
    assert "\nNo finding above `info`. \n" in none


def test_markdown_shows_texts_of_a_trace_as_they_are() -> None:
    found = samples.finding(0, message="a_b*c* `d` [e](f) <g> | #h \\\x1b[0m", advice="Do_it")
    text = render_markdown(samples.report(samples.trace(meta=samples.meta("_x_.json")), findings=(found,)))
    assert text.startswith("## \\_x\\_.json\n")
    said = "a\\_b\\*c\\* \\`d\\` \\[e\\](f) &lt;g&gt; \\| \\#h \\\\"
    (line,) = [line for line in text.splitlines() if line.startswith("- **")]
    assert said in line
    assert line.endswith(". Do\\_it")
    assert "\x1b" not in text


class Job:
    """Files that say which rank they are of, or nothing; which were read."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.results = tmp_path / "job", tmp_path / "results"
        self.folder.mkdir()
        self.declared: dict[str, int | None] = {}
        self.broken: set[str] = set()
        self.read: list[str] = []

    def file(self, name: str, rank: int | None = None, content: str | None = None) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name if content is None else content)
        self.declared[str(path)] = rank
        return path

    def once(self, files: Sequence[str], made_from: Mapping[str, str]) -> Mapping[str, RankTables | Exception]:
        self.read += [Path(file).name for file in files]
        return {file: self._answer(file, made_from[file]) for file in files}

    def _answer(self, file: str, made_from: str) -> RankTables | Exception:
        if Path(file).name in self.broken:
            return ValueError("it is broken")
        said = {"rank": self.declared[file], "source": Path(file).name, "events": 7}
        more = {"made_from": made_from, "file": said}
        return RankTables({name: parquet_bytes(pa.table({"n": [1]}), more) for name in TABLES}, said)

    def store(self, *files: Path, run: str = "r", **iterations: tuple[Path, ...]) -> Stored:
        self.read = []
        return store(self.results, run, Layout(files, {}, iterations), self.once, _written)

    def told(self) -> list[dict[str, Any]]:
        with (self.results / "files.parquet").open("rb") as stream:
            return list(pq.read_table(stream).to_pylist())

    def places(self) -> list[str]:
        found = (self.results / "findings").rglob("part.parquet")
        return sorted(str(path.parent.relative_to(self.results / "findings")) for path in found)


def _written(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_rank_is_declared_or_from_the_name_or_the_place(job: Job) -> None:
    files = (job.file("rank7.json", 0), job.file("rank3.json"), job.file("c.json"))
    assert job.store(*files) == Stored(3, 0, {})
    assert job.places() == [f"run=r/iteration=0/rank={rank}" for rank in (0, 2, 3)]
    rows = job.told()
    assert [(row["rank"], row["source"]) for row in rows] == [(0, "rank7.json"), (2, "c.json"), (3, "rank3.json")]
    assert {(row["status"], row["problem"], row["events"]) for row in rows} == {("done", None, 7)}


def test_of_two_files_of_one_rank_the_first_is_kept(job: Job) -> None:
    one, two = job.file("a.json", 1), job.file("b.json", 1)
    assert job.store(one, two) == Stored(1, 0, {str(two): "another file is of rank 1, too: a.json"})
    told = [(row["source"], row["status"]) for row in job.told()]
    assert told == [("a.json", "done"), ("b.json", "failed")]


def test_only_what_changed_is_read_again(job: Job) -> None:
    files = [job.file(f"rank{rank}.json") for rank in range(3)]
    job.store(*files)
    assert job.store(*files) == Stored(0, 3, {})
    assert job.read == []
    job.file("rank1.json", content="other")
    assert job.store(*files) == Stored(1, 2, {})
    assert job.read == ["rank1.json"]
    (job.results / "steps/run=r/iteration=0/rank=2/part.parquet").unlink()
    assert job.store(*files) == Stored(1, 2, {})
    assert job.read == ["rank2.json"]


def test_a_file_without_a_rank_is_another_one_at_another_place(job: Job) -> None:
    """Of the name that tells a rank, the place says nothing."""
    files = [job.file("a.json"), job.file("rank5.json"), job.file("rank6.json")]
    job.store(*files)
    job.store(files[2], files[1], files[0])
    assert job.read == ["a.json"]


def test_seventeen_files_are_all_read(job: Job) -> None:
    files = [job.file(f"rank{rank}.json") for rank in range(17)]
    assert job.store(*files) == Stored(17, 0, {})
    assert len(job.read) == 17


def test_iterations_and_runs_are_ordered_by_number(job: Job) -> None:
    ten, two = job.file("ten.json", 0), job.file("two.json", 0)
    job.store(**{"10": (ten,), "2": (two,)})
    job.broken = {"bad.json"}
    bad = job.file("bad.json")
    assert job.store(bad, run="a/b") == Stored(0, 0, {str(bad): "ValueError: it is broken"})
    told = [(row["run"], row["iteration"], row["rank"], row["status"]) for row in job.told()]
    assert told == [("a/b", "0", None, "failed"), ("r", "2", 0, "done"), ("r", "10", 0, "done")]
    job.store(**{"10": (ten,), "2": (two,)})  # another run's failure stays
    assert [row["run"] for row in job.told()] == ["a/b", "r", "r"]
    job.broken = set()
    assert job.store(bad, run="a/b") == Stored(1, 0, {})
    assert [(row["run"], row["status"]) for row in job.told()] == [(run, "done") for run in ("a/b", "r", "r")]
    places = ("run=a%2Fb/iteration=0", "run=r/iteration=10", "run=r/iteration=2")
    assert job.places() == [f"{place}/rank=0" for place in places]


def test_what_a_run_that_was_broken_off_left_is_removed(job: Job) -> None:
    file = job.file("rank0.json")
    job.store(file)
    place = job.results / "findings/run=r/iteration=0/rank=0"
    (place / ".part.parquet.123").write_text("half")
    job.file("rank0.json", content="other")
    job.store(file)
    assert [path.name for path in place.iterdir()] == ["part.parquet"]
