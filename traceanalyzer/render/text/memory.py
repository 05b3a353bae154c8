"""The memory view as text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.allocator.memory_view import NO_LINE, DeviceMemory, MemoryView
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.units import format_bytes, format_ns, format_offset, format_share
from traceanalyzer.render.data.table import records
from traceanalyzer.render.text.page import as_text
from traceanalyzer.render.words.escape import printable, shortened

WIDTH = 80
_AMOUNTS_WIDTH = 56  # of the columns before an op's name
_SHORTEST_NAME = 24
_STEP_MARK = "ProfilerStep"  # its own amount is what happens between the ops of steps: no op's
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*#@"
_MIB = 1 << 20


def render_memory(
    view: MemoryView, ops: pd.DataFrame, origin_ns: int, limit: int = 10, width: int = WIDTH, ascii_only: bool = False
) -> str:
    """All allocators of a trace; `ops` is from `ops_by_memory`, times count from `origin_ns`."""
    lines: list[str] = []
    for device in view.devices:
        lines += [*_device(device, origin_ns, limit, width, _ASCII_BARS if ascii_only else _BARS), ""]
    return as_text([*lines, *_ops(ops, limit, width), "", *_calls(view)], ascii_only=ascii_only)


def _device(device: DeviceMemory, origin_ns: int, limit: int, width: int, bars: str) -> Iterator[str]:
    at = format_offset(device.peak_ns - origin_ns)
    yield f"{device.device}: peak {format_bytes(device.peak_bytes)} at {at}"
    ends = f"{format_bytes(device.start_bytes)} before, {format_bytes(device.end_bytes)} after"
    yield f"  {device.allocations:,} allocations, {device.frees:,} frees; {ends}"
    if not device.exact:
        yield "  the trace has no running totals: amounts count from 0 at its start"
    if device.peak_reserved_bytes is not None:
        yield f"  reserved at most {format_bytes(device.peak_reserved_bytes)}"
        at_peak, most = device.fragmentation_at_peak_bytes or 0, device.fragmentation_most_bytes or 0
        spare = f"{format_bytes(at_peak)} at the peak, {format_bytes(most)} at most"
        yield f"  reserved less allocated: {spare}"
    curve = device.curve
    yield f"  {sparkline(curve['allocated_bytes'].to_numpy(), curve['time_ns'].to_numpy(), bars, width - 4)}"
    uses = ", ".join(f"{format_bytes(row['bytes'])} {row['use']}" for row in records(device.uses))
    yield f"  alive at the peak{': ' if uses else ''}{uses}"
    yield from _owners(device.alive, device.peak_bytes, limit, width)
    if device.before_bytes > 0:
        yield _amount(device.before_bytes, device.peak_bytes, "allocated before the recording", width)
    kept = int(device.kept["bytes"].sum())
    yield f"  allocated in the recording and not freed: {format_bytes(kept)}"
    yield from _owners(device.kept, kept, limit, width)


def _owners(owners: pd.DataFrame, whole: int, limit: int, width: int) -> Iterator[str]:
    for row in records(owners.head(limit)):
        line = "" if row["python"] == NO_LINE else f", {row['python']}"
        yield _amount(row["bytes"], whole, f"{short_ops(row['op'])}{line}", width, row["blocks"])
    rest = owners.iloc[limit:]
    if len(rest):
        amount = int(rest["bytes"].sum())
        yield _amount(amount, whole, f"other places ({len(rest)})", width, int(rest["blocks"].sum()))


def _amount(size: int, whole: int, owner: str, width: int, blocks: int | None = None) -> str:
    share = format_share(size / whole) if whole else ""
    count = "" if blocks is None else f"{blocks:,} x"
    return f"  {format_bytes(size):>10} {share:>8} {count:>7} {shortened(printable(owner), width - 30)}"


def sparkline(values: NDArray[np.int64], at: NDArray[np.int64], bars: str = _BARS, width: int = 76) -> str:
    """The most that was allocated in each of `width` equal parts of the time, from 0 to the highest."""
    if len(values) == 0 or values.max() <= 0:
        return bars[0] * width
    # Whole ns: the same wherever the clock begins.
    edges = at[0] + (at[-1] - at[0]) * np.arange(width) // width
    carried = values[np.searchsorted(at, edges, side="right") - 1]
    most = carried.copy()
    np.maximum.at(most, np.searchsorted(edges, at, side="right") - 1, values)
    levels = most * (len(bars) - 1) // values.max()
    return "".join(bars[max(int(level), 0)] for level in levels)


def _ops(ops: pd.DataFrame, limit: int, width: int) -> Iterator[str]:
    yield "Net allocation by op, MiB (allocated less freed while it ran):"
    yield f"  {'self':>10} {'total':>10} {'CPU self':>10} {'CPU total':>10} {'calls':>7}  op"
    columns = ("self_device_bytes", "device_bytes", "self_cpu_bytes", "cpu_bytes")
    room = max(width - _AMOUNTS_WIDTH, _SHORTEST_NAME)
    marks = ops["name"].str.startswith(_STEP_MARK)
    for row in records(ops[~marks].head(limit)):
        amounts = " ".join(f"{row[name] / _MIB:10.2f}" for name in columns)
        yield f"  {amounts} {row['calls']:>7}  {shortened(printable(short_ops(row['name'])), room)}"
    between = int(ops[marks]["self_device_bytes"].sum())
    if between:
        what = "freed" if between < 0 else "allocated"
        yield f"  in steps, but between ops: {format_bytes(abs(between))} {what}"


def _calls(view: MemoryView) -> Iterator[str]:
    none = " none; all blocks came from the cache." if len(view.calls) == 0 else ""
    yield f"Allocator calls to the driver:{none}"
    for row in records(view.calls):
        yield f"  {row['calls']:>7,} x {printable(row['name']):<28} {format_ns(row['total_ns'])}"
    if view.out_of_memory:
        yield f"Out of memory: {view.out_of_memory:,} time{'s' * (view.out_of_memory > 1)}."
