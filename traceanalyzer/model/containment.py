"""Which interval contains which, and sums over what an interval contains; no thread, no frame, arrays only."""

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, Small, distinct, pick, starts_of_runs, sums_of

_LEVELS = 64  # that rows climb one by one: real ones are nested a dozen deep


def nearest_reaching(end: Rows, need: Rows, thread: Rows) -> Rows:
    """Position of the nearest earlier row of the same thread that ends at `need` or later; -1 for none.

    All arrays are int64 of shape (rows,), ordered by thread, start and longest first. With
    `need = max(end, start + 1)` the answer is the innermost row that contains this one whole and has not
    ended when it starts; with `need = start`, the last one that is still open.

    The row before is the first candidate. One that ends too early is replaced by its own candidate, all rows
    at once, so that distances double from pass to pass.
    """
    nearest = np.arange(-1, len(end) - 1, dtype=np.int64)
    nearest[starts_of_runs(thread)] = -1
    active = np.flatnonzero(end[:-1] < need[1:]) + 1
    active = active[nearest[active] >= 0]
    wanted = need[active]
    while len(active):
        further = nearest.take(nearest.take(active))
        nearest[active] = further
        short = np.flatnonzero((end.take(further) < wanted) & (further >= 0))
        active, wanted = active.take(short), wanted.take(short)
    return nearest


def innermost(start: Rows, end: Rows, thread: Rows) -> Rows:
    """Position of each row's parent as torch's table nests: contained whole, started before the parent's end.

    Shapes and order as in `nearest_reaching`. A row that only overlaps another has no part in it.
    """
    return nearest_reaching(end, np.maximum(end, start + 1), thread)


def still_open(start: Rows, end: Rows, thread: Rows, rows: Rows) -> Rows:
    """Position of the row on top of the call stack when each of `rows` starts, -1 for none; shapes as above.

    A row also counts as ended when one below it on the stack has ended. So those below decide, and of these only
    the ones below `rows` are looked at.
    """
    below = nearest_reaching(end, start, thread)
    reached, going = np.zeros(len(below), np.bool_), below[rows]  # every row that is reached by going down
    while len(going := going[going >= 0]):
        going = distinct(going[~reached[going]])
        reached[going] = True
        going = below[going]
    stacked = np.flatnonzero(reached)
    closing = end.copy()
    while True:
        top = _first_open(below, closing, start, stacked)
        earlier = np.where(top >= 0, np.minimum(end[stacked], closing[top]), end[stacked])
        if np.array_equal(earlier, closing[stacked]):
            return _first_open(below, closing, start, rows)
        closing[stacked] = earlier


def _first_open(below: Rows, closing: Rows, start: Rows, rows: Rows) -> Rows:
    """Going down from each of `rows`, the first that has not closed when it starts, -1 for none."""
    return first_reaching(below[rows], below, closing, start[rows])


def first_reaching(rows: Rows | Small, parent: Rows | Small, end: Rows, need: Rows) -> Rows:
    """Going up from each row, itself included, the first that ends at `need` or later; -1 for none, or of -1."""
    found = rows.astype(np.int64)
    going = np.flatnonzero(found >= 0)
    while len(going := going[end[found[going]] < need[going]]):
        found[going] = parent[found[going]]
        going = going[found[going] >= 0]
    return found


def running_at(start: Rows, end: Rows, thread: Rows, at: Rows, at_thread: Rows) -> Rows:
    """Row of the innermost interval of the same thread that is open at each instant, -1 for none.

    Intervals, int64 (rows,), and instants, int64 (instants,), come in any order; both ends count as inside.
    """
    nothing = np.iinfo(np.int64).min
    starts, threads = np.concatenate((start, at)), np.concatenate((thread, at_thread))
    need = np.concatenate((end, at))
    reach = np.concatenate((end, np.full(len(at), nothing)))
    asks = np.arange(len(starts)) >= len(start)
    order = np.lexsort((-need, asks, starts, threads))
    nearest = nearest_reaching(reach[order], need[order], threads[order])
    inside = np.full(len(starts), -1, np.int64)
    inside[order] = np.where(nearest >= 0, order[nearest], -1)
    return inside[asks]


def depths(parent: Rows) -> Rows:
    """Steps from each row to its root, 0 for roots; int64 of shape (rows,)."""
    depth = (parent >= 0).astype(np.int64)
    jump = parent.copy()
    going = np.flatnonzero(jump >= 0)
    while len(going):
        to = jump[going]
        more, ahead = depth[to], jump[to]
        depth[going] += more
        jump[going] = ahead
        going = going[ahead >= 0]
    return depth


def child_sums(parent: Rows, values: Rows) -> Rows:
    """Sum of the direct children's values; int64 of shape (rows,)."""
    inside = parent >= 0
    return sums_of(parent[inside], values[inside], len(parent))


def subtree_sums(parent: Rows, values: Rows) -> Rows:
    """Sum of values over each row and all that it contains; int64 of shape (rows,).

    Every value that is not 0 is carried up to its root, one level per pass: most are 0.
    """
    sums = values.astype(np.int64, copy=True)
    rows = np.flatnonzero(values)
    carried, above = sums[rows], parent[rows]
    while len(above):
        inside = np.flatnonzero(above >= 0)
        carried, above = carried[inside], above[inside]
        np.add.at(sums, above, carried)
        above = parent[above]
    return sums


def inherited(parent: Rows | Small, marked: Mask) -> Rows:
    """Nearest marked row among each row and what is around it, -1 for none; int64 of shape (rows,)."""
    jump = np.where(marked, np.arange(len(parent)), parent)
    going = np.flatnonzero((jump >= 0) & ~marked[jump])
    while len(going):
        to = jump[jump[going]]
        jump[going] = to
        going = going[(to >= 0) & ~marked[to]]
    return jump


def marked_right_around(parent: Rows, op: Rows, marked: Mask) -> Rows:
    """The marked ops with marked rows in them and no other op between; int64, each once.

    `op` is the innermost op that is or contains each row, -1 for none.
    """
    above = pick(op, parent[marked])
    return distinct(above[(above >= 0) & pick(marked, above)])


def nearest_marked(parent: Rows | Small, marked: Mask, rows: Rows) -> Rows:
    """As `inherited`, of some rows only, -1 for none or where the row is -1; int64 of the rows' shape.

    They climb level by level, which is cheaper than passing over all rows; what is nested very deeply is left to it.
    """
    nearest = rows.copy()
    going = np.flatnonzero((nearest >= 0) & ~marked[nearest]) if len(marked) else np.empty(0, np.int64)
    for _ in range(_LEVELS):
        if len(going) == 0:
            return nearest
        above = parent.take(nearest.take(going))
        nearest[going] = above
        going = going[(above >= 0) & ~marked.take(above)]
    nearest[going] = inherited(parent, marked)[nearest[going]]
    return nearest


def outermost(parent: Rows | Small, op: Rows | Small) -> Rows:
    """For each row the last that is reached by going from op to the op around it, -1 for none; int64 (rows,).

    `op` is the innermost op that is or contains each row, -1 for none.
    """
    ops = np.flatnonzero(op == np.arange(len(op)))
    above = pick(op, parent[ops])
    inner = above >= 0
    return pick(followed(len(parent), ops[inner], above[inner]), op)


def followed(rows: int, going: Rows, above: Rows) -> Rows:
    """For each row the last that is reached by going from `going[i]` to `above[i]`, else itself; int64 of (rows,).

    All rows at once, so that distances double from pass to pass.
    """
    top = np.arange(rows)
    top[going] = above
    while len(going):
        to = top[top[going]]
        further = to != top[going]
        top[going] = to
        going = going[further]
    return top
