"""A strip as SVG: x in percent, so that it is as wide as the page and its letters keep their size."""

from __future__ import annotations

import math
from collections.abc import Iterator

from traceanalyzer.model.records import dataclass
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.units import format_ns, format_offset
from traceanalyzer.render.html.event_bars import Bar
from traceanalyzer.render.html.markup import Html, part, said, tag, together
from traceanalyzer.render.html.strip_data import Lane, Strip

_HEADING, _LEVEL, _GAP, _AXIS = 18, 19, 8, 22  # pixels
_LABELLED = 3.5  # percent of the width: a narrower bar has no room for letters
_LONGEST = 110  # characters of a bar's name
_TICKS = 4
_KINDS = {"copy": "copy", "compute": "compute", "communication": "communication", "memset": "memset"}
LEGEND = {
    "op": "op",
    "call": "runtime call",
    "wait": "blocking call",
    "annotation": "annotation",
    "compute": "kernel",
    "copy": "copy",
    "communication": "communication",
    "memset": "memset",
}


@dataclass(frozen=True, slots=True)
class _Scale:
    """Time to percent of the width, and to offsets from the trace's first event."""

    start_ns: int
    end_ns: int
    origin_ns: int

    def x(self, ns: int) -> float:
        inside = min(max(ns, self.start_ns), self.end_ns) - self.start_ns
        return 100 * inside / max(self.end_ns - self.start_ns, 1)


def strip_svg(strip: Strip, origin_ns: int, label: str) -> Html:
    """The strip with its lanes, the occurrence behind them, and a time axis."""
    scale = _Scale(strip.start_ns, strip.end_ns, origin_ns)
    tops, height = _tops(strip)
    lanes = [_lane(lane, top, scale) for lane, top in zip(strip.lanes, tops, strict=True)]
    body = (*_occurrence(strip, scale, height), *lanes, *_links(strip, tops, scale), *_axis(scale, height))
    size = {"width": "100%", "height": height + _AXIS}
    return tag("svg", *body, class_="strip", **size, role="group", aria_label=label)


def legend(strip: Strip) -> Html:
    """What the colours of the strip's bars mean, of the kinds that are in it."""
    kinds = {_kind(bar) for lane in strip.lanes for bar in lane.bars}
    items = [(f"b-{kind}", text) for kind, text in LEGEND.items() if kind in kinds]
    return part("shared.legend", [*items, ("own", "belongs to this occurrence")])


def _kind(bar: Bar) -> str:
    return next((kind for begin, kind in _KINDS.items() if bar.kind.startswith(begin)), bar.kind)


def _tops(strip: Strip) -> tuple[list[int], int]:
    tops, top = [], 2
    for lane in strip.lanes:
        tops.append(top)
        top += _HEADING + lane.levels * _LEVEL + _GAP
    return tops, top


def _lane(lane: Lane, top: int, scale: _Scale) -> Html:
    text = f"CPU thread {lane.number}" if lane.kind == "thread" else f"GPU stream {lane.number}"
    heading = tag("text", text, class_="lane", x="0", y=top + 12)
    height = lane.levels * _LEVEL - 1
    ground = tag("rect", class_="ground", x="0", y=top + _HEADING, width="100%", height=height)
    bars = (_bar(bar, top + _HEADING + bar.level * _LEVEL, scale) for bar in lane.bars)
    return tag("g", heading, ground, *bars)


def _bar(bar: Bar, y: int, scale: _Scale) -> Html:
    x, name = scale.x(bar.start_ns), said(bar.name, _LONGEST)
    width = scale.x(bar.end_ns) - x
    start = format_offset(bar.start_ns - scale.origin_ns)
    title = f"{name}, {format_ns(bar.end_ns - bar.start_ns)} from {start}"
    place: dict[str, object] = {"x": f"{x:.3f}%", "width": f"{width:.3f}%", "height": _LEVEL - 1}
    look = f"b b-{_kind(bar)}" + " own" * bar.own
    drawn = tag("rect", tag("title", title), class_=look, role="img", tabindex="-1", y=y, **place)
    if width < _LABELLED:
        return drawn
    letters = tag("text", short_kernel(name) if name.startswith("void ") else name, x="4", y="13")
    return together((drawn, tag("svg", letters, class_="letters", y=y, **place, aria_hidden="true")))


def _occurrence(strip: Strip, scale: _Scale, height: int) -> Iterator[Html]:
    first, last = scale.x(strip.from_ns), scale.x(strip.to_ns)
    width = max(last - first, 0.1)
    yield tag("rect", class_="here", x=f"{first:.3f}%", y="0", width=f"{width:.3f}%", height=height)
    for x in (first, first + width):
        yield tag("line", class_="edge", x1=f"{x:.3f}%", x2=f"{x:.3f}%", y1="0", y2=height)


def _links(strip: Strip, tops: list[int], scale: _Scale) -> Iterator[Html]:
    places = {
        bar.event_id: (scale.x(bar.start_ns), top + _HEADING + bar.level * _LEVEL)
        for lane, top in zip(strip.lanes, tops, strict=True)
        for bar in lane.bars
    }
    for link in strip.links:
        (x1, y1), (x2, y2) = places[link.launch], places[link.work]
        yield tag("line", class_="link", x1=f"{x1:.3f}%", x2=f"{x2:.3f}%", y1=y1 + _LEVEL - 1, y2=y2)


def _axis(scale: _Scale, top: int) -> Iterator[Html]:
    yield tag("line", class_="axis", x1="0", x2="100%", y1=top, y2=top)
    for ns in _round_times(scale.start_ns - scale.origin_ns, scale.end_ns - scale.origin_ns):
        x = scale.x(ns + scale.origin_ns)
        yield tag("line", class_="axis", x1=f"{x:.3f}%", x2=f"{x:.3f}%", y1=top, y2=top + 4)
        side = "end" if x > 85 else "start" if x < 8 else "middle"
        instant = f"{ns / 1e6:,.3f}".rstrip("0").rstrip(".") + " ms"
        yield tag("text", instant, class_="tick", x=f"{x:.3f}%", y=top + 17, text_anchor=side)


def _round_times(low: int, high: int) -> list[int]:
    """Multiples of 1, 2 or 5 times a power of ten between low and high."""
    rough = max((high - low) / _TICKS, 1.0)
    scale = 10 ** math.floor(math.log10(rough))
    step = next(int(scale * of) for of in (1, 2, 5, 10) if scale * of >= rough)
    return list(range(-(-low // step) * step, high + 1, step))
