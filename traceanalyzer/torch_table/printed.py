"""The table as torch prints it: rows in its order, times in its floats, and its totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceanalyzer.torch_table.key_averages import KeyAverages
from traceanalyzer.torch_table.torch_floats import torch_times

if TYPE_CHECKING:
    import pandas as pd

Us = np.ndarray[Any, np.dtype[np.float64]]

SORTS: Mapping[str, str] = {
    "cpu_time_total": "cpu_us",
    "self_cpu_time_total": "self_cpu_us",
    "device_time_total": "device_us",
    "self_device_time_total": "self_device_us",
    "cpu_memory_usage": "cpu_bytes",
    "self_cpu_memory_usage": "self_cpu_bytes",
    "device_memory_usage": "device_bytes",
    "self_device_memory_usage": "self_device_bytes",
    "count": "calls",
}
AVERAGES: Mapping[str, str] = {"cpu_time": "cpu_us", "device_time": "device_us"}
DEVICE_WORDS = ("cuda", "xpu", "privateuse1")


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """What `key_averages().table()` shows.

    Attributes:
        rows: as `KeyAverages.rows`, sorted, with self_cpu_us, cpu_us, self_device_us and device_us (float64).
        device: as torch's headers call it; None for a recording of the CPU alone.
        has_device_time, has_memory: whether there are such columns.
        self_cpu_us, self_device_us: the totals below the table, added up in the order of the rows.
    """

    rows: pd.DataFrame
    device: str | None
    has_device_time: bool
    has_memory: bool
    self_cpu_us: float
    self_device_us: float


def printed_table(averages: KeyAverages, sort_by: str | None = None) -> PrintedTable:
    """The rows in torch's order; in that of first sight where `sort_by` is None."""
    import pandas as pd

    rows = sorted_rows(pd.concat([averages.rows, torch_times(averages)], axis="columns"), sort_by)
    work = (rows["device_type"] != "CPU") & ~rows["is_user_annotation"]
    return PrintedTable(
        rows=rows,
        device=averages.device,
        has_device_time=averages.has_device_time,
        has_memory=averages.has_memory,
        self_cpu_us=_added_up(rows["self_cpu_us"]),
        self_device_us=_added_up(rows.loc[work, "self_device_us"]),
    )


def _added_up(values: pd.Series[float]) -> float:
    """One after the other, as torch adds them."""
    return float(values.to_numpy().cumsum()[-1]) if len(values) else 0.0


def sorted_rows(rows: pd.DataFrame, sort_by: str | None) -> pd.DataFrame:
    """Largest first, in order of first sight where equal; unsorted where nothing is asked for."""
    if sort_by is None:
        return rows.reset_index(drop=True)
    values = sort_values(rows, sort_by)
    return rows.iloc[np.argsort(-values, kind="stable")].reset_index(drop=True)


def sort_values(rows: pd.DataFrame, sort_by: str) -> Us:
    """The column to sort by, float64 of shape (rows,)."""
    name = sort_by
    for word in DEVICE_WORDS:
        name = name.replace(word, "device")
    column = AVERAGES.get(name) or SORTS[name]
    if column not in rows:
        column = column.replace("_us", "_ns")
    values = rows[column] / rows["calls"] if name in AVERAGES else rows[column]
    return values.to_numpy(dtype=np.float64)
