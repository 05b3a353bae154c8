"""Passes through one network, one right after the other, on inputs of the same shapes, whose results are combined."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped, narrowed, numbered, sums_of
from traceanalyzer.tensors.signatures import Shape, signatures_of, tensors
from traceanalyzer.timeline.calls_and_work import Calls, Work
from traceanalyzer.timeline.names import VIEWING_OP

_LAYERS = re.compile(r"^aten::(linear|conv[123]d|convolution|addmm|matmul|mm)$")
# What a pass draws or writes in place is the next one's input: tokens, and a cache of keys and values.
_HANDS_ON = re.compile(r"^aten::(argmax|multinomial|exponential_|index_put_|index_copy_|scatter_)$")
_DIFFERS = re.compile(r"^aten::(r?sub|lerp)$")
_CANDIDATES = 8  # distances between layers that are tried: a network has few that recur
_NEAR = 4  # ops after the passes


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """Passes in a row within one step.

    Attributes:
        at: the first op of each pass.
        ops: all of them, without views.
        ends_ns: int64 (passes,), where the last op of each ends.
        names: those of one pass.
        launches: pieces of work of one pass.
        taker: the op that takes the results of several.
    """

    at: Calls
    ops: Calls
    ends_ns: Rows
    names: tuple[str, ...]
    launches: int
    taker: str


def passes_of(outer: Calls, work: Work, least: int, min_share: float) -> Iterator[Passes]:
    """Of each step the passes that make at least such a share of its launches.

    That a pass takes nothing of the one before is told by two things: its first layer takes no tensor as large as a
    pass's result, as a layer of a chain would, and an op right after the last takes two such tensors. Where pairs of
    passes recur within a step, as guidance does in a loop of sampling, that they are subtracted is enough. What is
    copied to the host within a pass decides what the next one gets: actions of an environment. So does what is drawn
    from its scores, or written into a tensor that is there before: tokens, and their keys and values.

    Args:
        outer: outermost ops.
        least: fewer launches are a layer, not a network.
    """
    outer = outer[~outer.name.meets(VIEWING_OP.search)]
    if (outer.text("input_dims").code < 0).all():  # without shapes nobody takes what another one made
        return
    outer = outer[np.lexsort((outer.start_ns, narrowed(numbered(outer.thread)[0]), narrowed(outer.step)))]
    group, _ = grouped([outer.step, outer.thread])
    kind, _ = grouped([outer.name.code, outer.text("input_dims").code])
    launching = work.outer_op.rows
    launching = launching[launching >= 0]
    count = np.bincount(launching, minlength=int(outer.rows.max()) + 1)[outer.rows]
    edges = np.flatnonzero(np.append(np.diff(group) != 0, True)) + 1
    layer, reads = outer.name.meets(_LAYERS.search), work.outer_op.rows[work.kind.one_of("copy_d2h")]
    ends = np.isin(outer.rows, reads) | outer.name.meets(_HANDS_ON.search)
    kind = np.where(ends, -1 - np.arange(len(kind)), kind)  # equal to no other: no pass goes on
    of_step = sums_of(outer.step, count, int(outer.step[-1]) + 1)  # of all threads: backward has its own
    for low, high in zip(np.append(0, edges[:-1]).tolist(), edges.tolist(), strict=True):
        own = slice(low, high)
        found = _first(outer[own], kind[own], count[own], layer[own], least)
        step_launches = int(of_step[outer.step[low]])
        if sum(len(one.at) * one.launches for one in found) >= min_share * step_launches > 0:
            yield from found


def _first(outer: Calls, kind: Rows, count: Rows, layer: Mask, least: int) -> list[Passes]:
    """With the shortest period that has any."""
    at = np.flatnonzero(layer)
    order = np.lexsort((at, kind[at]))
    steps = np.diff(at[order])[np.diff(kind[at[order]]) == 0]
    usual = [period for period, _ in Counter(steps.tolist()).most_common(_CANDIDATES)]
    for period in sorted(usual):
        if found := list(_with(period, outer, kind, count, layer, least)):
            return found
    return []


def _with(period: int, outer: Calls, kind: Rows, count: Rows, layer: Mask, least: int) -> Iterator[Passes]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], kind[period:] == kind[:-period], [False]))))
    repeats, ends = (edges[1::2] - edges[::2]) // period + 1, edges[1::2] + period
    begins, launches = ends - repeats * period, np.append(0, np.cumsum(count))
    chosen = (repeats >= 2) & (launches[begins + period] - launches[begins] >= least)
    again = Counter(kind[begins[chosen]].tolist())
    for begin, end in zip(begins[chosen].tolist(), ends[chosen].tolist(), strict=True):
        times = (end - begin) // period
        if _repeats(kind[begin : begin + period]):
            continue
        pairs = times == 2 and again[int(kind[begin])] > 1
        taker = _taker(outer[begin : end + _NEAR], times * period, layer[begin:end], pairs=pairs)
        if taker:
            starts = begin + period * np.arange(times)
            yield Passes(
                at=outer[starts],
                ops=outer[begin:end],
                ends_ns=outer.end_ns[starts + period - 1],
                names=tuple(map(str, outer[begin : begin + period].name.values())),
                launches=int(count[begin : begin + period].sum()),
                taker=taker,
            )


def _repeats(kind: Rows) -> bool:
    """Whether these are the same few again and again: layers."""
    size = len(kind)
    return any(size % part == 0 and (kind[part:] == kind[:-part]).all() for part in range(1, size // 2 + 1))


def _taker(ops: Calls, size: int, layer: Mask, *, pairs: bool) -> str:
    """Name of an op after the first `size` that takes two of their results; empty where a chain would look alike.

    Results are known by their number of elements: views of them, and what rearranges pixels, give them other shapes.
    """
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    own = [signatures[which] for which in number.tolist()]
    last, result = own[size - 1], _elements(tensors(own[size - 1]), _LAYERS.search(own[size - 1].name))
    begins = tensors(own[int(np.argmax(layer))])
    if result is None or not begins or not any(last.dims):
        return ""
    chained = math.prod(begins[0]) == result
    takers = (op for op in own[size:] if not chained or (pairs and _DIFFERS.search(op.name)))
    return next((op.name for op in takers if _most_alike(tensors(op), result) > 1), "")


def _most_alike(taken: list[Shape], elements: int) -> int:
    """How many of them have the same shape and so many elements."""
    return max(Counter(one for one in taken if math.prod(one) == elements).values(), default=0)


def _elements(taken: list[Shape], layer: re.Match[str] | None) -> int | None:
    """Of what an op makes of tensors: a layer has its weight's first size in the place of the channels."""
    if not taken or (layer and len(taken) < 2):
        return None
    data = taken[0]
    if not layer:
        return math.prod(data)
    if "conv" in layer[1]:
        return math.prod((data[0], taken[1][0], *data[2:]))
    return math.prod((*data[:-1], taken[1][0] if layer[1] == "linear" else taken[1][-1]))
