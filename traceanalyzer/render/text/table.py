"""Key averages as torch prints them, character by character: columns, order, number formats, closing totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.render.data.table import to_markdown
from traceanalyzer.torch_table.key_averages import KeyAverages
from traceanalyzer.torch_table.torch_floats import torch_times

WIDTH = 12
SPACING = 2
MAX_SHAPES_WIDTH, MAX_SOURCE_WIDTH = 80, 75
_KILO = 1024
_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


@dataclass(frozen=True, slots=True)
class Layout:
    """How much of the table is shown. `name_width` and `row_limit` as torch's table() takes them."""

    sort_by: str | None = None
    row_limit: int = 100
    name_width: int = 55


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    values: Sequence[str]
    width: int = WIDTH
    left: bool = False

    def cell(self, text: str) -> str:
        side = "<" if self.left else ">"
        return f"{text: {side}{self.width}}" + " " * SPACING


def render_table(averages: KeyAverages, layout: Layout) -> str:
    """The text of `key_averages().table(...)`; empty for a trace without events."""
    if len(averages.rows) == 0:
        return ""
    ordered = _ordered(averages, layout)
    columns = _columns(averages, ordered, layout)
    rule = "".join("-" * column.width + " " * SPACING for column in columns)
    lines = [rule, "".join(column.cell(column.title) for column in columns), rule]
    stacks = [list(stack) for stack in ordered["stack"]] if _has_stack(ordered) else None
    for row in range(min(len(ordered), layout.row_limit)):
        lines.append("".join(column.cell(column.values[row]) for column in columns))
        if stacks is not None:
            lines.extend(_stack_lines(columns, stacks[row]))
    lines += [rule, *_totals(averages, ordered)]
    return "\n".join(lines) + "\n"


def table_markdown(averages: KeyAverages, layout: Layout) -> str:
    """The same numbers as a pipe table."""
    if len(averages.rows) == 0:
        return ""
    ordered = _ordered(averages, layout)
    columns = _columns(averages, ordered, layout)
    cells = list(zip(*(column.values for column in columns), strict=True))
    return to_markdown([column.title for column in columns], cells, _totals(averages, ordered))


def _ordered(averages: KeyAverages, layout: Layout) -> pd.DataFrame:
    times = torch_times(averages)
    return sorted_rows(pd.concat([averages.rows, times], axis="columns"), layout.sort_by)


def sorted_rows(rows: pd.DataFrame, sort_by: str | None) -> pd.DataFrame:
    """Largest first, in order of first sight where equal; unsorted where nothing is asked for."""
    if sort_by is None:
        return rows.reset_index(drop=True)
    values = sort_values(rows, sort_by)
    return rows.iloc[np.argsort(-values, kind="stable")].reset_index(drop=True)


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
_AVERAGES: Mapping[str, str] = {"cpu_time": "cpu_us", "device_time": "device_us"}
DEVICE_WORDS = ("cuda", "xpu", "privateuse1")


def sort_values(rows: pd.DataFrame, sort_by: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The column to sort by, float64 of shape (rows,)."""
    name = sort_by
    for word in DEVICE_WORDS:
        name = name.replace(word, "device")
    column = _AVERAGES.get(name) or SORTS[name]
    if column not in rows:
        column = column.replace("_us", "_ns")
    values = rows[column] / rows["calls"] if name in _AVERAGES else rows[column]
    return values.to_numpy(dtype=np.float64)


# -- columns -------------------------------------------------------------------------------------------------


def _columns(averages: KeyAverages, rows: pd.DataFrame, layout: Layout) -> list[_Column]:
    shown = rows.head(layout.row_limit)
    width = min(int(rows["name"].str.len().max()) + 4, layout.name_width)
    columns = [_Column("Name", [shortened(name, layout.name_width) for name in shown["name"]], width)]
    columns += _cpu_columns(rows, shown)
    columns += _device_columns(averages, rows, shown)
    columns += _memory_columns(averages, rows, shown)
    columns.append(_Column("# of Calls", [str(calls) for calls in shown["calls"]]))
    if "input_shapes" in rows:
        width = min(int(rows["input_shapes"].str.len().max()) + 4, MAX_SHAPES_WIDTH)
        columns.append(_Column("Input Shapes", [text[:width] for text in shown["input_shapes"]], width))
    if _has_stack(rows):
        longest = max(len(entry) for stack in rows["stack"] for entry in stack)
        width = min(longest + 4, MAX_SOURCE_WIDTH)
        first = [_trimmed(stack[0], width) if len(stack) else "" for stack in shown["stack"]]
        columns.append(_Column("Source Location", first, width, left=True))
    return [
        *columns[: _flops_place(columns)],
        *_flops_columns(rows, shown),
        *columns[_flops_place(columns) :],
    ]


def _flops_place(columns: Sequence[_Column]) -> int:
    """Before the stacks, so that their lines stay in the last column."""
    return len(columns) - (columns[-1].title == "Source Location")


def _flops_columns(rows: pd.DataFrame, shown: pd.DataFrame) -> list[_Column]:
    """In units of the smallest count."""
    if "flops" not in rows or not (rows["flops"] > 0).any():
        return []
    least = int(rows.loc[rows["flops"] > 0, "flops"].min())
    power = int(min(math.log10(least) / 3, 5))
    scale = 10 ** (power * -3.0)
    cells = [f"{flops * scale:8.3f}" if flops > 0 else "--" for flops in shown["flops"]]
    return [_Column(f"Total {_FLOPS[power]}", cells)]


def _has_stack(rows: pd.DataFrame) -> bool:
    return "stack" in rows and any(len(stack) for stack in rows["stack"])


def _cpu_columns(rows: pd.DataFrame, shown: pd.DataFrame) -> list[_Column]:
    total = self_cpu_us(rows)
    shares = [
        "0" if is_async else format_share(us, total)
        for us, is_async in zip(shown["cpu_us"], shown["is_async"], strict=True)
    ]
    return [
        _Column("Self CPU %", [format_share(us, total) for us in shown["self_cpu_us"]]),
        _Column("Self CPU", [format_time(us) for us in shown["self_cpu_us"]]),
        _Column("CPU total %", shares),
        _Column("CPU total", [format_time(us) for us in shown["cpu_us"]]),
        _Column("CPU time avg", [format_time(us) for us in shown["cpu_us"] / shown["calls"]]),
    ]


def _device_columns(averages: KeyAverages, rows: pd.DataFrame, shown: pd.DataFrame) -> list[_Column]:
    if not averages.has_device_time:
        return []
    device, total = averages.device, self_device_us(rows)
    return [
        _Column(f"Self {device}", [format_time(us) for us in shown["self_device_us"]]),
        _Column(f"Self {device} %", [format_share(us, total) for us in shown["self_device_us"]]),
        _Column(f"{device} total", [format_time(us) for us in shown["device_us"]]),
        _Column(f"{device} time avg", [format_time(us) for us in shown["device_us"] / shown["calls"]]),
    ]


def self_cpu_us(rows: pd.DataFrame) -> float:
    """Sum over the rows in their order, as torch adds it up."""
    return _added_up(rows["self_cpu_us"])


def self_device_us(rows: pd.DataFrame) -> float:
    """The same of device rows that are no annotations."""
    return _added_up(rows.loc[(rows["device_type"] != "CPU") & ~rows["is_user_annotation"], "self_device_us"])


def _added_up(values: pd.Series[float]) -> float:
    return float(values.to_numpy().cumsum()[-1]) if len(values) else 0.0


def _memory_columns(averages: KeyAverages, rows: pd.DataFrame, shown: pd.DataFrame) -> list[_Column]:
    if not averages.has_memory:
        return []
    titles = {"cpu_bytes": "CPU Mem", "self_cpu_bytes": "Self CPU Mem"}
    if averages.device and (rows["self_device_bytes"] > 0).any():
        titles["device_bytes"] = f"{averages.device} Mem"
        titles["self_device_bytes"] = f"Self {averages.device} Mem"
    return [_Column(title, [format_memory(size) for size in shown[name]]) for name, title in titles.items()]


def _stack_lines(columns: Sequence[_Column], stack: Sequence[str]) -> list[str]:
    """The other frames below the first, and an empty line."""
    before = "".join(column.cell("") for column in columns[:-1])
    texts = [_trimmed(entry, columns[-1].width) for entry in stack[1:]]
    return [before + columns[-1].cell(text) for text in [*texts, ""]]


def _totals(averages: KeyAverages, rows: pd.DataFrame) -> list[str]:
    lines = [f"Self CPU time total: {format_time(self_cpu_us(rows))}"]
    if averages.has_device_time:
        lines.append(f"Self {averages.device} time total: {format_time(self_device_us(rows))}")
    return lines


# -- number formats ------------------------------------------------------------------------------------------


def format_time(us: float) -> str:
    """`13.819ms`: three decimals, microseconds up to 1 ms, milliseconds up to 1 s."""
    if us >= 1_000_000:
        return f"{us / 1_000_000:.3f}s"
    if us >= 1_000:
        return f"{us / 1_000:.3f}ms"
    return f"{us:.3f}us"


def format_share(us: float, total_us: float) -> str:
    """`48.43%`; NaN where the whole is nothing."""
    return "NaN" if total_us == 0 else f"{us * 100.0 / total_us:.2f}%"


def format_memory(size: int) -> str:
    """`-288.00 MB`, in units of 1024."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(size) >= _KILO**power:
            return f"{size / _KILO**power:.2f} {unit}"
    return f"{size} B"


def shortened(name: str, width: int) -> str:
    """Cut from the right, with dots in place of the rest."""
    return name[: width - 3] + "..." if len(name) >= width - 3 else name


def _trimmed(path: str, width: int) -> str:
    """Cut from the left, with dots in place of the first characters."""
    if len(path) <= width:
        return path
    kept = path[len(path) - width :]
    return "..." + kept[3:] if len(kept) > 3 else kept
