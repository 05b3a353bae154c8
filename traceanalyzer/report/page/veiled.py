"""What is drawn without what is confidential."""

from __future__ import annotations

from dataclasses import replace

from traceanalyzer.report.page.bars import Bar
from traceanalyzer.report.page.flame import Node
from traceanalyzer.report.page.plots import MemoryCurve, StepSeries
from traceanalyzer.report.page.stretches import Stretch
from traceanalyzer.report.page.strip import Earlier, Lane, Strip
from traceanalyzer.report.page.veil import Veil


def veiled_strip(strip: Strip, veil: Veil) -> Strip:
    """Without annotations and lines of python."""
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


def veiled_node(node: Node, veil: Veil) -> Node:
    """Names of modules and annotations are told by their kinds alone."""
    kind = f"[{node.kind}]" if node.kind in ("module", "annotation") else veil.text(node.name)
    return Node(kind, node.kind, node.ns, node.count, [veiled_node(one, veil) for one in node.inside])


def veiled_curve(curve: MemoryCurve, veil: Veil) -> MemoryCurve:
    """Without lines of python."""
    owners = (replace(owner, op=veil.text(owner.op), line=None) for owner in curve.owners)
    return replace(curve, owners=tuple(owners))


def veiled_steps(series: StepSeries, veil: Veil) -> StepSeries:
    """Ops that are annotations are told by their kind alone."""
    steps = (
        replace(step, ops=tuple((veil.text(name), ns) for name, ns in step.ops)) for step in series.steps
    )
    return replace(series, steps=tuple(steps))


def veiled_stretch(one: Stretch, veil: Veil) -> Stretch:
    """The same of an idle stretch."""
    return replace(one, op=one.op and veil.text(one.op), line=None)
