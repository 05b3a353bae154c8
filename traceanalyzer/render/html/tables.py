"""Tables of one trace: ops with their peaks, kernels with their spread, memory with its owners, facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from traceanalyzer.model.units import format_bytes, format_offset
from traceanalyzer.render.html.markup import (
    Html,
    kernel_names,
    number,
    part,
    pointer,
    quoted,
    together,
    told_apart,
)
from traceanalyzer.render.html.page_data import Inputs, OpTable
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, StepSeries, Stretch
from traceanalyzer.render.html.plots import class_of, memory_svg, spread_svg, steps_svg
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.words import in_words

_LONGEST_KERNEL = 100  # characters
_LEAST_DRAWN = 1 << 20  # bytes at the peak: what the host keeps for a few scalars is no curve worth a look


def ops(table: OpTable, i: int) -> Html:
    """Ops, most GPU time first, below each its inputs."""
    names = told_apart([row.name for row in table.rows], 160)
    at = partial(pointer, f"ops-{i}", "inputs")
    return part("tables.ops", table, i, names, partial(_rate, at=at), partial(_share, at=at))


def _rate(one: Inputs, at: partial[str]) -> Html:
    rates = (("tflops", one.tflops, " TFLOP/s"), ("gbps", one.gbps, " GB/s"))
    shown = [
        (number(at(one.position, name), rate, "rate"), unit) for name, rate, unit in rates if rate is not None
    ]
    return Html(", ").join(map(together, shown))


def _share(one: Inputs, at: partial[str]) -> Html | None:
    """The bar of an op's share of its peak, else why that is not known."""
    if one.peak_share is not None:
        width = f"{100 * min(one.peak_share, 1.0):.1f}%"
        return part("tables.share", one, at(one.position, "peak_share"), width)
    return None if one.why is None else quoted(at(one.position, "why"), one.why, class_="why")


def steps(series: StepSeries, i: int) -> Html:
    """Steps as bars, and as numbers for those who want them."""
    names = {name for step in series.steps for name in step.parts_ns}
    classes = [
        (class_of(name), in_words(name)) for name in sorted(names, key=lambda name: (name == "idle", name))
    ]
    rows = [
        (step, step.parts_ns.get("idle", 0), in_words(step.cause) if step.cause else "")
        for step in series.steps
    ]
    return part("tables.steps", series, i, rows, steps_svg(series), classes)


def stretches(found: Sequence[Stretch], i: int, origin_ns: int) -> Html:
    """The longest idle stretches of a trace, which lead to their places on the timeline."""
    several = len({one.device for one in found}) > 1
    rows = []
    for one in found:
        start, end = one.start_ns - origin_ns, one.end_ns - origin_ns
        at = f"#span-{i}-{one.device}-{start}-{end}"
        rows.append((one, at, joined_units(format_offset(start)), in_words(one.cause)))
    names = (
        "longest idle stretches, from",
        "long",
        *["device"] * several,
        "step",
        "most of it by",
        "before or in",
    )
    return part("tables.stretches", rows, names, several)


def kernels(spreads: Sequence[KernelSpread]) -> Html:
    """How long the executions of each kernel take, over what is usual at their place of the step."""
    names = kernel_names([one.name for one in spreads], _LONGEST_KERNEL)
    return part("tables.kernels", list(zip(spreads, names, map(spread_svg, spreads), strict=True)))


def memory(curve: MemoryCurve, i: int, origin_ns: int) -> Html:
    """The curve of one allocator, and who was alive at the peak."""
    at = partial(pointer, f"memory-{i}", "devices", curve.position)
    names = told_apart([owner.op for owner in curve.owners], 120)
    picture = memory_svg(curve) if curve.peak_bytes >= _LEAST_DRAWN else None
    others = format_bytes(curve.others_bytes)
    return part("tables.memory", curve, at, curve.peak_ns - origin_ns, picture, names, others)


def facts(found: Sequence[Fact], i: int) -> Html:
    """Facts by kind, a paragraph each."""
    done = [one for one in enumerate(found) if ": 0 TFLOP/s" not in one[1].text]  # too little to be judged
    groups = [(name.replace("-", " "), list(same)) for name, same in groupby(done, lambda one: one[1].name)]
    return part("tables.facts", groups, i)
