"""Programs for the tests of the replay whose segments and work are given one by one, without a trace."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import no_rows
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.program import Program

GAP, OP, CALL, NODE, DRIVER = "gap", "op", "call", "node", "driver"
USUAL_NS = 10_000.0


class _Sample(SimpleNamespace):
    def __len__(self) -> int:
        return int(self.steps)


def made(
    *segments: tuple[str, int],
    steps: Sequence[int] = (),
    tops: Sequence[int] = (),
    kinds: Sequence[int] = (),
    launches: Sequence[int] = (),
    waits: Sequence[tuple[int, int, int]] = (),
    durs: Sequence[int] = (),
    talking: Sequence[int] = (),
) -> EditedProgram:
    """Segments of so many ns, one after the other; each is a row, an outermost op and a kind of its own unless told.

    Args:
        launches: segment of each piece of work, whose entries count down from 100.
        waits: first and last segment, and the work that the call itself launched.
        durs: of the work; 5 us each unless told. The gaps before it are 2 us and 50 ns by turns.
        talking: which pieces of work are communication.
    """
    size = len(segments)
    what, took = np.array([one for one, _ in segments]), np.array([ns for _, ns in segments])
    end = np.cumsum(took)
    number = np.arange(size)
    step = np.array(steps, np.int64) if steps else np.zeros(size, np.int64)
    cpu = took.astype(np.float64)
    parts: Any = SimpleNamespace(
        cpu_ns=cpu,
        gap=what == GAP,
        call=np.where((what == CALL) | (what == DRIVER), number, -1),
        driver=what == DRIVER,
        node=what == NODE,
        top_op=np.array(tops, np.int64) if tops else np.where(what == GAP, -1, number),
        usual_gap_ns=USUAL_NS,
        kind=np.array(kinds, np.int64) if kinds else number,
    )
    none, many = no_rows(), len(launches)
    entry = 100 - np.arange(many)
    launch = np.array(launches, np.int64)
    work: Any = SimpleNamespace(
        dur_ns=np.array(durs or [5_000] * many, np.float64), gap_ns=np.array([2_000.0, 50.0] * many)[:many],
        latency_ns=np.zeros(many), stream=np.zeros(many, np.int64), streams=1, entry=entry,
        by_entry=(entry[::-1], np.arange(many)[::-1]), edge_to=none, edge_from=none,
        communication=np.isin(np.arange(many), list(talking)),
    )  # fmt: skip
    segment, last, copy = (np.array([one[i] for one in waits], np.int64) for i in range(3))
    awaited: Any = SimpleNamespace(row=segment, last=last, copy=copy, segment=segment)
    timeline: Any = SimpleNamespace(start_ns=end - took, end_ns=end, step=step)
    sample: Any = _Sample(steps=int(step.max()) + 1)
    return EditedProgram(Program(sample, timeline, parts, work, launch, awaited, end - took, end))


def at(edited: EditedProgram, *places: int) -> np.ndarray:
    chosen = np.zeros(len(edited.kept), bool)
    chosen[list(places)] = True
    return chosen
