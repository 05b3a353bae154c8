"""Ops by what they compute per byte and how fast, below the roof of the device's peaks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, said, tag
from traceanalyzer.render.html.page_data import Inputs, OpTable

_HEIGHT, _MOST = 260, 60  # pixels; points, of the most GPU time
_ROOM = 1.6  # of the range on either side, as a factor


def roofline(table: OpTable) -> Html | None:
    """A point per op and inputs whose FLOPs and bytes are known; None where there are fewer than two."""
    every = [(row.name, one) for row in table.rows for one in row.inputs if one.tflops and one.gbps]
    points = sorted(every, key=lambda point: -point[1].gpu_ns)[:_MOST]
    if len(points) < 2:
        return None
    scale = _Scale([one for _, one in points])
    most = max(one.gpu_ns for _, one in points)
    body = (*_roofs(scale, points), *(_point(scale, name, one, most) for name, one in points), *_axes(scale))
    named: dict[str, object] = {
        "role": "img",
        "aria-label": f"Roofline of {len(points)} ops; the table has their rates",
    }
    caption = (
        f"Roofline: {len(points)} ops by FLOPs per byte (to the right) and TFLOP/s (up), on logarithmic axes; "
        "larger points take more GPU time; lines are the device's peaks."
    )
    drawn = tag("svg", *body, class_="roofline", width="100%", height=_HEIGHT + 20, **named)
    return tag("figure", tag("figcaption", caption), drawn, class_="drawn")


def _intensity(one: Inputs) -> float:
    """FLOPs per byte."""
    return 1e3 * (one.tflops or 0.0) / (one.gbps or 1.0)


class _Scale:
    """Both axes: logarithms to percent of the width and to pixels."""

    def __init__(self, points: Sequence[Inputs]) -> None:
        across = [_intensity(one) for one in points]
        up = [one.tflops or 0.0 for one in points] + [one.peak_tflops for one in points if one.peak_tflops]
        self.left, self.right = min(across) / _ROOM, max(across) * _ROOM
        self.low, self.high = min(up) / _ROOM, max(up) * _ROOM

    def x(self, intensity: float) -> float:
        return 100 * math.log(intensity / self.left) / math.log(self.right / self.left)

    def y(self, tflops: float) -> float:
        return _HEIGHT * (1 - math.log(tflops / self.low) / math.log(self.high / self.low))


def _roofs(scale: _Scale, points: Sequence[tuple[str, Inputs]]) -> Iterator[Html]:
    """Peaks of arithmetic as level lines, and the memory's as slopes below the highest of them."""
    peaks = sorted({one.peak_tflops for _, one in points if one.peak_tflops})
    for peak in peaks:
        y = f"{scale.y(peak):.1f}"
        yield tag("line", class_="roof", x1="0", x2="100%", y1=y, y2=y)
        yield tag("text", f"{peak:,.0f} TFLOP/s", class_="tick", x="4", y=f"{scale.y(peak) - 4:.1f}")
    for gbps in sorted({one.peak_gbps for _, one in points if one.peak_gbps}):
        top = min(max(peaks, default=scale.high), scale.high)
        begin = max(scale.left, 1e3 * scale.low / gbps)
        end = min(scale.right, 1e3 * top / gbps)
        if begin < end:
            ends = [(scale.x(at), scale.y(at * gbps / 1e3)) for at in (begin, end)]
            (x1, y1), (x2, y2) = ends
            yield tag("line", class_="roof", x1=f"{x1:.2f}%", x2=f"{x2:.2f}%", y1=f"{y1:.1f}", y2=f"{y2:.1f}")


def _point(scale: _Scale, name: str, one: Inputs, most: int) -> Html:
    share = "" if one.peak_share is None else f", {100 * one.peak_share:.0f} % of the {one.limit} peak"
    text = (
        f"{said(name, 80)} [{said(one.shapes, 80)}]: {one.tflops:,.2f} TFLOP/s, {_intensity(one):,.2f} FLOPs per byte, "
        f"{format_ns(one.gpu_ns)} of GPU time{share}"
    )
    radius = 3 + 9 * math.sqrt(one.gpu_ns / max(most, 1))
    place = {"cx": f"{scale.x(_intensity(one)):.2f}%", "cy": f"{scale.y(one.tflops or scale.low):.1f}"}
    return tag("circle", tag("title", text), class_="op", r=f"{radius:.1f}", **place)


def _axes(scale: _Scale) -> Iterator[Html]:
    yield tag("line", class_="axis", x1="0", x2="100%", y1=_HEIGHT, y2=_HEIGHT)
    for power in range(math.ceil(math.log10(scale.left)), math.floor(math.log10(scale.right)) + 1):
        x = f"{scale.x(10.0**power):.2f}%"
        yield tag("line", class_="axis", x1=x, x2=x, y1=_HEIGHT, y2=_HEIGHT + 4)
        side = {"text-anchor": "end" if scale.x(10.0**power) > 92 else "start"}
        yield tag("text", f"{10.0**power:g}", class_="tick", x=x, y=_HEIGHT + 16, **side)
