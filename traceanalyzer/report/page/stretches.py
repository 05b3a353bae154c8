"""The longest stretches in which a device is idle: where, how long, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.texts import Texts
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

MOST_STRETCHES = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """A gap on a device, with what is known of its longest piece.

    Attributes:
        cause: `idle:...`.
        op: the op to name, else the call that decided; None where there is neither.
        line: the user's `path.py(12): function` around that; None where no stacks were recorded.
    """

    device: int
    start_ns: int
    end_ns: int
    cause: str
    op: str | None
    step: int | None
    line: str | None = None


def longest_stretches(analysis: Analysis, most: int = MOST_STRETCHES) -> tuple[Stretch, ...]:
    """Longest first, of those that lie in the window.

    Raises:
        Unavailable: the trace has no GPU work.
    """
    idle, steps = analysis.index(Idle), analysis.index(Steps)
    inside = (idle.start_ns >= steps.window_start_ns) & (idle.end_ns <= steps.window_end_ns)
    pieces = np.flatnonzero(inside)
    order = pieces[np.lexsort((pieces, -idle.dur_ns[pieces], idle.gap[pieces], -idle.gap_dur_ns[pieces]))]
    _, first = np.unique(idle.gap[order], return_index=True)
    chosen = order[np.sort(first)[:most]]
    row = np.where(idle.op[chosen] >= 0, idle.op[chosen], idle.row[chosen])
    names = Texts.column(analysis.trace.lanes.cpu, "name", row).values()
    lines = analysis.index(Events).user_code.around(row).values()
    found = zip(chosen.tolist(), names, lines, strict=True)
    return tuple(
        _stretch(idle, steps, piece, op and str(op), line and str(line)) for piece, op, line in found
    )


def _stretch(idle: Idle, steps: Steps, piece: int, op: str | None, line: str | None) -> Stretch:
    whole = idle.gap == idle.gap[piece]
    start, end, device = (
        int(idle.start_ns[whole].min()),
        int(idle.end_ns[whole].max()),
        int(idle.device[piece]),
    )
    edges = steps.bounds_ns.get(device) if steps.marked else None
    at = -1 if edges is None else int(np.searchsorted(edges, start, side="right")) - 1
    number = int(steps.number[at]) if 0 <= at < len(steps) else None
    return Stretch(device, start, end, f"idle:{CAUSES[idle.cause[piece]]}", op, number, line)
