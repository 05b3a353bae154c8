"""Numbers and phrases of a comparison as every form of it shows them."""

from __future__ import annotations

from traceanalyzer.comparison.result import Comparison, Counted, FaultChange, Row, Source, Word
from traceanalyzer.model.units import format_bytes, format_ns

SILENT = (Word.SAME, Word.UNKNOWN)


def percent(share: float) -> str:
    """A share of 1 with its sign: `+12.0 %`."""
    return f"{share * 100:+.1f} %"


def signed_ns(ns: float) -> str:
    """A time with its sign: `+1.24 ms`."""
    return f"{'-' if ns < 0 else '+'}{format_ns(abs(ns))}"


def times(base_ns: float, new_ns: float) -> str:
    """`9.88 ms -> 11.1 ms`."""
    return f"{format_ns(base_ns)} -> {format_ns(new_ns)}"


def counter_values(one: Counted) -> str:
    """`301 -> 1`, bytes in their unit."""
    if one.counter.endswith("bytes"):
        return f"{format_bytes(one.base)} -> {format_bytes(one.new)}"
    return f"{number(one.base)} -> {number(one.new)}"


def number(value: float) -> str:
    """A count per step with at most three decimals, a large one in powers of ten."""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def changed(found: Comparison) -> list[Counted]:
    """The counters that differ."""
    return [one for one in found.axes.exact if one.word in (Word.MORE, Word.FEWER)]


def real(found: Comparison) -> list[Row]:
    """The rows whose difference is more than noise."""
    return [row for row in found.rows if row.word not in SILENT]


def row_name(row: Row) -> str:
    """`aten::conv2d > aten::cudnn_convolution`."""
    outer = row.outer or row.region
    return row.op if outer in ("", row.op) else f"{outer} > {row.op}"


def row_values(row: Row) -> str:
    """Executions and time per step on both sides."""
    base, new = row.base, row.new
    if base is None or new is None:
        one = base or new
        assert one is not None
        return f"{number(one.count)} x, {format_ns(one.ns)}"
    counts = number(base.count) if base.count == new.count else f"{number(base.count)} -> {number(new.count)}"
    return f"{counts} x, {times(base.ns, new.ns)}"


def fault_line(fault: FaultChange) -> str:
    """`gone: implicit-sync: aten::item; said 17 %, got 15 %`."""
    parts = [f"{fault.status}: {fault.title}"]
    if fault.said_share is not None:
        interval = f" ({max(fault.low_share or 0, 0):.0%} to {fault.high_share:.0%})".replace("%", " %")
        said = f"said {fault.said_share:.0%}".replace("%", " %") + interval
        parts.append(
            said
            if fault.got_share is None
            else f"{said}, got {fault.got_share:.0%}".replace("%", " %").replace("  %", " %")
        )
    return "; ".join(parts)


def source_line(side: Source) -> str:
    """Which recordings, how many ranks and captures, GPU, and steps."""
    names = side.names[0] if len(side.names) == 1 else f"{len(side.names)} files, {side.names[0]} and others"
    parts = [names]
    if len(side.ranks) > 1:
        parts.append(f"{len(side.ranks)} ranks, rank {side.rank} compared")
    if side.captures > 1:
        parts.append(f"{side.captures} captures")
    parts += side.gpus[:1]
    parts.append(f"{side.steps} step{'s' * (side.steps != 1)}")
    return ", ".join(parts)
