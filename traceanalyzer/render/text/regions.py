"""The tree of regions as text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.regions.regions import Regions
from traceanalyzer.regions.responsible import block_words
from traceanalyzer.render.text.page import as_text
from traceanalyzer.render.words.escape import printable, shortened

# Share of the step below which a region is no line; a node that has nearly all of its parent's cost stands for it.
_LEAST, _NEARLY_ALL = 0.01, 0.97
_COLUMNS = ("of step", "CPU", "GPU", "GPU idle", "calls")
_WIDTHS = (7, 8, 8, 8, 7)
_LEFT = sum(_WIDTHS) + 2 * len(_WIDTHS)


def render_regions(
    regions: Regions, *, by: str = "cpu", depth: int = 4, width: int = 100, ascii_only: bool = False
) -> str:
    """The regions of a typical step, `depth` levels of them, those with the highest cost first.

    Args:
        by: cpu, gpu, idle or residual.
    """
    cost = cost_of(regions, by)
    whole = format_ns(round(regions.step_ns))
    head = f"Regions of a typical step of {whole} without the profiler; a share is the CPU time's share of it"
    lines = [head, "", _line(_COLUMNS, "region", width)]
    lines += [
        _line(
            _cells(regions, node), "  " * level + shown_name(regions, node, width - _LEFT - 2 * level), width
        )
        for node, level in _listed(regions, cost, depth)
    ]
    return as_text([printable(line) for line in lines], ascii_only=ascii_only)


def cost_of(regions: Regions, by: str) -> Floats:
    """What regions are ordered by, ns per step with all below each; float64 (nodes,)."""
    totals = regions.totals
    if by == "residual":
        return totals["gpu_ns"] - totals["bound_ns"]
    return totals[{"cpu": "predicted_ns", "gpu": "gpu_ns", "idle": "idle_ns"}[by]]


def shown_name(regions: Regions, node: int, width: int = 80) -> str:
    """`12 x layer_norm, linear, ...` of a block, else the name; in `width` columns where that is possible."""
    kind, name = regions.tree.kind[node], regions.tree.name[node]
    if kind == "block":
        return block_words(regions.tree.calls[node] / regions.steps, name, width)
    return f"{name}()" if kind == "function" else name


def _listed(regions: Regions, cost: Floats, depth: int) -> Iterator[tuple[int, int]]:
    """(node, level) of each line: without chains of nodes that cost the same, and without small ones."""
    parent = regions.tree.parent
    children: dict[int, list[int]] = {}
    for node in np.argsort(-cost, kind="stable").tolist():
        if cost[node] >= _LEAST * max(cost[0], 1.0):
            children.setdefault(int(parent[node]), []).append(node)
    pending = [(node, 0) for node in reversed(children.get(0, []))]
    while pending:
        node, level = pending.pop()
        inside = children.get(node, [])
        while (
            regions.tree.kind[node] != "phase"
            and len(inside) == 1
            and cost[inside[0]] >= _NEARLY_ALL * cost[node]
        ):
            node, inside = inside[0], children.get(inside[0], [])
        yield node, level
        if level + 1 < depth:
            pending += [(each, level + 1) for each in reversed(inside)]


def _cells(regions: Regions, node: int) -> tuple[str, ...]:
    totals = regions.totals
    times = (format_ns(round(totals[name][node])) for name in ("predicted_ns", "gpu_ns", "idle_ns"))
    calls = regions.tree.calls[node] / regions.steps
    return (format_share(float(regions.share[node])), *times, f"{calls:,.0f}" if calls else "")


def _line(cells: tuple[str, ...], name: str, width: int) -> str:
    left = "  ".join(f"{cell:>{size}}" for cell, size in zip(cells, _WIDTHS, strict=True))
    return f"{left}  {shortened(name, max(width - len(left) - 2, 20))}"
