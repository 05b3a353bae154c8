"""Views of one trace as text: regions, ops, events by name, facts, memory."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.allocator.memory_view import NO_LINE, DeviceMemory, MemoryView
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.short_names import plain_kernel, short_op, short_ops
from traceanalyzer.model.units import format_bytes, format_ns, format_offset, format_share
from traceanalyzer.regions.regions import RegionRates, Regions
from traceanalyzer.render.data.table import records
from traceanalyzer.render.text.page import Page, as_text
from traceanalyzer.render.words.escape import printable, shortened, to_markdown
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.step_parts import cost_of, listed_regions, shown_name
from traceanalyzer.roofline.op_rates import OpWork

_COLUMNS = ("of step", "CPU", "GPU", "GPU idle", "calls")
_RATES = ("of peak", "TFLOP/s")
_WIDTHS = (7, 8, 8, 8, 5, 7, 7)
_WIDE = 100  # columns of a page that has room for both rates
_SUMS = ("of step", "CPU", "GPU", "GPU idle", "calls", "with inner")
_SUM_WIDTHS = (7, 8, 8, 8, 5, 10)
SHAPES, KERNELS = 5, 4
_SHOWN = 4  # event ids of a fact
_COUNTED = ("count", "total", "mean", "min", "max", "share")
_COUNT_WIDTH = 9
_AMOUNTS_WIDTH = 56  # of the columns before an op's name
_SHORTEST_NAME = 24
_STEP_MARK = "ProfilerStep"  # its own amount is what happens between the ops of steps: no op's
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*#@"
_MIB = 1 << 20


def render_regions(
    regions: Regions,
    rates: RegionRates | None = None,
    *,
    by: str | None = None,
    depth: int = 4,
    width: int = 100,
    ascii_only: bool = False,
) -> str:
    """The regions of a typical step, `depth` levels of them, the highest cost first; `by` as of `cost_of`."""
    cost = cost_of(regions, by)
    whole = format_ns(round(regions.step_ns))
    base = "without the profiler" if regions.replayed else "as recorded, without GPU work"
    head = f"Regions of a typical step of {whole} {base}{f'; {rates.text}' if rates else ''}"
    note = "of step: the CPU time's share of it"
    note += "; of peak: the operations' share of GPU time" if rates else ""
    columns = (*_COLUMNS, *_RATES)[: len(_COLUMNS) + (0 if rates is None else 1 + (width >= _WIDE))]
    lines = [head, note, "", _line(columns, "region", width)]
    room = width - sum(_WIDTHS[: len(columns)]) - 2 * len(columns)
    for node, level in listed_regions(regions, cost, depth):
        name = "  " * level + shown_name(regions, node, room - 2 * level)
        lines.append(_line(_cells(regions, rates, node)[: len(columns)], name, width))
    return as_text([printable(line) for line in lines], ascii_only=ascii_only)


def render_sums(rows: pd.DataFrame, kind: str, *, limit: int = 10, width: int = 100, ascii_only: bool = False) -> str:
    """`Regions.by_name` as text, one line for each name; from 100 columns on also the CPU time with all inside."""
    if not rows["name"].any():
        whys = {"phase": "the step has no backward pass"}
        return f"No {kind} is known: {whys.get(kind, 'record with Python stacks (with_stack=True)')}.\n"
    shown = len(_SUMS) - (width < _WIDE)
    note = (
        f"Cost of each {kind} per step, forward plus backward, without the {kind}s in it; CPU without the profiler, "
        "GPU idle as recorded" + "; with inner: the CPU time with all in it" * (shown == len(_SUMS))
    )
    lines = [*textwrap.wrap(note, width), "", _line(_SUMS[:shown], kind, width, _SUM_WIDTHS)]
    for row in rows.head(limit).to_dict("records"):
        times = (format_ns(row[name]) for name in ("predicted_ns", "gpu_ns", "idle_ns"))
        calls, inner = f"{row['calls']:,.0f}" if row["calls"] else "", format_ns(row["with_inner_ns"])
        cells = (format_share(row["share"]), *times, calls, inner)
        lines.append(_line(cells[:shown], row["name"] or f"in no {kind}", width, _SUM_WIDTHS))
    if len(rows) > limit:
        lines.append(f"... and {len(rows) - limit:,} more: --limit {len(rows)}")
    return as_text([printable(line) for line in lines], ascii_only=ascii_only)


def _cells(regions: Regions, rates: RegionRates | None, node: int) -> tuple[str, ...]:
    totals = regions.totals
    times = (format_ns(round(totals[name][node])) for name in ("predicted_ns", "gpu_ns", "idle_ns"))
    calls = regions.tree.calls[node] / regions.steps
    cells = (format_share(float(regions.share[node])), *times, f"{calls:,.0f}" if calls else "")
    if rates is None:
        return cells
    known = (format_share(float(rates.peak_share[node])) if rates.peaks else "", f"{rates.tflops[node]:.3g}")
    return (*cells, *(known if rates.flops[node] else ("", "")))


def _line(cells: tuple[str, ...], name: str, width: int, widths: tuple[int, ...] = _WIDTHS) -> str:
    left = "  ".join(f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=False))
    return f"{left}  {shortened(name, max(width - len(left) - 2, 20))}"


def render_ops(work: OpWork, *, limit: int = 10, width: int = 100, ascii_only: bool = False) -> str:
    """The ops with the most GPU time: below each its inputs, below these the kernels; in lines of `width`."""
    lines = [*textwrap.wrap(_header(work), width), ""]
    for op in records(work.ops.head(limit)):
        lines += [*_op(work, op, width), ""]
    rest = work.ops.iloc[limit:]
    if len(rest):
        time = format_ns(int(rest["gpu_ns"].sum()))
        lines += [f"other ops ({len(rest)}): {time}, {format_share(float(rest['share'].sum()))}", ""]
    for source in _sources(work):
        lines += textwrap.wrap(source, width, subsequent_indent="  ")
    return as_text(lines, ascii_only=ascii_only)


def ops_markdown(work: OpWork, *, limit: int = 10) -> str:
    """A pipe table of the ops and inputs with the most GPU time, the largest first."""
    titles = ("op", "inputs", "calls", "GPU time", "of the window", "TFLOP/s", "GB/s", "of the peak")
    rows = work.shapes.sort_values("gpu_ns", ascending=False, kind="stable")
    cells = [
        (
            short_ops(row["op"]),
            _inputs(row),
            f"{row['calls']:,}",
            format_ns(row["gpu_ns"]),
            format_share(row["gpu_ns"] / max(work.window_ns, 1)),
            "" if row["tflops"] is None else f"{row['tflops']:.1f}",
            "" if row["gbps"] is None else f"{row['gbps']:,.0f}",
            "" if row["peak_share"] is None else format_share(row["peak_share"]),
        )
        for row in records(rows.head(limit))
    ]
    return to_markdown(titles, cells, [_header(work), *_sources(work)])


def _header(work: OpWork) -> str:
    each = f" of {format_ns(work.window_ns / work.steps)}" if work.steps > 1 else ""
    steps = f", {work.steps} step{'s' * (work.steps > 1)}{each}" if work.steps else ""
    return f"GPU time by op; shares are of the window of {format_ns(work.window_ns)}{steps}"


def _op(work: OpWork, op: Mapping[str, Any], width: int) -> Iterator[str]:
    calls = f"{op['calls']:,} call{'s' * (op['calls'] != 1)}"
    amounts = f"{calls}  {format_ns(op['gpu_ns'])}  {format_share(op['share'])}"
    yield _sides(short_ops(op["op"]), amounts, width)
    shapes = work.shapes[work.shapes["op"] == op["op"]]
    kernels = work.kernels[work.kernels["op"] == op["op"]]
    for row in records(shapes.head(SHAPES)):
        each = f"{row['calls']:,} x {format_ns(row['gpu_ns'] / row['calls'])}"
        yield _sides(f"  {_inputs(row)}", each, width)
        yield from textwrap.wrap(rate_text(row), width, initial_indent=" " * 4, subsequent_indent=" " * 6)
        of_shape = kernels[(kernels["shapes"] == row["shapes"]) & (kernels["dtypes"] == row["dtypes"])]
        for kernel in records(of_shape.head(KERNELS)):
            each = f"{kernel['count']:,} x {format_ns(kernel['gpu_ns'] / kernel['count'])}"
            yield _sides(f"    {plain_kernel(kernel['kernel'])}", each, width)
        if len(of_shape) > KERNELS:
            yield f"    and {len(of_shape) - KERNELS} more"
    if len(shapes) > SHAPES:
        yield f"  other inputs ({len(shapes) - SHAPES}): {format_ns(int(shapes['gpu_ns'].iloc[SHAPES:].sum()))}"


def _inputs(row: Mapping[str, Any]) -> str:
    return f"[{row['shapes']}] {row['dtypes']}".rstrip() if row["shapes"] else "shapes not recorded"


def rate_text(row: Mapping[str, Any]) -> str:
    """What was achieved, and its share of the device's peak or why that is not known."""
    rates = [] if row["tflops"] is None else [f"{row['tflops']:.1f} TFLOP/s"]
    rates += [] if row["gbps"] is None else [f"{row['gbps']:,.0f} GB/s"]
    if row["peak_share"] is None:
        return ", ".join([*rates, f"peak n/a: {row['why']}"])
    most = f"{row['peak_tflops']:g} TFLOP/s" if row["limit"] == "compute" else f"{row['peak_gbps']:,.0f} GB/s"
    cached = "; more than memory gives, so some came from the cache" if row["peak_share"] > 1 else ""
    share = f"{format_share(row['peak_share'])} of the {row['limit']} peak of {most}{cached}"
    return ", ".join([*rates, share])


def _sides(left: str, right: str, width: int) -> str:
    room = width - len(right) - 2
    return f"{shortened(printable(left), room):<{room}}  {right}"


def _sources(work: OpWork) -> Iterator[str]:
    for device, peaks in sorted(work.peaks.items()):
        known = f"{peaks.name}, {peaks.source}" if peaks else "not in the table of peaks"
        yield f"Peaks of device {device}: {known}"


def render_facts(facts: Sequence[Fact], *, width: int = 100, ascii_only: bool = False) -> str:
    page = Page(width=width, ascii_only=ascii_only)
    for name, same in groupby(facts, lambda fact: fact.name):
        page.blank()
        page.put(name.replace("-", " "), style="bold")
        for fact in same:
            ids = fact.event_ids
            shown = ", ".join(map(str, ids[:_SHOWN])) + " ..." * (len(ids) > _SHOWN)
            events = f" (event{'s' * (len(ids) > 1)} {shown})" * bool(ids)
            page.put(fact.text + events, indent=2, hang=2)
    if not facts:
        page.put("The trace shows none of the facts that are known here.")
    return page.text()


def render_listed(rows: pd.DataFrame, what: str, *, top: int, width: int = 100, ascii_only: bool = False) -> str:
    page = Page(width=width, ascii_only=ascii_only)
    if rows.empty:
        return f"No {what} recorded.\n"
    page.put(f"{what} by name, those with most time first; shares are of all listed".capitalize())
    page.lines.append("  ".join(f"{title:>{_COUNT_WIDTH}}" for title in _COUNTED))
    for row in rows.head(top).to_dict("records"):
        times = [format_ns(row[f"{name}_ns"]) for name in _COUNTED[1:5]]
        cells = [f"{row['count']:,}", *times, format_share(row["share"])]
        name = printable(short_op(row["name"]) if what == "kernels" else row["name"])
        where = [str(row[part]) for part in ("op", "region", "line") if isinstance(row[part], str)]
        where = [one for one in where if not where[-1].endswith(f": {one.removesuffix('()')}")]
        moved = [format_bytes(row["bytes"])] * bool(row["bytes"])
        page.put(f"{name}: {printable(', '.join([*moved, *where]))}".removesuffix(": "), hang=2)
        page.lines.append("  ".join(f"{cell:>{_COUNT_WIDTH}}" for cell in cells))
    if len(rows) > top:
        page.put(f"... and {len(rows) - top:,} more: --top")
    return page.text()


def render_memory(
    view: MemoryView, ops: pd.DataFrame, origin_ns: int, limit: int = 10, width: int = 80, ascii_only: bool = False
) -> str:
    """All allocators of a trace; `ops` is from `ops_by_memory`, times count from `origin_ns`."""
    lines: list[str] = []
    for device in view.devices:
        lines += [*_allocator(device, origin_ns, limit, width, _ASCII_BARS if ascii_only else _BARS), ""]
    none = " none; all blocks came from the cache." if len(view.calls) == 0 else ""
    lines += [*_net_by_op(ops, limit, width), "", f"Allocator calls to the driver:{none}"]
    for row in records(view.calls):
        lines.append(f"  {row['calls']:>7,} x {printable(row['name']):<28} {format_ns(row['total_ns'])}")
    if view.out_of_memory:
        lines.append(f"Out of memory: {view.out_of_memory:,} time{'s' * (view.out_of_memory > 1)}.")
    return as_text(lines, ascii_only=ascii_only)


def _allocator(device: DeviceMemory, origin_ns: int, limit: int, width: int, bars: str) -> Iterator[str]:
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


def _net_by_op(ops: pd.DataFrame, limit: int, width: int) -> Iterator[str]:
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
