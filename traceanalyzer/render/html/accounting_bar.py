"""Where the time of a window went: a bar that adds up, and a row for every part of it."""

from __future__ import annotations

from traceanalyzer.model.report import IDLE, DeviceTime, Report
from traceanalyzer.model.units import format_share
from traceanalyzer.render.html.markup import Html, number, pointer, said, scrolled, tag
from traceanalyzer.render.html.plots import parts_bar, swatch
from traceanalyzer.report.words import in_words

_NAMED_OPS = 3


def accounting_bar(report: Report, trace_index: int) -> list[Html]:
    """One figure per device of a trace."""
    position = sum(len(trace.accounting) for trace in report.traces[:trace_index])
    devices = report.traces[trace_index].accounting
    return [_device(time, position + i, trace_index, len(devices) > 1) for i, time in enumerate(devices)]


def _device(time: DeviceTime, position: int, trace_index: int, several: bool) -> Html:
    parts = _ordered(time)
    label = f"Where the time of device {time.device} went; the table says the same in numbers"
    rows = [_row(name, ns, time, position) for name, ns in parts]
    where = pointer("diagnose", "traces", trace_index, "window", "length_ns")
    whole = tag(
        "tr",
        tag("th", "the window", scope="row"),
        tag("td", ""),
        tag("td", tag("data", "100 %", value=1, class_="derived")),
        tag("td", number(where, time.length_ns, "ns")),
    )
    header = tag(
        "tr",
        *(tag("th", text, scope="col") for text in ("what the GPU did", "before or in", "share", "time")),
    )
    table = tag("table", tag("thead", header), tag("tbody", *rows), tag("tfoot", whole), class_="books")
    heading = tag("h4", f"device {time.device}") if several else None
    return tag(
        "div",
        heading,
        parts_bar(parts, label),
        scrolled(f"Time of device {time.device}", table),
        class_="device",
    )


def _ordered(time: DeviceTime) -> list[tuple[str, int]]:
    """Busy classes, then causes of idle time, the largest of each first."""
    parts = [(name, ns) for name, ns in time.parts_ns.items() if ns]
    return sorted(parts, key=lambda part: (part[0].partition(":")[0] == IDLE, -part[1], part[0]))


def _row(name: str, ns: int, time: DeviceTime, position: int) -> Html:
    idle = name.partition(":")[0] == IDLE
    ops = [one.op for one in time.idle_causes if one.cause == name and one.op]
    named = ", ".join(said(op, 60) for op in ops[:_NAMED_OPS]) + (" …" if len(ops) > _NAMED_OPS else "")
    share = ns / max(time.length_ns, 1)
    return tag(
        "tr",
        tag("th", swatch(name), "idle: " if idle else "", in_words(name), scope="row"),
        tag("td", named, class_="ops"),
        tag("td", tag("data", format_share(share), value=share, class_="derived")),
        tag("td", number(pointer("accounting", position, "parts_ns", name), ns, "ns")),
    )
