"""Plots as SVG: steps, kernels, memory, and bars of parts that add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceanalyzer.model.units import format_bytes, format_ns, format_share
from traceanalyzer.render.html.markup import Html, tag
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, StepSeries
from traceanalyzer.report.words import in_words

_LABELLED = 7.0  # percent of the width: a narrower part has no room for its name
_STEPS_HEIGHT, _CURVE_HEIGHT = 150, 170
_LOOKS = (
    "copy_d2h",
    "copy_h2d",
    "copy",
    "idle",
    "memset",
    "compute_over",
    "communication_waiting",
    "communication",
)
_NUMBERED = 24  # steps below which a number stands


def class_of(name: str) -> str:
    """CSS class of a class of time."""
    for begin in _LOOKS:
        if name.startswith(begin):
            return f"c-{begin.replace('_', '-')}"
    return "c-compute"


def swatch(name: str) -> Html:
    """The look of a class of time, for legends."""
    return tag("span", class_=f"swatch {class_of(name)}")


def parts_bar(parts: Sequence[tuple[str, int]], label: str) -> Html:
    """One bar of (class, ns) that add up to its width."""
    whole, x, drawn = max(sum(ns for _, ns in parts), 1), 0.0, []
    for name, ns in parts:
        width = 100 * ns / whole
        drawn.append(_part(name, ns, ns / whole, x, width))
        x += width
    named: dict[str, object] = {"role": "img", "aria-label": label}
    return tag("svg", *drawn, class_="parts", width="100%", height=44, **named)


def _part(name: str, ns: int, share: float, x: float, width: float) -> Html:
    text = f"{in_words(name)}: {format_ns(ns)}, {format_share(share)}"
    place: dict[str, object] = {"x": f"{x:.3f}%", "width": f"{width:.3f}%", "height": 44}
    shape = tag("rect", tag("title", text), class_=class_of(name), **place)
    if width < _LABELLED:
        return shape
    letters = tag("text", in_words(name), x="8", y="27")
    return tag("g", shape, tag("svg", letters, class_="letters", **place))


def range_bar(value: float, low: float, high: float, label: str) -> Html:
    """A value of at most 1 as a bar, with its interval as a line with ends."""
    at, first, last = (f"{100 * min(max(share, 0.0), 1.0):.2f}%" for share in (value, low, high))
    named: dict[str, object] = {"role": "img", "aria-label": label}
    return tag(
        "svg",
        tag("rect", class_="rail", width="100%", height=6, y=5, rx=3),
        tag("rect", class_="saved", width=at, height=6, y=5, rx=3),
        tag("line", class_="whisker", x1=first, x2=last, y1=8, y2=8),
        *(tag("line", class_="whisker", x1=x, x2=x, y1=2, y2=14) for x in (first, last)),
        class_="range",
        width="100%",
        height=16,
        **named,
    )


def steps_svg(series: StepSeries) -> Html:
    """A bar per step, made of its classes, and a line at the median."""
    longest = max((step.ns for step in series.steps), default=1) or 1
    width = 100 / max(len(series.steps), 1)
    bars = [
        _step(step.number, step.parts_ns, i * width, width, longest) for i, step in enumerate(series.steps)
    ]
    y = f"{_STEPS_HEIGHT * (1 - series.median_ns / longest):.1f}"
    median = tag("line", class_="median", x1="0", x2="100%", y1=y, y2=y)
    named: dict[str, object] = {"role": "img", "aria-label": f"Times of {len(series.steps)} steps as bars"}
    shape: dict[str, object] = {"width": "100%", "height": _STEPS_HEIGHT + 18}
    every = -(-len(series.steps) // _NUMBERED)
    numbers = (
        tag("text", step.number, class_="tick", x=f"{(i + 0.5) * width:.2f}%", y=_STEPS_HEIGHT + 14)
        for i, step in enumerate(series.steps)
        if i % every == 0
    )
    return tag("svg", *bars, median, *numbers, class_="steps", **shape, **named)


def _step(number: int, parts: dict[str, int], x: float, width: float, longest: int) -> Html:
    whole, y, drawn = sum(parts.values()), float(_STEPS_HEIGHT), []
    for name, ns in sorted(parts.items(), key=lambda part: (part[0] == "idle", class_of(part[0]))):
        height = _STEPS_HEIGHT * ns / longest
        y -= height
        place: dict[str, object] = {"x": f"{x + 0.08 * width:.3f}%", "width": f"{0.84 * width:.3f}%"}
        drawn.append(tag("rect", class_=class_of(name), y=f"{y:.2f}", height=f"{height:.2f}", **place))
    said = ", ".join(f"{in_words(name)} {format_ns(ns)}" for name, ns in parts.items())
    return tag("g", tag("title", f"step {number}: {format_ns(whole)}; {said}"), *drawn)


def spread_svg(kernel: KernelSpread) -> Html:
    """From 0 to twice the usual or more: least to most as a line, p10 to p90 as a box, the usual time as a tick."""
    whole = max(kernel.most, 2.0)
    least, p10, usual, p90, most = (
        100 * times / whole for times in (kernel.least, kernel.p10, 1.0, kernel.p90, kernel.most)
    )
    box = {"x": f"{p10:.2f}%", "width": f"{max(p90 - p10, 0.8):.2f}%"}
    named: dict[str, object] = {"role": "img", "aria-label": "spread of its executions"}
    return tag(
        "svg",
        tag("line", class_="rail", x1="0", x2="100%", y1=9, y2=9),
        tag("line", class_="whisker", x1=f"{least:.2f}%", x2=f"{most:.2f}%", y1=9, y2=9),
        tag("line", class_="whisker", x1=f"{most:.2f}%", x2=f"{most:.2f}%", y1=5, y2=13),
        tag("rect", class_="box", y=4, height=10, **box),
        tag("line", class_="tick-median", x1=f"{usual:.2f}%", x2=f"{usual:.2f}%", y1=1, y2=17),
        class_="spread",
        width="100%",
        height=18,
        **named,
    )


def memory_svg(curve: MemoryCurve) -> Html:
    """Allocated bytes as an area, reserved ones as a line, the peak as a mark; stretched to the width."""
    first, last = curve.time_ns[0], curve.time_ns[-1]
    most = max(*curve.allocated_bytes, *(curve.reserved_bytes or (1,)), 1)
    x = [1000 * (at - first) / max(last - first, 1) for at in curve.time_ns]
    allocated = _stairs(x, curve.allocated_bytes, most)
    area = Html(f"M0,{_CURVE_HEIGHT} {allocated.replace('M', 'L', 1)} L1000,{_CURVE_HEIGHT} Z")
    lines = [tag("path", class_="area", d=area), tag("path", class_="allocated", d=allocated)]
    if curve.reserved_bytes is not None:
        lines.append(tag("path", class_="reserved", d=_stairs(x, curve.reserved_bytes, most)))
    peak = f"{1000 * (curve.peak_ns - first) / max(last - first, 1):.1f}"
    lines.append(tag("line", class_="edge", x1=peak, x2=peak, y1=0, y2=_CURVE_HEIGHT))
    text = f"Memory of {curve.device} over time, at most {format_bytes(curve.peak_bytes)}"
    named: dict[str, object] = {"role": "img", "aria-label": text}
    shape = {"viewBox": f"0 0 1000 {_CURVE_HEIGHT}", "preserveAspectRatio": "none"}
    return tag("svg", *lines, class_="curve", width="100%", height=_CURVE_HEIGHT, **shape, **named)


def _stairs(x: Iterable[float], values: Iterable[int], most: int) -> Html:
    """A path that keeps each value until the next point."""
    heights = [_CURVE_HEIGHT * (1 - 0.96 * max(value, 0) / most) for value in values]
    points = [f"{at:.1f},{y:.1f}" for at, y in zip(x, heights, strict=True)]
    steps = [f"H{point.partition(',')[0]} V{point.partition(',')[2]}" for point in points[1:]]
    return Html(f"M{points[0]} " + " ".join(steps))
