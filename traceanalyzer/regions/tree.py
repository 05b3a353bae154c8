"""The tree of a typical step: phase > annotation, module or function > repeated block > op.

A node of backward is a leaf beside the op that recorded it. Time between two ops belongs to the innermost region that
holds both. So every nanosecond of the CPU's timeline, every launch and every piece of work is in one node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, grouped, numbered, pick
from traceanalyzer.model.containment import depths
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import codes_at, texts_of
from traceanalyzer.regions.code_spans import KINDS, CodeSpans
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.timeline.backward_nodes import backward_nodes_of, hooks_of, in_hooks
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.loops import nested_loops
from traceanalyzer.timeline.names import DATA_LOADING
from traceanalyzer.timeline.nesting import CalledOps
from traceanalyzer.timeline.selection import Events

MIN_REPEATS = 4
_MAX_FORWARDS = 4  # forward passes in a step that are told apart: more are calls of torch.autograd.grad
_BACKWARD = regex(r"^autograd::engine::evaluate_function|Backward\d*$|^torch::autograd::AccumulateGrad$")
_OPTIMIZER = regex(r"^Optimizer\.(step|zero_grad)#")
_LOADING, _STEPPING, _UNLINKED, _OTHER, _HOOK, _FORWARD = range(6)
# Kinds of elements: ops, nodes of backward, and spans; and kernels of a CUDA graph.
_KINDS = ("op", "backward", *KINDS, "kernel")
KERNEL = len(_KINDS) - 1
LOADING = "data loading"
AFTER_BACKWARD = "code after backward"
_PHASES = (LOADING, "optimizer", "backward", AFTER_BACKWARD, "forward and backward in a hook")


class Nodes:
    """The nodes of a tree, numbered from 0, the step; a parent has a lower number than its children."""

    def __init__(
        self, parent: Sequence[int] = (-1,), kind: Sequence[str] = ("step",), name: Sequence[str] = ("step",)
    ) -> None:
        self.parent, self.kind, self.name = list(parent), list(kind), list(name)
        keys = zip(self.parent, self.kind, self.name, strict=True)
        self._known = {key: number for number, key in enumerate(keys)}

    def child(self, parent: int, kind: str, name: str) -> int:
        """The child of that name, a new one where there is none."""
        key = parent, kind, name
        if key not in self._known:
            self._known[key] = len(self.parent)
            self.parent.append(parent)
            self.kind.append(kind)
            self.name.append(name)
        return self._known[key]

    def children(self, parent: Rows, kind: Rows, name: Rows, names: list[str]) -> Rows:
        """As `child`, for arrays of positions in `_KINDS` and `names`; int64 of their shape."""
        number, first = grouped([parent, kind, name])
        nodes = [self.child(int(parent[row]), _KINDS[kind[row]], names[name[row]]) for row in first.tolist()]
        return np.array(nodes, np.int64)[number]


@dataclass(frozen=True, slots=True)
class Items:
    """Ops, and calls outside of ops, in the order of the CPU's timeline; arrays of shape (items,).

    Attributes:
        span: int64, the innermost `CodeSpans` around each, -1 for none.
        backward: bool, nodes of autograd's graph.
        phase: int64, `_PHASES`, or `_FORWARD` and more; -1 where the step has no backward.
        name: int64, position in `names`.
    """

    row: Rows
    start_ns: Rows
    end_ns: Rows
    step: Rows
    span: Rows
    backward: Mask
    phase: Rows
    name: Rows
    names: list[str]


@dataclass(frozen=True, slots=True)
class Pieces:
    """The CPU's timeline, cut where an item or a span begins or ends; arrays of shape (pieces,).

    Attributes:
        segment: int64, segment of the timeline that each is in.
        origin_ns: int64, when it began; of a node of backward, when the op began that recorded it.
        item: int64, row of `trace.cpu`, -1 between items.
    """

    start_ns: Rows
    end_ns: Rows
    segment: Rows
    node: Rows
    origin_ns: Rows
    item: Rows

    @property
    def dur_ns(self) -> Rows:
        return self.end_ns - self.start_ns

    def at(self, instants: Rows) -> Rows:
        """The piece in which each instant lies, or the one before."""
        return np.maximum(np.searchsorted(self.start_ns, instants, side="right") - 1, 0)


@dataclass(frozen=True, slots=True)
class RepeatedBlock:
    """One place where a block repeats: when each repeat starts, int64 ns, and when the last ends."""

    node: int
    starts_ns: Rows
    end_ns: int


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree with the CPU's timeline in it; arrays of shape (nodes,).

    Attributes:
        parent: int64, -1 of the step.
        kind, name: texts; kinds are step, phase, those of `code_spans.KINDS`, block, op, backward and kernel.
        calls: int64, in all steps: of blocks their repeats.
        blocks: all places where blocks repeat.
    """

    parent: Rows
    depth: Rows
    kind: tuple[str, ...]
    name: tuple[str, ...]
    calls: Rows
    pieces: Pieces
    blocks: tuple[RepeatedBlock, ...] = field(repr=False)

    @staticmethod
    def of(events: Events, called: CalledOps, timeline: CpuTimeline, begins: Rows, ends: Rows) -> "Tree":
        """The tree of the steps [begins, ends)."""
        spans = CodeSpans.of(events, int(timeline.threads[0]), begins, ends)
        rows = _item_rows(events, called, timeline, spans)
        items = _items(events, spans, rows, begins, int(timeline.threads[0]))
        # Segments between items are cut at the edges of spans.
        edges = np.sort(np.concatenate((spans.start_ns, spans.end_ns)))
        inside = np.searchsorted(timeline.start_ns, edges, side="right") - 1
        start, end = intervals.cut(timeline.start_ns, timeline.end_ns, edges[pick(rows < 0, inside, False)])
        segment = np.searchsorted(timeline.start_ns, start, side="right") - 1
        return _Builder(events, spans, items, begins, (start, end, segment), rows[segment]).tree()


def _item_rows(events: Events, called: CalledOps, timeline: CpuTimeline, spans: CodeSpans) -> Rows:
    """Row of the item of each segment, -1 between items."""
    nesting, row = events.nesting, timeline.row
    top = nesting.top_op(row)
    holds = nesting.annotation | hooks_of(events)
    top = np.where((top < 0) & (row >= 0) & ~pick(holds, row, True), row, top)
    wrapped = np.isin(top, spans.row[spans.kind == KINDS.index("wrapper")]) & (top >= 0)
    inner = called.of(np.where(wrapped, row, -1))
    return np.where(wrapped, np.where(inner == top, -1, inner), top)


def _items(events: Events, spans: CodeSpans, rows: Rows, begins: Rows, main: int) -> Items:
    nesting, cpu = events.nesting, events.trace.lanes.cpu
    row = distinct(rows[rows >= 0])
    row = row[np.argsort(nesting.start_ns[row], kind="stable")]
    start, end = nesting.start_ns[row], nesting.end_ns[row]
    step = np.searchsorted(begins, start, side="right") - 1
    code, used = numbered(codes_at(cpu, "name", row).astype(np.int64))
    names = [short_ops(str(texts_of(cpu, "name")[number])) for number in used.tolist()]
    backward = Texts(code, np.array(names, object)).matches(_BACKWARD)
    hooked = in_hooks(events, row)
    span = np.where((nesting.thread[row] == main) | hooked, spans.at(start, end), -1)
    phase = _phases(spans, span, step, backward, hooked)
    return Items(row, start, end, step, span, backward, phase, code, names)


def _phases(spans: CodeSpans, span: Rows, step: Rows, backward: Mask, hooked: Mask) -> Rows:
    """The phase of each item: a step's runs of backward divide its forward passes; hooks are in these runs."""
    of_run = backward | hooked
    begins = of_run & ~np.append(False, of_run[:-1])
    before = np.cumsum(begins)
    before -= (before - begins)[np.searchsorted(step, step)]
    # Damaged times leave items in no step, -1.
    runs = np.bincount(step[begins] + 1, minlength=int(step.max(initial=-1)) + 2)[step + 1]
    passes = np.where(runs <= _MAX_FORWARDS, before, 0)
    phase = np.where(before < runs, _FORWARD + passes, _OTHER)
    phase[hooked] = _HOOK
    phase[backward] = _UNLINKED
    if not backward.any():
        phase[:] = -1
    for number, pattern in ((_STEPPING, _OPTIMIZER), (_LOADING, DATA_LOADING)):
        phase[pick(spans.inside(pattern), span, False)] = number
    return phase


class _Builder:
    def __init__(
        self, events: Events, spans: CodeSpans, items: Items, begins: Rows, pieces: tuple[Rows, Rows, Rows], row: Rows
    ) -> None:
        self.events, self.spans, self.items, self.begins, self.row = events, spans, items, begins, row
        self.start, self.end, self.segment = pieces
        self.nodes = Nodes()
        self.calls: list[Rows] = []
        self.pair_node = self.pair_of_gap = np.empty(0, np.int64)
        self.blocks: list[RepeatedBlock] = []
        self.item_of_piece = np.where(row >= 0, find(items.row, row), -1)
        passes, pair = int(items.phase.max(initial=0)) - _FORWARD + 1, "forward and backward"
        many = [f"{pair} {number + 1}" for number in range(passes)] if passes > 1 else [pair] * passes
        self.phase_nodes = [
            self.nodes.child(0, "phase", name) if (items.phase == number).any() else 0
            for number, name in enumerate([*_PHASES, *many])
        ]

    def tree(self) -> Tree:
        recorder, origin = self._recorders()
        node = self._place(recorder)
        parent = np.array(self.nodes.parent, np.int64)
        depth = depths(parent)
        pieces = self._pieces(node, parent, depth, origin)
        calls = np.bincount(np.concatenate(self.calls), minlength=len(parent))
        names, kinds = tuple(self.nodes.name), tuple(self.nodes.kind)
        return Tree(parent, depth, kinds, names, calls, pieces, tuple(self.blocks))

    def _recorders(self) -> tuple[Rows, Rows]:
        """(position of the item that recorded each node of backward, -1 for none; when that began, or the item)."""
        items, ops = self.items, Calls(self.events, self.items.row)
        recorder = np.full(len(items.row), -1, np.int64)
        if items.backward.any():
            nodes, recorded = backward_nodes_of(Calls.build(self.events), ops)
            at = nodes.index_of_enclosing(ops)
            there = (at >= 0) & (recorded >= 0)
            there[there] = ~items.backward[recorded[there]]
            recorder[at[there]] = recorded[there]
            # Gradients are added up for the node before.
            known = np.where(items.backward & (recorder >= 0), np.arange(len(recorder)), -1)
            before = np.maximum.accumulate(known)
            same = items.backward & (before >= 0) & (pick(items.step, before) == items.step)
            recorder = np.where(same, pick(recorder, before), -1)
        return recorder, np.where(recorder >= 0, pick(items.start_ns, recorder), items.start_ns)

    def _place(self, recorder: Rows) -> Rows:
        """The node of each item; sets `pair_node`, that of each span in each phase that it has something of."""
        items, unlinked = self.items, np.flatnonzero(recorder < 0)
        node = self._element_nodes(unlinked)
        self.pair_node = node[len(unlinked) :]
        placed = np.full(len(items.row), -1, np.int64)
        placed[unlinked] = node[: len(unlinked)]
        above = pick(np.array(self.nodes.parent, np.int64), pick(placed, recorder))
        linked = np.flatnonzero(recorder >= 0)
        kind = np.full(len(linked), _KINDS.index("backward"))
        placed[linked] = self.nodes.children(above[linked], kind, items.name[linked], items.names)
        self.calls += [node, placed[linked]]
        return placed

    def _element_nodes(self, unlinked: Rows) -> Rows:
        """Nodes of these items, then of the spans in each of their phases: in what is around, and repeated blocks."""
        items, spans, count = self.items, self.spans, len(unlinked)
        gap_phase, gap_span = self._gaps()
        pair, phase, span, begin, scope = _pairs(
            np.append(items.phase[unlinked], gap_phase),
            np.append(items.span[unlinked], gap_span),
            np.append(items.start_ns[unlinked], self.start[self.item_of_piece < 0]),
            spans.parent,
            spans.depth,
        )
        self.pair_of_gap = pair[count:]
        scope, phase = np.append(pair[:count], scope), np.append(items.phase[unlinked], phase)
        start, end = np.append(items.start_ns[unlinked], begin), np.append(items.end_ns[unlinked], spans.end_ns[span])
        step = np.append(items.step[unlinked], np.searchsorted(self.begins, begin, side="right") - 1)
        kind = np.append(items.backward[unlinked].astype(np.int64), 2 + spans.kind[span])
        name = np.append(items.name[unlinked], len(items.names) + spans.name[span])
        names = [*items.names, *spans.names]
        depth = np.append(pick(spans.depth, items.span[unlinked]) + 1, spans.depth[span])
        order = np.lexsort((start, scope, phase, step))
        group, _ = grouped([step[order], phase[order], scope[order]])
        loops = nested_loops(name[order], group, MIN_REPEATS)
        first = np.array([starts[0] for starts in loops.starts], np.int64)
        loop_node = np.full(len(loops.parent), -1, np.int64)
        node, owner = np.full((2, len(order)), -1, np.int64)
        owner[order] = loops.owner
        phase_nodes = np.array([*self.phase_nodes, 0], np.int64)
        for level in range(int(depth.max(initial=-1)) + 1):
            around = np.where(scope >= 0, pick(node[count:], scope), phase_nodes[phase])
            for loop in np.flatnonzero(depth[order[first]] == level).tolist():
                outer, starts = int(loops.parent[loop]), order[loops.starts[loop]]
                base = around[starts[0]] if outer < 0 else loop_node[outer]
                body = ", ".join(dict.fromkeys(names[number] for number in loops.body[loop].tolist()))
                loop_node[loop] = block = self.nodes.child(int(base), "block", body)
                end_ns = int(end[order[first[loop] : loops.end[loop]]].max())
                self.blocks.append(RepeatedBlock(block, start[starts], end_ns))
                self.calls.append(np.full(len(starts), block))
            members = np.flatnonzero(depth == level)
            parent = np.where(owner >= 0, pick(loop_node, owner), around)[members]
            node[members] = self.nodes.children(parent, kind[members], name[members], names)
        return node

    def _gaps(self) -> tuple[Rows, Rows]:
        """(phase, innermost span) of each piece between items: the phase of the next item that is not backward."""
        items, gaps = self.items, self.item_of_piece < 0
        before, after = self._neighbours()
        forward = np.flatnonzero(~items.backward)
        place = np.searchsorted(forward, np.where(after >= 0, after, len(items.row)))
        following = pick(forward, np.where(place < len(forward), place, -1))
        step = np.where(before >= 0, pick(items.step, before), pick(items.step, after))
        same = (following >= 0) & (pick(items.step, following) == step)
        last = pick(forward, np.searchsorted(forward, before, side="right") - 1)
        chosen = np.where(same, following, last)
        phase = np.where(chosen >= 0, pick(items.phase, chosen), _OTHER if items.backward.any() else -1)
        return phase[gaps], self.spans.at(self.start[gaps], self.end[gaps])

    def _neighbours(self) -> tuple[Rows, Rows]:
        """The last item at or before each piece and the first at or after it, of its step; -1 for none."""
        item = self.item_of_piece
        place = np.arange(len(item))
        last = np.maximum.accumulate(np.where(item >= 0, place, -1))
        first = np.minimum.accumulate(np.where(item >= 0, place, len(place))[::-1])[::-1]
        return pick(item, last), np.append(item, -1)[first]

    def _pieces(self, node: Rows, parent: Rows, depth: Rows, origin: Rows) -> Pieces:
        """The pieces; those between items are in the innermost region that holds the items around, or a span."""
        before, after = self._neighbours()
        gaps = np.flatnonzero(self.item_of_piece < 0)
        left, right = (pick(parent, pick(node, items[gaps])) for items in (before, after))
        apart = pick(self.items.step, before[gaps]) != pick(self.items.step, after[gaps])
        joint = np.where(apart, -1, _common(left, right, parent, depth))
        scope = np.where(self.pair_of_gap >= 0, pick(self.pair_node, self.pair_of_gap), 0)
        inside = _common(joint, scope, parent, depth) == scope
        result = pick(node, self.item_of_piece)
        both = pick(self.items.backward, before[gaps], False) & pick(self.items.backward, after[gaps], False)
        result[gaps] = np.where((inside | both) & (joint >= 0), joint, scope)
        start = pick(origin, self.item_of_piece)
        start[gaps] = np.where(both, pick(origin, before[gaps]), self.start[gaps])
        return Pieces(self.start, self.end, self.segment, result, start, self.row)


def _pairs(phase: Rows, span: Rows, start: Rows, parent: Rows, depth: Rows) -> tuple[Rows, Rows, Rows, Rows, Rows]:
    """(pair of each input, -1 outside of spans; phase, span, start and pair around of each pair of phase and span)."""
    at, every = pick(depth, span), np.stack((phase, span, start))
    above = np.empty((3, 0), np.int64)
    levels = [above]
    for level in range(int(depth.max(initial=-1)), -1, -1):
        here = np.concatenate((every[:, at == level], above), axis=1)
        number, first = grouped([here[0], here[1]])
        begin = np.full(len(first), np.iinfo(np.int64).max)
        np.minimum.at(begin, number, here[2])
        levels.append(np.stack((*here[:2, first], begin)))
        above = np.stack((here[0, first], pick(parent, here[1, first]), begin))
    phases, spans, begins = np.concatenate(levels[::-1], axis=1)
    stride = len(parent) + 1
    key = (phases + 1) * stride + spans
    pair, around = (
        np.where(inner >= 0, find(key, (of_phase + 1) * stride + inner), -1)
        for of_phase, inner in ((phase, span), (phases, pick(parent, spans)))
    )
    return pair, phases, spans, begins, around


def _common(left: Rows, right: Rows, parent: Rows, depth: Rows) -> Rows:
    """The innermost node that holds both of each two; -1 where one is -1."""
    missing = (left < 0) | (right < 0)
    left, right = np.where(missing, 0, left), np.where(missing, 0, right)
    while len(differ := np.flatnonzero(left != right)):
        deeper = depth[left[differ]] >= depth[right[differ]]
        higher = depth[right[differ]] >= depth[left[differ]]
        left[differ[deeper]] = parent[left[differ[deeper]]]
        right[differ[higher]] = parent[right[differ[higher]]]
    return np.where(missing, -1, left)


def subtree_totals(parent: Rows, values: Floats) -> Floats:
    """Sum of each node's values and of all below it."""
    sums = values.astype(np.float64)
    for node in range(len(parent) - 1, 0, -1):
        sums[parent[node]] += sums[node]
    return sums
