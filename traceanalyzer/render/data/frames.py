"""Trace -> Parquet files, one per frame, for DuckDB, polars or pandas; units and meanings go along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from traceanalyzer.model.schema import FRAMES, SCHEMA_VERSION, Column
from traceanalyzer.version import __version__

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Meta, Trace

_TYPES = {"int64": pa.int64(), "Int64": pa.int64(), "float64": pa.float64()}
_TEXT = pa.dictionary(pa.int32(), pa.string())


def write_frame(trace: Trace, name: str, stream: BinaryIO) -> int:
    """Write one frame, zstd, each column with unit and meaning in its metadata; returns the row count."""
    columns = FRAMES[name].columns
    metadata = {
        "traceanalyzer.schema_version": str(SCHEMA_VERSION),
        "traceanalyzer.version": __version__,
        "traceanalyzer.source": trace.meta.source,
        "traceanalyzer.frame": name,
    }
    schema = pa.schema([_field(column) for column in columns])
    frame = getattr(trace, name)
    names = [column.name for column in columns]
    table = pa.Table.from_pandas(frame[names], schema=schema, preserve_index=False)
    pq.write_table(table.replace_schema_metadata(metadata), stream, compression="zstd")
    return len(frame)


def write_meta(meta: Meta, stream: BinaryIO) -> None:
    """What the file says of itself and the account of what was read, as JSON."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    stream.write(orjson.dumps(meta, option=options))


def _field(column: Column) -> pa.Field[Any]:
    described: dict[str | bytes, str | bytes] = {
        "meaning": column.meaning,
        **({"unit": column.unit} if column.unit else {}),
    }
    return pa.field(column.name, _TYPES.get(column.storage.dtype, _TEXT), metadata=described)
