"""The same sequence of small ops runs many times, and one call could do all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import groupby
from typing import Any, TypeVar

from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, Work, limit, rule
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import (
    HEAVY,
    Batching,
    fewer_parameters,
    loop_hits,
    stacked_results,
    sums_up_list,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import (
    evaluation_hits,
    evaluations_of,
    passes_hits,
    passes_of,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import (
    ADDS_UP,
    LoopNodes,
    Recorded,
    Repeats,
    places,
    repeats_of,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.time_steps import (
    CELLS,
    inputs_hits,
    loop_inputs_of,
    recurrent_hits,
    recurrent_layer,
)
from traceanalyzer.timeline.names import OPTIMIZER_MARK

_SELECTS = regex(
    r"::(select|index|index_select|gather|take|where|nonzero|unbind|item)$|(Select|Index|Unbind|Split)Backward"
)
# A check of a distribution's arguments: different distributions look equal by their checks.
_CHECK = "aten::_is_all_true"
# What DistributedDataParallel does for each parameter.
_LIBRARY = regex(r"^torch\.distributed")
# These also run in a chain of ops on one tensor.
_CUTS = regex(r"::(slice|narrow|to|_to_copy)$|SliceBackward")
# Picks the sample of the repeat.
_SLICES = regex(r"::(slice|narrow|select|index|unbind)$")
_DECODES = regex(r"::(argmax|multinomial|topk|cat|stack|index_copy_|scatter_?|randn?\w*|normal_)$")
_TABLES = regex(r"Embedding\w*Backward")
_NODES = regex(r"Backward\d*$").search
_ON_LISTS = regex(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")
_BACKWARD_OR_SUM = regex(r"(Backward\d*|AccumulateGrad)$").search
# Ops whose result's size depends on data.
_COUNTS = r"^aten::(nonzero|masked_select|_unique2)$"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    min_repeats: int = limit(
        16,
        "reported only if a sequence repeats at least this many times in a step; fewer repeats may be the "
        "layers of a model",
    )
    few_repeats: int = limit(
        4,
        "this many repeats are enough if shapes change from repeat to repeat, if each repeat takes one part "
        "of a split or unbound tensor, or if the results are concatenated or stacked",
    )
    min_parts: int = limit(
        8,
        "for loops over time steps: reported only if the loop takes at least this many parts x[t] of a "
        "tensor; chosen",
    )
    max_kernel_ns: int = limit(
        10_000,
        "reported only if the kernels take at most this time on average; launching longer kernels less "
        "often gains little; H200",
    )
    kernel_floor_ns: int = limit(
        2_000,
        "for the saving: a nearly empty kernel is assumed to take this time; measured: 1.1 to 2 µs, H200",
    )
    max_layer_ops: int = limit(
        12,
        "a repeat with a matrix product is reported only if it has at most this many ops; a repeat with "
        "more ops is a layer of a model. A network that is called several times has no such limit",
    )
    max_loop_launches: int = limit(
        16,
        "a repeat with a matrix product is reported only if it launches at most this many kernels; "
        "measured per repeat: a loop over samples launches 6, an expert 13, a small U-Net 36; H200. A "
        "network that is called several times has no such limit",
    )
    min_copied_share: float = limit(
        0.1,
        "if copies are at least this share of a loop's launches, the advice is to build all values on the "
        "host first; chosen",
    )
    min_pass_launches: int = limit(
        40,
        "for a network that is called several times: reported only if a call launches at least this many "
        "kernels or copies; fewer are a layer; chosen",
    )
    min_pass_share: float = limit(
        0.5,
        "for a network that is called several times: reported only if its calls make at least this share "
        "of a step's launches; chosen",
    )


@rule(
    since="0.1",
    claims=Claims.PATTERN,
    min_share=0.02,
    limits=Limits,
    causes=("passes", "loop-inputs", "recurrent-steps", "evaluated-anew"),
)
def repeated_calls(calls: Calls, work: Work, idle: IdleTime, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """The same sequence of small ops runs many times a step.

    What it looks for: a sequence of small ops that repeats in a row within a step, usually at least 16 times.
    Each repeat launches tiny kernels. The sequence is often a loop over samples, requests, parameters or a
    list. The cost includes the loop's backward pass.

    The rule also finds four other kinds of loops. The finding's title names the kind:
    - `passes`: one network is called several times on the same shapes, and one op combines the results. An
      example is classifier-free guidance;
    - `loop-inputs`: in a loop over time steps with a state, some layers need only x[t] and not the state.
      These layers can run once on all of x;
    - `recurrent-steps`: in training, each repeat gives x[t] to an LSTM, GRU or RNN, and all of x is known
      before the loop. One call on the whole sequence needs far fewer launches;
    - `evaluated-anew`: the same network is evaluated several times, with autograd.grad after each, before one
      backward pass. If the inputs are the same, one evaluation is enough. An example is a physics-informed
      network with several residuals.
    Why it costs: every op costs microseconds of CPU time, and every kernel has a start-up time. One call on
    all elements pays both costs only once.
    Bad: `[x[i] * torch.tensor(w[i], device="cuda") for i in range(64)]`. Good: one tensor of all weights, `x
    * torch.tensor(w, device="cuda")[:, None]`.
    How sure: the repetition is measured. The trace does not show whether the repeats are independent. So
    confidence is at most medium. Confidence is low for most repeats with a matrix product: these may be the
    layers of a model.
    When it is wrong: each repeat needs the previous result. Findings of `loop-inputs` and `recurrent-steps`
    are right even then.
    Source: PyTorch's performance tuning guide; measured on an H200 with torch 2.11.
    """
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    recorded, batching = Recorded.of(calls, outer), Batching(work, idle, gpus, limits.kernel_floor_ns)
    loops = list(repeats_of(outer[~outer.inside(marks)], work, limits.few_repeats, limits.max_kernel_ns))
    judge = Judge.of(loops, calls, limits)
    recurrent = _recurrent(loops, recorded, limits.min_parts)
    for (layer, _), steps in recurrent.items():
        nodes = [recorded.of_loop(loop) for loop in steps]
        yield recurrent_hits(steps, nodes, layer, batching)
    candidates = judge.by_ops(_without(loops, recurrent, recorded), recorded)
    for same in _with_backward(candidates, recorded):
        members = [candidate.loop for candidate in same]
        backward = [loop for candidate in same for loop in candidate.backward]
        yield loop_hits(
            members,
            [candidate.nodes for candidate in same],
            same[0].confidence,
            (*fewer_parameters(members, calls), *stacked_results([*members, *backward], outer)),
            batching,
            limits.min_copied_share,
            sized=judge.sized_by_data(members[0]),
        )
    for inputs in _equal(
        loop_inputs_of(outer, recorded, limits.min_parts), lambda each: (each.names, each.whole)
    ):
        yield inputs_hits(inputs, batching)
    passes = passes_of(outer, work, limits.min_pass_launches, limits.min_pass_share)
    # longer kernels fill the device: one call on all inputs takes as long
    small = (each for each in passes if each.ops.launched()[0].dur_ns.mean() <= limits.max_kernel_ns)
    for network in _equal(small, lambda each: each.names):
        yield passes_hits(network, batching)
    for evaluations in _equal(evaluations_of(calls, outer), lambda each: (each.names, each.input_shape)):
        yield evaluation_hits(evaluations, batching)


def _equal(calls: Iterable[T], key: Callable[[T], Any]) -> Iterator[list[T]]:
    """The items with equal keys, sorted by key."""
    for _, items in groupby(sorted(calls, key=key), key=key):
        yield list(items)


def _recurrent(
    loops: list[Repeats], recorded: Recorded, min_parts: int
) -> dict[tuple[str, tuple[str, ...]], list[Repeats]]:
    """Loops in training that call a recurrent layer with x[t], by the layer's name and their ops."""
    by_layer: dict[tuple[str, tuple[str, ...]], list[Repeats]] = {}
    for loop in loops:
        layer = recurrent_layer(loop) if loop.count >= min_parts else ""
        if layer and len(recorded.of_loop(loop).nodes) and not recorded.runs_between(loop.first_ops.start_ns):
            by_layer.setdefault((layer, loop.key), []).append(loop)
    return by_layer


def _without(
    loops: list[Repeats], recurrent: Mapping[Any, list[Repeats]], recorded: Recorded
) -> list[Repeats]:
    """The other loops, without the backward of recurrent ones.

    Loops of cells go, too: a cell takes the state of the repeat before.
    """
    gone = {id(loop) for steps in recurrent.values() for loop in steps}
    gone |= {id(loop) for loop in loops if any(map(CELLS.search, loop.names))}
    nodes = [recorded.of_loop(loop) for loop in loops if id(loop) in gone]
    remaining = [loop for loop in loops if id(loop) not in gone]
    return [loop for loop in remaining if recorded.forward_of(loop, nodes) < 0]


@dataclass(slots=True, eq=False)
class Candidate:
    """A loop that could be one call.

    Attributes:
        nodes: the nodes that the loop recorded.
        backward: loops of these nodes.
    """

    loop: Repeats
    confidence: Confidence
    nodes: LoopNodes
    backward: list[Repeats] = field(default_factory=list)


def _with_backward(
    by_ops: dict[tuple[str, ...], list[Candidate]], recorded: Recorded
) -> Iterator[list[Candidate]]:
    """Loops of the same ops. A loop in backward goes to its forward loop, if that is a candidate.

    If a loop in backward also adds up gradients of parameters, it stays a loop of its own, and its forward loop has no
    nodes: no forward op recorded the sums.
    """
    in_backward = [key for key in by_ops if all(map(_BACKWARD_OR_SUM, key))]
    forward = [candidate for key, same in by_ops.items() if key not in in_backward for candidate in same]
    nodes = [candidate.nodes for candidate in forward]
    for key in in_backward:
        for candidate in list(by_ops[key]):
            place = recorded.forward_of(candidate.loop, nodes)
            if place < 0:
                continue
            if any(map(ADDS_UP.search, key)):
                forward[place].nodes = nodes[place].without_nodes()
            else:
                forward[place].backward.append(candidate.loop)
                by_ops[key].remove(candidate)
    yield from filter(None, by_ops.values())


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides which loops could be one call, by the ops of their repeats.

    Attributes:
        counting: calls whose result's size depends on data.
        counts: numbers of repeats of loops over parts of a tensor, or with a layer. Their backward repeats as often.
    """

    limits: Limits
    counting: Calls
    counts: frozenset[int] = frozenset()

    @classmethod
    def of(cls, loops: list[Repeats], calls: Calls, limits: Limits) -> Judge:
        """For the loops of a trace."""
        judge = cls(limits, calls[calls.name.matches(_COUNTS)])
        counts = (loop.count for loop in loops if loop.over_parts or judge.repeats_layers(loop))
        return replace(judge, counts=frozenset(counts))

    def by_ops(self, loops: list[Repeats], recorded: Recorded) -> dict[tuple[str, ...], list[Candidate]]:
        """The loops that could be one call, by their ops."""
        by_ops: dict[tuple[str, ...], list[Candidate]] = {}
        rejected = []
        for loop in loops:
            confidence = self.confidence(loop)
            if confidence is None:
                rejected.append(loop)
            else:
                candidate = Candidate(loop, confidence, recorded.of_loop(loop))
                by_ops.setdefault(loop.key, []).append(candidate)
        # The same loop in another step, in which some repeats take another branch.
        for loop in rejected:
            if loop.key in by_ops and loop.launches >= loop.count:
                same = by_ops[loop.key]
                same.append(Candidate(loop, same[0].confidence, recorded.of_loop(loop)))
        return by_ops

    def repeats_layers(self, loop: Repeats) -> bool:
        """True for a loop in forward with a layer that could be one call: its backward could be one, too."""
        forward = not self._is_short(loop) and not any(map(_NODES, loop.names))
        return forward and bool(places(HEAVY, loop.names)) and self.confidence(loop) is not None

    def sized_by_data(self, loop: Repeats) -> bool:
        """True if the device counts the rows of each repeat first, such as the rows of an expert."""
        if not loop.shapes_change:
            return False
        starts = self.counting.start_ns
        return int(((starts >= loop.first_ops.start_ns[0]) & (starts < loop.ends_ns[-1])).sum()) >= loop.count

    def confidence(self, loop: Repeats) -> Confidence | None:
        """Confidence that the loop could be one call; None if not."""
        short = self._is_short(loop)
        if any(map(_LIBRARY.search, loop.names)) or (short and _CHECK in loop.names):
            return None
        if places(HEAVY, loop.names):
            return self._confidence_of_layers(loop)
        if short:
            return Confidence.LOW if loop.shapes_change and _picks_or_joins(loop) else None
        lists = sums_up_list(loop.names) or all(map(_ON_LISTS.search, loop.names))
        if loop.collected or loop.copies or loop.shapes_change or lists:
            return Confidence.MEDIUM
        # Other repeats of pointwise ops are left to launch-bound: a CUDA graph helps them.
        picks = places(_SELECTS, loop.names) or any(map(_TABLES.search, loop.names))
        return Confidence.LOW if picks else None

    def _confidence_of_layers(self, loop: Repeats) -> Confidence | None:
        """Confidence for a loop with a layer or another heavy op."""
        short = self._is_short(loop)
        if loop.exact and not short and _SLICES.search(loop.names[0]):
            return None if any(map(_DECODES.search, loop.names)) else Confidence.LOW
        backward = loop.count in self.counts and any(map(_NODES, loop.names))
        if (short and (loop.over_parts or backward)) or self.sized_by_data(loop):
            return Confidence.MEDIUM
        if self._is_iterated(loop):
            return None
        if backward and not short:
            return Confidence.LOW
        small = not short and len(loop.names) <= self.limits.max_layer_ops
        return Confidence.LOW if (small or loop.shapes_change) and _picks_or_joins(loop) else None

    def _is_short(self, loop: Repeats) -> bool:
        return loop.count < self.limits.min_repeats

    def _is_iterated(self, loop: Repeats) -> bool:
        """True for a whole model on a batch or with a history: in denoising and decoding, each call needs the last."""
        whole = loop.launches > self.limits.max_loop_launches * loop.count
        return whole and (not loop.has_batch_of_one(HEAVY) or loop.shapes_grow)


def _picks_or_joins(loop: Repeats) -> bool:
    """True if repeats pick from one tensor, or their results are stacked. Layers of a model do neither."""
    picks = places(_SELECTS, loop.names) or any(map(_CUTS.search, loop.names))
    return bool(picks) or loop.collected
