"""Parsed columns kept between runs, only where the user asks for it (`cache=True`, `--cache`).

One file per trace in the user's cache directory: its name says which path, and in which state (size, time of
change, schema), it was made from; the content is an Arrow stream per frame, the metadata as JSON in the schema
of the first, and a checksum over all of it at the end. What does not match in every respect is read anew.
"""

import hashlib
import json
import logging
import mmap
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from traceanalyzer.model.lanes import Coded, Columns, Lane, Lanes
from traceanalyzer.model.private_files import create_private, make_private, open_private
from traceanalyzer.model.schema import FRAMES, Column, Storage
from traceanalyzer.model.trace import NULL_INT, Damage, Device, Meta, Trace
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.frames import build_columns
from traceanalyzer.version import SCHEMA_VERSION, __version__

_log = logging.getLogger(__name__)
_CHECKSUM_BYTES = 4
_META_KEY = b"traceanalyzer.meta"


def cached(path: Path, read: Callable[[Path], Trace]) -> Trace:
    """The trace from the cache, or read and then kept there; a cache that cannot be used costs nothing else."""
    place = place_of(path, ".arrow")
    trace = _opened(place, path) if place else None
    if trace is not None or place is None:
        return trace or read(path)
    trace = read(path)
    try:
        _keep(trace, place)
    except OSError as error:
        _log.debug("%s is not cached: %s", path, error)
    return trace


def place_of(path: Path, suffix: str) -> Path | None:
    """Where something of the file in its present state is kept; None for a pipe, or without a home folder."""
    if not path.is_file():
        return None
    folders = os.environ.get("XDG_CACHE_HOME"), os.environ.get("LOCALAPPDATA"), os.path.expanduser("~/.cache")
    home = next(filter(None, folders))
    if str(home).startswith("~"):  # no such folder is known
        return None
    state = path.stat()
    parts = (state.st_size, state.st_mtime_ns, SCHEMA_VERSION, __version__)
    return Path(home, "traceanalyzer", f"{content_hash(path.resolve())}-{content_hash(parts)}{suffix}")


def content_hash(what: object) -> str:
    return hashlib.sha256(str(what).encode()).hexdigest()[:16]


def _keep(trace: Trace, place: Path) -> None:
    if not make_private(place.parent):
        return
    partial = place.with_suffix(f".{os.getpid()}.part")
    try:
        with create_private(partial) as file, pa.PythonFile(file, mode="w") as sink:
            for name in Trace.FRAMES:
                table = pa.Table.from_pandas(getattr(trace, name), preserve_index=False)
                first = name == Trace.FRAMES[0]
                meta = {_META_KEY: json.dumps(asdict(trace.meta)).encode()} if first else {}
                with pa.ipc.new_stream(sink, table.schema.with_metadata(meta)) as stream:
                    stream.write_table(table)
        with partial.open("rb") as written, create_private(partial, append=True) as file:
            file.write(isal_zlib.crc32(_mapped(written)).to_bytes(_CHECKSUM_BYTES, "little"))
        for older in place.parent.glob(f"{place.name.split('-')[0]}-*.arrow"):
            older.unlink(missing_ok=True)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def _mapped(file: IO[bytes]) -> memoryview:
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _opened(place: Path, path: Path) -> Trace | None:
    try:
        file = open_private(place)
        if file is None:
            return None
        with file:  # mapped rather than read
            whole = _mapped(file)
        content, checksum = whole[:-_CHECKSUM_BYTES], whole[-_CHECKSUM_BYTES:]
        if isal_zlib.crc32(content) != int.from_bytes(checksum, "little"):
            return None
        source = pa.BufferReader(pa.py_buffer(content))
        tables = {name: pa.ipc.open_stream(source).read_all() for name in Trace.FRAMES}
        meta = _meta(json.loads(tables[Trace.FRAMES[0]].schema.metadata[_META_KEY]))
        lanes = {name: Lane(name, partial(_columns, name, table)) for name, table in tables.items()}
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        _log.debug("the cache of %s is not usable: %s", path, error)
        return None
    return Trace(Lanes(lanes), replace(meta, source=str(path)))


def _meta(stored: dict[str, Any]) -> Meta:
    pairs = [(stored, "window_ns"), *((device, "compute_capability") for device in stored["devices"])]
    for pair, key in pairs:
        pair[key] = None if pair[key] is None else (pair[key][0], pair[key][1])
    stored["devices"] = tuple(Device(**device) for device in stored["devices"])
    stored["damage"] = tuple(Damage(**entry) for entry in stored["damage"])
    return Meta(**stored)


def _columns(name: str, table: Any) -> Columns:
    if table.num_rows == 0:
        return build_columns(Collector(), name)  # an empty stream has no chunks to take columns from
    columns = {column.name: stored_column(column, table[column.name]) for column in FRAMES[name].columns}
    return Columns.of(columns, table.num_rows)


def stored_column(column: Column, chunked: Any) -> Any:
    """An Arrow column as the reader makes it; numbers without a copy."""
    values = chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)
    if column.storage.interned:
        codes = values.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return Coded(codes, np.array(values.dictionary.to_pylist(), object))
    if column.storage is Storage.FLOAT:
        return values.fill_null(np.nan).to_numpy(zero_copy_only=False)
    if column.storage is not Storage.INT:
        return values.to_numpy(zero_copy_only=False)
    return values.fill_null(NULL_INT).to_numpy(zero_copy_only=False)
