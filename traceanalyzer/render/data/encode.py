"""Values -> JSON bytes and Parquet files: one set of options, and the metadata that every file carries."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, BinaryIO

import orjson

from traceanalyzer.model.text_queries import regex
from traceanalyzer.version import SCHEMA_VERSION, __version__

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
LINE = orjson.OPT_APPEND_NEWLINE
_C1 = regex(rb"\xc2([\x80-\x9f])")  # control characters that orjson leaves as they are; a terminal obeys them


def to_json(value: Any, options: int = 0) -> bytes:
    """JSON; integers beyond 64 bit become doubles, halves of surrogate pairs and control characters escapes."""
    try:
        text = orjson.dumps(value, option=_OPTIONS | options)
    except TypeError:  # rare: names of files that are no UTF-8, numbers of damaged headers
        text = orjson.dumps(_mended(value), option=_OPTIONS | options)
    return _C1.sub(lambda found: b"\\u00%02x" % found[1][0], text)


def indented_json(value: Any) -> bytes:
    return to_json(value, _INDENTED)


def json_text(value: Any) -> str:
    return to_json(value).decode()


def unicode_text(text: str) -> str:
    """The text with halves of surrogate pairs as escapes, `\\udc80`: what UTF-8 can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return unicode_text(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return float(value) if abs(value) < 10**308 else None
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _mended(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    return value


def signature(**more: Any) -> dict[str, str]:
    """Metadata of a Parquet file: versions, and `more` under the tool's prefix, what is no text as JSON."""
    entries = {"schema_version": str(SCHEMA_VERSION), "version": __version__, **more}
    return {
        f"traceanalyzer.{name}": unicode_text(value) if isinstance(value, str) else json_text(value)
        for name, value in entries.items()
    }


def write_parquet(table: Any, stream: BinaryIO, metadata: Mapping[str, str], *, keep: bool = False) -> None:
    """An Arrow table, zstd; `keep` adds to the metadata that the table has instead of replacing it."""
    import pyarrow.parquet as pq

    before = (table.schema.metadata or {}) if keep else {}
    described = {**before, **{name.encode(): value.encode() for name, value in metadata.items()}}
    pq.write_table(table.replace_schema_metadata(described), stream, compression="zstd")
