"""The report as one small SVG for notebooks: verdict, where the time went, the largest findings."""

import textwrap
from collections.abc import Iterator, Sequence

from traceanalyzer.model.device_times import DeviceTime
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import Report
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.html.cards import MARKS
from traceanalyzer.render.html.markup import Html, said, tag
from traceanalyzer.render.html.plots import class_of, ordered
from traceanalyzer.render.words.phrases import in_one_line, titled
from traceanalyzer.report.words import in_words

MOST_BYTES = 20_000
_WIDTH, _LINE, _COLUMNS = 760, 20, 92  # pixels, pixels, characters of a line
_THINNEST = 2.0  # pixels of a part that is drawn
_TRACES, _FINDINGS, _VERDICT_LINES, _NAME = 4, 8, 4, 70
_COLOURS = {
    "c-compute": "#a9d6c1",
    "c-communication": "#cdbdea",
    "c-communication-waiting": "#ece2f9",
    "c-compute-over": "#b7c9dc",
    "c-copy": "#f1cf94",
    "c-copy-h2d": "#f8e6a0",
    "c-copy-d2h": "#f0b29a",
    "c-memset": "#d5d2cb",
    "c-idle": "#e3e6ea",
}


def summary_svg(report: Report) -> Html:
    """At most `MOST_BYTES` of markup, on white, so that it reads alike in light and dark notebooks."""
    parts: list[Html] = []
    y = 26
    for trace in report.traces[:_TRACES]:
        rank = f"rank {trace.rank}: " if len(report.traces) > 1 else ""
        lines = textwrap.wrap(said(rank + trace.verdict), _COLUMNS) or ["The step is not known."]
        for line in [*lines[:_VERDICT_LINES], *["…"] * (len(lines) > _VERDICT_LINES)]:
            parts.append(_text(line, 16, y, weight=600))
            y += _LINE
        for time in trace.accounting[:1]:
            parts += _bar(time, y - 8)
            y += 54
    if len(report.traces) > _TRACES:
        parts.append(_text(f"and {len(report.traces) - _TRACES} more ranks", 16, y, fill="#55606b"))
        y += _LINE
    parts += _findings(report.findings, y + 4)
    height = y + 4 + _LINE * (min(len(report.findings), _FINDINGS + 1) or 1)
    ground = tag("rect", width="100%", height="100%", fill="#ffffff")
    verdicts = "; ".join(trace.verdict for trace in report.traces[:_TRACES] if trace.verdict)
    size = {"width": _WIDTH, "height": height, "style": "max-width: 100%; height: auto"}
    looks = {"viewBox": f"0 0 {_WIDTH} {height}", "font_family": "system-ui, sans-serif", "role": "img"}
    label = said(f"traceanalyzer: {verdicts}", 300)
    return tag("svg", ground, *parts, xmlns="http://www.w3.org/2000/svg", **size, **looks, aria_label=label)


def _text(text: str, x: float, y: float, *, weight: int = 400, fill: str = "#1d2329", anchor: str = "start") -> Html:
    return tag("text", text, x=x, y=y, fill=fill, font_size=13, font_weight=weight, text_anchor=anchor)


def _bar(time: DeviceTime, y: int) -> Iterator[Html]:
    x, room = 16.0, _WIDTH - 32
    for name, ns in ordered(time):
        share = ns / max(time.length_ns, 1)
        width = room * share
        if width < _THINNEST:
            continue
        title = f"{in_words(name)}: {format_ns(ns)}, {format_share(share)}"
        place = {"x": f"{x:.1f}", "y": y, "width": f"{width:.1f}", "height": 26}
        yield tag("rect", tag("title", title), **place, fill=_COLOURS[class_of(name)], stroke="#ffffff")
        words = ("idle: " if name.startswith("idle") else "") + in_words(name)
        if width > 8 * len(words):
            yield _text(words, x + 6, y + 18)
        x += width


def _findings(findings: Sequence[Finding], y: int) -> Iterator[Html]:
    if not findings:
        yield _text("no findings", 16, y, fill="#55606b")
    for i, finding in enumerate(findings[:_FINDINGS]):
        grade, line = f"{i + 1}  {MARKS[finding.severity]} {finding.severity}", y + _LINE * i
        yield _text(grade, 16, line, fill="#55606b")
        yield _text(said(in_one_line(titled(finding), _NAME), _NAME), 110, line)
        worth = f"costs {format_share(finding.cost_share)} of recorded time" if finding.cost_ns else ""
        if finding.saving is not None and finding.saving.share > 0:
            worth = f"saves {format_ns(finding.saving.step_ns)} a step, {format_share(finding.saving.share)}"
        yield _text(worth, _WIDTH - 16, line, anchor="end", fill="#55606b")
    if len(findings) > _FINDINGS:
        yield _text(f"and {len(findings) - _FINDINGS} more", 16, y + _LINE * _FINDINGS, fill="#55606b")
