"""Tables as data: JSON, CSV, Parquet and Markdown of one frame, with what must be said beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from traceanalyzer.version import __version__

SCHEMA_VERSION = 1
_JSON = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """One mapping per row; missing values are None."""
    plain = rows.astype(object).where(rows.notna(), None) if len(rows) else rows
    return [{str(key): value for key, value in row.items()} for row in plain.to_dict("records")]


def to_json(source: str, fields: Mapping[str, Any]) -> bytes:
    """A document with its schema version, the file that it is about, and the fields."""
    head = {"schema_version": SCHEMA_VERSION, "tool_version": __version__, "source": source}
    return orjson.dumps({**head, **fields}, option=_JSON) + b"\n"


def to_csv(rows: pd.DataFrame) -> bytes:
    """A header and one line per row; lists are JSON."""
    shown = rows.copy()
    for name in ("stack",):
        if name in shown:
            shown[name] = [orjson.dumps(list(value)).decode() for value in shown[name]]
    return shown.to_csv(index=False, lineterminator="\n").encode()


def write_parquet(rows: pd.DataFrame, stream: BinaryIO, source: str, notes: Sequence[str] = ()) -> None:
    """Typed columns, zstd; versions, source and notes in the file's metadata."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    described: dict[Any, Any] = {
        "traceanalyzer.schema_version": str(SCHEMA_VERSION),
        "traceanalyzer.version": __version__,
        "traceanalyzer.source": source,
        "traceanalyzer.notes": orjson.dumps(list(notes)).decode(),
    }
    table = table.replace_schema_metadata((table.schema.metadata or {}) | described)
    pq.write_table(table, stream, compression="zstd")


def to_markdown(titles: Sequence[str], cells: Sequence[Sequence[str]], after: Sequence[str] = ()) -> str:
    """A pipe table: the first column to the left, the others to the right; `after` as lines below."""
    lines = [_line(titles), _line([":--", *["--:"] * (len(titles) - 1)])]
    lines += [_line(row) for row in cells]
    return "\n".join([*lines, *([""] if after else []), *[f"{line}  " for line in after]]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
