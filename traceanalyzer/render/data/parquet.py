"""Report -> Parquet: one row per finding, typed; accounting in a file of its own; see docs/output.md.

The file's metadata carry the rest of the report, so that nothing of the JSON is lost: `traceanalyzer.report`
is the JSON document without its findings.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from traceanalyzer.model.finding import Finding, Occurrence
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.encode import json_text, signature, unicode_text, write_parquet
from traceanalyzer.render.data.json import document

if TYPE_CHECKING:
    import pandas as pd

_IDS = pa.list_(pa.int64())
_Columns = list[tuple[str, pa.DataType]]
_PLACE: _Columns = [(name, pa.int64()) for name in ("device", "stream", "thread", "step")]
_TIMES: _Columns = [(name, pa.int64()) for name in ("start_ns", "end_ns", "cost_ns")]
_TEXTS: _Columns = [
    (name, pa.string()) for name in ("rule", "cause", "severity", "confidence", "message", "advice")
]
_PROOF: _Columns = [("event_ids", _IDS), ("evidence", pa.string())]
_OCCURRENCES = pa.list_(pa.struct([*_TIMES, *_PLACE, ("event_ids", _IDS)]))
_SHARES: _Columns = [("cost_share", pa.float64()), ("count", pa.int64()), ("occurrences", _OCCURRENCES)]
_SAVING = pa.struct(
    [
        *((name, pa.int64()) for name in ("step_ns", "low_ns", "high_ns")),
        *((name, pa.float64()) for name in ("share", "low_share", "high_share")),
        ("basis", pa.string()),
        ("beyond", pa.bool_()),
    ]
)
_STEPS: _Columns = [
    ("by", pa.string()),
    ("steps", pa.int64()),
    ("cost_per_step_ns", pa.int64()),
    ("saving", _SAVING),
    ("fault", pa.string()),
    ("ranks", _IDS),
    ("cost_by_rank_ns", _IDS),
]
FINDINGS = pa.schema([*_TEXTS, ("rank", pa.int64()), *_PLACE, *_TIMES, *_SHARES, *_PROOF, *_STEPS])
"""Times are int64 ns; `evidence` is JSON text, since every rule names numbers of its own."""


def write_findings(report: Report, stream: BinaryIO) -> None:
    """One row per finding, in the report's order; zstd."""
    rows = [finding_row(finding) for finding in report.findings]
    rest = {name: value for name, value in document(report).items() if name != "findings"}
    sources = [trace.meta.source for trace in report.traces]
    write_parquet(pa.Table.from_pylist(rows, FINDINGS), stream, signature(sources=sources, report=rest))


def write_accounting(frame: pd.DataFrame, sources: list[str], stream: BinaryIO) -> None:
    """One row per rank, device, step, class, cause and op, in ns; zstd."""
    write_parquet(pa.Table.from_pandas(frame, preserve_index=False), stream, signature(sources=sources))


def finding_row(finding: Finding) -> dict[str, Any]:
    """A finding as a row of `FINDINGS`."""
    saving = None if finding.saving is None else asdict(finding.saving)
    occurrences = [_flat(occurrence) for occurrence in finding.occurrences]
    evidence = json_text(finding.evidence)
    return _flat(finding) | {"occurrences": occurrences, "evidence": evidence, "saving": saving}


def _flat(item: Finding | Occurrence) -> dict[str, Any]:
    """Fields as they are, texts as UTF-8 can hold them."""
    row = {field.name: getattr(item, field.name) for field in fields(item)}
    return row | {name: unicode_text(value) for name, value in row.items() if isinstance(value, str)}
