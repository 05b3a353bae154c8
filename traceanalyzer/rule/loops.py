"""Loops of a step, found by ops that come again in the same order."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.rule.views import Calls

LAYER = re.compile(r"^aten::(linear|matmul|mm|addmm|bmm|baddbmm|conv\w*|embedding)$")


@dataclass(frozen=True, slots=True)
class Loop:
    """Positions of ops: where its first iteration begins, ops of an iteration, iterations, past its last op."""

    first: int
    period: int
    repeats: int
    end: int


def step_edges(ops: Calls) -> list[int]:
    """Positions at which the ops of another step or thread begin, 0 and the number of ops among them.

    Args:
        ops: in order, those of a thread's step in a row.
    """
    inner = np.flatnonzero(np.diff(ops.step) | np.diff(ops.thread)) + 1
    return sorted({0, *inner.tolist(), len(ops)})


def loops_of_layers(
    low: int, high: int, kind: Rows, products: np.ndarray, least: int, alike: Rows | None = None
) -> list[Loop]:
    """Loops of one thread's step whose iterations hold layers that repeat, each once.

    Args:
        low, high: the step's ops.
        kind: of each op its name and shapes.
        products: which ops are layers.
        least: iterations.
        alike: what ops of different iterations have in common, where that is less, such as the name alone.
    """
    alike = kind if alike is None else alike
    found: dict[tuple[int, int], Loop] = {}
    places = low + np.flatnonzero(products[low:high])
    for which in distinct(kind[places]).tolist():
        own = places[kind[places] == which]
        count = len(own)
        for repeats in range(count // 2, least - 1, -1):
            each = count // repeats
            period = int(own[each] - own[0]) if count % repeats == 0 else 0
            if not period or (own[each:] - own[:-each] != period).any():
                continue
            end = int(own[-1]) + 1
            if (alike[own[0] : end - period] != alike[own[0] + period : end]).any():
                continue
            whole = min(int(own[0]) + period * repeats, high)
            end += int(np.argmin(np.append(alike[end:whole] == alike[end - period : whole - period], False)))
            if _layers(own[:each], int(own[0]) + period, kind, products):
                found.setdefault((period, repeats), Loop(int(own[0]), period, repeats, end))
            break
    return list(found.values())


def _layers(own: Rows, end: int, kind: Rows, products: np.ndarray) -> bool:
    """Whether an iteration begins with ops that come twice in a row, and holds others: layers, and what is around."""
    for later in own[1:].tolist():
        size = later - int(own[0])
        first = kind[own[0] : later]
        twice = later + size <= end and (first == kind[later : later + size]).all()
        if twice and len(distinct(first[products[own[0] : later]])) > 1:
            tail = kind[later + size : end]
            return not (len(tail) % size == 0 and (tail == np.tile(first, len(tail) // size)).all())
    return False


def whole_loops(low: int, high: int, kind: Rows, products: np.ndarray, least: int) -> list[Loop]:
    """Loops of one thread's step, whatever is in them, from the first op that comes again in each iteration.

    Arguments as of `loops_of_layers`.
    """
    found: dict[tuple[int, int], Loop] = {}
    places = low + np.flatnonzero(products[low:high])
    for which in distinct(kind[places]).tolist():
        own = places[kind[places] == which]
        for repeats in range(len(own), least - 1, -1):
            each = len(own) // repeats
            period = int(own[each] - own[0]) if len(own) % repeats == 0 and each < len(own) else 0
            if not period or (own[each:] - own[:-each] != period).any():
                continue
            same = np.append(kind[low : high - period] == kind[low + period : high], False)
            at = int(own[0]) - low
            first = at - int(np.argmin(np.append(same[:at][::-1], False)))
            iterations = 1 + int(np.argmin(same[first:])) // period
            if iterations >= least:
                loop = Loop(low + first, period, iterations, low + first + period * iterations)
                found.setdefault((loop.first, period), loop)
            break
    return list(found.values())
