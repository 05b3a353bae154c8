"""Nesting of the CPU lane per thread: parent, depth and self time of every row of `trace.cpu`.

Method: order by (thread, start, longest first); the row before is the first candidate for parent, and a
candidate that ends too early is replaced by its own candidate, all rows at once, until none is left. A row
that only overlaps another has no part in it: its parent is the nearest row that contains it whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traceanalyzer.indexes.calls import ANNOTATION
from traceanalyzer.trace import Trace, codes, ints, matching

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


def pick(values: Rows, rows: Rows, missing: int = -1) -> Rows:
    """values[rows], and `missing` where the row is -1; also where there are no values at all."""
    return np.append(values, missing)[rows]


def distinct(values: Rows) -> Rows:
    """The values sorted, each once; by sorting, because numpy hashes them, which is ten times slower for many."""
    found: Rows = np.sort(values)
    kept: Rows = found[np.concatenate((found[:1] == found[:1], found[1:] != found[:-1]))]
    return kept


def lane_order(lane: Rows, start: Rows, dur: Rows, rank: Rows) -> Rows:
    """Row numbers ordered by lane, start, longest first, then `rank`; int64 of shape (rows,).

    Rows come nearly sorted by start, so two stable sorts and a repair of the ties beat one lexsort tenfold.
    """
    order = np.argsort(start, kind="stable")
    order = order[np.argsort(lane[order], kind="stable")]
    same = (np.diff(lane[order]) == 0) & (np.diff(start[order]) == 0)
    if same.any():
        tied = np.flatnonzero(np.concatenate(([False], same)) | np.concatenate((same, [False])))
        rows = order[tied]
        order[tied] = rows[np.lexsort((rank[rows], -dur[rows], start[rows], lane[rows]))]
    return order


def parents_in_order(lane: Rows, start: Rows, end: Rows) -> Rows:
    """Position of each row's parent, -1 for none, for rows in `lane_order`; int64 of shape (rows,)."""
    n = len(start)
    parent = np.arange(-1, n - 1)
    if n == 0:
        return parent
    parent[np.concatenate(([True], lane[1:] != lane[:-1]))] = -1
    active = np.flatnonzero(parent >= 0)
    while len(active):
        of = parent[active]
        active = active[end[of] < end[active]]
        parent[active] = parent[parent[active]]
        active = active[parent[active] >= 0]
    return parent


@dataclass(frozen=True, slots=True)
class Nesting:
    """All arrays are parallel to `trace.cpu`, shape (rows,); overhead rows are no part of any thread's nesting.

    Attributes:
        start_ns, end_ns: int64.
        lane: int64, dense number of (pid, tid); -1 for overhead rows.
        parent: int64, row of the innermost containing row, -1 for none.
        depth: int64, 0 for roots.
        self_ns: int64, duration less the children's.
        op: int64, row of the innermost cpu_op that is or contains the row, -1 for none.
        top_op: int64, row of the outermost one.
        order: int64 of shape (rows on threads,), those rows by lane, start, and the outer before the inner.
    """

    start_ns: Rows
    end_ns: Rows
    lane: Rows
    parent: Rows
    depth: Rows
    self_ns: Rows
    op: Rows
    top_op: Rows
    order: Rows

    def edges(self, lane: int, among: Mask | None = None) -> Rows:
        """Every instant at which something (of some rows) starts or ends on the lane, sorted, each once."""
        rows = self.lane == lane if among is None else (self.lane == lane) & among
        return distinct(np.concatenate((self.start_ns[rows], self.end_ns[rows])))

    def around(self, lane: int, starts: Rows, ends: Rows) -> Rows:
        """The innermost row of the lane that contains each interval [starts[i], ends[i]], -1 for none."""
        low, high = np.searchsorted(self.lane[self.order], (lane, lane + 1))
        rows = np.append(self.order[low:high], -1)
        found = rows[np.searchsorted(self.start_ns[rows[:-1]], starts, side="right") - 1]
        while True:
            short = np.flatnonzero((found >= 0) & (self.end_ns[found] < ends))
            if len(short) == 0:
                return found
            found[short] = self.parent[found[short]]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        cpu = trace.cpu
        start, dur = ints(cpu, "start_ns"), ints(cpu, "dur_ns")
        is_annotation = annotation_rows(trace)
        is_op = (cpu["category"] == "cpu_op").to_numpy() & ~is_annotation
        lane = _lanes(trace)
        rank = _tie_rank(trace, is_annotation, is_op)
        order = lane_order(lane, start, dur, rank)
        order = order[lane[order] >= 0]
        placed = parents_in_order(lane[order], start[order], (start + dur)[order])
        parent = np.full(len(cpu), -1, np.int64)
        parent[order] = np.where(placed >= 0, order[placed], -1)
        depth = np.zeros(len(cpu), np.int64)
        depth[order] = _depths(placed)
        own = parent[parent >= 0]
        children = np.bincount(own, weights=dur[parent >= 0], minlength=len(cpu))
        op, top = np.full(len(cpu), -1, np.int64), np.full(len(cpu), -1, np.int64)
        op[order], top[order] = _ops(placed, order, is_op[order], depth[order])
        return cls(start, start + dur, lane, parent, depth, dur - children.astype(np.int64), op, top, order)


def _lanes(trace: Trace) -> Rows:
    process, _ = pd.factorize(ints(trace.cpu, "pid"))
    thread, threads = pd.factorize(ints(trace.cpu, "tid"))
    lane = pd.factorize(process * np.int64(len(threads)) + thread, sort=True)[0].astype(np.int64)
    lane[(trace.cpu["category"] == "overhead").to_numpy()] = -1
    return lane


def annotation_rows(trace: Trace) -> Mask:
    """Rows of `trace.cpu` that are annotations; torch before 1.12 wrote those as ops, and their names tell."""
    op = matching(trace.cpu, "category", lambda category: category == "cpu_op")
    marks = matching(trace.cpu, "name", lambda name: bool(ANNOTATION.match(name)))
    return matching(trace.cpu, "category", lambda category: category == "user_annotation") | op & marks


def _tie_rank(trace: Trace, is_annotation: Mask, is_op: Mask) -> Rows:
    """Of rows with the same start and duration an annotation is outside, then ops, then calls; names decide last."""
    return np.where(is_annotation, 0, np.where(is_op, 1, 2)) * (1 << 32) + codes(trace.cpu, "name")


def _depths(parent: Rows) -> Rows:
    """Steps to the root, by doubling: log2(depth) passes."""
    depth = (parent >= 0).astype(np.int64)
    jump = parent.copy()
    while True:
        going = np.flatnonzero(jump >= 0)
        if len(going) == 0:
            return depth
        to = jump[going]
        more = depth[to]
        ahead = jump[to]
        depth[going] += more
        jump[going] = ahead


def _ops(parent: Rows, order: Rows, is_op: Mask, depth: Rows) -> tuple[Rows, Rows]:
    """Rows of the innermost and the outermost op around each position; one pass per level of depth."""
    inner = np.where(is_op, order, -1)
    outer = inner.copy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        at = np.flatnonzero(depth == level)
        above = parent[at]
        inner[at] = np.where(is_op[at], order[at], inner[above])
        outer[at] = np.where(outer[above] >= 0, outer[above], outer[at])
    return inner, outer
