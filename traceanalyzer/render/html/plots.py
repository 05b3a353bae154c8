"""Plots as SVG: steps, kernels, memory, and bars of parts that add up."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from traceanalyzer.model.device_times import IDLE, DeviceTime
from traceanalyzer.model.report import Report
from traceanalyzer.model.units import format_bytes, format_ns, format_share
from traceanalyzer.render.html.markup import Html, number, part, pointer, said, tag
from traceanalyzer.render.html.page_data import Inputs, OpTable
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, StepSeries
from traceanalyzer.report.words import in_words

_NAMED_OPS = 3
CAUSE_COLORS = 5  # causes of idle time with a color of their own; the others share one
_AXIS_NAME = 85.0  # percent of the width of the roofline, from where the axis has its name
_HEIGHT, _MOST = 260, 60  # of the roofline: pixels; points, of the most GPU time
_ROOM = 1.6  # of its ranges on either side, as a factor
_LABELLED = 7.0  # percent of the width: a narrower part has no room for its name
_THINNEST = 0.6  # percent of the width of a low bar: less is left out
_LETTERS = 24  # pixels: a lower bar has no room for letters
_STEPS_HEIGHT, _CURVE_HEIGHT, _CURVE_PART = 150, 170, 0.96  # pixels; of the height up to the highest point
_LOOKS = ["copy_d2h", "copy_h2d", "copy", "idle", "memset", "compute_over", "communication_waiting", "communication"]
_NUMBERED = 24  # steps below which a number stands
# Parts of a step -> how they look.
STEP_LOOKS = {
    "kernel": "c-compute",
    "communication": "c-communication",
    "copy": "c-copy",
    "memset": "c-memset",
    "runtime": "b-call",
    "data loading": "w-loading",
    "CPU op": "b-op",
    "other": "w-other",
}
_TICKS = 4  # on an axis, at most


def accounting_bar(report: Report, trace_index: int) -> list[Html]:
    position = sum(len(trace.accounting) for trace in report.traces[:trace_index])
    devices = report.traces[trace_index].accounting
    causes, several = ranked_causes(report), len(devices) > 1
    return [_device(time, position + i, trace_index, several, causes) for i, time in enumerate(devices)]


def ranked_causes(report: Report) -> list[str]:
    """Causes of idle time, `idle:...`, those of most idle time of all devices first: their order is their color."""
    sums: Counter[str] = Counter()
    for time in (time for trace in report.traces for time in trace.accounting):
        sums.update({name: ns for name, ns in time.parts_ns.items() if name.startswith(f"{IDLE}:") and ns})
    return sorted(sums, key=lambda name: (-sums[name], name))


def look_of(name: str, causes: Sequence[str]) -> str:
    return f"i-{min(causes.index(name), CAUSE_COLORS)}" if name in causes else class_of(name)


def _device(time: DeviceTime, position: int, trace_index: int, several: bool, causes: Sequence[str]) -> Html:
    parts = ordered(time)
    label = f"Where the time of device {time.device} went; the table has the same numbers"
    rows = []
    for name, ns in parts:
        ops = [one.op for one in time.idle_causes if one.cause == name and one.op]
        named = ", ".join(said(op, 60) for op in ops[:_NAMED_OPS]) + (" …" if len(ops) > _NAMED_OPS else "")
        words = ("idle: " if name.partition(":")[0] == IDLE else "") + in_words(name)
        time_ns = number(pointer("accounting", position, "parts_ns", name), ns, "ns")
        share = ns / max(time.length_ns, 1)
        rows.append((look_of(name, causes), words, named, share, format_share(share), time_ns))
    whole = number(pointer("diagnose", "traces", trace_index, "window", "length_ns"), time.length_ns, "ns")
    return part("plots.accounting", time.device, several, parts_bar(parts, label, causes), rows, whole)


def ordered(time: DeviceTime) -> list[tuple[str, int]]:
    """(class, ns) of what a device did, the largest first, idle time last."""
    parts = [(name, ns) for name, ns in time.parts_ns.items() if ns]
    return sorted(parts, key=lambda part: (part[0].partition(":")[0] == IDLE, -part[1], part[0]))


def roofline(table: OpTable) -> Html | None:
    """A point per op and inputs whose FLOPs and bytes are known; None where there are fewer than two."""
    every = [(row.name, one) for row in table.rows for one in row.inputs if one.tflops and one.gbps]
    points = sorted(every, key=lambda point: -point[1].gpu_ns)[:_MOST]
    if len(points) < 2:
        return None
    scale = _Scale([one for _, one in points])
    most = max(one.gpu_ns for _, one in points)
    body = (*_roofs(scale, points), *(_point(scale, name, one, most) for name, one in points), *_axes(scale))
    label = f"Roofline of {len(points)} ops; the table has their rates"
    caption = (
        f"Roofline: {len(points)} ops by FLOPs per byte (to the right) and TFLOP/s (up), on logarithmic axes; "
        "larger points take more GPU time; lines are the device's peaks."
    )
    size = {"width": "100%", "height": _HEIGHT + 20}
    drawn = tag("svg", *body, class_="roofline", **size, role="img", aria_label=label)
    return tag("figure", tag("figcaption", caption), drawn, class_="drawn")


def _intensity(one: Inputs) -> float:
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
            x1, x2 = (f"{scale.x(at):.2f}%" for at in (begin, end))
            y1, y2 = (f"{scale.y(at * gbps / 1e3):.1f}" for at in (begin, end))
            yield tag("line", class_="roof", x1=x1, x2=x2, y1=y1, y2=y2)


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
    tens = range(math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high)) + 1)
    yield from _levels((scale.y(10.0**power), f"{10.0**power:g} TFLOP/s") for power in tens)
    yield tag("text", "FLOPs per byte", class_="tick", x="100%", y=_HEIGHT + 16, text_anchor="end")
    for power in range(math.ceil(math.log10(scale.left)), math.floor(math.log10(scale.right)) + 1):
        x = f"{scale.x(10.0**power):.2f}%"
        yield tag("line", class_="axis", x1=x, x2=x, y1=_HEIGHT, y2=_HEIGHT + 4)
        if scale.x(10.0**power) > _AXIS_NAME:
            continue
        yield tag("text", f"{10.0**power:g}", class_="tick", x=x, y=_HEIGHT + 16)


def class_of(name: str) -> str:
    return "c-" + next((look for look in _LOOKS if name.startswith(look)), "compute").replace("_", "-")


def parts_bar(parts: Sequence[tuple[str, int]], label: str, causes: Sequence[str], height: int = 32) -> Html:
    """One bar of (class, ns) that add up to its width, with names where it is high enough."""
    whole, x, drawn = max(sum(ns for _, ns in parts), 1), 0.0, []
    for name, ns in parts:
        width = 100 * ns / whole
        if height < _LETTERS and width < _THINNEST:
            continue
        place: dict[str, object] = {"x": f"{x:.3f}%", "width": f"{width:.3f}%", "height": height}
        words = f"{in_words(name)}: {format_ns(ns)}, {format_share(ns / whole)}"
        title = tag("title", words) if height >= _LETTERS else None
        shape = tag("rect", title, class_=look_of(name, causes), **place)
        if width >= _LABELLED and height >= _LETTERS:
            letters = tag("text", in_words(name), x="8", y=height / 2 + 4)
            shape = tag("g", shape, tag("svg", letters, class_="letters", **place))
        drawn.append(shape)
        x += width
    return tag("svg", *drawn, class_="parts", width="100%", height=height, role="img", aria_label=label)


def range_bar(value: float, low: float, high: float, label: str) -> Html:
    at, first, last = (f"{100 * min(max(share, 0.0), 1.0):.2f}%" for share in (value, low, high))
    looks = (("rail", "100%"), ("saved", at))
    bars = [tag("rect", class_=look, width=width, height=6, y=5, rx=3) for look, width in looks]
    size = {"width": "100%", "height": 16}
    return tag("svg", *bars, *whiskers(first, last, 8), class_="range", **size, role="img", aria_label=label)


def whiskers(first: str, last: str, y: int) -> list[Html]:
    """A line at this height, and its ends."""
    return [_whisker(first, last, y, y), *(_whisker(end, end, y - 6, y + 6) for end in (first, last))]


def _whisker(x1: str, x2: str, y1: int, y2: int) -> Html:
    return tag("line", class_="whisker", x1=x1, x2=x2, y1=y1, y2=y2)


def round_values(most: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten up to `most`, without 0, at most `_TICKS`."""
    power: float = 10 ** math.floor(math.log10(max(most, 1e-9) / _TICKS))
    step = next(power * by for by in (1, 2, 5, 10) if power * by * (_TICKS + 1) > most)
    return [step * count for count in range(1, _TICKS + 1) if step * count <= most]


def _levels(marks: Iterable[tuple[float, str]]) -> Iterator[Html]:
    for y, name in marks:
        yield tag("line", class_="axis", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}")
        yield tag("text", name, class_="level", x="2", y=f"{y - 3:.1f}")


def steps_svg(series: StepSeries) -> Html:
    longest = max((step.ns for step in series.steps), default=1) or 1
    width = 100 / max(len(series.steps), 1)
    bars = (_step(one.number, one.parts_ns, i * width, width, longest) for i, one in enumerate(series.steps))
    y = f"{_STEPS_HEIGHT * (1 - series.median_ns / longest):.1f}"
    median = tag("line", class_="median", x1="0", x2="100%", y1=y, y2=y)
    size = {"width": "100%", "height": _STEPS_HEIGHT + 18}
    label = f"Times of {len(series.steps)} steps as bars"
    every = max(-(-len(series.steps) // _NUMBERED), 1)
    numbers = (
        tag("text", step.number, class_="tick", x=f"{(i + 0.5) * width:.2f}%", y=_STEPS_HEIGHT + 14)
        for i, step in list(enumerate(series.steps))[::every]
    )
    marks = [(_STEPS_HEIGHT * (1 - ns / longest), format_ns(round(ns))) for ns in round_values(longest)]
    drawn = *bars, median, *_levels(marks), *numbers
    return tag("svg", *drawn, class_="steps", **size, role="img", aria_label=label)


def _step(number: int, parts: dict[str, int], x: float, width: float, longest: int) -> Html:
    whole, y, drawn = sum(parts.values()), float(_STEPS_HEIGHT), []
    for name, ns in parts.items():
        height = _STEPS_HEIGHT * ns / longest
        y -= height
        place: dict[str, object] = {"x": f"{x + 0.08 * width:.3f}%", "width": f"{0.84 * width:.3f}%"}
        drawn.append(tag("rect", class_=STEP_LOOKS[name], y=f"{y:.2f}", height=f"{height:.2f}", **place))
    said = ", ".join(f"{name} {format_ns(ns)}" for name, ns in parts.items())
    return tag("g", tag("title", f"step {number}: {format_ns(whole)}; {said}"), *drawn)


def spread_svg(kernel: KernelSpread) -> Html:
    """From 0 to twice the usual or more: least to most as a line, p10 to p90 as a box, the usual time as a tick."""
    words = f"10 to 90 % take {kernel.p10:.2f} to {kernel.p90:.2f} times the usual, the longest {kernel.most:.2f} times"
    whole = max(kernel.most, 2.0)
    times = (kernel.least, kernel.p10, 1.0, kernel.p90, kernel.most)
    least, p10, usual, p90, most = (100 * time / whole for time in times)
    end, box = f"{most:.2f}%", {"x": f"{p10:.2f}%", "width": f"{max(p90 - p10, 0.8):.2f}%"}
    drawn = (
        tag("title", words),
        tag("line", class_="rail", x1="0", x2="100%", y1=9, y2=9),
        _whisker(f"{least:.2f}%", end, 9, 9),
        _whisker(end, end, 5, 13),
        tag("rect", class_="box", y=4, height=10, **box),
        tag("line", class_="tick-median", x1=f"{usual:.2f}%", x2=f"{usual:.2f}%", y1=1, y2=17),
    )
    return tag("svg", *drawn, class_="spread", width="100%", height=18, role="img", aria_label=words)


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
    shape = {"viewBox": f"0 0 1000 {_CURVE_HEIGHT}", "preserveAspectRatio": "none"}
    size = {"width": "100%", "height": _CURVE_HEIGHT}
    unit: int = 1024 ** min(int(math.log(most, 1024)), 3)
    marks = [
        (_CURVE_HEIGHT * (1 - _CURVE_PART * value * unit / most), format_bytes(round(value * unit)))
        for value in round_values(most / unit)
    ]
    drawn = tag("svg", *lines, **size, **shape)
    return tag("svg", drawn, *_levels(marks), class_="curve", **size, role="img", aria_label=text)


def _stairs(x: Iterable[float], values: Iterable[int], most: int) -> Html:
    heights = [_CURVE_HEIGHT * (1 - _CURVE_PART * max(value, 0) / most) for value in values]
    points = [f"{at:.1f},{y:.1f}" for at, y in zip(x, heights, strict=True)]
    steps = [f"H{point.partition(',')[0]} V{point.partition(',')[2]}" for point in points[1:]]
    return Html(f"M{points[0]} " + " ".join(steps))
