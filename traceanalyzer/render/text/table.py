"""Key averages as torch prints them, character by character: columns, order, number formats, closing totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from traceanalyzer.model.interpreter import pd
from traceanalyzer.render.words.escape import printable, to_markdown
from traceanalyzer.torch_table.printed import PrintedTable

WIDTH = 12
SPACING = 2
MAX_SHAPES_WIDTH, MAX_SOURCE_WIDTH = 80, 75
_KILO = 1024
_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


@dataclass(frozen=True, slots=True)
class TableSize:
    """How much of the table is shown, as torch's table() takes it; a `row_limit` of -1 shows all rows."""

    row_limit: int = 100
    name_width: int = 55

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows if self.row_limit < 0 else rows.head(self.row_limit)


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    values: Sequence[str]
    width: int = WIDTH
    left: bool = False

    def cell(self, text: str) -> str:
        side = "<" if self.left else ">"
        return f"{text: {side}{self.width}}" + " " * SPACING


def render_table(table: PrintedTable, size: TableSize) -> str:
    columns = _columns(table, size)
    rule = "".join("-" * column.width + " " * SPACING for column in columns)
    lines = [rule, "".join(column.cell(column.title) for column in columns), rule]
    shown = size.shown(table.rows)
    stacks = [list(stack) for stack in shown["stack"]] if _has_stack(table.rows) else None
    for row in range(len(shown)):
        lines.append("".join(column.cell(column.values[row]) for column in columns))
        if stacks is not None:
            before, last = "".join(column.cell("") for column in columns[:-1]), columns[-1]
            lines += [before + last.cell(_trimmed(entry, last.width)) for entry in [*stacks[row][1:], ""]]
    lines += [rule, *_totals(table)]
    return "\n".join(lines) + "\n"


def table_markdown(table: PrintedTable, size: TableSize) -> str:
    columns = _columns(table, size)
    cells = list(zip(*(column.values for column in columns), strict=True))
    return to_markdown([column.title for column in columns], cells, _totals(table))


def _columns(table: PrintedTable, size: TableSize) -> list[_Column]:
    rows, shown = table.rows, size.shown(table.rows)
    names = [printable(name) for name in rows["name"]]
    width = min(max(map(len, names)) + 4, size.name_width)
    most = size.name_width
    cut = [name[: most - 3] + "..." if len(name) >= most - 3 else name for name in names[: len(shown)]]
    columns = [_Column("Name", cut, width)]
    columns += [*_cpu_columns(table, shown), *_device_columns(table, shown), *_memory_columns(table, shown)]
    columns.append(_Column("# of Calls", [str(calls) for calls in shown["calls"]]))
    if "input_shapes" in rows:
        width = min(int(rows["input_shapes"].str.len().max()) + 4, MAX_SHAPES_WIDTH)
        columns.append(_Column("Input Shapes", [printable(text)[:width] for text in shown["input_shapes"]], width))
    if "flops" in rows and (rows["flops"] > 0).any():
        least = int(rows.loc[rows["flops"] > 0, "flops"].min())
        power = int(min(math.log10(least) / 3, 5))
        scale = 10 ** (power * -3.0)
        cells = [f"{flops * scale:8.3f}" if flops > 0 else "--" for flops in shown["flops"]]
        columns.append(_Column(f"Total {_FLOPS[power]}", cells))
    if _has_stack(rows):  # last: the further lines of stacks stand below it
        longest = max(len(entry) for stack in rows["stack"] for entry in stack)
        width = min(longest + 4, MAX_SOURCE_WIDTH)
        first = [_trimmed(stack[0], width) if len(stack) else "" for stack in shown["stack"]]
        columns.append(_Column("Source Location", first, width, left=True))
    return columns


def _has_stack(rows: pd.DataFrame) -> bool:
    return "stack" in rows and any(len(stack) for stack in rows["stack"])


def _cpu_columns(table: PrintedTable, shown: pd.DataFrame) -> list[_Column]:
    total = table.self_cpu_us
    times = zip(shown["cpu_us"], shown["is_async"], strict=True)
    shares = ["0" if is_async else format_share(us, total) for us, is_async in times]
    return [
        _Column("Self CPU %", [format_share(us, total) for us in shown["self_cpu_us"]]),
        _Column("Self CPU", [format_time(us) for us in shown["self_cpu_us"]]),
        _Column("CPU total %", shares),
        _Column("CPU total", [format_time(us) for us in shown["cpu_us"]]),
        _Column("CPU time avg", [format_time(us) for us in shown["cpu_us"] / shown["calls"]]),
    ]


def _device_columns(table: PrintedTable, shown: pd.DataFrame) -> list[_Column]:
    if not table.has_device_time:
        return []
    device, total = table.device, table.self_device_us
    return [
        _Column(f"Self {device}", [format_time(us) for us in shown["self_device_us"]]),
        _Column(f"Self {device} %", [format_share(us, total) for us in shown["self_device_us"]]),
        _Column(f"{device} total", [format_time(us) for us in shown["device_us"]]),
        _Column(f"{device} time avg", [format_time(us) for us in shown["device_us"] / shown["calls"]]),
    ]


def _memory_columns(table: PrintedTable, shown: pd.DataFrame) -> list[_Column]:
    if not table.has_memory:
        return []
    titles = {"cpu_bytes": "CPU Mem", "self_cpu_bytes": "Self CPU Mem"}
    if table.device and (table.rows["self_device_bytes"] > 0).any():
        titles["device_bytes"] = f"{table.device} Mem"
        titles["self_device_bytes"] = f"Self {table.device} Mem"
    return [_Column(title, [format_memory(size) for size in shown[name]]) for name, title in titles.items()]


def _totals(table: PrintedTable) -> list[str]:
    lines = [f"Self CPU time total: {format_time(table.self_cpu_us)}"]
    if table.has_device_time:
        lines.append(f"Self {table.device} time total: {format_time(table.self_device_us)}")
    return lines


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


def _trimmed(path: str, width: int) -> str:
    """Cut from the left, with dots in place of the first characters."""
    path = printable(path)
    if len(path) <= width:
        return path
    kept = path[len(path) - width :]
    return "..." + kept[3:] if len(kept) > 3 else kept
