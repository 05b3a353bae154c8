"""The tree of regions as the page shows it: a flame graph that leads to the timeline, and a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.regions.regions import Regions
from traceanalyzer.regions.tree import subtree_totals
from traceanalyzer.render.html.redaction import Redactor
from traceanalyzer.report.step_parts import cost_of, listed_regions, shown_name

MOST_REGIONS = 1_500
_LEAVES = ("op", "backward")
_NAMED = ("annotation", "module", "function", "wrapper", "block")  # kinds whose names are the user's
_LEVELS, _MOST_ROWS = 5, 40  # of the table


@dataclass(frozen=True, slots=True)
class Region:
    """A frame of the graph, costs per step with all inside; `start_ns` and `end_ns` are of its first run."""

    name: str
    kind: str
    cpu_ns: int
    gpu_ns: int
    idle_ns: int
    calls: float
    start_ns: int
    end_ns: int
    inside: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class RegionRow:
    """A line of the table, costs per step with all below; backward apart from the rest."""

    name: str
    level: int
    calls: float
    share: float
    gpu_ns: int
    backward_gpu_ns: int
    cpu_ns: int
    backward_cpu_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class RegionView:
    """`replayed` is whether CPU times are those without the profiler."""

    root: Region
    rows: tuple[RegionRow, ...]
    step_ns: int
    replayed: bool


def region_view(analysis: Analysis, redactor: Redactor, most: int = MOST_REGIONS) -> RegionView:
    regions = analysis.index(Regions)
    rows = _rows(regions, redactor)
    return RegionView(_tree(regions, redactor, most), rows, round(regions.step_ns), regions.replayed)


def _name(regions: Regions, redactor: Redactor, node: int) -> str:
    if redactor.on and regions.tree.kind[node] in _NAMED:
        return f"[{regions.tree.kind[node]}]"
    return redactor.text(shown_name(regions, node))


def _tree(regions: Regions, redactor: Redactor, most: int) -> Region:
    tree = regions.tree
    costs = np.stack([regions.totals[name] for name in ("predicted_ns", "gpu_ns", "idle_ns")])
    weight = (costs / np.maximum(costs[:, :1], 1.0)).max(axis=0)
    least = np.sort(weight)[::-1][most] if len(weight) > most else 0.0
    inside: dict[int, list[int]] = {}
    for node in np.argsort(-weight, kind="stable").tolist():
        if node and weight[node] > least:
            inside.setdefault(int(tree.parent[node]), []).append(node)
    starts, ends = _first_runs(regions)

    def region(node: int) -> Region:
        cpu, gpu, idle = map(round, costs[:, node].tolist())
        calls, place = float(tree.calls[node] / regions.steps), (int(starts[node]), int(ends[node]))
        below = tuple(map(region, inside.get(node, ())))
        return Region(_name(regions, redactor, node), tree.kind[node], cpu, gpu, idle, calls, *place, below)

    return region(0)


def _first_runs(regions: Regions) -> tuple[Rows, Rows]:
    """(start, end) of the first pieces without a break of each node and all below; int64 (nodes,)."""
    tree, pieces = regions.tree, regions.tree.pieces
    count = len(tree.parent)
    size = subtree_totals(tree.parent, np.ones(count)).astype(np.int64)
    begin, filled = np.zeros(count, np.int64), np.ones(count, np.int64)
    for node in range(1, count):  # positions in the order of a walk: what is below a node follows it
        parent = tree.parent[node]
        begin[node] = begin[parent] + filled[parent]
        filled[parent] += size[node]
    walk = begin[pieces.node]
    first = np.full(count, len(walk), np.int64)
    np.minimum.at(first, pieces.node, np.arange(len(walk)))
    for node in range(count - 1, 0, -1):
        first[tree.parent[node]] = min(first[tree.parent[node]], first[node])
    starts, ends = np.zeros((2, count), np.int64)
    for node in np.flatnonzero(first < len(walk)).tolist():
        later = walk[first[node] :]
        outside = (later < begin[node]) | (later >= begin[node] + size[node])
        last = int(np.argmax(outside)) - 1 if outside.any() else len(later) - 1
        starts[node], ends[node] = pieces.start_ns[first[node]], pieces.end_ns[first[node] + last]
    return starts, ends


def _rows(regions: Regions, redactor: Redactor) -> tuple[RegionRow, ...]:
    """The largest regions above single ops, the parent before what it holds; ops where there is nothing else."""
    cost = max(cost_of(regions, "gpu"), cost_of(regions, "cpu"), key=lambda one: float(one[0]))
    lines = list(listed_regions(regions, cost, _LEVELS))
    above = [line for line in lines if regions.tree.kind[line[0]] not in _LEAVES] or lines
    backward = np.array([kind == "backward" for kind in regions.tree.kind])

    def of_backward(values: Floats) -> Floats:
        return subtree_totals(regions.tree.parent, np.where(backward, values, 0.0)) / regions.steps

    gpu_ns, cpu_ns, idle_ns = (regions.totals[name] for name in ("gpu_ns", "predicted_ns", "idle_ns"))
    times = gpu_ns, of_backward(regions.gpu_ns), cpu_ns, of_backward(regions.predicted_ns), idle_ns
    columns = [regions.tree.calls / regions.steps, cost / max(regions.step_ns, 1.0)]
    columns += [time.round().astype(np.int64) for time in times]
    return tuple(
        RegionRow(_name(regions, redactor, node), level, *(column[node].item() for column in columns))
        for node, level in above[:_MOST_ROWS]
    )
