"""Tables of one trace: ops with their peaks, kernels with their spread, memory with its owners, facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from traceanalyzer.model.units import format_bytes, format_ns, format_offset
from traceanalyzer.render.html.markup import (
    Html,
    code,
    kernel_names,
    number,
    pointer,
    prose,
    quoted,
    said,
    scrolled,
    tag,
    together,
    told_apart,
)
from traceanalyzer.render.html.page_data import Inputs, OpTable
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, StepSeries, StepTime, Stretch
from traceanalyzer.render.html.plots import memory_svg, spread_svg, steps_svg, swatch
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.words import in_words

_LONGEST_KERNEL, _LONGEST_OP = 100, 200  # characters; the script knows ops by as many
_LEAST_DRAWN = 1 << 20  # bytes at the peak: what the host keeps for a few scalars is no curve worth a look


def header(*names: str) -> Html:
    """The head of a table."""
    return tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))


def ops(table: OpTable, i: int) -> Html:
    """Ops, most GPU time first, below each its inputs."""
    document = f"ops-{i}"
    names = told_apart([row.name for row in table.rows], 160)
    bodies = [
        tag(
            "tbody",
            tag(
                "tr",
                tag("th", code(names[place]), scope="row"),
                tag("td", number(pointer(document, "ops", place, "calls"), row.calls, "count")),
                tag("td", number(pointer(document, "ops", place, "gpu_ns"), row.gpu_ns, "ns")),
                tag("td", number(pointer(document, "ops", place, "share"), row.share, "share")),
                tag("td", ""),
                tag("td", ""),
                class_="op",
            ),
            *(_inputs(one, document) for one in row.inputs if one.shapes or one.peak_share is not None),
            id=f"op-{i}-{place}",
            data_name=said(row.name, _LONGEST_OP),
        )
        for place, row in enumerate(table.rows)
    ]
    head = header("op and its inputs", "calls", "GPU time", "of the window", "rate", "of the peak")
    rest = (
        tag("p", f"{table.others:,} other ops take {format_ns(table.others_ns)}.", class_="drawn")
        if table.others
        else None
    )
    peaks = [tag("p", "Peaks: ", said(text), class_="note drawn") for text in table.peaks]
    return together((scrolled("Ops", tag("table", head, *bodies, class_="ops-table")), rest, *peaks))


def _inputs(one: Inputs, document: str) -> Html:
    def at(name: str, value: float | None, unit: str, after: str) -> tuple[object, ...]:
        where = pointer(document, "inputs", one.position, name)
        return () if value is None else (number(where, value, unit), after)

    rates = [at("tflops", one.tflops, "rate", " TFLOP/s"), at("gbps", one.gbps, "rate", " GB/s")]
    rate = [part for found in rates if found for part in (*found, ", ")][:-1]
    why = (
        None
        if one.why is None
        else quoted(pointer(document, "inputs", one.position, "why"), one.why, class_="why")
    )
    share = why if one.peak_share is None else _share(one, at)
    return tag(
        "tr",
        tag("th", tag("code", said(f"[{one.shapes}] {one.dtypes}", 160)), scope="row"),
        tag("td", *at("calls", one.calls, "count", "")),
        tag("td", *at("gpu_ns", one.gpu_ns, "ns", "")),
        tag("td", ""),
        tag("td", *rate),
        tag("td", share, class_="peak"),
        class_="inputs",
    )


def _share(one: Inputs, at: object) -> Html:
    assert one.peak_share is not None
    assert callable(at)
    width = f"{100 * min(one.peak_share, 1.0):.1f}%"
    bar = tag(
        "svg",
        tag("rect", class_="rail", width="100%", height=6),
        tag("rect", class_="saved", width=width, height=6),
        class_="small",
        width="56",
        height=6,
        aria_hidden="true",
    )
    return together((bar, " ", *at("peak_share", one.peak_share, "share", f" of {one.limit}")))


def steps(series: StepSeries, i: int) -> Html:
    """Steps as bars, and as numbers for those who want them."""
    note = f"One bar is the longest of {series.together} steps." if series.together > 1 else None
    rows = (_step(step, i) for step in series.steps)
    head = header("step", "time", "busy", "idle", "most GPU time in", "most idle time by")
    table = tag("table", head, tag("tbody", *rows), class_="steps-table")
    caption = (
        f"Time of each step on device {series.device}; the line is the median, {format_ns(series.median_ns)}."
    )
    classes = sorted(
        {name for step in series.steps for name in step.parts_ns}, key=lambda name: (name == "idle", name)
    )
    legend = tag("ul", *(tag("li", swatch(name), in_words(name)) for name in classes), class_="legend")
    numbers = scrolled("Times of steps", table, "scroll short")
    return tag(
        "figure", tag("figcaption", caption, " ", note), steps_svg(series), legend, numbers, class_="drawn"
    )


def _step(step: StepTime, i: int) -> Html:
    """A row of numbers, which leads to the step on the timeline."""
    idle = step.parts_ns.get("idle", 0)
    ops = (together((code(said(name, 80)), f" {format_ns(ns)}", tag("br"))) for name, ns in step.ops)
    link = tag("a", step.number, href="#timeline", data_at=f"#step-{i}-{step.number}")
    return tag(
        "tr",
        tag("th", link, scope="row"),
        tag("td", format_ns(step.ns)),
        tag("td", format_ns(step.ns - idle)),
        tag("td", format_ns(idle)),
        tag("td", *ops),
        tag("td", in_words(step.cause) if step.cause else ""),
        id=f"row-{i}-{step.number}",
    )


def stretches(found: Sequence[Stretch], i: int, origin_ns: int) -> Html:
    """The longest idle stretches of a trace, which lead to their places on the timeline."""
    several = len({one.device for one in found}) > 1
    rows = (
        tag(
            "tr",
            tag("th", _place(one, i, origin_ns), scope="row"),
            tag("td", format_ns(one.end_ns - one.start_ns)),
            tag("td", one.device) if several else None,
            tag("td", "" if one.step is None else one.step),
            tag("td", in_words(one.cause)),
            tag("td", *(code(said(name, 120)) for name in (one.op, one.line) if name)),
        )
        for one in found
    )
    devices = ["device"] * several
    head = header("longest idle stretches, from", "long", *devices, "step", "most of it by", "before or in")
    return scrolled(
        "Longest idle stretches", tag("table", head, tag("tbody", *rows), class_="stretches"), "scroll drawn"
    )


def _place(one: Stretch, i: int, origin_ns: int) -> Html:
    start, end = one.start_ns - origin_ns, one.end_ns - origin_ns
    at = f"#span-{i}-{one.device}-{start}-{end}"
    return tag("a", joined_units(format_offset(start)), href="#timeline", data_at=at)


def kernels(spreads: Sequence[KernelSpread]) -> Html:
    """How long the executions of each kernel take, over what is usual at their place of the step."""
    names = kernel_names([one.name for one in spreads], _LONGEST_KERNEL)
    rows = (
        tag(
            "tr",
            tag("th", code(name, title=said(one.name)), *_blocks(one), scope="row"),
            tag("td", f"{one.count:,}"),
            tag("td", format_ns(one.total_ns)),
            tag("td", format_ns(one.median_ns)),
            tag("td", f"{one.p10:.2f}× to {one.p90:.2f}×"),
            tag("td", f"{one.most:.2f}×"),
            tag("td", spread_svg(one), class_="picture"),
        )
        for name, one in zip(names, spreads, strict=True)
    )
    head = header("kernel", "times", "in all", "median", "p10 to p90", "longest", "of the usual time")
    return scrolled(
        "Kernels across steps", tag("table", head, tag("tbody", *rows), class_="kernels"), "scroll drawn"
    )


def _blocks(one: KernelSpread) -> tuple[object, ...]:
    """What tells kernels of one name apart."""
    return (tag("span", f" {one.blocks:,} blocks", class_="blocks"),) if one.blocks else ()


def memory(curve: MemoryCurve, i: int, origin_ns: int) -> Html:
    """The curve of one allocator, and who was alive at the peak."""
    document, where = f"memory-{i}", ("devices", curve.position)
    peak = number(pointer(document, *where, "peak_bytes"), curve.peak_bytes, "bytes")
    at = tag("span", format_ns(curve.peak_ns - origin_ns), class_="drawn")
    reserved = (
        ()
        if curve.peak_reserved_bytes is None
        else (
            "; reserved: at most ",
            number(pointer(document, *where, "peak_reserved_bytes"), curve.peak_reserved_bytes, "bytes"),
            " (the dashed line)",
        )
    )
    caption = tag(
        "figcaption",
        tag("b", quoted(pointer(document, *where, "device"), curve.device)),
        ": peak ",
        peak,
        " at ",
        at,
        *reserved,
    )
    table = tag(
        "table",
        header("alive at the peak", "blocks", "bytes"),
        tag("tbody", *_owners(curve, i)),
        class_="owners",
    )
    if curve.peak_bytes < _LEAST_DRAWN:
        return tag("figure", caption)
    return tag("figure", caption, memory_svg(curve), scrolled("Alive at the peak", table))


def _owners(curve: MemoryCurve, i: int) -> Iterator[Html]:
    document, device = f"memory-{i}", ("devices", curve.position)
    names = told_apart([owner.op for owner in curve.owners], 120)
    for place, owner in enumerate(curve.owners):
        where = (*device, "alive_at_peak", place)
        line = tag("span", said(owner.line, 160), class_="line") if owner.line else None
        blocks = number(pointer(document, *where, "blocks"), owner.blocks, "count")
        size = number(pointer(document, *where, "bytes"), owner.bytes, "bytes")
        yield _owner(together((code(names[place]), line)), blocks, size)
    if curve.others:
        size = tag("data", format_bytes(curve.others_bytes), value=curve.others_bytes, class_="derived")
        others = tag("span", f"{curve.others:,} other places", class_="derived")
        yield _owner(others, Html(""), size)
    if curve.before_bytes > 0:
        size = number(pointer(document, *device, "before_bytes"), curve.before_bytes, "bytes")
        yield _owner(Html("allocated before the recording"), Html(""), size)


def _owner(name: Html, blocks: Html, size: Html) -> Html:
    return tag("tr", tag("th", name, scope="row"), tag("td", blocks), tag("td", size))


def facts(found: Sequence[Fact], i: int) -> Html:
    """Facts by kind, a paragraph each."""
    parts: list[Html] = []
    numbered = list(enumerate(found))
    done = [one for one in numbered if ": 0 TFLOP/s" not in one[1].text]  # too little to be judged
    for name, same in groupby(done, lambda one: one[1].name):
        texts = [prose(pointer(f"facts-{i}", "facts", place, "text"), fact.text, "p") for place, fact in same]
        parts.append(tag("div", tag("dt", name.replace("-", " ")), tag("dd", *texts)))
    return tag("dl", *parts, class_="facts")
