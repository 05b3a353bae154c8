"""Loops of outermost ops within a step, and the backward nodes that they record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped, ranges, rank_within
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.backward_nodes import backward_nodes_of
from traceanalyzer.timeline.calls_and_work import Calls, Work
from traceanalyzer.timeline.loops import exact_loops

_AUTOGRAD = r"^autograd::engine"
# Adds up the gradient of a parameter. No op records this node.
ADDS_UP = regex(r"AccumulateGrad$")
# Share of a loop's nodes that one other loop records; chosen.
_MIN_NODE_SHARE = 0.75
_ONE_FIRST = regex(r"\[\[1\b")
_NUMBER = regex(r"\d+")
_MIN_CHANGED_SHARE = 0.5
# Ops before or after the loop.
_NEAR = 2
# Loops of a step and thread, such as layers, an op for each parameter, and a loop of the loss.
_ROUNDS = 3
_UNBINDS = r"^aten::unbind$"
_JOINS, _WEIGHTS = r"^aten::(stack|cat)$", regex(r"::(linear|conv\w*|addmm|mm|matmul|\w*norm)$")
_LAYERS = r"^aten::(linear|conv\w*|matmul|b?mm|addmm|baddbmm)$"
_GATHERS = (
    r"::(unbind|split|split_with_sizes|chunk|tensor_split|stack|cat|concat|vstack|hstack)$"
    r"|(^|: )(Stack|Cat|Unbind)Backward"
)


@dataclass(frozen=True, slots=True, eq=False)
class LoopNodes:
    """Nodes of backward that the repeats of a loop recorded, in time.

    Attributes:
        nodes: outermost ops of the nodes.
        repeat: int64 (nodes,), position of the repeat in the loop.
        place: int64 (nodes,), equal for nodes that do the same for other repeats.
    """

    nodes: Calls
    repeat: Rows
    place: Rows

    def without_nodes(self) -> LoopNodes:
        """The same without nodes, because another finding reports them."""
        return LoopNodes(self.nodes[:0], self.repeat[:0], self.place[:0])


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Nodes of backward, by the start of the ops that recorded them.

    Attributes:
        nodes: outermost ops of the nodes.
        begin_ns: int64 (nodes,), start of the op that recorded each node, sorted.
        engine_ns: int64, start of every node, sorted; without nodes that add up gradients of parameters.
    """

    nodes: Calls
    begin_ns: Rows
    engine_ns: Rows

    @classmethod
    def of(cls, calls: Calls, outer: Calls) -> Recorded:
        """The nodes that the outermost ops of all steps recorded."""
        engine = outer.name.matches(_AUTOGRAD)
        forward = outer[~engine]
        nodes, recorder = backward_nodes_of(calls, forward)
        valid = recorder >= 0
        nodes, begin = nodes[valid].outer_op, forward.start_ns[recorder[valid]]
        _, first = np.unique(nodes.rows, return_index=True)
        first = first[nodes.rows[first] >= 0]
        first = first[np.lexsort((nodes.start_ns[first], begin[first]))]
        runs = outer[engine & ~outer.name.meets(ADDS_UP.search)]
        return cls(nodes[first], begin[first], np.sort(runs.start_ns))

    def of_loop(self, loop: Repeats) -> LoopNodes:
        """The nodes that the loop's repeats recorded."""
        starts = loop.first_ops.start_ns
        low, high = np.searchsorted(self.begin_ns, [starts[0], loop.ends_ns[-1]])
        nodes, begin = self.nodes[low:high], self.begin_ns[low:high]
        order = np.argsort(nodes.start_ns, kind="stable")
        nodes, repeat = nodes[order], np.searchsorted(starts, begin[order], side="right") - 1
        each, _ = grouped([repeat, nodes.name.code])
        place, _ = grouped([rank_within(each), nodes.name.code])
        return LoopNodes(nodes, repeat, place)

    def of_chains(self, starts_ns: Rows, ends_ns: Rows) -> tuple[Calls, Rows]:
        """(first op, end) of the backward of each chain of ops; none if many other nodes run between.

        Args:
            starts_ns, ends_ns: int64 (chains,), in time.
        """
        chain = np.searchsorted(starts_ns, self.begin_ns, side="right") - 1
        inside = (chain >= 0) & (self.begin_ns < ends_ns[chain])
        nodes, chain = self.nodes[inside], chain[inside]
        order = np.lexsort((nodes.start_ns, chain))
        nodes, chain = nodes[order], chain[order]
        first, last = np.flatnonzero(np.diff(chain, prepend=-1)), np.flatnonzero(np.diff(chain, append=-1))
        in_time = np.argsort(nodes.start_ns[first], kind="stable")
        first, ends = first[in_time], nodes.end_ns[last][in_time]
        starts = nodes.start_ns[first]
        runs = np.searchsorted(self.engine_ns, ends) - np.searchsorted(self.engine_ns, starts)
        separate = int(runs.sum()) - len(nodes) <= len(starts) and (ends[:-1] <= starts[1:]).all()
        return (nodes[first], ends) if separate else (nodes[:0], ends[:0])

    def runs_between(self, starts_ns: Rows) -> bool:
        """True if backward runs between the repeats: each repeat then needs the one before."""
        low, high = np.searchsorted(self.engine_ns, starts_ns[[0, -1]])
        return bool(low < high)

    def forward_of(self, loop: Repeats, loops: list[LoopNodes]) -> int:
        """Position of the loop that recorded nearly all nodes of a loop in backward; -1 for none."""
        begin, end = loop.first_ops.start_ns[0], loop.ends_ns[-1]
        low, high = np.searchsorted(self.engine_ns, [begin, end])
        counts = [
            int(((other.nodes.start_ns >= begin) & (other.nodes.start_ns < end)).sum()) for other in loops
        ]
        enough = max(counts, default=0) >= _MIN_NODE_SHARE * max(high - low, 1)
        return int(np.argmax(counts)) if enough else -1


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """One loop within one step.

    Attributes:
        first_ops: the first op of each repeat.
        ends_ns: int64 (repeats,), start of the next repeat; the last one ends with its last op.
        names: the ops of one repeat, in order.
        rows: int64 (repeats, ops), the ops of all repeats.
        launches: pieces of work that the loop launched.
        copies: some of them are copies to the device.
        copy_count: number of copies among them, in any direction.
        mean_ns, copy_ns: mean duration of all of them, and of copies.
        splitting_ops: rows of the ops right before the loop that take a tensor apart.
        collected: unbind or split comes before the loop, or stack or cat after it.
        over_parts: each repeat takes one of the parts of a tensor, or makes one of the results that are joined.
        exact: every repeat launches the same kernels on the same grids.
        dims: shapes of the ops' inputs, repeat after repeat.
    """

    first_ops: Calls
    ends_ns: Rows
    names: tuple[str, ...]
    rows: Rows
    launches: int
    copies: bool
    copy_count: int
    mean_ns: float
    copy_ns: float
    splitting_ops: Rows
    collected: bool
    over_parts: bool
    exact: bool
    dims: Texts

    @property
    def count(self) -> int:
        """Number of repeats."""
        return len(self.first_ops)

    @property
    def key(self) -> tuple[str, ...]:
        """Sorted names: equal for loops of the same ops, in any rotation."""
        return tuple(sorted(self.names))

    @property
    def kernel_ns(self) -> float:
        """Mean duration of the kernels in ns, 0 without kernels."""
        return (self.mean_ns * self.launches - self.copy_ns * self.copy_count) / max(
            self.launches - self.copy_count, 1
        )

    @property
    def shapes_change(self) -> bool:
        """True if in most repeats some op gets other shapes than in the repeat before."""
        codes = self.dims.code.reshape(self.count, -1)
        return bool((np.diff(codes, axis=0) != 0).any(axis=1).mean() > _MIN_CHANGED_SHARE)

    @property
    def shapes_grow(self) -> bool:
        """True if inputs grow and never shrink: the loop has a history or a cache."""
        return only_grow(self.dims.code.reshape(self.count, -1), self.dims)

    def has_batch_of_one(self, ops: re.Pattern[str]) -> bool:
        """True if one of these ops gets a first input with first size 1 in the first repeat."""
        op_dims = (self.dims[place] or "" for place in places(ops, self.names))
        return any(map(_ONE_FIRST.match, op_dims))


def repeats_of(outer: Calls, work: Work, least: int, longest_ns: int) -> Iterator[Repeats]:
    """The loops that cover most ops of each step and thread, and launch work in each repeat.

    Args:
        outer: outermost ops.
        work: all work.
        least: minimum number of repeats.
        longest_ns: maximum mean duration of the work. Longer work gains nothing from fewer launches.
    """
    outer = outer[np.argsort(outer.start_ns, kind="stable")]
    group, _ = grouped([outer.step, outer.thread])
    order = np.argsort(group, kind="stable")
    busy = ~_idle_run(outer[order], work)
    outer, group = outer[order[busy]], group[order[busy]]
    names, rows, starts, ends = outer.name, outer.rows, outer.start_ns, outer.end_ns
    trace = outer.events.trace
    dims, launched = outer.text("input_dims"), work.outer_op.rows
    order = np.argsort(launched, kind="stable")
    copying, durations = work.kind.one_of("copy_h2d")[order], work.dur_ns[order]
    moving = work.kind.matches("^copy_")[order]
    first, last = (np.searchsorted(launched[order], rows, side=side) for side in ("left", "right"))
    gathers, layers = names.matches(_GATHERS), names.matches(_LAYERS)
    takes_apart, puts_together = names.matches(_UNBINDS), names.matches(_JOINS)
    kernel, _ = grouped([work.name.code[order], work.blocks[order]])
    took = _sums_before(durations)
    launches_before, ns_before = _sums_before(last - first), _sums_before(took[last] - took[first])
    for members in _loops_of(names.code, group, least):
        begin, end = int(members[0, 0]), int(members[-1, -1]) + 1
        launches, ns = (int(sums[end] - sums[begin]) for sums in (launches_before, ns_before))
        if launches < len(members) or ns > longest_ns * launches:
            continue
        _, entries = ranges(first[begin:end], last[begin:end] - first[begin:end])
        low, high = max(begin - _NEAR, 0), end + _NEAR
        takers = rows[low:begin][takes_apart[low:begin]]
        first_repeat = rows[members[0]], np.flatnonzero(layers[members[0]])
        following = np.append(starts[members[1:, 0]], ends[members[-1, -1]])
        yield Repeats(
            first_ops=outer[members[:, 0]],
            ends_ns=following,
            names=tuple(map(str, names[members[0]].values())),
            rows=rows[members],
            launches=launches,
            copies=bool(copying[entries].any()),
            copy_count=int(moving[entries].sum()),
            mean_ns=ns / launches,
            copy_ns=float(durations[entries][moving[entries]].mean()) if moving[entries].any() else 0.0,
            collected=bool(gathers[low:high].any()),
            splitting_ops=takers,
            over_parts=_takes_unbound_parts(trace, takers, *first_repeat, len(members))
            or _results_are_joined(
                trace, rows[end:high][puts_together[end:high]], *first_repeat, len(members)
            ),
            exact=_exact(
                kernel[entries], (last[begin:end] - first[begin:end]).reshape(members.shape).sum(axis=1)
            ),
            dims=Texts(dims.code[begin:end], dims.names),
        )


def _loops_of(kind: Rows, group: Rows, min_repeats: int) -> Iterator[Rows]:
    """Positions of the ops of loops, int64 (repeats, period): loops that cover most first, then most of the rest."""
    kind = kind.astype(np.int64)
    for _ in range(_ROUNDS):
        loops, unused = exact_loops(kind, group, min_repeats), int(kind.max(initial=0)) + 1
        for loop in loops:
            members = loop.members
            yield members
            # Codes that equal no other: the next round leaves these ops out.
            kind[members.ravel()] = unused + members.ravel()
        if not loops:
            return


@lru_cache(maxsize=1 << 10)
def places(ops: re.Pattern[str], names: tuple[str, ...]) -> tuple[int, ...]:
    """Positions of the names that match. Cached: every step has the same loops."""
    return tuple(place for place, name in enumerate(names) if ops.search(name))


def _idle_run(outer: Calls, work: Work) -> Mask:
    """True for ops within a row of equal ops that launch nothing, such as views of parameters."""
    same = np.diff(outer.name.code) == 0
    between = np.append(False, same) & np.append(same, False)
    return np.asarray(between & ~np.isin(outer.rows, work.outer_op.rows))


def _sums_before(values: Rows) -> Rows:
    """Sum of all values before each position, with the total at the end."""
    return np.concatenate(([0], np.cumsum(values)))


def _takes_unbound_parts(trace: Trace, takers: Rows, repeat: Rows, layers: Rows, count: int) -> bool:
    """True if an op before the loop makes `count` parts, and the first layer of a repeat takes one of them.

    False for two layers in a row: one of them may take a state.

    Args:
        takers: rows of the ops right before the loop that take a tensor apart.
        repeat: rows of the ops of the first repeat.
        layers: which of them are layers.
    """
    if len(takers) == 0 or len(layers) == 0 or (np.diff(layers) == 1).any():
        return False
    _, taking = signatures_of(trace, takers)
    _, (layer, *_) = signatures_of(trace, repeat[layers[:1]])
    layer_input = tensors(layer)[:1]
    return any([part_of(op, count)] == layer_input for op in taking)


def _results_are_joined(trace: Trace, takers: Rows, repeat: Rows, layers: Rows, count: int) -> bool:
    """True if an op after the loop joins `count` results of chains that take no other tensor.

    The first layer's input has another shape than all results of a repeat, so no earlier repeat made it.

    Args:
        takers: rows of the ops right after the loop that put tensors together.
        repeat, layers: as in `_takes_unbound_parts`.
    """
    if len(takers) == 0 or len(layers) == 0:
        return False
    _, putting = signatures_of(trace, takers)
    number, signatures = signatures_of(trace, repeat[layers[0] :])
    begins, *chain = (signatures[which] for which in number.tolist())
    results = {part for op in putting if len(tensors(op)) == count for part in tensors(op)}
    input_shapes = [tensors(op) for op in chain]
    unmixed = all(
        len(shapes) < 2 or _WEIGHTS.search(op.name) for op, shapes in zip(chain, input_shapes, strict=True)
    )
    return (
        len(results) == 1
        and unmixed
        and not {*tensors(begins)[:1]} & (results | {shapes[0] for shapes in input_shapes if shapes})
    )


def part_of(op: Signature, count: int) -> Shape | None:
    """Shape of a part, if the op takes a tensor apart into `count` parts; else None."""
    try:
        shape, dim = op.shape(0), int(op.scalar(1))
        return (*shape[:dim], *shape[dim + 1 :]) if dim >= 0 and shape[dim] == count else None
    except (LookupError, TypeError, ValueError):
        return None


def _exact(kernel: Rows, launches: Rows) -> bool:
    """True if every repeat launches the same kernels in the same order."""
    if (launches != launches[0]).any():
        return False
    each = kernel.reshape(len(launches), -1)
    return bool((each == each[0]).all())


def only_grow(codes: Rows, dims: Texts) -> bool:
    """True if inputs, (repeats, ops), grow and never shrink."""
    changing = codes[:, (codes != codes[0]).any(axis=0)]
    used, place = np.unique(changing, return_inverse=True)
    sizes = np.array([_size(text or "") for text in Texts(used, dims.names).values()])
    return bool(changing.size) and bool((np.diff(sizes[place.reshape(changing.shape)], axis=0) >= 0).all())


@lru_cache(maxsize=1 << 14)
def _size(shapes: str) -> int:
    """Sum of all sizes."""
    return sum(map(int, _NUMBER.findall(shapes)))
