"""The tree of regions as text."""

from __future__ import annotations

import textwrap

from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.regions.regions import RegionRates, Regions
from traceanalyzer.render.text.page import as_text
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.report.step_parts import cost_of, listed_regions, shown_name

_COLUMNS = ("of step", "CPU", "GPU", "GPU idle", "calls")
_RATES = ("of peak", "TFLOP/s")
_WIDTHS = (7, 8, 8, 8, 5, 7, 7)
_WIDE = 100  # columns of a page that has room for both rates


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


_SUMS = ("of step", "CPU", "GPU", "GPU idle", "calls", "with inner")
_SUM_WIDTHS = (7, 8, 8, 8, 5, 10)


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
