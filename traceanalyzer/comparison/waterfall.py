"""The waterfall between two steps: every nanosecond belongs to one part, and the differences add up."""

import math
from collections.abc import Mapping, Sequence

from traceanalyzer.comparison.result import Part, Row, Waterfall, WorkSide
from traceanalyzer.comparison.snapshot import Snapshot, rows_of
from traceanalyzer.model.short_names import short_ops

_GROUPS = ("compute", "communication", "copies", "memsets", "idle", "unexplained")
UNEXPLAINED = "work that the prediction does not wait for"
_UNEXPLAINED, _NO_CAUSE = (UNEXPLAINED, ""), ("idle time of no recorded cause", "")


def waterfall_of(steps: tuple[int, int], work: Sequence[Row], sides: tuple[Snapshot, Snapshot]) -> Waterfall:
    """The parts of both steps.

    Work is what it was in the recording, where nothing that goes before it runs; what is left of the compared step is
    idle time, shared out over causes and ops as in the recording. Where nothing is left, because the recording waited
    for what the prediction does not, that is a part of its own.
    """
    recorded = [_idle_ns(side) for side in sides]
    names = [*sorted({*recorded[0], *recorded[1]}), _NO_CAUSE, _UNEXPLAINED]
    columns = []
    for index, idle_ns in enumerate(recorded):
        exposed = [row.sides[index].exposed_ns for row in work]
        left = _shared_out(steps[index] - sum(exposed), idle_ns)
        columns.append(whole_parts([*exposed, *(left.get(name, 0.0) for name in names)], steps[index]))
    base, new = columns
    parts = [work_part(row, base[i], new[i]) for i, row in enumerate(work)]
    for i, (cause, op) in enumerate(names, start=len(work)):
        group = "unexplained" if cause == UNEXPLAINED else "idle"
        parts.append(Part(group, f"{cause}: {op}" if op else cause, base[i], new[i], new[i] - base[i]))
    parts = [part for part in parts if part.base_ns or part.new_ns]
    parts.sort(key=lambda part: (-abs(part.delta_ns), part.group, part.name))
    return Waterfall(*steps, tuple(parts), _grouped(parts))


def _idle_ns(side: Snapshot) -> dict[tuple[str, str], float]:
    """(cause, op) -> idle time in the recorded step."""
    recorded: dict[tuple[str, str], float] = {}
    for row in rows_of(side.tables["idle"]):
        key = str(row.cause), short_ops(str(row.outer or row.op))
        recorded[key] = recorded.get(key, 0.0) + float(row.ns)
    return recorded


def _shared_out(left_ns: float, recorded: Mapping[tuple[str, str], float]) -> Mapping[tuple[str, str], float]:
    total = sum(recorded.values())
    if left_ns <= 0 or total <= 0:
        return {_UNEXPLAINED if left_ns <= 0 else _NO_CAUSE: left_ns}
    return {name: ns * left_ns / total for name, ns in recorded.items()}


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
    count, duration = map(round, _shares(*row.sides, base_ns, new_ns))
    group = "copies" if row.kind.startswith("copy") else "memsets" if row.kind == "memset" else row.kind
    return Part(group, row.label, base_ns, new_ns, delta, count, duration, delta - count - duration)


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


def _grouped(parts: Sequence[Part]) -> Mapping[str, tuple[int, int, int]]:
    result = {}
    for group in _GROUPS:
        if own := [part for part in parts if part.group == group]:
            base_ns, new_ns = sum(part.base_ns for part in own), sum(part.new_ns for part in own)
            result[group] = (base_ns, new_ns, new_ns - base_ns)
    return result
