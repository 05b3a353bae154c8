"""Report -> Parquet: one row per finding, typed; accounting in a file of its own; see docs/output.md.

The file's metadata carry the rest of the report, so that nothing of the JSON is lost: `traceanalyzer.report`
is the JSON document without its findings.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from traceanalyzer.model.finding import Finding, Occurrence, Report
from traceanalyzer.render.data.json import SCHEMA_VERSION, document
from traceanalyzer.version import __version__

if TYPE_CHECKING:
    import pandas as pd

_JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
_IDS = pa.list_(pa.int64())
_Columns = list[tuple[str, pa.DataType]]
_PLACE: _Columns = [(name, pa.int64()) for name in ("device", "stream", "thread", "step")]
_TIMES: _Columns = [(name, pa.int64()) for name in ("start_ns", "end_ns", "cost_ns")]
_TEXTS: _Columns = [
    (name, pa.string()) for name in ("rule", "cause", "severity", "confidence", "message", "advice")
]
_PROOF: _Columns = [("event_ids", _IDS), ("evidence", pa.string())]
_OCCURRENCES = pa.list_(pa.struct([*_TIMES, *_PLACE, *_PROOF]))
_SHARES: _Columns = [("cost_share", pa.float64()), ("count", pa.int64()), ("occurrences", _OCCURRENCES)]
FINDINGS = pa.schema([*_TEXTS, ("rank", pa.int64()), *_PLACE, *_TIMES, *_SHARES, *_PROOF])
"""Times are int64 ns; `evidence` is JSON text, since every rule names numbers of its own."""


def write_findings(report: Report, stream: BinaryIO) -> None:
    """One row per finding, in the report's order; zstd."""
    rows = [_row(finding) for finding in report.findings]
    rest = {name: value for name, value in document(report).items() if name != "findings"}
    sources = [meta.source for meta in report.metas]
    _write(pa.Table.from_pylist(rows, FINDINGS), stream, sources, report=rest)


def write_accounting(frame: pd.DataFrame, sources: list[str], stream: BinaryIO) -> None:
    """One row per rank, device, step, class, cause and op, in ns; zstd."""
    _write(pa.Table.from_pandas(frame, preserve_index=False), stream, sources)


def _row(finding: Finding) -> dict[str, Any]:
    row = _flat(finding)
    return row | {"occurrences": [_flat(occurrence) for occurrence in finding.occurrences]}


def _flat(item: Finding | Occurrence) -> dict[str, Any]:
    row = {field.name: getattr(item, field.name) for field in fields(item)}
    if isinstance(item, Finding):
        row["evidence"] = orjson.dumps(item.evidence, option=_JSON).decode()
    return row


def _write(table: pa.Table, stream: BinaryIO, sources: list[str], **more: Any) -> None:
    metadata = {
        "traceanalyzer.schema_version": str(SCHEMA_VERSION),
        "traceanalyzer.version": __version__,
        "traceanalyzer.sources": orjson.dumps(sources).decode(),
        **{
            f"traceanalyzer.{name}": orjson.dumps(value, option=_JSON).decode()
            for name, value in more.items()
        },
    }
    pq.write_table(table.replace_schema_metadata(metadata), stream, compression="zstd")
