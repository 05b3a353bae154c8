"""Time of the GPU, of the CPU and idle time by where they come from: modules or annotations, ops in ops, what is in
them; a tree each.

Every piece of work has a path of names from the outermost to its kernel. Paths are numbered level by level, all rows
of a level at once, so that the tree costs as little as its deepest path is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick, sums_of
from traceanalyzer.model.containment import depths, nearest_marked, nearest_reaching
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts, shifted
from traceanalyzer.model.trace import ints, ints_at, matching
from traceanalyzer.report.words import in_words
from traceanalyzer.timeline.device_work import KINDS
from traceanalyzer.timeline.selection import Events

MOST_NODES = 2_500
_MOST_LEVELS = 64  # what is nested deeper is told with what is around it
_LEAST_SHARE = 0.0002  # of all GPU time: less is part of "other"; chosen
_MODULE = "nn.Module: "
# Steps are what shares are of, and the engine's row around a node of the graph has that node's name.
_WRAPPER = regex(rf"^ProfilerStep#\d+$|^{ENGINE}")
_KINDS = ("module", "annotation", "op")
# What is drawn in one colour -> what its kinds of work begin with.
WORK_KINDS = {"kernel": "compute", "copy": "copy", "communication": "communication", "memset": "memset"}
NO_OP = "launched by no op"
OTHER = "other"
OUTSIDE = "outside ops"
ALL_GPU, ALL_CPU, ALL_IDLE = "all GPU work", "all CPU time", "all idle time"


@dataclass(slots=True)
class Node:
    """A frame of the graph, with the time of it and all inside, largest first; `OTHER` for those too small to be drawn.

    `kind` is all, module, annotation, op, call, idle or other; of work kernel, copy, communication or memset. `count`
    is of pieces of work, rows of the CPU, or stretches of idle time.
    """

    name: str
    kind: str
    ns: int
    count: int
    inside: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Forest:
    """Numbered paths: of each the path around it (-1 for none), a name and a kind; int64 (paths,) and lists."""

    above: list[int]
    names: list[str]
    kinds: list[str]

    def add(self, above: Rows, names: Texts, kind: str) -> Rows:
        """Numbers of the paths (above[i], names[i]), new ones where they are new; int64 of the rows' shape."""
        number, first = grouped([above, names.code])
        base = len(self.names)
        self.above.extend(above[first].tolist())
        self.names.extend(str(names[int(row)]) for row in first)
        self.kinds.extend([kind] * len(first))
        return number + base

    def add_loose(self, paths: Rows, name: str) -> None:
        """Put what has no path yet, -1, below a top of this name."""
        loose = np.flatnonzero(paths < 0)
        names = Texts(np.zeros(len(loose), np.int64), np.array([name], object))
        paths[loose] = self.add(np.full(len(loose), -1), names, "op")


def flame_of(analysis: Analysis, most: int = MOST_NODES) -> Node:
    """The tree of all GPU work of the trace, or of what the user's window holds of it; at most about `most` nodes."""
    events = analysis.index(Events)
    if events.work is None:
        raise Unavailable("no kernels, copies or memsets in the trace")
    forest = Forest([], [], [])
    path = _of_rows(forest, events, events.work.op)[events.work.op]  # the last entry is of work without op
    forest.add_loose(path, NO_OP)
    kernel = Texts.column(events.trace.lanes.gpu, "name", events.work.row)
    leaf = np.empty(len(path), np.int64)
    for kind, begin in WORK_KINDS.items():
        same = [number for number, name in enumerate(KINDS) if name.startswith(begin)]
        chosen = np.flatnonzero(np.isin(events.work.kind, same))
        leaf[chosen] = forest.add(path[chosen], kernel[chosen], kind)
    inside, durations = _in_window(events)
    return tree_of(forest, leaf[inside], durations, most)


def _in_window(events: Events) -> tuple[Rows, Rows]:
    """(work that is in the user's window, ns of it there), int64 (entries,) both; all work where none was asked for."""
    start, end = events.device_work.start_ns, events.device_work.end_ns
    if not events.steps.asked:
        return np.arange(len(start)), end - start
    low, high = events.steps.window_start_ns, events.steps.window_end_ns
    took = np.clip(end, low, high) - np.clip(start, low, high)
    inside = np.flatnonzero(took > 0)
    return inside, took[inside]


def flame_of_cpu(analysis: Analysis, most: int = MOST_NODES) -> Node:
    """The tree of the time of all threads, each row's own time below its ops; calls are leaves."""
    events = analysis.index(Events)
    nesting, rows = events.nesting, events.calls
    if events.steps.asked:
        start = nesting.start_ns[rows]
        rows = rows[(start >= events.steps.window_start_ns) & (start < events.steps.window_end_ns)]
    if len(rows) == 0:
        raise Unavailable("no ops or calls in the trace")
    forest = Forest([], [], [])
    path = _of_rows(forest, events, rows[_told(events)[rows]])
    nearest = nearest_marked(nesting.parent, path[:-1] >= 0, rows)
    leaf = pick(path[:-1], nearest)
    forest.add_loose(leaf, OUTSIDE)
    calls = np.flatnonzero(Texts.column(events.trace.lanes.cpu, "category", rows).one_of(*CALL_CATEGORIES))
    leaf[calls] = forest.add(leaf[calls], _names(events, rows[calls]), "call")
    return tree_of(forest, leaf, nesting.self_ns[rows], most, ALL_CPU)


def flame_of_idle(analysis: Analysis, most: int = MOST_NODES) -> Node:
    """The tree of all idle time of devices: below the ops that it is charged to, its causes."""
    events, accounting, idle = analysis.index(Events), analysis.index(Accounting), analysis.index(Idle)
    segments = np.flatnonzero(accounting.piece >= 0)
    if len(segments) == 0:
        raise Unavailable("no device is ever idle")
    forest = Forest([], [], [])
    piece = accounting.piece[segments]
    op = idle.op[piece]
    path = _of_rows(forest, events, op)[op]
    forest.add_loose(path, OUTSIDE)
    causes = Texts(idle.cause[piece], np.array([in_words(cause) for cause in CAUSES], object))
    leaf = forest.add(path, causes, "idle")
    return tree_of(forest, leaf, accounting.dur_ns[segments], most, ALL_IDLE)


def _of_rows(forest: Forest, events: Events, rows: Rows) -> Rows:
    """The path of each row of `trace.cpu` that is or is around one of `rows`; int64 (rows + 1,), -1 for none and as
    the last."""
    around = _around(events, rows)
    spans = _spans(events, around)
    parent = nearest_reaching(spans.end_ns, spans.end_ns, spans.tid)
    depth = depths(parent)
    path = np.full(len(depth), -1, np.int64)
    for level in range(int(depth.max(initial=-1)) + 1):
        rows = np.flatnonzero(depth == level) if level < _MOST_LEVELS else np.empty(0, np.int64)
        above = pick(path, parent[rows])
        for number, kind in enumerate(_KINDS):
            chosen = spans.kind[rows] == number
            path[rows[chosen]] = forest.add(above[chosen], spans.name[rows[chosen]], kind)
    deep = np.flatnonzero(depth >= _MOST_LEVELS)
    for row in deep[np.argsort(depth[deep], kind="stable")].tolist():  # what is nested so deeply is rare
        path[row] = path[parent[row]]
    of_rows = np.full(len(events.nesting.parent) + 1, -1, np.int64)
    of_rows[spans.row[spans.row >= 0]] = path[spans.row >= 0]
    return of_rows


def _around(events: Events, rows: Rows) -> Rows:
    """Ops and annotations that are or contain these rows of `trace.cpu`, without those that only wrap others."""
    nesting, count, told = events.nesting, len(events.nesting.parent), _told(events)
    found = np.zeros(count, np.bool_)
    going = distinct(rows[rows >= 0])
    found[going] = True
    while len(going):
        above = nearest_marked(nesting.parent, told, pick(nesting.parent, going))
        above = distinct(above[above >= 0])
        going = above[~found[above]]
        found[going] = True
    return np.flatnonzero(found)


def _told(events: Events) -> Mask:
    """Ops and annotations that do not only wrap others; bool (rows of trace.cpu,)."""
    nesting = events.nesting
    wrappers = matching(events.trace.lanes.cpu, "name", lambda name: bool(_WRAPPER.match(name)))
    told: Mask = ((nesting.op == np.arange(len(nesting.parent))) | nesting.annotation) & ~wrappers
    return told


@dataclass(frozen=True, slots=True)
class _Spans:
    """Modules (row -1 of `trace.cpu`), annotations and ops of all threads, the outer before the inner; (spans,)."""

    row: Rows
    end_ns: Rows
    tid: Rows
    kind: Rows
    name: Texts


def _spans(events: Events, rows: Rows) -> _Spans:
    """Those rows of `trace.cpu`, and all modules that python's frames tell."""
    nesting = events.nesting
    start, end = nesting.start_ns[rows], nesting.end_ns[rows]
    tid, names = ints_at(events.trace.lanes.cpu, "tid", rows), _names(events, rows)
    kind = np.where(nesting.annotation[rows], 1, 2)
    if events.trace.meta.rows.get("python"):
        frames = events.trace.lanes.python
        found = np.flatnonzero(matching(frames, "name", lambda name: name.startswith(_MODULE)))
        begun, module, none = (
            ints(frames, "start_ns")[found],
            np.zeros(len(found), np.int64),
            np.full(len(found), -1),
        )
        first = begun, begun + ints(frames, "dur_ns")[found], ints(frames, "tid")[found], module, none
        pairs = zip(first, (start, end, tid, kind, rows), strict=True)
        start, end, tid, kind, rows = (np.concatenate(pair) for pair in pairs)
        names = _joined(Texts.column(frames, "name", found), names)
    rank = np.where(rows < 0, 0, 1 + around(events, rows))  # modules are outside
    order = np.lexsort((rank, start - end, start, tid))
    return _Spans(rows[order], end[order], tid[order], kind[order], names[order])


def _names(events: Events, rows: Rows) -> Texts:
    return Texts.column(events.trace.lanes.cpu, "name", rows)


def _joined(first: Texts, second: Texts) -> Texts:
    """The texts of both, one after the other."""
    code = np.concatenate((first.code, shifted(second.code, len(first.names))))
    return Texts(code, np.concatenate((first.names, second.names)))


def tree_of(forest: Forest, leaf: Rows, durations: Rows, most: int, whole_name: str = ALL_GPU) -> Node:
    """The paths as nodes, with times summed from the leaves up; what is too small goes into one node beside."""
    size = len(forest.names)
    ns, count = sums_of(leaf, durations, size), np.bincount(leaf, minlength=size)
    inside: list[list[int]] = [[] for _ in range(size)]
    tops: list[int] = []
    for path in range(size - 1, -1, -1):  # what is inside has a higher number than what is around it
        above = forest.above[path]
        (inside[above] if above >= 0 else tops).append(path)
        if above >= 0:
            ns[above] += ns[path]
            count[above] += count[path]
    whole = Node(whole_name, "all", int(durations.sum()), len(durations))
    least = max(int(_LEAST_SHARE * whole.ns), int(np.sort(ns)[-1 - most]) if size > most else 0, 1)
    pending: list[tuple[Node, Sequence[int]]] = [(whole, tops)]
    while pending:
        node, paths = pending.pop()
        large = sorted((p for p in paths if ns[p] >= least), key=lambda p: (-ns[p], forest.names[p], p))
        for path in large:
            made = Node(forest.names[path], forest.kinds[path], int(ns[path]), int(count[path]))
            node.inside.append(made)
            pending.append((made, inside[path]))
        if small := [p for p in paths if ns[p] < least]:
            node.inside.append(Node(OTHER, "other", int(ns[small].sum()), int(count[small].sum())))
    return whole


def around(events: Events, rows: Rows, counted: Mask | None = None) -> Rows:
    """How many rows of `trace.cpu` (of those `counted`) are around each; int64 (len(rows),)."""
    count, going = np.zeros(len(rows), np.int64), pick(events.nesting.parent, rows)
    while (going >= 0).any():
        count += (going >= 0) if counted is None else (going >= 0) & counted[going]
        going = pick(events.nesting.parent, going)
    return count
