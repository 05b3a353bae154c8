"""Loops: sequences of ops that repeat in a row within a step."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, grouped, median, ranges
from traceanalyzer.model.text_queries import regex
from traceanalyzer.rule import Calls, Work
from traceanalyzer.tensors.chains import beside_chain, chain_length, is_layer, read_the_same
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.signatures import signatures_of
from traceanalyzer.timeline.loops import exact_loops

# Alone, it may be the backward of a model.
BACKWARD_OF_LAYERS = regex(r"([Mm]m|Convolution|Norm|Attention)\w*Backward")
_GATHERS = r"::(unbind|split|split_with_sizes|chunk|stack|cat|concat|vstack|hstack)$"
# Ops before or after the loop.
_NEAR = 2
# Loops of a step and thread, such as layers, an op for each parameter, and a loop of the loss.
_ROUNDS = 3
# Ops of other threads between two repeats, over the median: more of them are code between two loops; chosen.
_MORE_BETWEEN = 1.5
# Share of the repeats whose shapes differ from those of the repeat before, and of a loop's ops that are nodes of
# another loop; chosen.
MOST = 0.5
ENGINE = r"^autograd::engine|^torch::autograd"


class Limits:
    min_repeats: int = 16
    """a sequence repeats at least this many times in a step; fewer repeats may be the layers of a model"""
    few_repeats: int = 4
    """this many repeats are enough if shapes change from repeat to repeat, as with experts of a model"""
    max_kernel_ns: int = 10_000
    """the kernels take at most this time on average; launching longer kernels less often gains little; H200"""
    kernel_floor_ns: int = 2_000
    """for the saving: a nearly empty kernel takes this time; measured: 1.1 to 2 µs, H200"""
    max_loop_launches: int = 24
    """a repeat with a matrix product launches at most this many kernels; measured per repeat: a loop over
    samples launches 6, an expert 13, a relation of a graph 17, a small U-Net 36; H200"""
    batched_backward_times: float = 4.0
    """for the saving: autograd.grad(is_grads_batched=True) takes the CPU time of this many passes for one row;
    measured: 3.2 for 4 rows, 5.1 for 16, torch 2.11 on a CPU"""


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """One loop within one step: its ops in order, the ops of one repeat, and the work that it launched."""

    ops: Calls
    period: int
    pieces: Work
    end_ns: int  # of the last op, or of an op after it that stacks the results
    collected: bool  # unbind or split comes before the loop, or stack or cat after it
    between: Rows  # int64 (repeats - 1,), ops of other threads between the repeats: what calls backward in a loop
    part: bool = False  # some ops of each repeat only, which no later repeat needs

    @property
    def place(self) -> Rows:
        """Number of the place of each repeat: more runs between two places, as between stages of a solver."""
        return np.append(0, np.cumsum(self.between > _MORE_BETWEEN * median(self.between)))

    @property
    def calls_backward(self) -> bool:
        return bool(median(self.between) > 0 and self.ops.name.matches(ENGINE).all())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.ops[np.arange(self.period)].name.values()))

    @property
    def first_ops(self) -> Calls:
        return self.ops[np.arange(0, len(self.ops), self.period)]

    @property
    def starts_ns(self) -> Rows:
        return self.first_ops.start_ns

    @property
    def ends_ns(self) -> Rows:
        """End of each repeat: start of the next one of its place; of a part the end of its last op."""
        ends_ns = self.ops.end_ns[self.period - 1 :: self.period]
        if self.part:
            return ends_ns
        return np.append(np.where(np.diff(self.place) > 0, ends_ns[:-1], self.first_ops.start_ns[1:]), self.end_ns)

    def changing(self, pattern: re.Pattern[str]) -> bool:
        """True if an op of such a name gets other inputs in some repeat, or if inputs are not recorded."""
        number, signatures = signatures_of(self.ops.events.trace, self.ops.rows)
        same = (np.diff(number.reshape(-1, self.period), axis=0) == 0).all(axis=0)
        known = any(op.dims for op in signatures)
        chosen = [pattern.search(name) is not None for name in self.names]
        return bool((np.array(chosen) & ~(same & known)).any())

    @property
    def shapes_change(self) -> bool:
        """True if in most repeats some op gets other shapes than in the repeat before."""
        dims = self.ops.text("input_dims").code.reshape(-1, self.period)
        return bool((np.diff(dims, axis=0) != 0).any(axis=1).mean() > MOST)


def repeats_of(outer: Calls, work: Work, limits: Limits) -> Iterator[Repeats]:
    """The loops that cover most ops of each step and thread, and launch short work in each repeat."""
    outer = outer.in_order(by_step=True)
    # Ops within a row of equal ops that launch nothing, such as views of parameters, hide a loop.
    same = np.diff(outer.name.code) == 0
    outer = outer[~(np.append(False, same) & np.append(same, False)) | np.isin(outer.rows, work.outer_op.rows)]
    group, _ = grouped([outer.step, outer.thread])
    yield from loops_in(outer, group, work, limits)


def by_ops(loops: Iterable[Repeats]) -> list[list[Repeats]]:
    """The loops, those of the same ops together."""
    by_ops: dict[tuple[str, ...], list[Repeats]] = {}
    for loop in loops:
        # Where code calls backward in a loop, nodes of views may be missing in the first stage of a solver.
        kinds = filter(BACKWARD_OF_LAYERS.search, loop.names) if loop.calls_backward else loop.names
        by_ops.setdefault(tuple(sorted(kinds)), []).append(loop)
    return list(by_ops.values())


def loops_in(outer: Calls, group: Rows, work: Work, limits: Limits) -> Iterator[Repeats]:
    """As `repeats_of`, in each group of the ops."""
    order = np.argsort(work.outer_op.rows, kind="stable")
    launched = work.outer_op.rows[order]
    first, last = (np.searchsorted(launched, outer.rows, side=side) for side in ("left", "right"))
    gathers, kind = outer.name.matches(_GATHERS), outer.name.code.astype(np.int64)
    for _ in range(_ROUNDS):
        for members in [loop.members for loop in exact_loops(kind, group, limits.few_repeats)]:
            # Codes that equal no other: the next round leaves these ops out.
            kind[members.ravel()] = int(kind.max()) + 1 + members.ravel()
            begin, end = int(members[0, 0]), int(members[-1, -1]) + 1
            pieces = work[order[ranges(first[begin:end], (last - first)[begin:end])[1]]]
            if len(pieces) >= len(members) and pieces.dur_ns.mean() <= limits.max_kernel_ns:
                near = gathers[max(begin - _NEAR, 0) : end + _NEAR]
                stacked = end < len(outer) and group[end] == group[begin] and outer.name[end] == "aten::stack"
                end_ns = int(outer.end_ns[end if stacked else end - 1])
                others = outer[(outer.step == outer.step[begin]) & (outer.thread != outer.thread[begin])]
                between = np.diff(np.searchsorted(np.sort(others.start_ns), outer.start_ns[members[:, 0]]))
                ops = outer[members.ravel()]
                yield Repeats(ops, members.shape[1], pieces, end_ns, bool(near.any()), between)


def chain_length_of(loops: Sequence[Repeats], flow: Flow | None) -> int | None:
    """`chain_length` of the loops; None without an execution trace."""
    return None if flow is None else chain_length(flow, _edges(loops))


def _edges(loops: Iterable[Repeats]) -> Iterator[Rows]:
    for loop in loops:
        for place in distinct(loop.place).tolist():
            yield np.append(loop.starts_ns[loop.place == place], loop.ends_ns[loop.place == place][-1])


def parts_beside_chain(loops: Sequence[Repeats], flow: Flow, limits: Limits) -> Iterator[Repeats]:
    """Of loops whose repeats need each other, the layers of each repeat that no later repeat needs.

    A decoder's output layer and its loss are such; they can run once after the loop. Layers with weights of their own
    in each repeat, such as heads of a network's stages, are none.
    """
    order = np.argsort(flow.ops.rows)
    rows, number = flow.ops.rows[order], flow.number[order]
    beside, layer = beside_chain(flow, _edges(loops))[order], is_layer(flow)[number]
    for loop in loops:
        both = loop.ops.rows[: 2 * loop.period].reshape(2, -1)  # of the first two repeats
        first, second = np.minimum(np.searchsorted(rows, both), len(rows) - 1)
        apart = beside[first] & (rows[first] == both[0]) & (rows[second] == both[1])
        runs = np.split(np.arange(loop.period), np.flatnonzero(np.diff(apart)) + 1)
        runs = [run for run in runs if apart[run[0]] and layer[first[run]].any()]
        if not runs or len(loop.first_ops) < limits.min_repeats or (loop.place > 0).any():
            continue
        chosen = max(runs, key=len)
        layers = chosen[layer[first[chosen]]]
        ops = loop.ops[(np.arange(0, len(loop.ops), loop.period)[:, None] + chosen).ravel()]
        pieces = loop.pieces[np.isin(loop.pieces.outer_op.rows, ops.rows)]
        if len(pieces) and read_the_same(flow, number[first[layers]], number[second[layers]]):
            yield Repeats(ops, len(chosen), pieces, int(ops.end_ns[-1]), True, loop.between, part=True)
