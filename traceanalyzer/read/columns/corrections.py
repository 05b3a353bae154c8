"""Rows whose times cannot belong to the recording, and external ids that name no op or are correlations.

Such rows are left out and counted, because one of them would be the window. The recording is the span that the
profiler says it recorded; if it says none, or most rows lie elsewhere, it is where the bulk of the CPU lane's rows
starts, else of the GPU lane's. Rows of the CPU lane may end late, since what was still running is written beyond the
end; what starts outside, and GPU rows that end outside, are misplaced. If nearly all of the GPU lane lies elsewhere,
but together, its clock is wrong and not its rows: they stay.
"""

from collections import Counter
from collections.abc import Mapping
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.schema import BUSY_CATEGORIES, CALL_CATEGORIES, NO_DEVICE_TIME
from traceanalyzer.model.trace import NULL_INT, ints, matching
from traceanalyzer.read.columns.packing import RowGroup

Groups = Mapping[tuple[str, str, frozenset[str]], RowGroup]
Ns = NDArray[np.int64]

# Beyond what is said to be recorded; the profiler waits for the device at its end.
_RECORDED_SLACK_NS = 60 * 10**9
# Beyond the bulk: longer than any recording, far less than a doubled time of day.
_BULK_SLACK_NS = 3600 * 10**9
# From 0 to the first event of the CPU: no kernel runs that long before its launch is recorded; chosen.
_LATE_NS = 500_000
_MIN_SKEWED_ROWS = 20  # fewer may be outliers by chance
_BULK = (0.05, 0.95)  # quantiles of the starts


class _Span(NamedTuple):
    """Times that rows of a recording may have, in ns."""

    low: int
    high: int

    def starts(self, group: RowGroup) -> NDArray[np.bool_]:
        start = group.array("start")
        return np.asarray((start >= self.low) & (start <= self.high))


def drop_misplaced(groups: Groups, recorded: tuple[int, int] | None) -> Counter[str]:
    """Drop such rows; class -> how many they were."""
    counted: Counter[str] = Counter()
    span = _span(groups, recorded)
    if span is None:
        return counted
    skewed = _is_skewed(groups, span)
    cpu = [group.array("start") for (frame, *_), group in groups.items() if frame == "cpu" and group.rows]
    began = min((int(starts.min()) for starts in cpu), default=0)
    for (frame, *_), group in groups.items():
        if frame == "gpu" and skewed:
            continue
        within = span.starts(group)
        untimed = (frame == "gpu") & (group.array("start") == 0)
        # The first row of a recording may be a kernel that starts at 0: others do not start with it.
        several = untimed.sum() > 1 and began > _LATE_NS
        untimed &= ~within | ((group.array("dur") == 0) & (began > 0)) | several
        if frame == "gpu":
            within &= ~untimed & (group.array("dur") <= span.high - np.where(within, group.array("start"), 0))
        if within.all():
            continue
        counted[NO_DEVICE_TIME] += int(untimed.sum())  # CUPTI had no timing for them: kineto#109
        counted["outside the recording"] += int((~within & ~untimed).sum())
        group.keep(within)
    return +counted


def _is_skewed(groups: Groups, span: _Span) -> bool:
    """Whether the GPU lane as a whole lies elsewhere."""
    starts = [group.array("start") for (frame, *_), group in groups.items() if frame == "gpu" and group.rows]
    timed = np.concatenate([*starts, np.empty(0, np.int64)])
    timed = timed[timed != 0]
    if len(timed) < _MIN_SKEWED_ROWS:
        return False
    low, high = _bulk(timed)
    outside = (timed < span.low) | (timed > span.high)
    return bool(outside.mean() > _BULK[1]) and high - low <= span.high - span.low


def _span(groups: Groups, recorded: tuple[int, int] | None) -> _Span | None:
    filled = [(frame, group) for (frame, *_), group in groups.items() if group.rows]
    if recorded is not None:
        span = _widened(*recorded, _RECORDED_SLACK_NS)
        inside = sum(int(span.starts(group).sum()) for _, group in filled)
        if 2 * inside > sum(group.rows for _, group in filled):
            return span
    for frame in ("cpu", "gpu", "python", "memory", "counters"):
        starts = [group.array("start") for lane, group in filled if lane == frame]
        if starts:
            return _widened(*_bulk(np.concatenate(starts)), _BULK_SLACK_NS)
    return None


def _bulk(starts: Ns) -> tuple[int, int]:
    """Where all but a few rows start; of few rows, all."""
    first, last = floor(_BULK[0] * (len(starts) - 1)), ceil(_BULK[1] * (len(starts) - 1))
    ordered = np.partition(starts, (first, last))
    return int(ordered[first]), int(ordered[last])


def _widened(low: int, high: int, slack: int) -> _Span:
    slack = max(slack, high - low)
    return _Span(max(low - slack, -(2**62)), min(high + slack, 2**62))


def linked(cpu: Columns, gpu: Columns) -> tuple[Columns, Columns]:
    """Both lanes with correlations, where the profiler wrote the number that joins calls and work as External id.

    ROCm's profiler did so until torch 2.3 (kineto 2024-03): neither calls nor work have a correlation, and the number
    of a call is no op's. Ids that several calls share are of ops, and stay.
    """
    calls = matching(cpu, "category", CALL_CATEGORIES.__contains__)
    work = matching(gpu, "category", BUSY_CATEGORIES.__contains__)
    lanes = (cpu, calls), (gpu, work)
    if any((ints(lane, "correlation")[rows] != NULL_INT).any() for lane, rows in lanes):
        return cpu, gpu
    external = ints(cpu, "external_id")
    launching = external[calls & np.isin(external, ints(gpu, "external_id")[work]) & (external != NULL_INT)]
    if len(launching) == 0 or len(distinct(launching)) < len(launching):
        return cpu, gpu
    return _renumbered(cpu, calls), _renumbered(gpu, work)


def _renumbered(lane: Columns, rows: NDArray[np.bool_]) -> Columns:
    numbers = np.where(rows, ints(lane, "external_id"), ints(lane, "correlation"))
    return _unlinked(lane, rows).but("correlation", numbers)


def without_false_links(cpu: Columns, gpu: Columns, dialect: str) -> tuple[Columns, Columns]:
    """Both lanes with null for external ids that name no op; the lanes themselves where there are none.

    Until torch 2.6 a call or kernel that belongs to no op carried its own correlation as External id, which is some
    other op's id by chance (fixed in kineto 2024-02 to 2024-10). Such an id is believed where that op was running on
    the calling thread when the call was made.
    """
    if not dialect.startswith(("torch 1.12", "torch 2.1", "torch 2.4")):
        return cpu, gpu
    calls, work = _doubtful(cpu), _doubtful(gpu)
    believed = np.zeros(len(cpu), np.bool_)
    believed[calls] = _made_within_its_op(cpu, np.flatnonzero(calls))
    launched = np.isin(ints(gpu, "correlation"), ints(cpu, "correlation")[believed])
    return _unlinked(cpu, calls & ~believed), _unlinked(gpu, work & ~launched)


def _doubtful(lane: Columns) -> NDArray[np.bool_]:
    external = ints(lane, "external_id")
    return np.asarray((external == ints(lane, "correlation")) & (external != NULL_INT))


def _made_within_its_op(cpu: Columns, calls: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether the op that each call names was running on the call's thread when it was made."""
    external, start, tid = ints(cpu, "external_id"), ints(cpu, "start_ns"), ints(cpu, "tid")
    is_op = matching(cpu, "category", lambda category: category in ("cpu_op", "user_annotation"))
    ops = np.flatnonzero(is_op & (external != NULL_INT))
    if len(ops) == 0:
        return np.zeros(len(calls), np.bool_)
    ops = ops[np.argsort(external[ops], kind="stable")]
    named = ops[np.minimum(np.searchsorted(external[ops], external[calls]), len(ops) - 1)]
    end = start + ints(cpu, "dur_ns")
    running = (start[named] <= start[calls]) & (start[calls] < end[named])
    return np.asarray(running & (external[named] == external[calls]) & (tid[named] == tid[calls]))


def _unlinked(lane: Columns, rows: NDArray[np.bool_]) -> Columns:
    if not rows.any():
        return lane
    return lane.but("external_id", np.where(rows, NULL_INT, ints(lane, "external_id")))
