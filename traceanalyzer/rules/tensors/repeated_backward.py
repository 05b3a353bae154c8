"""Backward passes that go through the same graph again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence

_NODE = r"^[^:]+Backward\d*$"
_SUMS = r"AccumulateGrad$"
_MESSAGES = {
    "": (
        "in each step, backward repeats {again} of {nodes} autograd nodes; the repeats take {spent} of GPU time a "
        "step, in {ops}"
    ),
    "inputs": (
        "backward goes through the same graphs {passes} more times a step, from the same outputs and "
        "gradient, for other inputs: {again} of {nodes} nodes, {spent} of GPU time a step, in {ops}"
    ),
}
_ADVICE = {
    "": "Add the losses and call backward once. Where nothing uses the gradient of a loss's input, detach this input.",
    "inputs": "Ask for the gradients of all inputs in one call: torch.autograd.grad(u, (x, y, t), create_graph=True).",
}
EVALUATION = f"^{ENGINE}"
_SUM = r"^(Sum|Mean)Backward\d$"
_ONES = ("aten::ones_like", "aten::ones")


@dataclass(frozen=True, slots=True)
class Limits:
    min_again_share: float = limit(
        0.05,
        "reported only if at least this share of the backward nodes runs again; a smaller share is one "
        "shared layer",
    )


@rule(since="0.1", claims=Claims.PATTERN, causes=("inputs",), limits=Limits)
def repeated_backward(trace: Trace, calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Backward passes run the same autograd nodes several times.

    What it looks for: backward nodes that run again, in two cases:
    - a second backward pass goes through a graph that the first pass kept (retain_graph=True);
    - torch.autograd.grad is called several times for one output, with a different input in each call.
    Why it costs: every pass computes all gradients on its way. For several losses, one pass over their sum
    often gives the same gradients. In a GAN, the backward pass of the discriminator's loss may also compute
    gradients of the generator, which nobody uses.
    Bad: loss_a.backward(retain_graph=True) and then loss_b.backward(); a discriminator's loss on images that
    are not detached; grad(u, x) and then grad(u, y). Good: (loss_a + loss_b).backward();
    discriminator(images.detach()); grad(u, (x, y)).
    How sure: the recorded sequence numbers show that a node runs again.
    When it is wrong: the passes cannot be joined. For example, the program compares the gradients of several
    losses.
    Source: torch.autograd.backward, "retain_graph", in PyTorch's documentation.
    """
    nodes = calls[calls.is_op & calls.name.matches(_NODE)]
    if len(nodes) and (pick(ints(trace.lanes.cpu, "sequence"), nodes.rows) == NULL_INT).all():
        raise Unavailable("no sequence numbers in the trace", "record with a released torch.profiler")
    passes = Passes.build(calls, nodes)
    nodes, same = passes.nodes, passes.repeated(calls)
    repeated = _repeated_nodes(trace, calls, nodes) & ~same
    for again, seeds, cause in ((repeated, nodes[:0], ""), (same, passes.seeds(same), "inputs")):
        if again.sum() > limits.min_again_share * len(nodes):
            yield _hits(calls, nodes, again, seeds, cause)


def _hits(calls: Calls, nodes: Calls, again: Mask, seeds: Calls, cause: str) -> Hits:
    passes = _with_sums(calls, nodes[again])
    spent, owner = passes.launched()
    steps = max(len(distinct(passes.step[passes.step >= 0])), 1)
    lines = seeds.line.sums(seeds.dur_ns)
    return Hits(
        occurrences=passes,
        cause=cause,
        lost=LostTime.all_of(spent, owner),
        fix=Drop(passes.joined([passes, seeds]).rows),
        message=_MESSAGES[cause] + (", from {lines}" if lines else ""),
        advice=_ADVICE[cause],
        evidence={
            **gpu_time_evidence(spent),
            "again": round(int(again.sum()) / steps),
            "nodes": round(len(nodes) / steps),
            "passes": round(len(seeds) / steps),
            "spent_ns": spent.total_ns // steps,
            "lines": lines,
        },
    )


def _repeated_nodes(trace: Trace, calls: Calls, nodes: Calls) -> Mask:
    """Nodes that were computed before; bool of shape (nodes,)."""
    sequence = pick(ints(trace.lanes.cpu, "sequence"), nodes.rows)
    thread = pick(ints(trace.lanes.cpu, "fwd_thread"), nodes.rows)
    number, _ = grouped([sequence, thread, nodes.name.code])
    order = np.lexsort((nodes.start_ns, number))
    later = np.zeros(len(nodes), np.bool_)
    later[order[1:]] = number[order[1:]] == number[order[:-1]]
    recorded = calls[pick(ints(trace.lanes.cpu, "sequence"), calls.rows) != NULL_INT].parent.rows
    # with create_graph=True a second pass is usually needed
    twice_differentiable = np.isin(number, number[np.isin(nodes.rows, recorded)])
    return np.asarray(later & (sequence != NULL_INT) & ~twice_differentiable)


def _with_sums(calls: Calls, again: Calls) -> Calls:
    """The engine's evaluations of these nodes, and of the sums of gradients that follow on them."""
    every = calls[calls.name.matches(EVALUATION)]
    every = every[np.lexsort((every.start_ns, every.thread))]
    in_parents = np.isin(every.rows, again.parent.rows)
    sum_before = np.maximum.accumulate(np.where(every.name.matches(_SUMS), 0, np.arange(len(every))))
    return every[in_parents[sum_before]] if in_parents.any() else again


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """Passes that began from a gradient of ones, which the op right before them made.

    Attributes:
        nodes: the nodes of all passes, by start.
        number: int64 (nodes,), the pass of each node, -1 for none.
        sequence: int64 (nodes,), the number of what was recorded, NULL_INT where none is known.
        recorder: int64 (nodes,), the thread that numbered it, NULL_INT where none is known.
        seed: the op that made the ones, for each pass; missing where another gradient was given.
    """

    nodes: Calls
    number: Rows
    sequence: Rows
    recorder: Rows
    seed: Calls

    @classmethod
    def build(cls, calls: Calls, nodes: Calls) -> Self:
        """A pass ends where something else than the engine calls an op: the caller waits for the engine."""
        top = calls[calls.is_top_op]
        top = top[np.argsort(top.start_ns, kind="stable")]
        engine = top.name.matches(EVALUATION)
        before = np.concatenate(([-1], np.arange(len(top) - 1)))[: len(top)]
        begins = engine & ~pick(engine, before, False)
        nodes = nodes[np.argsort(nodes.start_ns, kind="stable")]
        number = pick(np.where(engine, np.cumsum(begins) - 1, -1), nodes.index_of_enclosing(top))
        caller = Calls(calls.events, pick(top.rows, before[begins]))
        seed = Calls(calls.events, np.where(caller.name.one_of(*_ONES), caller.rows, -1))
        cpu = calls.events.trace.lanes.cpu
        sequence = pick(ints(cpu, "sequence"), nodes.rows, NULL_INT)
        recorder = pick(ints(cpu, "fwd_thread"), nodes.rows, NULL_INT)
        return cls(nodes, number, sequence, recorder, seed)

    def repeated(self, calls: Calls) -> Mask:
        """Nodes that passes from the same ones run again, and the same of what these passes recorded; (nodes,)."""
        first, root = self._first_alike()
        same = np.where(self.number >= 0, pick(first, self.number), -1)
        group, _ = grouped([same, self._key()])
        later = (same >= 0) & (pick(first, self.number) < self.number)
        repeated = later & (_seen_before(group) | np.isin(np.arange(len(later)), root))
        copied, place = self._nodes_recorded(calls, first)
        group, _ = grouped([np.where(copied, self.number, -1), place, self.nodes.name.code])
        return np.asarray(repeated | (copied & (place >= 0) & _seen_before(group)))

    def seeds(self, again: Mask) -> Calls:
        """The ones of passes of which each node is run again."""
        passes = len(self.seed)
        nodes = np.bincount(self.number[self.number >= 0], minlength=passes)
        gone = np.bincount(self.number[again], minlength=passes)
        return self.seed[(gone > 0) & (gone == nodes)].distinct()

    def _key(self) -> Rows:
        """Equal for the same node that got gradients of the same outputs and shapes."""
        nodes = self.nodes
        inputs = nodes.text("input_type").code, nodes.text("input_dims").code
        return grouped([self.sequence, self.recorder, nodes.name.code, *inputs])[0]

    def _first_alike(self) -> tuple[Rows, Rows]:
        """(the first pass that began with ones at the same node as each, -1 for other passes; the node it began at).

        Two sums of one output are two nodes: the node after them, with its inputs, separates them. int64 (passes,).
        """
        root, after = (np.full(len(self.seed), -1, np.int64) for _ in range(2))
        inside = np.flatnonzero(self.number >= 0)[::-1]
        # The last assignment wins, so this is the first node.
        root[self.number[inside]] = inside
        inside = inside[~np.isin(inside, root)]
        after[self.number[inside]] = inside
        sums = pick(self.nodes.name.matches(_SUM), root, False) & (after >= 0)
        begin = np.where(sums, after, root)
        seeded = self.seed.there & (begin >= 0) & (pick(self.sequence, begin, NULL_INT) != NULL_INT)
        kind = np.where(sums, pick(self.nodes.name.code, root), -1)
        key = np.where(seeded, grouped([pick(self._key(), begin), kind])[0], -1 - np.arange(len(root)))
        group, first = grouped([key]) if len(key) else (key, key)
        return np.where(seeded, first[group], -1) if len(key) else key, root

    def _nodes_recorded(self, calls: Calls, first: Rows) -> tuple[Mask, Rows]:
        """(nodes of what alike passes recorded, equal where it is the same of another such pass); (nodes,)."""
        alike = np.flatnonzero(
            (first >= 0) & (np.bincount(first[first >= 0], minlength=len(first))[first] > 1)
        )
        if len(alike) == 0:
            return np.zeros(len(self.nodes), bool), np.full(len(self.nodes), -1, np.int64)
        sequence = pick(ints(calls.events.trace.lanes.cpu, "sequence"), calls.rows, NULL_INT)
        numbered = calls.is_op & (sequence != NULL_INT)
        numbered[np.searchsorted(calls.rows, distinct(self.nodes.rows))] = False
        within = calls[numbered].parent.index_of_enclosing(self.nodes)
        number = np.where(within >= 0, pick(self.number, within), -1)
        alike_passes = np.isin(number, alike)
        number, sequence = number[alike_passes], sequence[numbered][alike_passes]
        low = np.full(len(first), np.iinfo(np.int64).max)
        high = np.full(len(first), -1, np.int64)
        np.minimum.at(low, number, sequence)
        np.maximum.at(high, number, sequence)
        passes = distinct(number)
        passes = passes[np.argsort(low[passes])]
        position = np.searchsorted(low[passes], self.sequence, side="right") - 1
        recorded_by = np.where(position >= 0, pick(passes, position), -1)
        copied = (
            (recorded_by >= 0)
            & (self.sequence <= pick(high, recorded_by))
            & (self.number > recorded_by)
            & self._recorded_in(recorded_by)
        )
        place, _ = grouped([pick(first, recorded_by), self.sequence - pick(low, recorded_by)])
        return copied, np.where(copied, place, -1)

    def _recorded_in(self, numbers: Rows) -> Mask:
        """Whether a node's numbers count on the thread that ran a pass: each thread numbers what it records."""
        ran = np.full(len(self.seed), -1, np.int64)
        ran_for = np.full(len(self.seed), -1, np.int64)
        inside = np.flatnonzero(self.number >= 0)
        ran[self.number[inside]] = self.nodes.thread[inside]
        ran_for[self.number[inside]] = self.recorder[inside]
        one_thread = ran == self.seed.thread
        return np.asarray((self.recorder == pick(ran_for, numbers)) == pick(one_thread, numbers, False))


def _seen_before(group: Rows) -> Mask:
    """Whether a row of the same group came before each."""
    _, first = grouped([group])
    later = np.ones(len(group), bool)
    later[first] = False
    return later
