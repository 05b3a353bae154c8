"""Typed columns -> pandas frames in order of event_id, with sorted categories: the same for any chunking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traceanalyzer.read.events import Collector, Table, durations_ns
from traceanalyzer.schema import FRAMES, Column, Frame, Kind
from traceanalyzer.trace import NULL_INT


def build_frame(collector: Collector, name: str) -> pd.DataFrame:
    """One frame with every column that `schema` declares, rows in order of event_id."""
    frame = FRAMES[name]
    tables = [(category, table) for (of, category), table in sorted(collector.tables.items()) if of == name]
    order = _row_order([table for _, table in tables])
    columns: dict[str, Any] = {}
    for column in frame.columns:
        if column.name == "category":
            columns[column.name] = _categories(tables, order)
        elif column.name == "dur_ns":
            columns[column.name] = _durations(collector, tables, order)
        else:
            columns[column.name] = _column(collector, frame, column, [table for _, table in tables], order)
    return pd.DataFrame(columns, copy=False)


def _row_order(tables: Sequence[Table]) -> list[NDArray[np.int64]]:
    """For each table the rows of the frame that its rows become."""
    if not tables:
        return []
    ids = np.concatenate([table.array("event_id") for table in tables])
    rows = np.empty(len(ids), np.int64)
    rows[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    return np.split(rows, np.cumsum([table.rows for table in tables])[:-1])


def _gathered(
    parts: Sequence[NDArray[Any]], order: list[NDArray[np.int64]], dtype: Any, null: Any
) -> NDArray[Any]:
    """The tables' arrays as one, each row at its place."""
    out = np.full(sum(map(len, order)), null, dtype)
    for part, rows in zip(parts, order, strict=True):
        out[rows] = part
    return out


def _categories(tables: list[tuple[str, Table]], order: list[NDArray[np.int64]]) -> pd.Categorical:
    parts = [np.full(table.rows, code, np.int32) for code, (_, table) in enumerate(tables)]
    names = pd.Index([category for category, _ in tables], dtype="str" if pd.__version__ >= "3" else object)
    return pd.Categorical.from_codes(_gathered(parts, order, np.int32, -1), categories=names)


def _durations(collector: Collector, tables: list[tuple[str, Table]], order: Any) -> NDArray[np.int64]:
    parts = []
    for category, table in tables:
        nanoseconds, impossible = durations_ns(table.array("dur_ns"))
        if impossible:
            collector.anomalies[f"impossible duration of {category}, taken as 0"] += impossible
        parts.append(nanoseconds)
    return _gathered(parts, order, np.int64, 0)


def _column(collector: Collector, frame: Frame, column: Column, tables: list[Table], order: Any) -> Any:
    filled = [table for table in tables if column.name in table.buffers]
    rows = [part for table, part in zip(tables, order, strict=True) if column.name in table.buffers]
    n = sum(map(len, order))
    if column.kind.interned:
        strings = collector.strings[frame.name, column.name]
        codes = np.full(n, -1, np.int32)
        _scatter(codes, [table.array(column.name) for table in filled], rows)
        return _categorical(codes, strings)
    if column.kind is Kind.FLOAT:
        floats = np.full(n, np.nan)
        _scatter(floats, [table.array(column.name) for table in filled], rows)
        return floats
    integers = np.full(n, NULL_INT, np.int64)
    _scatter(integers, [table.array(column.name) for table in filled], rows)
    if column.kind is Kind.INT:
        missing = integers == NULL_INT
        integers[missing] = 0
        return pd.arrays.IntegerArray(integers, missing)
    return integers


def _scatter(out: NDArray[Any], parts: list[NDArray[Any]], rows: list[NDArray[np.int64]]) -> None:
    for part, at in zip(parts, rows, strict=True):
        out[at] = part


def _categorical(codes: NDArray[np.int32], strings: dict[Any, int]) -> pd.Categorical:
    """Sorted categories, unused ones left out, so that neither chunking nor order shows."""
    texts = np.array([_text(key) for key in strings if key is not None], dtype=object)
    used = np.unique(codes[codes >= 0])
    ranking = sorted(used.tolist(), key=texts.__getitem__)
    new_code = np.full(len(texts) + 1, -1, np.int32)
    new_code[ranking] = np.arange(len(ranking))
    categories = pd.Index(texts[ranking], dtype="str" if pd.__version__ >= "3" else object)
    return pd.Categorical.from_codes(new_code[codes], categories=categories)


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key
