"""Where a step goes: its largest regions, as shares of the predicted step."""

from collections.abc import Iterator, Mapping

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.device_times import RegionCost
from traceanalyzer.model.short_names import block_words, function_words, repeated_words, says_nothing
from traceanalyzer.regions.regions import Regions
from traceanalyzer.rule.titles import code_words, shortened_name

_MOST = 5  # parts that are named, and the rest
_LEAST = 0.03  # of the step: what is less is part of the rest
_OPENED = 0.25  # of the step: what takes more is shown by its parts
_MAIN = 0.6  # the same of a repeated block
_INSIDE = 0.8  # of a region: so much lies in its parts, so that they stand for it
_NEARLY_ALL = 0.97  # of a region: a part with so much stands for it
_OPS, _BLOCK = 2, 44  # ops of a repeated block that are named, and their characters
_COMPILED = "## Call CompiledFxGraph"
_REST = {True: "GPU idle", False: "waiting"}  # whether of GPU time
_USEFUL = 2  # parts at least; one alone says nothing
_LEAST_LINE = 0.01  # of the cost of the step: a region with less is no line of the tree
_REPORTED, _LEVELS = 16, 6  # lines and levels of the tree that a report keeps


def step_parts(analysis: Analysis) -> tuple[str, Mapping[str, float]]:
    """("GPU" or "CPU", whose time is more of the step; region -> share of the step, the largest first)."""
    regions = analysis.index(Regions)
    totals, step_ns = regions.totals, max(regions.step_ns, 1.0)
    of_gpu = bool(totals["gpu_ns"][0] >= totals["predicted_ns"][0])
    share = (totals["gpu_ns"] if of_gpu else totals["predicted_ns"]) / step_ns
    parts: dict[str, float] = {}
    nodes = _opened(regions, share)
    names = np.array(regions.tree.name, object)
    for node in nodes:
        within = (names == names[node]) & (share >= _LEAST / 3)
        # Other parts hold calls of the same op.
        shared = regions.tree.kind[node] in ("op", "backward") and not np.isin(np.flatnonzero(within), nodes).all()
        name = region_words(regions, node) + " elsewhere" * shared
        parts[name] = parts.get(name, 0.0) + float(share[node])
    named = sorted((item for item in parts.items() if item[1] >= _LEAST), key=lambda item: -item[1])[:_MOST]
    known, whole = sum(part for _, part in named), min(float(share[0]), 1.0)
    useful = len(named) + any(_is_of_kernels(regions, node) for node in nodes) >= _USEFUL
    if regions.replayed and (not useful or known < whole / 2):
        return "", {}
    rest = (("other", whole - known), (_REST[of_gpu], 1 - whole))
    return "GPU" if of_gpu else "CPU", dict([*named, *(one for one in rest if one[1] >= _LEAST)])


def _opened(regions: Regions, share: Floats) -> list[int]:
    """Nodes that stand for the step: the largest are replaced by their parts, as long as few enough are left."""
    tree = regions.tree
    inside: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parent.tolist()):
        if node and share[node] >= _LEAST / 3:
            inside.setdefault(parent, []).append(node)
    nodes, closed = [0], set[int]()
    while waiting := [node for node in nodes if node not in closed]:
        node = max(waiting, key=lambda one: float(share[one]))
        parts = inside.get(node, [])
        left = [one for one in nodes if one != node] + parts
        most = max((share[one] for one in parts), default=0.0)
        largest = sorted((share[one] for one in left), reverse=True)
        alone = sum(float(share[one]) >= _LEAST for one in nodes) == 1
        few = alone or sum(largest[:_MOST]) >= _INSIDE * sum(largest)
        whole = sum(share[one] for one in parts) >= _INSIDE * share[node]
        opens = few and whole and share[node] >= (_MAIN if tree.kind[node] == "block" else _OPENED)
        # Other parts of the report name the kernels.
        opens &= not _is_of_kernels(regions, node)
        # A phase says less than what it consists of.
        opens |= few and tree.kind[node] == "phase" and sum(share[one] for one in parts) >= share[node] / 2
        through = most >= _NEARLY_ALL * share[node] and tree.kind[node] in ("phase", "wrapper")
        if parts and (node == 0 or opens or through):
            nodes = left
        else:
            closed.add(node)
    return nodes


def region_words(regions: Regions, node: int) -> str:
    """`step()`, `AdamW.step`, `6 x (layer_norm, linear, ...)`: a region in few words."""
    kind, name = regions.tree.kind[node], regions.tree.name[node]
    inner = _main_part(regions, node)
    if kind == "block" and regions.tree.kind[inner] in ("function", "module"):
        return f"{regions.tree.calls[inner] / regions.steps:,.0f} x {region_words(regions, inner)}"
    if kind == "block":
        ops = [_short(one).removeprefix("aten::") for one in _of_block(regions, node).split(", ")]
        named = [one for one in ops[:_OPS] if len(", ".join(ops[:_OPS])) <= _BLOCK] or ops[:1]
        count = regions.tree.calls[node] / regions.steps
        return repeated_words(count, f"{', '.join(named)}{', ...' * (len(named) < len(ops))}")
    return _short(_telling_words(regions, node) if kind == "function" and says_nothing(name) else name)


def _telling_words(regions: Regions, node: int) -> str:
    """For a function whose name says nothing: what nearly all of it is in, else its module, else its file."""
    tree, known = regions.tree, ("function", "module")
    inner, after = node, _main_part(regions, node)
    while says_nothing(tree.name[inner]) and tree.kind[after] in known and after != inner:
        inner, after = after, _main_part(regions, after)
    if not says_nothing(tree.name[inner]):
        return tree.name[inner]
    around = int(tree.parent[node])
    while says_nothing(tree.name[around]):
        around = int(tree.parent[around])
    cost, inside = cost_of(regions), np.flatnonzero(regions.below([around])).tolist()
    # A wrapper of the same class name, such as of LoRA, would be counted as what it wraps.
    alone = [tree.name[each] for each in inside].count(tree.name[around]) == 1
    named = alone and tree.kind[around] == "module" and cost[node] >= _INSIDE * cost[around]
    return tree.name[around] if named else function_words(tree.name[node])


def _main_part(regions: Regions, node: int) -> int:
    """The part that has nearly all of a region; the region itself where none has."""
    cost, inside = cost_of(regions), np.flatnonzero(regions.tree.parent == node)
    part = int(inside[np.argmax(cost[inside])]) if len(inside) else node
    return part if cost[part] >= _NEARLY_ALL * cost[node] else node


def _of_block(regions: Regions, node: int) -> str:
    """The ops of a repeated block in their order; kernels of a CUDA graph by their time, the longest first."""
    longest = sorted(_kernels(regions, node), key=lambda kernel: -float(regions.gpu_ns[kernel]))
    return ", ".join(regions.tree.name[kernel] for kernel in longest) or regions.tree.name[node]


def _kernels(regions: Regions, block: int) -> list[int]:
    inside = np.flatnonzero(regions.tree.parent == block).tolist()
    return [node for node in inside if regions.tree.kind[node] == "kernel"]


def _is_of_kernels(regions: Regions, node: int) -> bool:
    return regions.tree.kind[node] == "block" and bool(_kernels(regions, node))


def _short(name: str) -> str:
    plain = "compiled graph" if name.startswith(_COMPILED) else code_words(name).partition(" (")[0]
    return shortened_name(plain, _BLOCK)


def largest_regions(analysis: Analysis) -> tuple[RegionCost, ...]:
    """The tree of regions as a report keeps it, ordered by the time of the CPU or of the GPU, whichever is more."""
    regions = analysis.index(Regions)
    cost = cost_of(regions)
    lines = list(listed_regions(regions, cost, _LEVELS))
    least = sorted((float(cost[node]) for node, _ in lines), reverse=True)[:_REPORTED][-1:] or [0.0]
    nodes = [(node, level) for node, level in lines if cost[node] >= least[0]]
    columns = [regions.totals[name].round().astype(int) for name in ("predicted_ns", "gpu_ns", "idle_ns")]
    columns = [regions.share, *columns, regions.tree.calls / regions.steps]
    costs = ([column[node].item() for column in columns] for node, _ in nodes)
    return tuple(RegionCost(shown_name(regions, n), level, *c) for (n, level), c in zip(nodes, costs, strict=True))


def cost_of(regions: Regions, by: str | None = None) -> Floats:
    """What regions are ordered by, ns per step with all below each; float64 (nodes,).

    By cpu, gpu, idle or residual; None for cpu or gpu, whichever takes longer.
    """
    totals = regions.totals
    if by is None:
        return max(totals["gpu_ns"], totals["predicted_ns"], key=lambda one: float(one[0]))
    if by == "residual":
        return totals["gpu_ns"] - totals["bound_ns"]
    return totals[{"cpu": "predicted_ns", "gpu": "gpu_ns", "idle": "idle_ns"}[by]]


def shown_name(regions: Regions, node: int, width: int = 80) -> str:
    """`12 x (layer_norm, linear, ...)` of a block, else the name; in `width` columns where that is possible."""
    kind, name = regions.tree.kind[node], regions.tree.name[node]
    if kind == "block":
        return block_words(regions.tree.calls[node] / regions.steps, _of_block(regions, node), width)
    if kind != "function":
        return name
    forms = f"{name}()", f"{name}()".rpartition("/")[2]
    return next((form for form in forms if len(form) <= width), region_words(regions, node))


def listed_regions(regions: Regions, cost: Floats, depth: int) -> Iterator[tuple[int, int]]:
    """(node, level) of each line: without chains of nodes that cost the same, and without small ones."""
    parent, kind = regions.tree.parent, regions.tree.kind
    children: dict[int, list[int]] = {}
    for node in np.argsort(-cost, kind="stable").tolist():
        if cost[node] >= _LEAST_LINE * max(cost[0], 1.0):
            children.setdefault(int(parent[node]), []).append(node)
    pending = [(node, 0) for node in reversed(children.get(0, []))]
    while pending:
        node, level = pending.pop()
        inside = children.get(node, [])
        while kind[node] != "phase" and len(inside) == 1 and cost[inside[0]] >= _NEARLY_ALL * cost[node]:
            node, inside = inside[0], children.get(inside[0], [])
        yield node, level
        if level + 1 < depth:
            pending += [(each, level + 1) for each in reversed(inside)]
