"""Everything that a page shows: the report, and of each trace what is drawn beside it. Results only, no layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import Report
from traceanalyzer.report.fact import Fact
from traceanalyzer.report.facts import facts_of
from traceanalyzer.report.page.bars import Bar
from traceanalyzer.report.page.flame import MOST_NODES, Node, flame_of, flame_of_cpu, flame_of_idle
from traceanalyzer.report.page.plots import (
    MOST_STEPS,
    KernelSpread,
    MemoryCurve,
    StepSeries,
    kernel_spreads,
    memory_curves,
    step_series,
)
from traceanalyzer.report.page.strip import MOST_BARS, Earlier, Lane, Strip, strip_of
from traceanalyzer.report.page.timeline import Timeline, timeline_of
from traceanalyzer.report.page.veil import NO_VEIL, Veil, veil_of
from traceanalyzer.report.summary import attempt
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.rule.registry import all_rules

if TYPE_CHECKING:
    import pandas as pd

Analysed = Sequence[tuple[int | None, Analysis]]

MOST_OPS, MOST_INPUTS = 40, 4


@dataclass(frozen=True, slots=True)
class Inputs:
    """One op with inputs of one shape and type: its row in `OpWork.shapes`, and what is shown of it.

    Attributes:
        position: in `OpWork.shapes`, which `ops --format json` calls `inputs`.
        peak_share, limit: of the device's peak (1 is all of it), and which peak; None where not known.
    """

    position: int
    shapes: str
    dtypes: str
    calls: int
    gpu_ns: int
    tflops: float | None
    gbps: float | None
    peak_share: float | None
    limit: str | None
    why: str | None
    peak_tflops: float | None = None
    peak_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op: GPU time, share of the window, and its inputs with most time; `more` inputs are left out."""

    name: str
    calls: int
    gpu_ns: int
    share: float
    inputs: tuple[Inputs, ...]
    more: int


@dataclass(frozen=True, slots=True)
class OpTable:
    """The ops with most GPU time, the number and time of the others, and where the peaks are from."""

    rows: tuple[OpRow, ...]
    others: int
    others_ns: int
    peaks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TracePage:
    """What is shown of one trace beside its `TraceReport`; None and empty where the trace does not carry it."""

    rank: int | None
    facts: tuple[Fact, ...] = ()
    flame: Node | None = None
    steps: StepSeries | None = None
    kernels: tuple[KernelSpread, ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    ops: OpTable | None = None
    timeline: Timeline | None = None
    cpu_flame: Node | None = None
    idle_flame: Node | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """All that the renderer receives.

    Attributes:
        report: as `diagnose` made it, veiled where `confidential`.
        traces: parallel to `report.traces`.
        strips: parallel to `report.findings`, None where nothing can be drawn.
        explained: slug of a rule that found something -> its page.
        confidential: whether files, lines of python and annotations were taken out.
    """

    report: Report
    traces: tuple[TracePage, ...]
    strips: tuple[Strip | None, ...]
    confidential: bool = False
    explained: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Room:
    """How much of everything is drawn: less of each where there is more of them, so that a page stays below 600 kB.

    Attributes:
        strips: findings that have one.
        bars: of a strip; 400 bytes each.
        nodes, steps, ops: of each trace; 60 bytes, 500 bytes and 4 kB each.
        events, marks: of the timeline of each trace; 8 bytes each.
    """

    strips: int
    bars: int
    nodes: int
    steps: int
    ops: int
    events: int
    marks: int

    @classmethod
    def of(cls, traces: int, findings: int) -> Self:
        strips = min(findings, 60)
        return cls(
            strips=strips,
            bars=min(MOST_BARS, 700 // max(strips, 1)),
            nodes=min(MOST_NODES, 3_000 // max(traces, 1)),
            steps=max(min(MOST_STEPS, 120 // max(traces, 1)), 20),
            ops=max(min(MOST_OPS, 80 // max(traces, 1)), 5),
            events=max(14_000 // max(traces, 1), 1_000),
            marks=max(5_000 // max(traces, 1), 500),
        )


def page_of(report: Report, analysed: Analysed, *, confidential: bool = False) -> Page:
    """The page of a report and the analyses that it was made of, as `analyses_of` returned them."""
    veil = veil_of(one.trace for _, one in analysed) if confidential else NO_VEIL
    by_rank = dict(analysed)
    room = _Room.of(len(analysed), len(report.findings))
    drawn = [_strip(by_rank[found.rank], found, room.bars, veil) for found in report.findings[: room.strips]]
    return Page(
        report=veil.report(report),
        traces=tuple(_trace_page(rank, one, room, veil, _of_rank(report, rank)) for rank, one in analysed),
        strips=(*drawn, *[None] * (len(report.findings) - len(drawn))),
        confidential=confidential,
        explained={rule: veil.text(text) for rule, text in _explained(report).items()},
    )


def _explained(report: Report) -> dict[str, str]:
    """Pages of the rules that found something."""
    pages = {rule.slug: rule.page for rule in all_rules()}
    return {one.rule: pages[one.rule] for one in report.findings if one.rule in pages}


def _of_rank(report: Report, rank: int | None) -> list[tuple[int, Finding]]:
    return [(i, finding) for i, finding in enumerate(report.findings) if finding.rank == rank]


def _trace_page(
    rank: int | None, one: Analysis, room: _Room, veil: Veil, findings: Sequence[tuple[int, Finding]]
) -> TracePage:
    """Each part by itself: one that fails costs none of the others. Ops, memory and facts are of the whole trace, as
    the commands that print them have no window."""
    lost: dict[str, str] = {}
    whole = one.within(None) if one.window.asked_ns else one
    flame = attempt(lost, "flame", partial(flame_of, one, room.nodes), None)
    said = veil.text if veil.on else None
    curves: tuple[MemoryCurve, ...] = attempt(lost, "memory", lambda: memory_curves(whole), ())
    facts: tuple[Fact, ...] = attempt(lost, "facts", lambda: facts_of(whole), ())
    flames = [
        attempt(lost, "flame", partial(made, one, room.nodes // 2), None)
        for made in (flame_of_cpu, flame_of_idle)
    ]
    cpu_flame, idle_flame = (one if one is None or not veil.on else _veiled_node(one, veil) for one in flames)
    return TracePage(
        rank=rank,
        cpu_flame=cpu_flame,
        idle_flame=idle_flame,
        facts=tuple(replace(fact, text=veil.text(fact.text), values={}) for fact in facts),
        flame=flame if flame is None or not veil.on else _veiled_node(flame, veil),
        steps=attempt(lost, "steps", partial(step_series, one, room.steps), None),
        kernels=attempt(lost, "kernels", partial(kernel_spreads, one), ()),
        memory=tuple(_veiled_curve(curve, veil) for curve in curves),
        ops=attempt(lost, "ops", partial(_ops, whole, room.ops), None),
        timeline=attempt(
            lost, "timeline", partial(timeline_of, one, findings, room.events, room.marks, said), None
        ),
    )


def _strip(one: Analysis, finding: Finding, most: int, veil: Veil) -> Strip | None:
    strip = attempt({}, "strip", partial(strip_of, one, finding, most), None)
    if strip is None or not veil.on:
        return strip
    lanes = tuple(_veiled_lane(lane, veil) for lane in strip.lanes)
    return replace(
        strip,
        lanes=lanes,
        line=None,
        earlier=_veiled_launch(strip.earlier, veil),
        drawn=sum(len(lane.bars) for lane in lanes),
    )


def _veiled_launch(launch: Earlier | None, veil: Veil) -> Earlier | None:
    return launch if launch is None or launch.op is None else replace(launch, op=veil.text(launch.op))


def _veiled_lane(lane: Lane, veil: Veil) -> Lane:
    """Without annotations, and so without the levels that only they were on."""
    kept = [bar for bar in lane.bars if bar.kind != "annotation"]
    level = {old: new for new, old in enumerate(sorted({bar.level for bar in kept}))}
    bars: tuple[Bar, ...] = tuple(
        replace(bar, name=veil.text(bar.name), level=level[bar.level]) for bar in kept
    )
    return replace(lane, bars=bars, levels=len(level))


def _veiled_node(node: Node, veil: Veil) -> Node:
    """Names of modules and annotations are told by their kinds alone."""
    kind = f"[{node.kind}]" if node.kind in ("module", "annotation") else veil.text(node.name)
    return Node(kind, node.kind, node.ns, node.count, [_veiled_node(one, veil) for one in node.inside])


def _veiled_curve(curve: MemoryCurve, veil: Veil) -> MemoryCurve:
    if not veil.on:
        return curve
    owners = (replace(owner, op=veil.text(owner.op), line=None) for owner in curve.owners)
    return replace(curve, owners=tuple(owners))


def _ops(analysis: Analysis, most: int) -> OpTable:
    """
    Raises:
        Unavailable: the trace has no GPU work.
    """
    work = analysis.index(OpWork)
    if len(work.ops) == 0:
        raise Unavailable("no op has GPU work")
    rest = work.ops.iloc[most:]
    columns = (work.ops[name].head(most).tolist() for name in ("op", "calls", "gpu_ns", "share"))
    rows = tuple(
        OpRow(op, calls, gpu_ns, share, *_inputs(work.shapes, op))
        for op, calls, gpu_ns, share in zip(*columns, strict=True)
    )
    sources = tuple(f"{peaks.name}, {peaks.source}" for _, peaks in sorted(work.peaks.items()) if peaks)
    return OpTable(rows, len(rest), int(rest["gpu_ns"].sum()), tuple(dict.fromkeys(sources)))


def _inputs(shapes: pd.DataFrame, op: str) -> tuple[tuple[Inputs, ...], int]:
    """The inputs of one op with most time, and how many more there are."""
    own = shapes[shapes["op"] == op]
    top = own.head(MOST_INPUTS).astype(object)
    top = top.where(top.notna(), None)
    names = (
        "shapes",
        "dtypes",
        "calls",
        "gpu_ns",
        "tflops",
        "gbps",
        "peak_share",
        "limit",
        "why",
        "peak_tflops",
        "peak_gbps",
    )
    rows = zip(top.index.tolist(), *(top[name].tolist() for name in names), strict=True)
    return tuple(Inputs(*row) for row in rows), max(len(own) - MOST_INPUTS, 0)
