"""Rows of a comparison -> a frame, for notebooks, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from traceanalyzer.comparison.result import Row
from traceanalyzer.model.interpreter import pd

_SIDES = ("count", "ns", "exposed_ns", "median_ns")


def rows_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The columns that `Comparison.to_frame` names; missing numbers are null."""
    plain = [one.name for one in fields(Row) if one.name not in ("base", "new")]
    records: list[dict[str, Any]] = []
    for row in rows:
        record: dict[str, Any] = {name: getattr(row, name) for name in plain}
        record["word"] = str(row.word)
        for side, work in (("base", row.base), ("new", row.new)):
            record |= {f"{side}_{name}": work and getattr(work, name) for name in _SIDES}
        records.append(record)
    columns = [*plain, *(f"{side}_{name}" for side in ("base", "new") for name in _SIDES)]
    frame = pd.DataFrame(records, columns=columns)
    numbers = [name for name in columns if name.startswith(("base_", "new_"))] + ["ratio", "p"]
    return frame.astype({**dict.fromkeys(numbers, "float64"), "delta_ns": "int64"})
