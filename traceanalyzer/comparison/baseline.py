"""Baselines: snapshots in a small Parquet file that can be committed."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.comparison.snapshot import SAMPLES, SNAPSHOT_SCHEMA, TABLES, KnownFault, Side, Snapshot, StepTime
from traceanalyzer.model.errors import BadOption, UnreadableTrace
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.text_queries import regex
from traceanalyzer.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = Path(".traceanalyzer")
MAX_BYTES = 200_000  # so that it can be committed
_NAME = regex(r"^[\w.-]+$")
_KEY = b"traceanalyzer.baseline"
_FEWER_SAMPLES = (SAMPLES, 8, 4, 2, 1)


def baseline_path(name: str) -> Path:
    """Where the baseline of that name is kept: below the working folder, or the path of a .parquet file itself.

    Raises BadOption: it is neither a plain name nor a .parquet file.
    """
    if name.endswith(".parquet"):
        return Path(name)
    if not _NAME.match(name):
        remedy = "Use letters, digits, dots, dashes, or a .parquet file."
        raise BadOption(f"baseline {name!r}: not a name", remedy=remedy)
    return FOLDER / f"{name}.parquet"


def baseline_bytes(side: Side) -> bytes:
    """The Parquet file; it keeps fewer durations of each kernel where it would be too large.

    Raises BadOption: it is larger than `MAX_BYTES` even so.
    """
    for samples in _FEWER_SAMPLES:
        written = _written(side, samples)
        if len(written) <= MAX_BYTES:
            return written
    what = f"the baseline takes {len(written):,} bytes, more than {MAX_BYTES:,}"
    remedy = "Record fewer steps, ranks or captures, or compare with the traces themselves."
    raise BadOption(what, remedy=remedy)


def _written(side: Side, samples: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    heads: list[dict[str, Any]] = []
    frames = []
    for capture, ranks in enumerate(side):
        for rank, snapshot in ranks.items():
            number = len(heads)
            heads.append({"capture": capture, "rank": rank, "snapshot": _head(snapshot)})
            for name, table in snapshot.tables.items():
                frames.append(_thinned(table, name, samples).assign(table=name, snapshot=number))
    frame = pd.concat(frames, ignore_index=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    plain = json.loads(json.dumps(heads))
    described = {"schema": SNAPSHOT_SCHEMA, "version": __version__, "heads": plain, "sum": _sum(plain, table)}
    stream = io.BytesIO()
    meta = {_KEY: json.dumps(described, sort_keys=True).encode()}
    pq.write_table(table.replace_schema_metadata(meta), stream, compression="zstd", compression_level=19)
    return stream.getvalue()


def _sum(heads: Any, table: pa.Table) -> str:
    """What tells whether a baseline is as it was saved."""
    content = json.dumps([heads, table.to_pydict()], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _thinned(table: pd.DataFrame, name: str, samples: int) -> pd.DataFrame:
    if name != "work":
        return table
    step = SAMPLES // samples
    kept: Any = [list(row)[::step] for row in table["samples"]]
    return table[list(TABLES[name])].assign(samples=kept)


def _head(snapshot: Snapshot) -> dict[str, Any]:
    others = ("tables", "step", "faults", "strip", "regions")
    plain = {name: getattr(snapshot, name) for name in Snapshot.__slots__ if name not in others}
    step = None if snapshot.step is None else asdict(snapshot.step)
    return plain | {"step": step, "faults": [asdict(fault) for fault in snapshot.faults]}


def load_baseline(name: str) -> Side:
    """The side that was saved.

    Raises:
        BadOption: there is none of that name.
        UnreadableTrace: the file is no baseline, was changed, or another version of the tool made it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = baseline_path(name)
    if not path.is_file():
        remedy = f"Make it: traceanalyzer baseline save {name} TRACE"
        raise BadOption("no such baseline", where=path, remedy=remedy)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        problem = "is no baseline: not a Parquet file"
        raise UnreadableTrace(problem, where=path, remedy="Save it again.") from error
    described = (table.schema.metadata or {}).get(_KEY)
    if described is None:
        remedy = "Save one: traceanalyzer baseline save NAME TRACE"
        raise UnreadableTrace("is no baseline", where=path, remedy=remedy)
    content = _described(described)
    if content.get("schema") != SNAPSHOT_SCHEMA:
        schemas = f"schema {content.get('schema')}, here {SNAPSHOT_SCHEMA}"
        writer = f"traceanalyzer {content.get('version')} ({schemas})"
        readable = writer.encode("ascii", "backslashreplace").decode()
        remedy = "Save it again from the traces."
        raise UnreadableTrace(f"was made by {readable}", where=path, remedy=remedy)
    try:
        unchanged = content.get("sum") == _sum(content.get("heads"), table)
    except UnicodeDecodeError:  # of a column's name or a text in it
        unchanged = False
    if not unchanged:
        remedy = "Take the file from where it was committed, or save it again."
        raise UnreadableTrace("is not as it was saved", where=path, remedy=remedy)
    return _sides(content["heads"], table.to_pandas())


def _described(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _sides(heads: Sequence[Mapping[str, Any]], frame: pd.DataFrame) -> Side:
    captures: list[dict[int | None, Snapshot]] = []
    for number, head in enumerate(heads):
        if head["capture"] == len(captures):
            captures.append({})
        own = frame[frame["snapshot"] == number]
        captures[-1][head["rank"]] = _snapshot(head["snapshot"], own)
    return captures


def _snapshot(head: Mapping[str, Any], frame: pd.DataFrame) -> Snapshot:
    tables = {name: _table(frame[frame["table"] == name], name) for name in TABLES}
    faults = tuple(KnownFault(**{**fault, "rules": tuple(fault["rules"])}) for fault in head["faults"])
    step = None if head["step"] is None else _step(head["step"])
    lists = {"gpus": tuple(head["gpus"]), "recorded": tuple(head["recorded"]), "faults": faults}
    return Snapshot(**{**head, **lists, "step": step, "tables": tables})


def _step(fields: Mapping[str, Any]) -> StepTime:
    paces = tuple((float(pace), float(ns)) for pace, ns in fields["paces"])
    return StepTime(**{**fields, "paces": paces, "each_ns": tuple(fields["each_ns"])})


def _table(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    columns = TABLES[name]
    plain = {column: kind for column, kind in columns.items() if kind != "object"}
    table = frame[list(columns)].astype(plain).reset_index(drop=True)
    if "samples" in columns:
        table["samples"] = [[int(ns) for ns in row] for row in table["samples"]]
    return table
