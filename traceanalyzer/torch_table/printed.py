"""The table as torch prints it: rows in its order, times in its floats, and its totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct
from traceanalyzer.model.containment import depths
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.trace import Trace
from traceanalyzer.torch_table.event_totals import EventTotals, linked_sums
from traceanalyzer.torch_table.key_averages import KeyAverages


def torch_times(averages: KeyAverages) -> pd.DataFrame:
    """Columns self_cpu_us, cpu_us, self_device_us and device_us, parallel to `averages.rows`."""
    totals = averages.totals
    events = totals.events
    start, end = ((times - events.origin_ns) / 1000 for times in (events.start_ns, events.end_ns))
    dur = np.asarray(end - start, np.float64)
    work, below = _device_us(totals, dur)
    on_cpu = ~events.on_device
    own = on_cpu & ~events.asynchronous
    cpu = np.where(on_cpu, dur, 0.0)
    columns = {
        "self_cpu_us": np.where(own, cpu - _sums(totals.parent, cpu), 0.0),
        "cpu_us": cpu,
        "self_device_us": np.where(on_cpu, work - below, work),
        "device_us": work,
    }
    group, rows, counted = averages.group, len(averages.rows), totals.counted
    return pd.DataFrame({name: np.bincount(group, ns[counted], rows) for name, ns in columns.items()})


def _device_us(totals: EventTotals, dur: Floats) -> tuple[Floats, Floats]:
    """Time on the device of each event with what it contains, and of its children alone."""
    events = totals.events
    linked = np.where(totals.counted, linked_sums(events, dur, _sums)[totals.bottom], 0.0)
    kernels = np.where(events.on_device, dur, linked)
    total, below = kernels.copy(), np.zeros(len(events))
    depth = depths(totals.parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((depth == level) & totals.counted)
        above = totals.parent[rows]
        touched = distinct(above)
        sums = _sums(np.searchsorted(touched, above), total[rows], len(touched))
        below[touched] = sums
        total[touched] = kernels[touched] + sums
    total[events.asynchronous] = 0.0
    return total, below


def _sums(into: Rows, values: Floats, size: int | None = None) -> Floats:
    """Sums as Python's `sum` makes them; positions of -1 are left out."""
    there = into >= 0
    sums: Any = np.zeros(len(into) if size is None else size, np.longdouble)
    np.add.at(sums, into[there], values[there].astype(np.longdouble))
    return np.asarray(sums, dtype=np.float64)


_OLD_IDS = ("torch 1.8 to 1.11", "torch 1.12 to 2.0", "torch 2.1 to 2.3", "torch 2.4 to 2.7")


def table_notes(trace: Trace, averages: KeyAverages, *, python_functions: bool = False) -> Iterator[str]:
    """Sentences for the user, none where the table is exact."""
    meta = trace.meta
    asynchronous = int(averages.rows["is_async"].sum())
    if asynchronous:
        yield (
            f"rows of communication ({asynchronous}) are taken to be asynchronous by their names, since the trace does"
            " not say it: their own time is 0, and they take nothing from the time of what is around them"
        )
    python = sum(meta.rows.get("python", {}).values())
    if python and not python_functions:
        yield (
            f"{python:,} python_function rows are left out; torch 2.12 and 2.13 list them:"
            " pass --python-functions to compare with those"
        )
    if not meta.capabilities.get("nanoseconds", True):
        yield "times are whole microseconds, as until torch 2.3: sums and nesting are only as exact as that"
    if meta.damage:
        yield "the file is damaged: " + "; ".join(damage.message for damage in meta.damage)
    if meta.dialect.startswith(_OLD_IDS):
        yield f"recorded with {meta.dialect}: checked against tables of torch 2.11 and 2.13 only"
    if {"cuda_sync", "xpu_sync"} & set(meta.rows.get("gpu", {})):
        yield "synchronisation records count as time on the device, as in torch's own table"
    if meta.window_ns is None:
        yield "the file does not say when the recording began: the last digit of a rounded number may differ"
    if meta.capabilities.get("flops", False) and not meta.capabilities.get("shapes", False):
        yield "FLOPs need shapes, which were not recorded"


_SUMS = ("cpu", "self_cpu", "device", "self_device")
SORTS = {f"{name}_time_total": f"{name}_us" for name in _SUMS}
SORTS |= {f"{name}_memory_usage": f"{name}_bytes" for name in _SUMS} | {"count": "calls"}
AVERAGES: Mapping[str, str] = {"cpu_time": "cpu_us", "device_time": "device_us"}
DEVICE_WORDS = ("cuda", "xpu", "privateuse1")


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """What `key_averages().table()` shows.

    Attributes:
        rows: as `KeyAverages.rows`, sorted, with self_cpu_us, cpu_us, self_device_us and device_us (float64).
        device: as torch's headers call it; None for a recording of the CPU alone.
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
    name = sort_by
    for word in DEVICE_WORDS:
        name = name.replace(word, "device")
    column = AVERAGES.get(name) or SORTS[name]
    if column not in rows:
        column = column.replace("_us", "_ns")
    values = rows[column] / rows["calls"] if name in AVERAGES else rows[column]
    return rows.iloc[np.argsort(-values.to_numpy(np.float64), kind="stable")].reset_index(drop=True)
