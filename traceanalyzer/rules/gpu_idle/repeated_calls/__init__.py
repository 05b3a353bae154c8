"""The same few ops again and again, where one call for all of them would do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from traceanalyzer.model.finding import Confidence
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, Work, limit, rule
from traceanalyzer.rules.gpu_idle.repeated_calls.evaluations import evaluations_of
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_backward import Recorded
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_inputs import loop_inputs_of
from traceanalyzer.rules.gpu_idle.repeated_calls.passes import passes_of
from traceanalyzer.rules.gpu_idle.repeated_calls.recurrent_loops import CELLS, recurrent_layer
from traceanalyzer.rules.gpu_idle.repeated_calls.repeat_hits import (
    evaluation_hits,
    inputs_hits,
    loop_hits,
    passes_hits,
    recurrent_hits,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.repeat_texts import HEAVY, is_of_lists
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats, places, repeats_of
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    min_repeats: int = limit(
        16,
        "a sequence must repeat at least this many times in a step; fewer repeats may be the layers of a model",
    )
    few_repeats: int = limit(
        4, "this many repeats are enough if shapes change from repeat to repeat, as in a loop over experts"
    )
    min_parts: int = limit(8, "a loop must take at least this many parts of a tensor; chosen")
    max_kernel_ns: int = limit(
        10_000,
        "kernels may take at most this time on average; launching longer kernels less often gains little; H200",
    )
    kernel_floor_ns: int = limit(
        2_000, "a nearly empty kernel takes this time; it takes 1.1 to 2 µs on an H200"
    )
    max_layer_ops: int = limit(
        12,
        "a repeat with a matrix product may have at most this many ops; more ops are a layer of a model",
    )
    max_loop_launches: int = limit(
        16,
        "a repeat with a matrix product may launch at most this many kernels; a loop over samples launches 6 per "
        "repeat, an expert 13, a small U-Net 36; H200",
    )
    min_copied_share: float = limit(
        0.1,
        "the advice is to build all values on the host first if copies are at least this share of a loop's "
        "launches; chosen",
    )
    min_pass_launches: int = limit(
        40, "a call of a network must launch at least this many kernels or copies; fewer are a layer; chosen"
    )
    min_pass_share: float = limit(
        0.5,
        "the calls of one network must make at least this share of a step's launches; chosen",
    )


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
_IN_BACKWARD = re.compile(r"Backward\d*$").search
_COUNTS = r"^aten::(nonzero|masked_select|_unique2)$"  # the size of what it makes is in the data
_ON_LISTS = re.compile(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")


@rule(
    since="0.1",
    claims=Claims.PATTERN,
    min_share=0.02,
    limits=Limits,
    causes=("passes", "loop-inputs", "recurrent-steps", "evaluated-anew"),
)
def repeated_calls(calls: Calls, work: Work, idle: IdleTime, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """The same sequence of small ops many times a step.

    What it looks for: the shortest sequence of outermost ops that repeats at least 16 times in a row within a
    step and launches tiny kernels each time. This may be a loop over samples, requests, parameters or a list.

    4 repeats are enough in three cases:
    - shapes change from repeat to repeat, as in a loop over experts;
    - a tensor was split or unbound into N parts, and each of N repeats takes one part;
    - the results of the repeats are concatenated or stacked.

    What backward does for the repeats belongs to the loop. The rule also finds a network that is called several
    times in a row on the same shapes, if no call needs the result of another and one op combines the results.
    An example is classifier-free guidance with two calls. Together the calls must make at least half of the
    step's launches. In a loop with a state, it finds layers that take x[t] and no state: an encoder of frames.
    In training it finds an LSTM, GRU or RNN, or a cell, that takes x[t] in repeat t, if x is known before the
    loop: a decoder with teacher forcing. Time steps of one call still run one after the other.
    Last, it finds a network that is evaluated several times on one shape and differentiated each time, all with one
    gradient per parameter: residuals of a differential equation that each evaluate it anew.
    Why it costs: every op costs microseconds of CPU time, and every kernel has a start-up time. One call on all
    elements pays for both only once.
    Bad: `[x[i] * torch.tensor(w[i], device="cuda") for i in range(64)]`. Good: one tensor of all weights, `x *
    torch.tensor(w, device="cuda")[:, None]`.
    How sure: the repetition is measured. That the repeats are independent is not. Confidence is medium if each
    repeat copies or updates one of many tensors, if the results are stacked, and for calls of one network.
    Confidence is low if a repeat has a matrix product, because it may be a layer or a time step. Sequences of
    only pointwise ops are left to launch-bound, because a CUDA graph helps them.
    When it is wrong: each repeat needs the previous result, as in a recurrent network. Iterated models
    (denoising, decoding) are recognised and not reported.
    Source: PyTorch's performance tuning guide; measured on an H200 with torch 2.11.
    """
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    loops: dict[tuple[str, ...], list[tuple[Repeats, Confidence]]] = {}
    counting = calls[calls.name.matches(_COUNTS)]
    every = list(repeats_of(outer[~outer.inside(marks)], work, limits.few_repeats, limits.max_kernel_ns))
    members = {loop.count for loop in every if loop.apart}
    recorded = Recorded.of(calls, outer)
    recurrent = _recurrent(every, recorded, limits)
    for (layer, _), steps in recurrent.items():
        nodes = [recorded.of_loop(loop) for loop in steps]
        yield recurrent_hits(steps, nodes, layer, work, idle, gpus, limits.kernel_floor_ns)
    every = _without(every, recurrent, recorded)
    for loop in every:
        if (sure := _how_sure(loop, limits, counting, members)) is not None:
            loops.setdefault(loop.key, []).append((loop, sure))
    for loop in every:  # of a loop in which some repeats take another branch
        same_ops = loops.get(loop.key, [])
        if same_ops and loop.launches >= loop.count and all(loop is not one for one, _ in same_ops):
            same_ops.append((loop, same_ops[0][1]))
    yield from _of_loops(_joint(loops, recorded), recorded, counting, work, idle, gpus, limits)
    parts = sorted(loop_inputs_of(calls, outer, limits.min_parts), key=lambda one: (one.names, one.whole))
    for _, equal in groupby(parts, key=lambda one: (one.names, one.whole)):
        yield inputs_hits(list(equal), work, idle, gpus, limits.kernel_floor_ns)
    passes = passes_of(outer, work, limits.min_pass_launches, limits.min_pass_share)
    for _, alike in groupby(sorted(passes, key=lambda one: one.names), key=lambda one: one.names):
        yield passes_hits(list(alike), work, idle, gpus, limits.kernel_floor_ns)
    evaluations = sorted(evaluations_of(calls, outer), key=lambda one: one.names)
    for _, same in groupby(evaluations, key=lambda one: (one.names, one.given)):
        yield evaluation_hits(list(same), work, idle)


_Loops = dict[tuple[str, ...], list[tuple[Repeats, Confidence]]]


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


def _joint(loops: _Loops, recorded: Recorded) -> _Loops:
    """Without loops of backward whose forward is among them: what is done there goes with it."""
    back = {key for key in loops if all(map(_IN_BACKWARD, key))}
    nodes = [recorded.of_loop(loop) for key, same in loops.items() if key not in back for loop, _ in same]
    found = {
        key: [one for one in same if not recorded.is_backward_of(one[0], nodes)]
        for key, same in loops.items()
    }
    return {
        key: same if key not in back else found[key]
        for key, same in loops.items()
        if found[key] or key not in back
    }


def _of_loops(
    loops: _Loops,
    recorded: Recorded,
    counting: Calls,
    work: Work,
    idle: IdleTime,
    gpus: Gpus,
    limits: Limits,
) -> Iterator[Hits]:
    for same in loops.values():
        found = [loop for loop, _ in same]
        yield loop_hits(
            found,
            [recorded.of_loop(loop) for loop in found],
            same[0][1],
            work,
            idle,
            gpus,
            limits.kernel_floor_ns,
            limits.min_copied_share,
            sized=_sized_by_data(found[0], counting),
        )


def _sized_by_data(loop: Repeats, counting: Calls) -> bool:
    """Whether each repeat first counts on the device how much it will work on: the rows of an expert by a mask."""
    if not loop.shapes_change:
        return False
    inside = (counting.start_ns >= loop.at.start_ns[0]) & (counting.start_ns < loop.ends_ns[-1])
    return int(inside.sum()) >= loop.count


def _how_sure(loop: Repeats, limits: Limits, counting: Calls, members: set[int]) -> Confidence | None:
    """None where it is no loop that could be one call.

    Args:
        members: how many repeats loops over parts of a tensor have, whose backward repeats as often.
    """
    names = loop.names
    if (loop.count < limits.min_repeats and _CHECK in names) or any(map(_LIBRARY.search, names)):
        return None
    heavy, selects = bool(places(HEAVY, names)), bool(places(_SELECTS, names))
    if heavy and loop.exact and loop.count >= limits.min_repeats and _SLICES.search(names[0]):
        return Confidence.LOW if not any(map(_DECODES.search, names)) else None
    backward = loop.count in members and any(map(_IN_BACKWARD, names))
    parts = loop.count < limits.min_repeats and (loop.apart or backward)
    if heavy and (parts or _sized_by_data(loop, counting)):
        return Confidence.MEDIUM
    if heavy and _is_iterated(loop, limits):
        return None
    if heavy or loop.count < limits.min_repeats:
        many = loop.count >= limits.min_repeats and len(names) <= limits.max_layer_ops
        alike = (
            selects or any(map(_CUTS.search, names)) or loop.collected
        )  # layers neither pick from one tensor nor are their results stacked
        return Confidence.LOW if alike and (many or loop.shapes_change) else None
    many = (
        loop.collected
        or loop.copies
        or loop.shapes_change
        or is_of_lists(names)
        or all(map(_ON_LISTS.search, names))
    )
    return (
        Confidence.MEDIUM if many else Confidence.LOW if selects or any(map(_TABLES.search, names)) else None
    )


def _is_iterated(loop: Repeats, limits: Limits) -> bool:
    """A whole model on a batch, or one that keeps what came before: denoising, decoding; each needs the one before."""
    whole = loop.launches > limits.max_loop_launches * loop.count
    return whole and (not loop.of_one(HEAVY) or loop.shapes_grow)
