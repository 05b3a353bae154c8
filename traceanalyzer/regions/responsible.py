"""Regions beside the model that take much of a step: what could be done once, together, elsewhere or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.regions.drop_region import KERNEL_FLOOR_NS, DropRegion
from traceanalyzer.regions.regions import Regions
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row

Remedy = Literal["one-call", "lists", "groups", "wrapper", "function", "optimizer"]

# Ops of a model's layers.
_LAYER_KINDS = (Kind.GEMM, Kind.CONVOLUTION, Kind.ATTENTION, Kind.RECURRENT)
_CELL = re.compile(r"_cell$")
# A product with one vector is no layer.
_VECTOR = re.compile(r"::(mv|addmv|dot|vdot)$")
_LAYER_NODE = re.compile(
    r"^(Mm|Addmm|Bmm|Baddbmm|Linear|Convolution\w*|\w*Attention\w*|\w*Rnn\w*|ThnnFused\w*)Backward\d*$"
)
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_LISTS = re.compile(r"_foreach_|_fused_")
# Times that a block or function runs in a step: what runs less often may be layers of a model.
MIN_CALLS = 16
# Share of a region's CPU time in a region inside it that is named in its place; chosen.
_MOST = 0.85
_NAMED_OPS = 6
# CPU time for each launch from which on the CPU does something else: an op takes 5 to 20 us, H200 host.
LAUNCH_NS = 100_000.0


@dataclass(frozen=True, slots=True)
class Responsible:
    """A region, or several of one name.

    Attributes:
        nodes: of the tree.
        remedy: what kind of remedy it has.
        words: a noun phrase that names it.
        share: predicted CPU time as a share of the predicted step.
        calls: times that it runs in a step.
        edit: what the remedy does to the program.
    """

    nodes: tuple[int, ...]
    remedy: Remedy
    words: str
    share: float
    calls: float
    edit: DropRegion


def responsible_regions(regions: Regions, min_share: float) -> Iterator[Responsible]:
    """Regions without a layer of the model, the one with most CPU time first.

    Args:
        min_share: of the predicted step, that the CPU is in each at least.
    """
    tree = regions.tree
    names: dict[tuple[str, str], list[int]] = {}
    for node, key in enumerate(zip(tree.kind, tree.name, strict=True)):
        if key[0] in ("function", "annotation", "block"):
            names.setdefault(key, []).append(node)
    layers, stepping = _holds_layers(regions), _in_optimizer(regions)
    found = []
    for (kind, name), nodes in names.items():
        own = regions.below(nodes)
        share = float(regions.predicted_ns[own].sum()) / regions.steps / regions.step_ns
        calls = float(tree.calls[nodes].sum()) / regions.steps
        heavy = bool((own & layers & ~stepping).any())
        if calls < MIN_CALLS and (kind == "block" or not _works_on_host(regions, own)):
            continue
        if kind == "annotation" and regions.launches[own].any() and stepping[nodes].all():
            continue
        if heavy and kind == "function" and calls >= MIN_CALLS:
            own, heavy = _wrapping(regions, nodes), False
            share = float(regions.predicted_ns[own].sum()) / regions.steps / regions.step_ns
            if share >= min_share:
                edit = regions.without_nodes(own)
                found.append(Responsible(tuple(nodes), "wrapper", name, share, calls, edit))
        elif not heavy and share >= min_share:
            found.append(_region(regions, kind, name, nodes, share, calls, stepping))
    found.sort(key=lambda each: -each.share)
    yield from _innermost(regions, found)


def _region(
    regions: Regions, kind: str, name: str, nodes: list[int], share: float, calls: float, stepping: Mask
) -> Responsible:
    if kind != "block":
        remedy: Remedy = "optimizer" if stepping[nodes].all() else "function"
        return Responsible(tuple(nodes), remedy, name, share, calls, regions.without(nodes))
    ops = name.split(", ")
    changing = [op for op in ops if not is_view(op)]
    remedy = "one-call"
    if all(map(_LISTS.search, changing)):
        remedy = "groups"
    elif stepping[nodes].all() or changing[-1].endswith("_"):
        remedy = "lists"
    # Each step of a recurrence waits for the one before, so that its kernels take as long in one launch.
    floor_ns = 0.0 if any(map(_CELL.search, ops)) else KERNEL_FLOOR_NS
    edit = regions.as_one(nodes, floor_ns)
    return Responsible(tuple(nodes), remedy, block_words(calls, name), share, calls, edit)


def _works_on_host(regions: Regions, own: Mask) -> bool:
    """Whether the CPU does something else there than to launch work."""
    cpu_ns, launches = regions.predicted_ns[own].sum(), regions.launches[own].sum()
    return bool(cpu_ns > launches * LAUNCH_NS)


def block_words(calls: float, name: str, width: int = 80) -> str:
    """`64 x abs, mean, clamp, div, ...`: a repeated block in words, in at most `width` letters with two ops or more."""
    ops = [op.removeprefix("aten::") for op in name.split(", ")]
    for count in range(min(_NAMED_OPS, len(ops)), 1, -1):
        text = f"{calls:,.0f} x {', '.join(ops[:count])}{', ...' * (count < len(ops))}"
        if len(text) <= width:
            break
    return text


def _innermost(regions: Regions, found: list[Responsible]) -> Iterator[Responsible]:
    """Each region, or the one inside it that has most of its time; none that lies in another."""
    taken = np.zeros(len(regions.tree.parent), bool)
    for region in found:
        inside = regions.below(region.nodes)
        if taken[list(region.nodes)].any():
            continue
        taken |= inside
        blocks = [each for each in found if each.remedy in ("one-call", "lists", "groups")]
        within = [
            each for each in blocks if inside[list(each.nodes)].all() and each.share >= _MOST * region.share
        ]
        yield within[0] if within else region


def _holds_layers(regions: Regions) -> Mask:
    """Which nodes are layers of a model, or their backward; bool (nodes,)."""
    kinds = zip(regions.tree.kind, regions.tree.name, strict=True)
    return np.array(
        [
            (kind == "op" and _is_layer(name)) or (kind == "backward" and bool(_LAYER_NODE.search(name)))
            for kind, name in kinds
        ]
    )


def _is_layer(name: str) -> bool:
    return op_row(name).kind in _LAYER_KINDS and not _VECTOR.search(name)


def _in_optimizer(regions: Regions) -> Mask:
    """Which nodes are in an optimizer's step; bool (nodes,)."""
    tree = regions.tree
    marks = [
        node
        for node, name in enumerate(tree.name)
        if tree.kind[node] == "annotation" and _OPTIMIZER.match(name)
    ]
    return regions.below(marks)


def _wrapping(regions: Regions, nodes: list[int]) -> Mask:
    """What a function around layers does itself: its own Python, and ops that launch nothing; bool (nodes,)."""
    tree = regions.tree
    wrapping = np.zeros(len(tree.parent), bool)
    wrapping[nodes] = True
    idle = np.array([kind == "op" for kind in tree.kind]) & (regions.launches == 0)
    wrapping |= idle & wrapping[tree.parent]
    return wrapping
