"""The same few ops again and again, where one call for all of them would do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Edit
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, Work, limit, rule
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import (
    HEAVY,
    evaluation_hits,
    fewer_parameters,
    inputs_hits,
    is_of_lists,
    loop_hits,
    passes_hits,
    recurrent_hits,
    stacked_results,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import evaluations_of, passes_of
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import (
    ADDS_UP,
    LoopNodes,
    Recorded,
    Repeats,
    places,
    repeats_of,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.time_steps import CELLS, loop_inputs_of, recurrent_layer
from traceanalyzer.timeline.names import OPTIMIZER_MARK

_SELECTS = re.compile(
    r"::(select|index|index_select|gather|take|where|nonzero|unbind|item)$|(Select|Index|Unbind|Split)Backward"
)
_CHECK = (
    "aten::_is_all_true"  # of a distribution's arguments: different distributions look alike by their checks
)
_LIBRARY = re.compile(r"^torch\.distributed")  # what DistributedDataParallel does for each parameter
_CUTS = re.compile(
    r"::(slice|narrow|to|_to_copy)$|SliceBackward"
)  # also on the way of one tensor through a chain
_SLICES = re.compile(r"::(slice|narrow|select|index|unbind)$")  # picks the sample that the repeat is about
_DECODES = re.compile(r"::(argmax|multinomial|topk|cat|stack|index_copy_|scatter_?|randn?\w*|normal_)$")
_TABLES = re.compile(r"Embedding\w*Backward")
_NODES = re.compile(r"Backward\d*$").search
_ON_LISTS = re.compile(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")
_IN_BACKWARD = re.compile(r"(Backward\d*|AccumulateGrad)$").search
_COUNTS = r"^aten::(nonzero|masked_select|_unique2)$"  # the size of what it makes is in the data
_Loops = dict[tuple[str, ...], list[tuple[Repeats, Confidence]]]


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
    loops: dict[tuple[str, ...], list[tuple[Repeats, Confidence]]] = {}
    counting = calls[calls.name.matches(_COUNTS)]
    every = list(repeats_of(outer[~outer.inside(marks)], work, limits.few_repeats, limits.max_kernel_ns))
    members = {loop.count for loop in every if loop.apart}
    members |= {loop.count for loop in every if of_layers(loop, limits, counting, members)}
    recorded = Recorded.of(calls, outer)
    recurrent = _recurrent(every, recorded, limits)
    for (layer, _), steps in recurrent.items():
        nodes = [recorded.of_loop(loop) for loop in steps]
        yield recurrent_hits(steps, nodes, layer, work, idle, gpus, limits.kernel_floor_ns)
    every = _without(every, recurrent, recorded)
    for loop in every:
        if (sure := how_sure(loop, limits, counting, members)) is not None:
            loops.setdefault(loop.key, []).append((loop, sure))
    for loop in every:  # of a loop in which some repeats take another branch
        same_ops = loops.get(loop.key, [])
        if same_ops and loop.launches >= loop.count and all(loop is not one for one, _ in same_ops):
            same_ops.append((loop, same_ops[0][1]))
    for found, sure, nodes, along in _joint(loops, recorded, calls, outer):
        shares = limits.kernel_floor_ns, limits.min_copied_share
        sized = sized_by_data(found[0], counting)
        yield loop_hits(found, nodes, sure, along, work, idle, gpus, *shares, sized=sized)
    parts = sorted(loop_inputs_of(calls, outer, limits.min_parts), key=lambda one: (one.names, one.whole))
    for _, equal in groupby(parts, key=lambda one: (one.names, one.whole)):
        yield inputs_hits(list(equal), work, idle, gpus, limits.kernel_floor_ns)
    passes = passes_of(outer, work, limits.min_pass_launches, limits.min_pass_share)
    for _, alike in groupby(sorted(passes, key=lambda one: one.names), key=lambda one: one.names):
        yield passes_hits(list(alike), work, idle, gpus, limits.kernel_floor_ns)
    evaluations = sorted(evaluations_of(calls, outer), key=lambda one: one.names)
    for _, same in groupby(evaluations, key=lambda one: (one.names, one.given)):
        yield evaluation_hits(list(same), work, idle)


def _recurrent(
    every: list[Repeats], recorded: Recorded, limits: Limits
) -> dict[tuple[str, tuple[str, ...]], list[Repeats]]:
    """Loops in training that call a recurrent layer with x[t], by the layer's name and their ops."""
    found: dict[tuple[str, tuple[str, ...]], list[Repeats]] = {}
    for loop in every:
        layer = recurrent_layer(loop) if loop.count >= limits.min_parts else ""
        if layer and len(recorded.of_loop(loop).nodes) and not recorded.runs_between(loop):
            found.setdefault((layer, loop.key), []).append(loop)
    return found


def _without(
    every: list[Repeats], recurrent: Mapping[Any, list[Repeats]], recorded: Recorded
) -> list[Repeats]:
    """The other loops, without their backward; nor those of cells, which take the state of the repeat before."""
    own = [loop for loops in recurrent.values() for loop in loops]
    own += [loop for loop in every if any(map(CELLS.search, loop.names))]
    nodes = [recorded.of_loop(loop) for loop in own]
    others = [loop for loop in every if all(loop is not one for one in own)]
    return [loop for loop in others if not recorded.is_backward_of(loop, nodes)] if own else others


def _joint(
    loops: _Loops, recorded: Recorded, calls: Calls, outer: Calls
) -> Iterator[tuple[list[Repeats], Confidence, list[LoopNodes], tuple[Edit, ...]]]:
    """Loops of equal ops, how sure, what they recorded, and what else their fix takes along.

    A loop of backward goes with its forward, where that is among them. Those that also add up gradients of parameters
    are told apart: what they add belongs to no op of forward.
    """
    forward = [(key, loop) for key, same in loops.items() if not _is_backward(key) for loop, _ in same]
    nodes = [recorded.of_loop(loop) for _, loop in forward]
    known = {id(loop): one for (_, loop), one in zip(forward, nodes, strict=True)}
    gone: dict[tuple[str, ...], list[Repeats]] = {}
    kept = {key: list(same) for key, same in loops.items()}
    for key, same in loops.items():
        for one in same if _is_backward(key) else ():
            place = recorded.forward_of(one[0], nodes)
            if place < 0:
                continue
            if any(map(ADDS_UP.search, key)):
                known[id(forward[place][1])] = nodes[place].none()
            else:
                gone.setdefault(forward[place][0], []).append(one[0])
                kept[key].remove(one)
    for key, same in kept.items():
        found = [loop for loop, _ in same]
        if found:
            own = [known.get(id(loop)) or recorded.of_loop(loop) for loop in found]
            along: tuple[Edit, ...] = (
                *fewer_parameters(found, calls),
                *stacked_results([*found, *gone.get(key, ())], outer),
            )
            yield found, same[0][1], own, along


def _is_backward(key: tuple[str, ...]) -> bool:
    return all(map(_IN_BACKWARD, key))


class Least(Protocol):
    """Limits of the rule."""

    @property
    def min_repeats(self) -> int: ...
    @property
    def max_layer_ops(self) -> int: ...
    @property
    def max_loop_launches(self) -> int: ...


def sized_by_data(loop: Repeats, counting: Calls) -> bool:
    """Whether each repeat first counts on the device how much it will work on: the rows of an expert by a mask."""
    if not loop.shapes_change:
        return False
    inside = (counting.start_ns >= loop.at.start_ns[0]) & (counting.start_ns < loop.ends_ns[-1])
    return int(inside.sum()) >= loop.count


def how_sure(loop: Repeats, limits: Least, counting: Calls, members: set[int]) -> Confidence | None:
    """None where it is no loop that could be one call.

    Args:
        members: how many repeats loops over parts of a tensor or with a layer have, whose backward repeats as often.
    """
    names = loop.names
    if (loop.count < limits.min_repeats and _CHECK in names) or any(map(_LIBRARY.search, names)):
        return None
    heavy, selects = bool(places(HEAVY, names)), bool(places(_SELECTS, names))
    if heavy and loop.exact and loop.count >= limits.min_repeats and _SLICES.search(names[0]):
        return Confidence.LOW if not any(map(_DECODES.search, names)) else None
    backward = loop.count in members and any(map(_NODES, names))
    parts = loop.count < limits.min_repeats and (loop.apart or backward)
    if heavy and (parts or sized_by_data(loop, counting)):
        return Confidence.MEDIUM
    if heavy and _is_iterated(loop, limits):
        return None
    if heavy and backward and loop.count >= limits.min_repeats:
        return Confidence.LOW
    if heavy or loop.count < limits.min_repeats:
        many = loop.count >= limits.min_repeats and len(names) <= limits.max_layer_ops
        alike = (
            selects or any(map(_CUTS.search, names)) or loop.collected
        )  # layers neither pick from one tensor nor are their results stacked
        return Confidence.LOW if alike and (many or loop.shapes_change) else None
    lists = is_of_lists(names) or all(map(_ON_LISTS.search, names))
    # other repeats of pointwise ops alone are not reported: a CUDA graph helps them (launch-bound)
    many = loop.collected or loop.copies or loop.shapes_change or lists
    return (
        Confidence.MEDIUM if many else Confidence.LOW if selects or any(map(_TABLES.search, names)) else None
    )


def of_layers(loop: Repeats, limits: Least, counting: Calls, members: set[int]) -> bool:
    """Whether it is a loop with a layer in the forward pass that could be one call: so could its backward."""
    forward = loop.count >= limits.min_repeats and not any(map(_NODES, loop.names))
    return (
        forward and bool(places(HEAVY, loop.names)) and how_sure(loop, limits, counting, members) is not None
    )


def _is_iterated(loop: Repeats, limits: Least) -> bool:
    """A whole model on a batch, or one that keeps what came before: denoising, decoding; each needs the one before."""
    whole = loop.launches > limits.max_loop_launches * loop.count
    return whole and (not loop.of_one(HEAVY) or loop.shapes_grow)
