"""A block on its way between processes: whole numbers that say how each stretch differs from the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.short_numbers import numbers_of, short
from traceanalyzer.replay.recurrence import Block, Edge, Run, Stretch, Wait


@dataclass(frozen=True, slots=True)
class SentBlock:
    """A block of whole ns. Pickled it takes a third of the bytes, and one like another after it a tenth.

    What the slowdown changes stands apart from what it does not: blocks of one program at several slowdowns have the
    rest in common.
    """

    block: Block

    def __reduce__(self) -> tuple[Callable[..., SentBlock], tuple[Any, ...]]:
        fixed, cpu = _Numbers(), _Numbers()
        fixed.add(*self.block.taken_ns)
        known = _Known(len(self.block.taken_ns))
        for at, stretch in enumerate(self.block.stretches):
            _write(at, stretch, known, fixed, cpu)
        sizes = len(self.block.taken_ns), len(self.block.stretches)
        return _received, (*sizes, self.block.cpu_ns, fixed.packed(), cpu.packed())


class _Known:
    """What the next stretch is told against: the numbers of those before."""

    def __init__(self, streams: int) -> None:
        self.launched, self.meet, self.cpu = 0, -1, 0
        self.before = [0] * streams


class _Numbers:
    """Numbers in the order in which they are read."""

    def __init__(self) -> None:
        self._every: list[float] = []

    def add(self, *numbers: float) -> None:
        self._every += numbers

    def packed(self) -> bytes:
        every = np.array(self._every, np.int64)
        if (every != np.array(self._every)).any():
            raise ValueError("a block that is sent has whole ns")
        return short(every)


def _write(at: int, stretch: Stretch, known: _Known, fixed: _Numbers, cpu: _Numbers) -> None:
    meets = int(stretch.meet >= 0)
    fixed.add(len(stretch.waits), len(stretch.edges), len(stretch.runs), meets, stretch.stream)
    fixed.add(stretch.launched - known.launched)
    known.launched = stretch.launched
    if meets:
        fixed.add(stretch.meet - known.meet, stretch.meet_ns)
        known.meet = stretch.meet
    for returned, tail, streams in stretch.waits:
        cpu.add(returned - known.cpu)
        fixed.add(tail, len(streams), *streams)
    for stream, source, offset in stretch.edges:
        fixed.add(stream, at - source, offset + known.before[stream])
    for stream, ready, before in stretch.runs:
        fixed.add(stream, ready + before - stretch.launch_ns, before - known.before[stream])
        known.before[stream] = int(before)
    cpu.add(stretch.launch_ns - known.cpu)
    known.cpu = int(stretch.launch_ns)


def _received(streams: int, many: int, cpu_ns: float, fixed: bytes, cpu: bytes) -> SentBlock:
    rest, apart = iter(numbers_of(fixed).tolist()), iter(numbers_of(cpu).tolist())
    taken = [float(next(rest)) for _ in range(streams)]
    known = _Known(streams)
    return SentBlock(Block(cpu_ns, taken, [_read(at, known, rest, apart) for at in range(many)]))


def _read(at: int, known: _Known, fixed: Iterator[int], cpu: Iterator[int]) -> Stretch:
    waits_many, edges_many, runs_many, meets, newest, launched = (next(fixed) for _ in range(6))
    known.launched += launched
    meet, meet_ns = -1, 0
    if meets:
        meet, meet_ns = known.meet + next(fixed), next(fixed)
        known.meet = meet
    waits: list[Wait] = []
    for _ in range(waits_many):
        returned, tail, many = known.cpu + next(cpu), next(fixed), next(fixed)
        waits.append((float(returned), float(tail), [next(fixed) for _ in range(many)]))
    edges: list[Edge] = []
    for _ in range(edges_many):
        stream, back, offset = next(fixed), next(fixed), next(fixed)
        edges.append((stream, at - back, float(offset - known.before[stream])))
    known.cpu += next(cpu)
    runs: list[Run] = []
    for _ in range(runs_many):
        stream, after, more = next(fixed), next(fixed), next(fixed)
        known.before[stream] += more
        runs.append((stream, float(after + known.cpu - known.before[stream]), float(known.before[stream])))
    return Stretch(waits, edges, runs, known.launched, float(known.cpu), newest, meet, float(meet_ns))
