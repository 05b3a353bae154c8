"""The waterfall between two steps: every nanosecond belongs to one part, and the differences add up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from traceanalyzer.comparison.result import Part, Row, Waterfall, WorkSide
from traceanalyzer.comparison.snapshot import Snapshot, rows_of
from traceanalyzer.model.short_names import short_ops

_GROUPS = ("compute", "communication", "copies", "memsets", "idle", "unexplained")
UNEXPLAINED = "work that the prediction does not wait for"
_NO_CAUSE = "idle time of no recorded cause"


def waterfall_of(steps: tuple[int, int], work: Sequence[Row], sides: tuple[Snapshot, Snapshot]) -> Waterfall:
    """The parts of both steps.

    Work is what it was in the recording, where nothing that goes before it runs; what is left of the compared step is
    idle time, shared out over causes and ops as in the recording. Where nothing is left, because the recording waited
    for what the prediction does not, that is a part of its own.

    Args:
        steps: the compared steps of both sides, ns.
        work: all matched work.
        sides: the snapshots that the idle time is from.
    """
    names = _idle_names(sides)
    columns = []
    for index, side in enumerate(sides):
        exposed = [row.sides[index].exposed_ns for row in work]
        idle = _idle(side, steps[index] - sum(exposed), names)
        columns.append(whole_parts([*exposed, *idle], steps[index]))
    base, new = columns
    parts = [work_part(row, base[i], new[i]) for i, row in enumerate(work)]
    for i, (cause, op) in enumerate(names, start=len(work)):
        group = "unexplained" if cause == UNEXPLAINED else "idle"
        parts.append(Part(group, f"{cause}: {op}" if op else cause, base[i], new[i], new[i] - base[i]))
    parts = [part for part in parts if part.base_ns or part.new_ns]
    parts.sort(key=lambda part: (-abs(part.delta_ns), part.group, part.name))
    return Waterfall(*steps, tuple(parts), _grouped(parts))


def _idle_names(sides: Sequence[Snapshot]) -> list[tuple[str, str]]:
    result = {
        (str(row.cause), short_ops(str(row.outer or row.op)))
        for side in sides
        for row in rows_of(side.tables["idle"])
    }
    return [*sorted(result), (_NO_CAUSE, ""), (UNEXPLAINED, "")]


def _idle(side: Snapshot, left_ns: float, names: Sequence[tuple[str, str]]) -> list[float]:
    table = side.tables["idle"]
    recorded: dict[tuple[str, str], float] = {}
    for row in rows_of(table):
        key = str(row.cause), short_ops(str(row.outer or row.op))
        recorded[key] = recorded.get(key, 0.0) + float(row.ns)
    total = sum(recorded.values())
    if left_ns <= 0:
        return [left_ns if name == (UNEXPLAINED, "") else 0.0 for name in names]
    if total <= 0:
        return [left_ns if name == (_NO_CAUSE, "") else 0.0 for name in names]
    return [recorded.get(name, 0.0) * left_ns / total for name in names]


def whole_parts(values: Sequence[float], total: int) -> list[int]:
    """The values as whole numbers that sum to the total: the largest fractions are rounded up."""
    floors = [math.floor(value) for value in values]
    missing = total - sum(floors)
    order = sorted(range(len(values)), key=lambda i: (floors[i] - values[i], i))
    for i in range(missing):
        floors[order[i % len(order)]] += 1
    for i in range(-missing):
        floors[order[-1 - i % len(order)]] -= 1
    return floors


def work_part(row: Row, base_ns: int, new_ns: int) -> Part:
    delta = new_ns - base_ns
    count, duration = _shares(*row.sides, base_ns, new_ns)
    by_count = round(count)
    by_duration = round(duration)
    return Part(
        _group(row.kind),
        row.label,
        base_ns,
        new_ns,
        delta,
        by_count,
        by_duration,
        delta - by_count - by_duration,
    )


def _shares(base: WorkSide, new: WorkSide, base_ns: int, new_ns: int) -> tuple[float, float]:
    """What other counts and other durations make of the difference: shares of the logarithm, which add up."""
    delta = new_ns - base_ns
    if min(base.count, new.count) <= 0:
        return float(delta), 0.0
    if min(base_ns, new_ns, base.ns, new.ns) <= 0 or base_ns == new_ns:
        return 0.0, 0.0
    mean = delta / math.log(new_ns / base_ns)
    count = math.log(new.count / base.count)
    return mean * count, mean * (math.log(new.ns / base.ns) - count)


def _group(kind: str) -> str:
    if kind.startswith("copy"):
        return "copies"
    return "memsets" if kind == "memset" else kind


def _grouped(parts: Sequence[Part]) -> Mapping[str, tuple[int, int, int]]:
    result = {}
    for group in _GROUPS:
        own = [part for part in parts if part.group == group]
        if own:
            sums = np.array([(part.base_ns, part.new_ns, part.delta_ns) for part in own], np.int64).sum(
                axis=0
            )
            result[group] = (int(sums[0]), int(sums[1]), int(sums[2]))
    return result
