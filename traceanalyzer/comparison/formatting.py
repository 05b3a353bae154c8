"""Formatting of numbers and phrases, shared by all renderers of a comparison."""

from traceanalyzer.comparison.result import Comparison, Counted, FaultChange, RegionChange, Row, Word
from traceanalyzer.comparison.snapshot import Source
from traceanalyzer.model.units import format_bytes, format_ns

SILENT = (Word.SAME, Word.UNKNOWN)


def signed_percent(share: float) -> str:
    """A share of 1 with its sign: `+12.0 %`."""
    return f"{share * 100:+.1f} %"


def signed_ns(ns: float) -> str:
    """A time with its sign: `+1.24 ms`."""
    return f"{'-' if ns < 0 else '+'}{format_ns(abs(ns))}"


def times(base_ns: float, new_ns: float) -> str:
    """`9.88 ms -> 11.1 ms`."""
    return f"{format_ns(base_ns)} -> {format_ns(new_ns)}"


def counter_values(one: Counted) -> str:
    """`301 -> 1`, bytes in their unit; all digits where fewer do not tell the two apart."""
    shorten = format_bytes if one.counter.endswith("bytes") else number
    base, new = shorten(one.base), shorten(one.new)
    if base == new and one.base != one.new:
        base, new = f"{one.base:,.10g}", f"{one.new:,.10g}"
    return f"{base} -> {new}"


def number(value: float) -> str:
    """A count per step with at most three decimals, a large one in powers of ten."""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def changed(found: Comparison) -> list[Counted]:
    """The counters that differ."""
    return [one for one in found.axes.exact if one.word in (Word.MORE, Word.FEWER)]


def real(found: Comparison) -> list[Row]:
    """The rows whose difference is more than noise."""
    return [row for row in found.rows if row.word not in SILENT]


def region_words(one: RegionChange) -> str:
    """`train.py: hook()`, or the ops of a block."""
    name = one.name.replace("aten::", "")
    return f"{name}()" if one.kind == "function" else name


def region_values(one: RegionChange) -> tuple[str, str, str]:
    """Time on both sides, and the change."""
    base, new = ("none" if ns is None else format_ns(ns) for ns in (one.base_ns, one.new_ns))
    return base, new, signed_ns(one.delta_ns)


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
    """`gone: implicit-sync: aten::item; predicted 17 %, got 15 %`."""
    saving = said_and_got(fault, interval=True)
    return f"{fault.status}: {fault.title}" + f"; {saving}" * bool(saving)


def said_and_got(fault: FaultChange, *, interval: bool = False) -> str:
    """`predicted 17 % (12 % to 30 %), got 15 %`; of a fix that adds time `predicted to add 8 %`; empty if unknown."""
    if (share := fault.said_share) is None:
        return ""
    text = f"predicted {share:.0%}" if share >= 0 else f"predicted to add {-share:.0%}"
    if interval and share >= 0:
        text += f" ({max(fault.low_share or 0, 0):.0%} to {fault.high_share:.0%})"
    if fault.got_share is not None:
        text += f", got {fault.got_share:.0%}"
    return text.replace("%", " %")


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
