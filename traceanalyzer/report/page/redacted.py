"""What is drawn without what is confidential."""

from __future__ import annotations

from dataclasses import replace

from traceanalyzer.report.page.bars import Bar
from traceanalyzer.report.page.flame import Node
from traceanalyzer.report.page.plots import MemoryCurve, StepSeries
from traceanalyzer.report.page.redaction import Redactor
from traceanalyzer.report.page.stretches import Stretch
from traceanalyzer.report.page.strip import Earlier, Lane, Strip


def redacted_strip(strip: Strip, redactor: Redactor) -> Strip:
    """Without annotations and lines of python."""
    lanes = tuple(_redacted_lane(lane, redactor) for lane in strip.lanes)
    return replace(
        strip,
        lanes=lanes,
        line=None,
        earlier=_redacted_launch(strip.earlier, redactor),
        drawn=sum(len(lane.bars) for lane in lanes),
    )


def _redacted_launch(launch: Earlier | None, redactor: Redactor) -> Earlier | None:
    return launch if launch is None or launch.op is None else replace(launch, op=redactor.text(launch.op))


def _redacted_lane(lane: Lane, redactor: Redactor) -> Lane:
    """Without annotations, and so without the levels that only they were on."""
    kept = [bar for bar in lane.bars if bar.kind != "annotation"]
    level = {old: new for new, old in enumerate(sorted({bar.level for bar in kept}))}
    bars: tuple[Bar, ...] = tuple(
        replace(bar, name=redactor.text(bar.name), level=level[bar.level]) for bar in kept
    )
    return replace(lane, bars=bars, levels=len(level))


def redacted_node(node: Node, redactor: Redactor) -> Node:
    """Names of modules and annotations are told by their kinds alone."""
    kind = f"[{node.kind}]" if node.kind in ("module", "annotation") else redactor.text(node.name)
    return Node(kind, node.kind, node.ns, node.count, [redacted_node(one, redactor) for one in node.inside])


def redacted_curve(curve: MemoryCurve, redactor: Redactor) -> MemoryCurve:
    """Without lines of python."""
    owners = (replace(owner, op=redactor.text(owner.op), line=None) for owner in curve.owners)
    return replace(curve, owners=tuple(owners))


def redacted_steps(series: StepSeries, redactor: Redactor) -> StepSeries:
    """Ops that are annotations are told by their kind alone."""
    steps = (
        replace(step, ops=tuple((redactor.text(name), ns) for name, ns in step.ops)) for step in series.steps
    )
    return replace(series, steps=tuple(steps))


def redacted_stretch(one: Stretch, redactor: Redactor) -> Stretch:
    """The same of an idle stretch."""
    return replace(one, op=one.op and redactor.text(one.op), line=None)
