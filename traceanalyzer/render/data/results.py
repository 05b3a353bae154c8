"""What each file of a job says alone, as Parquet partitioned by run, iteration and rank; begun again where it was left.

    DIR/findings/run=NAME/iteration=10/rank=3/part.parquet      the same of accounting, steps and collectives
    DIR/files.parquet                                           one row per file: done or failed, and why

A file is done once its findings are there, which are written last: their metadata say of which content and by which
version of the tool they were made. So a run that is broken off, or a second one, does what is not done, and no more.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traceanalyzer.job.ranks import Here
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.finding import Finding, Occurrence
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.report import Report
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.folders import Layout, iteration_of_name, rank_of_name
from traceanalyzer.read.remote import as_path, is_url
from traceanalyzer.render.data.encode import json_text, signature, unicode_text, write_parquet
from traceanalyzer.render.data.json import document
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.summary import accounting_of, attempt
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.version import SCHEMA_VERSION, __version__

_IDS = pa.list_(pa.int64())
_Columns = list[tuple[str, pa.DataType]]
_PLACE: _Columns = [(name, pa.int64()) for name in ("device", "stream", "thread", "step")]
_TIMES: _Columns = [(name, pa.int64()) for name in ("start_ns", "end_ns", "cost_ns")]
_SAID = ("rule", "cause", "severity", "confidence", "message", "advice")
_TEXTS: _Columns = [(name, pa.string()) for name in _SAID]
_PROOF: _Columns = [("event_ids", _IDS), ("evidence", pa.string())]
_OCCURRENCES = pa.list_(pa.struct([*_TIMES, *_PLACE, ("event_ids", _IDS)]))
_SHARES: _Columns = [("cost_share", pa.float64()), ("count", pa.int64()), ("occurrences", _OCCURRENCES)]
_AMOUNTS: _Columns = [(name, pa.int64()) for name in ("step_ns", "low_ns", "high_ns")]
_PARTS: _Columns = [(name, pa.float64()) for name in ("share", "low_share", "high_share")]
_SAVING = pa.struct([*_AMOUNTS, *_PARTS, ("basis", pa.string()), ("beyond", pa.bool_())])
_STEPS: _Columns = [
    *(("by", pa.string()), ("steps", pa.int64()), ("cost_per_step_ns", pa.int64())),
    *(("saving", _SAVING), ("fault", pa.string()), ("ranks", _IDS), ("cost_by_rank_ns", _IDS)),
    *(("pedantic", pa.bool_()), ("title", pa.string()), ("profiler_command", pa.string())),
]
FINDINGS = pa.schema([*_TEXTS, ("rank", pa.int64()), *_PLACE, *_TIMES, *_SHARES, *_PROOF, *_STEPS])
"""Times are int64 ns; `evidence` is JSON text, since every rule names numbers of its own."""
_TYPES = {"int64": pa.int64(), "Int64": pa.int64(), "float64": pa.float64()}
_TEXT = pa.dictionary(pa.int32(), pa.string())
TABLES = ("steps", "collectives", "accounting", "findings")  # in the order in which they are written
_OF_JOB = ("rank", "ranks", "cost_by_rank_ns")  # columns that the folders tell, or one rank does not
_MADE_FROM, _FILE = "made_from", "file"
_PART = "part.parquet"
_AT_ONCE = 16  # files whose tables are in memory together
_BLOCK_BYTES = 1 << 20
_WHICH = ("run", "iteration", "rank", "source", "status", "problem", "events", "base_time_ns", "world_size")
_NUMBERS = ("rank", "events", "base_time_ns", "world_size")
_FILES = pa.schema([(name, pa.int64() if name in _NUMBERS else pa.string()) for name in _WHICH])


def write_findings(report: Report, stream: BinaryIO) -> None:
    rows = [finding_row(finding) for finding in report.findings]
    rest = {name: value for name, value in document(report).items() if name != "findings"}
    sources = [trace.meta.source for trace in report.traces]
    write_parquet(pa.Table.from_pylist(rows, FINDINGS), stream, signature(sources=sources, report=rest))


def write_accounting(frame: pd.DataFrame, sources: list[str], stream: BinaryIO) -> None:
    """One row per rank, device, step, class, cause and op, in ns; zstd."""
    write_parquet(pa.Table.from_pandas(frame, preserve_index=False), stream, signature(sources=sources))


def finding_row(finding: Finding) -> dict[str, Any]:
    saving = None if finding.saving is None else asdict(finding.saving)
    occurrences = [_flat(occurrence) for occurrence in finding.occurrences]
    evidence = json_text(finding.evidence)
    return _flat(finding) | {"occurrences": occurrences, "evidence": evidence, "saving": saving}


def _flat(item: Finding | Occurrence) -> dict[str, Any]:
    row = {field.name: getattr(item, field.name) for field in fields(item)}
    return row | {name: unicode_text(value) for name, value in row.items() if isinstance(value, str)}


def write_frame(trace: Trace, name: str, stream: BinaryIO) -> int:
    """Write one frame, zstd, each column with unit and meaning in its metadata; returns the row count."""
    columns = FRAMES[name].columns
    described = [{"meaning": one.meaning} | ({"unit": one.unit} if one.unit else {}) for one in columns]
    typed = [(one.name, _TYPES.get(one.storage.dtype, _TEXT)) for one in columns]
    schema = pa.schema([pa.field(*one, metadata=said) for one, said in zip(typed, described, strict=True)])
    frame = getattr(trace, name)
    table = pa.Table.from_pandas(frame[[one.name for one in columns]], schema=schema, preserve_index=False)
    write_parquet(table, stream, signature(source=trace.meta.source, frame=name))
    return len(frame)


class RankTables(NamedTuple):
    """What one file says: its tables as Parquet, and what it says of itself."""

    tables: Mapping[str, bytes]
    file: Mapping[str, Any]


class Place(NamedTuple):
    """Where in the folder the tables of a file belong."""

    run: str
    iteration: str
    rank: int

    def of(self, folder: Path, table: str) -> Path:
        run, iteration = (quote(one, safe="") for one in (self.run, self.iteration))
        return folder / table / f"run={run}" / f"iteration={iteration}" / f"rank={self.rank}" / _PART


class _Item(NamedTuple):
    """A file, in which iteration, its place there, and the hash of its content."""

    file: str
    iteration: str
    number: int
    made_from: str


class Stored(NamedTuple):
    """How many files were written or done before, and file -> why it failed."""

    written: int
    kept: int
    failed: Mapping[str, str]


Once = Callable[[Sequence[str], Mapping[str, str]], Mapping[str, RankTables | Exception]]
"""(files, file -> the hash of its content) -> what each says; the function asks `rank_tables`."""
Written = Callable[[Path, bytes], None]


def rank_tables(analysis: Analysis, _: None, made_from: Mapping[str, str]) -> RankTables:
    """What is asked of each file, wherever it is read; by its hash the tables say of which content they are."""
    source = analysis.trace.meta.source
    meta = replace(analysis.trace.meta, source=Path(source).name)
    alone = Analysis(replace(analysis.trace, meta=meta))
    report = report_of([(meta.rank, alone)])
    file = {name: getattr(meta, name) for name in ("source", "rank", "events", "base_time_ns", "world_size")}
    findings = pa.Table.from_pylist([finding_row(one) for one in report.findings], FINDINGS)
    times = accounting_of(Here({meta.rank: alone})).drop(columns="rank")
    made = {
        "findings": findings.drop_columns(list(_OF_JOB)),
        "accounting": pa.Table.from_pandas(times, preserve_index=False),
        "steps": _steps(alone),
        "collectives": _collectives(alone),
    }
    more = {_MADE_FROM: made_from[source], _FILE: file, "verdict": report.traces[0].verdict}
    return RankTables({name: parquet_bytes(table, more) for name, table in made.items()}, file)


def parquet_bytes(table: pa.Table, more: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    write_parquet(table, stream, signature(**more))
    return stream.getvalue()


def _steps(analysis: Analysis) -> pa.Table:
    steps = attempt({}, "steps", lambda: analysis.index(Steps), None)
    none = np.empty(0, np.int64)
    if steps is None:
        return pa.table({"step": none, "start_ns": none, "dur_ns": none, "steady": np.empty(0, np.bool_)})
    device = min(steps.bounds_ns, default=None)
    start = steps.cpu_start_ns if device is None else steps.bounds_ns[device][:-1]
    took = np.asarray(steps.durations_ns(device), np.int64)
    number, start = np.asarray(steps.number, np.int64), np.asarray(start, np.int64)[: len(took)]
    steady = np.asarray(steps.steady, np.bool_)
    return pa.table({"step": number, "start_ns": start, "dur_ns": took, "steady": steady})


def _collectives(analysis: Analysis) -> pa.Table:
    """Those that end together on all ranks, in order of their start; times on the file's clock."""
    runs = attempt({}, "collectives", lambda: analysis.index(CollectiveRuns), None)
    ints = ("seq", "step", "elements", "start_ns", "end_ns")
    columns: dict[str, Any] = {
        "collective": pa.array([] if runs is None else runs.what, pa.string()),
        "group": pa.array([] if runs is None else runs.group, pa.string()),
    }
    for name in ints:
        values = np.empty(0, np.int64) if runs is None else getattr(runs, name)
        columns[name] = pa.array(values, pa.int64(), mask=values < 0)  # negative ones are not known
    return pa.table(columns)


def store(folder: Path, run: str, layout: Layout, once: Once, written: Written) -> Stored:
    """Write the tables of all files that are not done; what is there of other runs and iterations stays.

    `once` gives the reason where a file cannot be read, `written` puts bytes in the place of a file, whole or not.
    """
    items: list[_Item] = []
    for name, files in (layout.iterations or {"": layout.files}).items():
        for number, file in enumerate(files):
            iteration = name or str(iteration_of_name(str(file)) or 0)
            items.append(_Item(str(file), iteration, number, _hash(file, number)))
    before = {(made_from, place.iteration): place for made_from, place in _done(folder, run)}
    taken: dict[Place, str] = {}
    todo: list[_Item] = []
    for item in items:
        place = before.get((item.made_from, item.iteration))
        if place is None or place in taken:
            todo.append(item)
        else:
            taken[place] = item.file
    kept, failed = len(taken), {}
    for some in (todo[at : at + _AT_ONCE] for at in range(0, len(todo), _AT_ONCE)):
        answers = once([item.file for item in some], {item.file: item.made_from for item in some})
        for item in some:
            problem = _put(folder, run, item, answers[item.file], taken, written)
            if problem is not None:
                failed[item.file] = problem
    _write_files(folder, run, [item for item in items if item.file in failed], failed, written)
    return Stored(len(items) - kept - len(failed), kept, failed)


def _put(
    folder: Path, run: str, item: _Item, answer: RankTables | Exception, taken: dict[Place, str], written: Written
) -> str | None:
    """Write one file's tables, the findings last; or why there are none."""
    if isinstance(answer, Exception):
        return str(getattr(answer, "problem", None) or f"{type(answer).__name__}: {answer}")
    declared = answer.file["rank"]
    named = rank_of_name(item.file) if declared is None else declared
    place = Place(run, item.iteration, item.number if named is None else named)
    if place in taken:
        return f"another file is of rank {place.rank}, too: {Path(taken[place]).name}"
    taken[place] = item.file
    place.of(folder, TABLES[-1]).unlink(missing_ok=True)
    for name in TABLES:
        _replace(place.of(folder, name), answer.tables[name], written)
    return None


def _replace(target: Path, content: bytes, written: Written) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{target.name}.*"):  # of a run that was broken off
        left.unlink(missing_ok=True)
    written(target, content)


def _hash(file: Path, number: int) -> str:
    """Of the content, of the rank that a file gets that tells none, and of what makes tables of it."""
    made_by = f"{__version__} {SCHEMA_VERSION} {number if rank_of_name(str(file)) is None else ''}"
    digest = hashlib.sha256(made_by.encode())
    try:
        if is_url(file):
            there: Any = as_path(file)
            digest.update(str(there.fs.ukey(there.path)).encode())
        else:
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK_BYTES):
                    digest.update(block)
    except (OSError, TraceAnalyzerError):
        return ""  # reading it says why
    return digest.hexdigest()


def _done(folder: Path, run: str | None = None) -> Iterator[tuple[str, Place]]:
    """(made of which content, where) of all files, or of those of one run, whose tables are all there."""
    for path in sorted((folder / TABLES[-1]).glob(f"run=*/iteration=*/rank=*/{_PART}")):
        names = [unquote(part.partition("=")[2]) for part in path.parts[-4:-1]]
        place = Place(names[0], names[1], int(names[2]))
        if run in (None, place.run) and all(place.of(folder, name).is_file() for name in TABLES):
            yield _said(path, _MADE_FROM), place


def _said(path: Path, name: str) -> str:
    try:
        with path.open("rb") as stream:
            metadata: Mapping[bytes, bytes] = pq.read_schema(stream).metadata or {}
        return metadata.get(f"traceanalyzer.{name}".encode(), b"").decode()
    except (OSError, pa.ArrowException):
        return ""


def _write_files(folder: Path, run: str, items: Sequence[_Item], failed: Mapping[str, str], written: Written) -> None:
    rows: list[dict[str, Any]] = []
    for _, place in _done(folder):
        told = json.loads(_said(place.of(folder, TABLES[-1]), _FILE) or "{}")
        rows.append({**told, **place._asdict(), "status": "done"})
    for item in items:
        rank = rank_of_name(item.file)
        own = {"run": run, "iteration": item.iteration, "rank": rank, "source": Path(item.file).name}
        rows.append({**own, "status": "failed", "problem": failed[item.file]})
    target = folder / "files.parquet"
    if target.is_file():
        with target.open("rb") as stream:
            others = pq.read_table(stream, schema=_FILES).to_pylist()
        rows += [row for row in others if row["run"] != run and row["status"] == "failed"]

    def place_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["run"], row["iteration"].zfill(12), row["rank"] is None, row["rank"] or 0, row["source"]

    rows.sort(key=place_of)
    _replace(target, parquet_bytes(pa.Table.from_pylist(rows, _FILES), {}), written)
