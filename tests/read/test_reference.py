"""The reader gives what the reference reader gives, and accounts for every event, on shared traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest

from tests.read.reference import read
from tests.support.cached_reports import loaded
from tests.support.trace_selection import one_of_each_writer
from traceanalyzer.model.schema import FRAMES, Storage
from traceanalyzer.model.trace import Trace


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_every_event_is_in_a_frame_or_counted(shared_trace: Path) -> None:
    meta = loaded(shared_trace).meta
    whole = orjson.loads(gzip.decompress(shared_trace.read_bytes()))
    events = whole if isinstance(whole, list) else whole["traceEvents"]
    in_frames = sum(sum(rows.values()) for rows in meta.rows.values())
    assert in_frames + sum(meta.counted.values()) == meta.events == len(events)


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_every_column_equals_the_reference(shared_trace: Path) -> None:
    trace = loaded(shared_trace)
    rows, counted = read(gzip.decompress(shared_trace.read_bytes()))
    assert dict(trace.meta.counted) == dict(counted)
    assert trace.meta.damage == ()
    unlink(rows, trace)
    for name, frame in FRAMES.items():
        made = getattr(trace, name)
        assert list(made.columns) == [column.name for column in frame.columns]
        for column in frame.columns:
            assert str(made[column.name].dtype) == column.storage.dtype
            expected = [row[column.name] for row in rows[name]]
            assert values(made[column.name], column.storage) == as_text(expected, column.storage), column.name


def values(column: pd.Series[Any], storage: Storage) -> list[Any]:
    """A column as plain Python values, null as None; lists and objects as their parsed JSON."""
    pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
    return as_text([None if missing else value for value, missing in pairs], storage)


def as_text(column: list[Any], storage: Storage) -> list[Any]:
    """JSON texts parsed, so that two ways to print one float are equal."""
    if storage is not Storage.JSON:
        return column
    parsed = {text: json.loads(text) for text in set(column) if text is not None}
    return [None if text is None else parsed[text] for text in column]


def unlink(rows: dict[str, list[dict[str, Any]]], trace: Trace) -> None:
    """Take the false links out of the reference's rows, by loops: an id equal to the row's own correlation is
    believed where an op with that id was running on the calling thread when the call was made."""
    if not trace.meta.dialect.startswith(("torch 1.12", "torch 2.1", "torch 2.4")):
        return
    ops = {row["external_id"]: row for row in rows["cpu"] if row["category"] in ("cpu_op", "user_annotation")}
    believed = set()
    for row in rows["cpu"]:
        if row["external_id"] is None or row["external_id"] != row["correlation"]:
            continue
        op = ops.get(row["external_id"])
        within = op and op["start_ns"] <= row["start_ns"] < op["start_ns"] + op["dur_ns"]
        if within and op["tid"] == row["tid"]:
            believed.add(row["correlation"])
        else:
            row["external_id"] = None
    for row in rows["gpu"]:
        if row["external_id"] == row["correlation"] and row["correlation"] not in believed:
            row["external_id"] = None
