"""Where the time went: every nanosecond of the window, on every device, in exactly one class.

At each instant the kinds of work that run decide the class; where nothing runs the time is idle and has the cause of
its piece of `Idle`. Of communication that a job has measured, waiting and transfer are apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick, sums_of
from traceanalyzer.model.device_times import DeviceTime, IdleCause
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

# Causes whose op is told as findings tell it: by what the user called. What a slow call slows is the call itself.
_CALLED = list(map(CAUSES.index, ("dispatching", "launch-latency", "synchronisation", "blocking-upload")))
WAITING, TRANSFER = "communication_waiting", "communication_transfer"
CLASSES = (*KINDS, "compute_over_communication", "compute_over_copy", WAITING, TRANSFER, "idle")
_IDLE, _COMMUNICATION = CLASSES.index("idle"), KINDS.index("communication")
_COPIES = [place for place, kind in enumerate(KINDS) if kind.startswith("copy")]


@dataclass(frozen=True, slots=True)
class Accounting:
    """What each device did at every instant, in segments that tile the window; arrays of shape (segments,).

    Attributes:
        device: int64.
        step: int64, position in `Steps`, -1 for before the first step.
        time_class: int64, position in `CLASSES`.
        piece: int64, entry of `Idle` for idle segments, else -1.
        start_ns, dur_ns: int64.
        step: position in `Steps`, -1 for before the first step.
        time_class: position in `CLASSES`.
        piece: entry of `Idle` for idle segments, else -1.
        start_ns, dur_ns: when the segment begins, and how long it is.
        summaries: one per device.
    """

    device: Rows
    step: Rows
    time_class: Rows
    piece: Rows
    start_ns: Rows
    dur_ns: Rows
    summaries: tuple[DeviceTime, ...]

    @classmethod
    def build(
        cls, trace: Trace, work: DeviceWork, idle: Idle, steps: Steps, nesting: Nesting, waits: CollectiveWaits | None
    ) -> Self:
        devices = distinct(work.device).tolist()
        parts = [_segments(work, idle, steps, waits, device) for device in devices]
        device, step, time_class, piece, start, took = (np.concatenate(column) for column in zip(*parts, strict=True))
        accounting = cls(device, step, time_class, piece, start, took, ())
        summaries = [_summary(trace, accounting, idle, ordinal, steps, nesting) for ordinal in devices]
        return replace(accounting, summaries=tuple(summaries))

    def parts_ns(self, idle: Idle, device: int | None = None) -> dict[str, int]:
        """Class -> ns, `idle:<cause>` for idle time; largest first."""
        chosen = np.ones(len(self.device), bool) if device is None else self.device == device
        code = self._code(idle)[chosen]
        sums = sums_of(code, self.dur_ns[chosen], len(CLASSES) + len(CAUSES))
        named = {class_name(i): int(ns) for i, ns in enumerate(sums.tolist()) if ns}
        return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))

    def _code(self, idle: Idle) -> Rows:
        """Class, or len(CLASSES) + cause."""
        return np.where(self.piece >= 0, len(CLASSES) + pick(idle.cause, self.piece), self.time_class)

    def frame(self, trace: Trace, idle: Idle, steps: Steps) -> pd.DataFrame:
        """One row per device, step, class, cause and op: columns device, step (Int64, the mark's number, null
        before the first step), class, cause, op (str, null where there is none) and ns (int64)."""
        op_code = codes_at(trace.lanes.cpu, "name", pick(idle.op, self.piece))
        keys = pd.DataFrame({"device": self.device, "at": self.step, "code": self._code(idle), "op": op_code})
        sums = keys.assign(ns=self.dur_ns).groupby(list(keys), as_index=False)["ns"].sum()
        number = np.append(steps.number, 0)[sums["at"]]
        code, names = (sums["code"].to_numpy(), np.append(texts_of(trace.lanes.cpu, "name"), [None]))
        return pd.DataFrame(
            {
                "device": sums["device"],
                "step": pd.array(np.where(sums["at"] >= 0, number, 0), "Int64").copy(),
                "class": [CLASSES[c] if c < len(CLASSES) else "idle" for c in code],
                "cause": [CAUSES[c - len(CLASSES)] if c >= len(CLASSES) else None for c in code],
                "op": names[sums["op"]],
                "ns": sums["ns"],
            }
        ).assign(step=lambda made: made["step"].mask(sums["at"] < 0))


def class_name(code: int) -> str:
    """Of a class, or of a cause of idle time, numbered on after the classes."""
    return CLASSES[code] if code < len(CLASSES) else f"idle:{CAUSES[code - len(CLASSES)]}"


def _segments(
    work: DeviceWork, idle: Idle, steps: Steps, waits: CollectiveWaits | None, device: int
) -> tuple[Rows, ...]:
    """Device, step, class, piece, start and duration of the stretches between any two edges on one device."""
    low, high = steps.window_start_ns, steps.window_end_ns
    selected = work.device == device
    chosen = [selected & (work.kind == kind) for kind in range(len(KINDS))]
    spans = (intervals.union(work.start_ns[of_kind], work.end_ns[of_kind]) for of_kind in chosen)
    sets = [intervals.clip(span, low, high) for span in spans]
    pieces = np.flatnonzero(idle.device == device)
    exchanges = np.flatnonzero(chosen[_COMMUNICATION])
    begin, finish = work.start_ns[exchanges], work.end_ns[exchanges]
    waited_ns = np.full(len(exchanges), -1) if waits is None else waits.of(exchanges)[0]
    known = waited_ns >= 0  # then they move data after their wait
    unknown = intervals.clip(intervals.union(begin[~known], finish[~known]), low, high)
    moves = intervals.clip(intervals.union((begin + waited_ns)[known], finish[known]), low, high)
    members = [edge for found in (*sets, unknown, moves) for edge in found]
    # Pieces have edges of their own: also, work that lasts no time lies between two of them.
    others = np.clip(idle.start_ns[pieces], low, high), steps.bounds_ns[device], [low, high]
    edges = distinct(np.concatenate([*members, *others]))
    start, end = edges[:-1], edges[1:]
    runs = np.stack([_covers(members, start) for members in sets])
    # The first of `KINDS` that runs, and what compute hides is named with it.
    found = np.where(runs.any(axis=0), np.argmax(runs, axis=0), _IDLE)
    found[runs[0] & runs[_COPIES].any(axis=0)] = CLASSES.index("compute_over_copy")
    found[runs[0] & runs[_COMMUNICATION]] = CLASSES.index("compute_over_communication")
    measured = (found == _COMMUNICATION) & ~_covers(unknown, start)
    moving = _covers(moves, start[measured])
    found[measured] = np.where(moving, CLASSES.index(TRANSFER), CLASSES.index(WAITING))
    # Pieces are in order of start; a recording of one instant has none for its segment without length.
    around = pick(pieces, np.searchsorted(idle.start_ns[pieces], start, side="right") - 1)
    piece = np.where(found == _IDLE, around, -1)
    return np.full(len(start), device), steps.at(device, start), found, piece, start, end - start


def _covers(members: intervals.Set, instants: Rows) -> Mask:
    """Whether each instant lies in the set; they are sorted."""
    begun, ended = (np.searchsorted(instants, edges) for edges in members)
    covering = np.bincount(begun, minlength=len(instants) + 1) - np.bincount(ended, minlength=len(instants) + 1)
    return np.cumsum(covering[:-1]) > 0


def _summary(
    trace: Trace, accounting: Accounting, idle: Idle, device: int, steps: Steps, nesting: Nesting
) -> DeviceTime:
    """One device's accounting, with its idle causes and their ops, largest first; what launches by what called it."""
    segments = np.flatnonzero((accounting.device == device) & (accounting.piece >= 0))
    pieces = accounting.piece[segments]
    rows, cause = idle.op[pieces], idle.cause[pieces]
    outer = nesting.top_op(rows)
    name = Texts.column(trace.lanes.cpu, "name", np.where(np.isin(cause, _CALLED) & (outer >= 0), outer, rows))
    number, first = grouped([cause, name.code])
    sums = sums_of(number, accounting.dur_ns[segments], len(first)).tolist()
    each = zip(cause[first].tolist(), name[first].values().tolist(), sums, strict=True)
    causes = [IdleCause(class_name(len(CLASSES) + which), op, ns) for which, op, ns in each]
    causes.sort(key=lambda part: (-part.ns, part.cause, part.op or ""))
    parts_ns = accounting.parts_ns(idle, device)
    return DeviceTime(device, steps.window_start_ns, steps.window_end_ns, parts_ns, tuple(causes))
