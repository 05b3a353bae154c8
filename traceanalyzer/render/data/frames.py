"""Trace -> Parquet files, one per frame, for DuckDB, polars or pandas; units and meanings go along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from traceanalyzer.model.schema import FRAMES, Column
from traceanalyzer.render.data.encode import INDENTED, signature, to_json, write_parquet

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Meta, Trace

_TYPES = {"int64": pa.int64(), "Int64": pa.int64(), "float64": pa.float64()}
_TEXT = pa.dictionary(pa.int32(), pa.string())


def write_frame(trace: Trace, name: str, stream: BinaryIO) -> int:
    """Write one frame, zstd, each column with unit and meaning in its metadata; returns the row count."""
    columns = FRAMES[name].columns
    schema = pa.schema([_field(column) for column in columns])
    frame = getattr(trace, name)
    names = [column.name for column in columns]
    table = pa.Table.from_pandas(frame[names], schema=schema, preserve_index=False)
    write_parquet(table, stream, signature(source=trace.meta.source, frame=name))
    return len(frame)


def write_meta(meta: Meta, stream: BinaryIO) -> None:
    """What the file says of itself and the account of what was read, as JSON."""
    stream.write(to_json(meta, INDENTED))


def _field(column: Column) -> pa.Field[Any]:
    described: dict[str | bytes, str | bytes] = {
        "meaning": column.meaning,
        **({"unit": column.unit} if column.unit else {}),
    }
    return pa.field(column.name, _TYPES.get(column.storage.dtype, _TEXT), metadata=described)
