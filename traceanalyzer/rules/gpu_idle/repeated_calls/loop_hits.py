"""What is found and what it would save, of each kind of repeats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropSpans, Edit, Resize, ShrinkSpans
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.replay.segments import rank_within
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Hits, IdleTime, LostTime, Work
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import Evaluations, Passes
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import LoopNodes, Repeats
from traceanalyzer.rules.gpu_idle.repeated_calls.time_steps import LoopInputs, follows
from traceanalyzer.tensors.signatures import signatures_of, tensors

HEAVY = re.compile(
    r"linear|matmul|mm\b|[Mm]m(Backward|_)|conv|Conv|attention|Attention|lstm|gru|einsum|(layer|batch|group|instance|rms)_norm|NormB"
)
_SLICES = re.compile(r"::(slice|narrow)$|SliceBackward")
_SUMS = re.compile(r"^aten::(sum|norm|linalg_vector_norm|mean|\w+_loss|kl_div|cosine_similarity)$")
_LIST_OPS = re.compile(
    r"^aten::(sum|norm|linalg_vector_norm|mean|pow|square|abs|add_?|mul|sub|to|detach|flatten|view|_?reshape"
    r"|(mse|l1|smooth_l1|huber)_loss|kl_div|cosine_similarity)$"
)
_DISTANCES = re.compile(r"^aten::(pow|square|abs)$")
_SQUARES = re.compile(r"^aten::(pow|square|norm|linalg_vector_norm|sum|add_?|mul|to)$")
_TABLES = re.compile(r"::embedding(_bag)?$|Embedding\w*Backward")
# One block goes through all boxes, one after the other: of all images and classes at once it takes as long as of each
# in turn; H200, torch 2.11.
_IN_TURN = "gather_keep_from_mask"
# Time steps come one after the other in one call, too.
_STEPS = (
    r"^aten::(lstm|gru|rnn_\w+|lstm_cell|gru_cell|_cudnn_rnn)$|(CudnnRnn|MiopenRnn|(Lstm|Gru)Cell)\w*Backward"
)
_SUMS_UP = re.compile(r"AccumulateGrad$")  # runs once a step for each tensor of parameters
_OPTIMIZER = r"^Optimizer\.(step|zero_grad)#"  # marks of torch
_STACK, _ITS_BACKWARD = r"^aten::stack$", r": StackBackward0$"
_NEAR = 2  # ops after the loop, or before its backward


def is_of_lists(names: tuple[str, ...]) -> bool:
    """Whether a repeat sums up a tensor, as a penalty or a norm does for each parameter."""
    scan = "aten::mul" in names and not any(map(_DISTANCES.search, names))  # of a state, step after step
    return all(map(_LIST_OPS.search, names)) and any(map(_SUMS.search, names)) and not scan


def listed(names: tuple[str, ...]) -> str:
    """The first four different ops of a repeat, and how many more it has, `aten::select (twice), aten::copy_`."""
    shown = [
        name if count == 1 else f"{name} ({'twice' if count == 2 else f'{count} times'})"
        for name, count in Counter(names).items()
    ]
    more = len(shown) - 4
    return ", ".join(shown[:4]) + (f" and {more} other op{'s' * (more > 1)}" if more > 0 else "")


def launched(kernels: float, copies: float) -> str:
    """What each repeat launches on average: the end of a message with fields for kernels, copies and their times."""
    said = (
        [f"{{kernels}} kernel{'s' * (kernels != 1)} ({{kernel}}{' per kernel' * (kernels != 1)})"]
        if kernels
        else []
    )
    said += (
        [f"{{copies}} {'copy' if copies == 1 else 'copies'} ({{copy}}{' per copy' * (copies != 1)})"]
        if copies
        else []
    )
    return " and ".join(said)


def first_of(names: tuple[str, ...]) -> str:
    """Its first op, and how many different others there are."""
    first, *others = dict.fromkeys(names)
    return f"{first} + {len(others)} op{'s' * (len(others) > 1)}" if others else first


def advised(
    names: tuple[str, ...],
    copies: bool,
    places: Iterable[str] = (),
    *,
    sized: bool = False,
    backward: bool = False,
) -> str:
    """How one call does it for all repeats, in the imperative.

    Args:
        places: lines and annotations that it is called in.
        sized: the device counts the rows of each repeat before it.
        backward: it is differentiated.
    """
    if "torchvision::nms" in names:
        return "Use torchvision.ops.batched_nms: one call for the boxes of all classes."
    if sized:
        return (
            "Sort the rows once by the expert or class that each belongs to (argsort), read the sizes of "
            "all groups at once (bincount(...).tolist()), and give each expert or class its slice of the sorted "
            "rows. Or use one grouped product for all."
        )
    if names == ("aten::zero_",):
        return "Set gradients to None instead of zero: zero_grad(set_to_none=True) launches nothing."
    if any(map(HEAVY.search, names)):
        return (
            "Stack the inputs, and call the layer or model once. If each call has weights of its own, use bmm, vmap "
            "or a grouped GEMM."
        )
    if is_of_lists(names):
        return _of_lists(names, backward=backward)
    if all(map(_SLICES.search, names)):
        return "Take all slices with one op: x.unfold() for overlapping windows, else view or reshape."
    if any(map(_TABLES.search, names)):
        return (
            "Join the tables into one, and add each table's offset to its indices. Then there is one lookup and "
            "one gradient."
        )
    if copies:
        return (
            "Collect on the host what each repetition copies, copy it once as one tensor, and compute on all of it "
            "together."
        )
    if names == ("aten::copy_",):
        buffers = "use broadcast_buffers=False if each rank may keep buffers of its own."
        if any("DistributedDataParallel" in place for place in places):
            return (
                f"DistributedDataParallel copies its buffers to all ranks before each forward pass: {buffers}"
            )
        return (
            "Copy all these tensors with one call: {torch._foreach_copy_} takes lists of them. If "
            f"DistributedDataParallel copies its buffers, {buffers}"
        )
    if all(name.endswith("_") for name in names):
        return "Update all tensors with one call: torch._foreach_ ops take the whole list."
    if not {"aten::norm", "aten::linalg_vector_norm"}.isdisjoint(names):
        return (
            "Compute all norms with one call of torch._foreach_norm, join the results on the device, and read one "
            "number."
        )
    return "Stack the inputs and use one op for all of them."


def _of_lists(names: tuple[str, ...], *, backward: bool) -> str:
    """What sums up a list of tensors at once."""
    if not backward:
        return (
            "Take all tensors at once: torch._foreach_norm (or clip_grad_norm_, which uses it), then one torch.stack "
            "and one op for all results."
        )
    penalty = "An L2 penalty on parameters is the optimizer's weight_decay (of SGD or Adam), at no launches. Else take "
    once = (
        "all tensors at once: one op on stacked tensors of one shape, or torch._foreach_ ops on the list, then one "
        "torch.stack of the results and one sum."
    )
    return (penalty if all(map(_SQUARES.search, names)) else "Take ") + once


def batched_work(
    work: Work, starts_ns: Rows, ends_ns: Rows, group: Rows, gpus: Gpus, floor_ns: int
) -> Resize:
    """Durations of the kernels of the repeat that does all: small grids run side by side until the device is full.

    A kernel of few blocks leaves most of the device empty, so that the same kernel of the other repeats fits beside
    it. Of each duration a floor is the start, which is paid once.

    Args:
        starts_ns, ends_ns, group: int64 (repeats,), the repeats, and the loop of each.
        floor_ns: of a kernel that does next to nothing.
    """
    order = np.argsort(starts_ns, kind="stable")
    launched = work.launch.start_ns
    at = np.searchsorted(starts_ns[order], launched, side="right") - 1
    inside = np.flatnonzero((at >= 0) & work.launch.there & (launched < ends_ns[order][np.maximum(at, 0)]))
    inside = inside[np.argsort(launched[inside], kind="stable")]
    work, repeat = work[inside], order[at[inside]]
    place = rank_within(repeat)
    own_ns = np.maximum(work.dur_ns - floor_ns, 0) * _shares(work, gpus)
    _, key = np.unique(group[repeat] * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    total, longest = np.zeros(int(key.max(initial=-1)) + 1), np.zeros(int(key.max(initial=-1)) + 1)
    np.add.at(total, key, own_ns)
    np.maximum.at(longest, key, work.dur_ns)
    return Resize(work.entries, np.maximum(longest, total + floor_ns)[key])


def _shares(work: Work, gpus: Gpus) -> Floats:
    """Share of the device's multiprocessors that each piece of work fills; 1 where that is unknown or no matter."""
    devices = sorted(set(work.device.tolist()))
    sms = np.array([gpus[device].sms or 0 for device in devices], np.float64)
    own = sms[np.searchsorted(devices, work.device)] if devices else np.empty(0)
    known = (own > 0) & (work.blocks > 0) & ~work.name.matches(_IN_TURN)
    known &= ~work.outer_op.name.matches(_STEPS)
    return np.where(known, np.minimum(work.blocks / np.maximum(own, 1.0), 1.0), 1.0)


def fewer_parameters(loops: Sequence[Repeats], calls: Calls) -> tuple[ShrinkSpans, ...]:
    """The optimizer's Python and ops take time for each tensor: those of the repeats that go take theirs along.

    Where the repeats share their parameters, the sum of their gradients is no part of the loop, and nothing changes.

    Args:
        loops: equal ones, of all steps.
        calls: all of them.
    """
    each = sum(bool(_SUMS_UP.search(name)) for name in loops[0].names)
    if not each:
        return ()
    marks = calls[calls.is_annotation & calls.name.matches(_OPTIMIZER)]
    sums = calls[calls.is_top_op & (calls.step >= 0)]
    parameters = int(sums.name.meets(_SUMS_UP.search).sum())
    if not len(marks) or not parameters:
        return ()
    gone = each * sum(loop.count - 1 for loop in loops)
    return (ShrinkSpans(marks.start_ns, marks.end_ns, max(1 - gone / parameters, 0.0)),)


def stacked_results(loops: Sequence[Repeats], outer: Calls) -> tuple[DropSpans, ...]:
    """The ops that stack the results of each of the loops, and those that take their gradients apart, go.

    Args:
        outer: outermost ops.
    """
    stacks, backward = outer.name.matches(_STACK), outer.name.matches(_ITS_BACKWARD)
    if not (stacks.any() or backward.any()):
        return ()
    found = []
    for loop in loops:
        same = (outer.thread == loop.at.thread[0]) & (outer.step == loop.at.step[0])
        own = np.flatnonzero(same)
        own = own[np.argsort(outer.start_ns[own], kind="stable")]
        before, after = np.searchsorted(outer.start_ns[own], (loop.at.start_ns[0], loop.ends_ns[-1]))
        following, leading = own[after : after + _NEAR], own[max(before - _NEAR, 0) : before]
        found += [_of_so_many(outer[following[stacks[following]]], loop.count)]
        found += [outer.rows[leading[backward[leading]]]]
    ops = Calls(outer.events, distinct(np.concatenate(found)))
    return (DropSpans(ops.start_ns, ops.end_ns, stall=False),) if len(ops) else ()


def _of_so_many(stacks: Calls, count: int) -> Rows:
    """Those of so many tensors, as far as shapes are recorded."""
    number, signatures = signatures_of(stacks.events.trace, stacks.rows)
    fits = np.array([not tensors(one) or len(tensors(one)) == count for one in signatures], bool)
    return np.asarray(stacks.rows[fits[number]] if len(stacks) else stacks.rows, np.int64)


def loop_hits(
    loops: list[Repeats],
    backward: list[LoopNodes],
    sure: Confidence,
    along: tuple[Edit, ...],
    work: Work,
    idle: IdleTime,
    gpus: Gpus,
    floor_ns: int,
    min_copied_share: float,
    *,
    sized: bool,
) -> Hits:
    """Of loops of the same ops.

    Args:
        backward: what each of them recorded.
        along: what else goes when they become one.
    """
    at = loops[0].at.joined([loop.at for loop in loops])
    lost, fix = _saved(loops, backward, work, idle, gpus, floor_ns)
    ends = np.concatenate([loop.ends_ns for loop in loops])
    largest = max(loops, key=lambda loop: loop.launches)
    lines = at.line.or_else(at.annotation).sums(ends - at.start_ns)
    copies = round(largest.moves / largest.count, 1)
    copied = largest.copies and largest.moves >= min_copied_share * largest.launches
    kernels = round((largest.launches - largest.moves) / largest.count, 1)
    nodes = round(sum(len(one.nodes) for one in backward) / len(at), 1)
    ops = len(set(largest.names))
    kinds = f" to {ops} different ops" if 1 < ops < len(largest.names) else ""
    return Hits(
        occurrences=at,
        named_by=next(iter(lines), None) or first_of(largest.names),
        lost=lost,
        fix=(*fix, *along),
        confidence=sure,
        message=(
            f"a sequence of {{members}} calls{kinds} runs {{times_a_step}}"
            if len(largest.names) > 1
            else "{ops} runs {times_a_step}"
        )
        + "; each run launches "
        + launched(kernels, copies)
        + ("; the ops are {ops}" if len(largest.names) > 1 else "")
        + (f", {'at' if any('.py(' in line for line in lines) else 'in'} {{lines}}" if lines else "")
        + ("; each repeat adds {nodes} autograd nodes to backward" if nodes else "")
        + (
            "; before each repeat, the GPU counts the repeat's rows, and the CPU waits for this number"
            if sized
            else ""
        ),
        advice=advised(largest.names, copied, lines, sized=sized, backward=nodes > 0),
        evidence={
            "ops": listed(largest.names),
            "members": len(largest.names),
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "kernels": kernels,
            "kernel_ns": int(largest.kernel_ns),
            "copies": copies,
            "copy_ns": int(largest.move_ns),
            **({"nodes": nodes} if nodes else {}),
            "lines": lines,
        },
    )


def recurrent_hits(
    loops: list[Repeats],
    backward: list[LoopNodes],
    layer: str,
    work: Work,
    idle: IdleTime,
    gpus: Gpus,
    floor_ns: int,
) -> Hits:
    """Of loops that call a recurrent layer with one time step at a time."""
    at = loops[0].at.joined([loop.at for loop in loops])
    lost, fix = _saved(loops, backward, work, idle, gpus, floor_ns)
    largest = max(loops, key=lambda loop: loop.launches)
    lines = at.line.or_else(at.annotation).sums(
        np.concatenate([loop.ends_ns for loop in loops]) - at.start_ns
    )
    others = follows(largest, layer)
    cell = layer.endswith("_cell")
    return Hits(
        occurrences=at,
        cause="recurrent-steps",
        named_by=next(iter(lines), None) or layer,
        lost=lost,
        fix=fix,
        confidence=Confidence.MEDIUM,
        message="{layer} runs {times_a_step}, each time on one time step x[t], and x is known before the loop"
        + ("; {follows} run with it" if others else "")
        + (", at {lines}" if lines else "")
        + "; each repeat launches {launches} kernels or copies, and adds {nodes} autograd nodes to backward",
        advice=("Use nn.LSTM or nn.GRU with the weights of the cell" if cell else "Call the layer")
        + " once on the whole sequence, as in out, state = lstm(x, state)"
        + (", and then what follows (head, loss) once on all of out" if others else "")
        + ". A loop is needed only where the model's own output is the next input, as in sampling.",
        evidence={
            "layer": layer,
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "nodes": round(sum(len(one.nodes) for one in backward) / len(at), 1),
            "follows": listed(others),
            "lines": lines,
        },
    )


def _saved(
    loops: list[Repeats], backward: list[LoopNodes], work: Work, idle: IdleTime, gpus: Gpus, floor_ns: int
) -> tuple[LostTime, tuple[Resize, Batch]]:
    """(idle time by repeat, the edits that leave one repeat of each loop): both with what backward does for them."""
    starts = np.concatenate([one.at.start_ns for one in loops] + [one.nodes.start_ns for one in backward])
    ends = np.concatenate([one.ends_ns for one in loops] + [one.nodes.end_ns for one in backward])
    before = np.cumsum([0] + [one.count for one in loops])
    owner = [np.arange(before[-1])] + [one.repeat + at for one, at in zip(backward, before[:-1], strict=True)]
    group, own = [np.full(one.count, at) for at, one in enumerate(loops)], len(loops)
    for one in backward:
        group.append(own + one.place)
        own += int(one.place.max(initial=-1)) + 1
    groups = np.concatenate(group)
    lost = LostTime.launched_within(idle, starts, ends).owned_by(np.concatenate(owner))
    grown = batched_work(work, starts, ends, groups, gpus, floor_ns)
    return lost, (grown, Batch(starts, ends, groups))


def passes_hits(passes: list[Passes], work: Work, idle: IdleTime, gpus: Gpus, floor_ns: int) -> Hits:
    """Of passes through one network."""
    at = passes[0].at.joined([one.at for one in passes])
    ends = np.concatenate([one.ends_ns for one in passes])
    group = np.repeat(np.arange(len(passes)), [len(one.at) for one in passes])
    ops = at.joined([one.ops for one in passes])
    lines, times = ops.line.or_else(ops.annotation).sums(ops.dur_ns), len(passes[0].at)
    return Hits(
        occurrences=at,
        cause="passes",
        lost=LostTime.launched_within(idle, at.start_ns, ends),
        fix=(
            batched_work(work, at.start_ns, ends, group, gpus, floor_ns),
            Batch(at.start_ns, ends, group),
        ),
        confidence=Confidence.MEDIUM,
        message="the same {members} ops run "
        + ("twice" if times == 2 else "{passes} times")
        + (
            " in a row on tensors of the same shapes, with {launches} launches each time, and then {taker} "
            "combines the results: calls of one network, {times_a_step}"
        )
        + (", at {lines}" if lines else ""),
        advice="Put the inputs into one batch and call the network once: net(torch.cat([a, b])).chunk(2).",
        evidence={
            "members": len(passes[0].names),
            "passes": times,
            "launches": passes[0].launches,
            "taker": passes[0].taker,
            "lines": lines,
        },
    )


def evaluation_hits(found: list[Evaluations], work: Work, idle: IdleTime) -> Hits:
    """Of evaluations of one network, of which the first may do for all."""
    at = found[0].at.joined([one.at[1:] for one in found])
    ends = np.concatenate([one.ends_ns[1:] for one in found])
    nodes = at.joined([one.nodes for one in found])
    before = np.cumsum([0] + [len(one.at) - 1 for one in found])[:-1]
    owner = [one.owner - 1 + own for one, own in zip(found, before, strict=True)]
    starts, stops = np.append(at.start_ns, nodes.start_ns), np.append(ends, nodes.end_ns)
    lost = [LostTime.spent_within(work, starts, stops), LostTime.launched_within(idle, starts, stops)]
    first = found[0]
    lines = at.line.or_else(at.annotation).sums(ends - at.start_ns)
    return Hits(
        occurrences=at,
        cause="evaluated-anew",
        lost=LostTime.joined(lost).owned_by(np.concatenate([np.arange(len(at)), *owner])),
        fix=DropSpans(starts, stops),
        confidence=Confidence.LOW,
        message="one network ({members} ops) is evaluated {passes} times a step on inputs of one shape, {given}, and "
        "differentiated each time before the next; the loss goes backward through each"
        + (", at {lines}" if lines else ""),
        advice="If the inputs are the same, as the points of several residuals: evaluate the network and its "
        "derivatives once, and share them. Other inputs: put them into one batch. The trace shows shapes, not values.",
        evidence={
            "members": len(first.names),
            "passes": len(first.at),
            "given": "x".join(map(str, first.given)),
            "nodes": len(nodes) // len(found),
            "lines": lines,
        },
    )


def inputs_hits(loops: list[LoopInputs], work: Work, idle: IdleTime, gpus: Gpus, floor_ns: int) -> Hits:
    """Of layers in a loop that take x[t] and no state."""
    at = loops[0].at.joined([one.at for one in loops])
    ends = np.concatenate([one.ends_ns for one in loops])
    group = np.concatenate([one.group + 2 * place for place, one in enumerate(loops)])
    one, lines = loops[0], at.line.or_else(at.annotation).sums(at.dur_ns)
    return Hits(
        occurrences=at,
        cause="loop-inputs",
        named_by=next(iter(lines), None) or first_of(one.names),
        lost=LostTime.launched_within(idle, at.start_ns, ends),
        fix=(
            batched_work(work, at.start_ns, ends, group, gpus, floor_ns),
            Batch(at.start_ns, ends, group),
        ),
        confidence=Confidence.MEDIUM,
        message="{ops} run {repeats} times a step in a loop, each time on another part of one tensor, {part} of "
        "{whole}, and on nothing that the loop makes" + (", at {lines}" if lines else ""),
        advice="Run these layers once before the loop, on the whole tensor, and take each repeat's part of the result: "
        "e = encoder(x.flatten(0, 1)).unflatten(0, x.shape[:2]), then e[t]. Layers with different weights in each "
        "repeat need stacked weights and bmm.",
        evidence={
            "ops": listed(one.names),
            "members": len(one.names),
            "repeats": one.repeats,
            "part": "x".join(map(str, one.part)),
            "whole": "x".join(map(str, one.whole)),
            "lines": lines,
        },
    )
