"""Messages, advice and savings for loops of small ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct, rank_within
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import DropSpans, Edit, Resize, ShrinkSpans
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Hits, IdleTime, LostTime, Work
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import LoopNodes, Repeats
from traceanalyzer.tensors.signatures import signatures_of, tensors

HEAVY = regex(
    r"linear|matmul|mm\b|[Mm]m(Backward|_)|conv|Conv|attention|Attention|lstm|gru|einsum|(layer|batch|group|instance|rms)_norm|NormB"
)
_SLICES = regex(r"::(slice|narrow)$|SliceBackward")
_SUMS = regex(r"^aten::(sum|norm|linalg_vector_norm|mean|\w+_loss|kl_div|cosine_similarity)$")
_LIST_OPS = regex(
    r"^aten::(sum|norm|linalg_vector_norm|mean|pow|square|abs|add_?|mul|sub|to|detach|flatten|view|_?reshape"
    r"|(mse|l1|smooth_l1|huber)_loss|kl_div|cosine_similarity)$"
)
_DISTANCES = regex(r"^aten::(pow|square|abs)$")
_SQUARES = regex(r"^aten::(pow|square|norm|linalg_vector_norm|sum|add_?|mul|to)$")
_TABLES = regex(r"::embedding(_bag)?$|Embedding\w*Backward")
# One block goes through all boxes one by one. A batch of images and classes takes as long as each in turn; H200,
# torch 2.11.
_IN_TURN = "gather_keep_from_mask"
# One call runs its time steps one after the other, too.
_STEPS = (
    r"^aten::(lstm|gru|rnn_\w+|lstm_cell|gru_cell|_cudnn_rnn)$|(CudnnRnn|MiopenRnn|(Lstm|Gru)Cell)\w*Backward"
)
# Runs once a step for each parameter.
_SUMS_UP = regex(r"AccumulateGrad$")
# Marks of torch.
_OPTIMIZER = r"^Optimizer\.(step|zero_grad)#"
_STACK, _ITS_BACKWARD = r"^aten::stack$", r": StackBackward0$"
# Ops after the loop, or before its backward.
_NEAR = 2
_SIZED = "; before each repeat, the GPU counts the repeat's rows, and the CPU waits for this number"


def sums_up_list(names: tuple[str, ...]) -> bool:
    """True if a repeat sums up a tensor, as a penalty or a norm of each parameter."""
    scan = "aten::mul" in names and not any(map(_DISTANCES.search, names))  # of a state, step after step
    return all(map(_LIST_OPS.search, names)) and any(map(_SUMS.search, names)) and not scan


def list_ops(names: tuple[str, ...]) -> str:
    """The first four different ops with counts, and the number of others: `aten::select (twice), aten::copy_`."""
    shown = [
        name if count == 1 else f"{name} ({'twice' if count == 2 else f'{count} times'})"
        for name, count in Counter(names).items()
    ]
    more = len(shown) - 4
    return ", ".join(shown[:4]) + (f" and {more} other op{'s' * (more > 1)}" if more > 0 else "")


def launched_text(kernels: float, copies: float) -> str:
    """The end of a message about the mean launches of a repeat, with fields for counts and times."""
    parts = []
    if kernels:
        parts.append(f"{{kernels}} kernel{'s' * (kernels != 1)} ({{kernel}}{' per kernel' * (kernels != 1)})")
    if copies:
        parts.append(
            f"{{copies}} {'copy' if copies == 1 else 'copies'} ({{copy}}{' per copy' * (copies != 1)})"
        )
    return " and ".join(parts)


def short_name(names: tuple[str, ...]) -> str:
    """The first op, and the number of different others."""
    first, *more = dict.fromkeys(names)
    return f"{first} + {len(more)} op{'s' * (len(more) > 1)}" if more else first


def loop_advice(
    names: tuple[str, ...],
    copies: bool,
    places: Iterable[str] = (),
    *,
    sized: bool = False,
    backward: bool = False,
) -> str:
    """Advice to replace the repeats by one call.

    Args:
        copies: the repeats mostly copy.
        places: lines and annotations of the calls.
        sized: the device counts the rows of each repeat.
        backward: the loop is differentiated.
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
    if sums_up_list(names):
        return _list_advice(names, backward=backward)
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


def _list_advice(names: tuple[str, ...], *, backward: bool) -> str:
    """Advice to sum up a list of tensors at once."""
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
    """Durations of the kernels of the repeat that does the work of all.

    A kernel of few blocks leaves most of the device empty. The same kernels of other repeats then fit next to it, until
    the device is full. The floor of each duration is the start, which is paid once.

    Args:
        starts_ns, ends_ns, group: int64 (repeats,), the repeats, and the loop of each.
        floor_ns: duration of a nearly empty kernel.
    """
    order = np.argsort(starts_ns, kind="stable")
    launch_ns = work.launch.start_ns
    places = np.searchsorted(starts_ns[order], launch_ns, side="right") - 1
    inside = np.flatnonzero(
        (places >= 0) & work.launch.there & (launch_ns < ends_ns[order][np.maximum(places, 0)])
    )
    inside = inside[np.argsort(launch_ns[inside], kind="stable")]
    work, repeat = work[inside], order[places[inside]]
    place = rank_within(repeat)
    own_ns = np.maximum(work.dur_ns - floor_ns, 0) * _device_shares(work, gpus)
    _, key = np.unique(group[repeat] * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    total, longest = np.zeros(int(key.max(initial=-1)) + 1), np.zeros(int(key.max(initial=-1)) + 1)
    np.add.at(total, key, own_ns)
    np.maximum.at(longest, key, work.dur_ns)
    return Resize(work.entries, np.maximum(longest, total + floor_ns)[key])


def _device_shares(work: Work, gpus: Gpus) -> Floats:
    """Share of the device's SMs that each piece of work fills; 1 if unknown."""
    devices = sorted(set(work.device.tolist()))
    sms = np.array([gpus[device].sms or 0 for device in devices], np.float64)
    device_sms = sms[np.searchsorted(devices, work.device)] if devices else np.empty(0)
    limited = (device_sms > 0) & (work.blocks > 0) & ~work.name.matches(_IN_TURN)
    limited &= ~work.outer_op.name.matches(_STEPS)
    return np.where(limited, np.minimum(work.blocks / np.maximum(device_sms, 1.0), 1.0), 1.0)


def fewer_parameters(loops: Sequence[Repeats], calls: Calls) -> tuple[ShrinkSpans, ...]:
    """The edit that shrinks the optimizer's step, because it takes time for each parameter of a repeat.

    Repeats that share their parameters do not sum up gradients in the loop. Then nothing changes.

    Args:
        loops: equal loops of all steps.
        calls: all calls.
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
    """The edit that removes the ops that stack a loop's results, and the backward of these ops.

    Args:
        outer: outermost ops.
    """
    stacks, backward = outer.name.matches(_STACK), outer.name.matches(_ITS_BACKWARD)
    if not (stacks.any() or backward.any()):
        return ()
    op_rows = []
    for loop in loops:
        same = (outer.thread == loop.first_ops.thread[0]) & (outer.step == loop.first_ops.step[0])
        thread_rows = np.flatnonzero(same)
        thread_rows = thread_rows[np.argsort(outer.start_ns[thread_rows], kind="stable")]
        before, after = np.searchsorted(
            outer.start_ns[thread_rows], (loop.first_ops.start_ns[0], loop.ends_ns[-1])
        )
        following, leading = thread_rows[after : after + _NEAR], thread_rows[max(before - _NEAR, 0) : before]
        op_rows += [_stacks_of(outer[following[stacks[following]]], loop.count)]
        op_rows += [outer.rows[leading[backward[leading]]]]
    ops = Calls(outer.events, distinct(np.concatenate(op_rows)))
    return (DropSpans(ops.start_ns, ops.end_ns, stall=False),) if len(ops) else ()


def _stacks_of(stacks: Calls, count: int) -> Rows:
    """Rows of the stacks of `count` tensors. Stacks without shapes count."""
    number, signatures = signatures_of(stacks.events.trace, stacks.rows)
    fits = np.array([not tensors(op) or len(tensors(op)) == count for op in signatures], bool)
    return np.asarray(stacks.rows[fits[number]] if len(stacks) else stacks.rows, np.int64)


def lines_of(ops: Calls, times_ns: Rows) -> dict[str, int]:
    """Time by line of the user's code, or by annotation, longest first."""
    return ops.line.or_else(ops.annotation).sums(times_ns)


@dataclass(frozen=True, slots=True)
class Batching:
    """The time that is lost, and saved, if one repeat could do the work of all.

    Attributes:
        floor_ns: duration of a nearly empty kernel.
    """

    work: Work
    idle: IdleTime
    gpus: Gpus
    floor_ns: int

    def lost(self, starts_ns: Rows, ends_ns: Rows) -> LostTime:
        """Idle time before work that is launched in these spans."""
        return LostTime.launched_within(self.idle, starts_ns, ends_ns)

    def edits(self, starts_ns: Rows, ends_ns: Rows, group: Rows) -> tuple[Resize, Batch]:
        """The edits that leave one span of each group, which does the work of all."""
        grown = batched_work(self.work, starts_ns, ends_ns, group, self.gpus, self.floor_ns)
        return grown, Batch(starts_ns, ends_ns, group)

    def loops(self, loops: list[Repeats], nodes: list[LoopNodes]) -> tuple[LostTime, tuple[Resize, Batch]]:
        """(idle time by repeat, the edits that leave one repeat of each loop), both with the loops' backward.

        Args:
            nodes: the nodes that each loop recorded.
        """
        parts = [(loop.first_ops, loop.ends_ns) for loop in loops]
        parts += [(recorded.nodes, recorded.nodes.end_ns) for recorded in nodes]
        starts = np.concatenate([ops.start_ns for ops, _ in parts])
        ends = np.concatenate([part_ends for _, part_ends in parts])
        before = np.cumsum([0] + [loop.count for loop in loops])
        owner = [np.arange(before[-1])]
        group, groups = [np.full(loop.count, place) for place, loop in enumerate(loops)], len(loops)
        for recorded, first in zip(nodes, before[:-1], strict=True):
            owner.append(recorded.repeat + first)
            group.append(groups + recorded.place)
            groups += int(recorded.place.max(initial=-1)) + 1
        lost = self.lost(starts, ends).owned_by(np.concatenate(owner))
        return lost, self.edits(starts, ends, np.concatenate(group))


def loop_hits(
    loops: list[Repeats],
    backward: list[LoopNodes],
    confidence: Confidence,
    other_edits: tuple[Edit, ...],
    batching: Batching,
    min_copied_share: float,
    *,
    sized: bool,
) -> Hits:
    """Hits for loops of the same ops.

    Args:
        backward: the nodes that each loop recorded.
        other_edits: edits of ops outside the loops that one call makes needless.
        sized: the device counts the rows of each repeat.
    """
    ops = loops[0].first_ops.joined([loop.first_ops for loop in loops])
    lost, fix = batching.loops(loops, backward)
    largest = max(loops, key=lambda loop: loop.launches)
    names, members = largest.names, len(largest.names)
    lines = lines_of(ops, np.concatenate([loop.ends_ns for loop in loops]) - ops.start_ns)
    copies = round(largest.copy_count / largest.count, 1)
    copied = largest.copies and largest.copy_count >= min_copied_share * largest.launches
    kernels = round((largest.launches - largest.copy_count) / largest.count, 1)
    nodes = round(sum(len(recorded.nodes) for recorded in backward) / len(ops), 1)
    kinds = f" to {len(set(names))} different ops" if 1 < len(set(names)) < members else ""
    sequence, listing = f"a sequence of {{members}} calls{kinds} runs {{times_a_step}}", "; the ops are {ops}"
    if members == 1:
        sequence, listing = "{ops} runs {times_a_step}", ""
    preposition = "at" if any(".py(" in line for line in lines) else "in"
    return Hits(
        occurrences=ops,
        named_by=next(iter(lines), None) or short_name(names),
        lost=lost,
        fix=(*fix, *other_edits),
        confidence=confidence,
        message=f"{sequence}; each run launches {launched_text(kernels, copies)}{listing}"
        + (f", {preposition} {{lines}}" if lines else "")
        + ("; each repeat adds {nodes} autograd nodes to backward" if nodes else "")
        + _SIZED * sized,
        advice=loop_advice(names, copied, lines, sized=sized, backward=nodes > 0),
        evidence={
            "ops": list_ops(names),
            "members": members,
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "kernels": kernels,
            "kernel_ns": int(largest.kernel_ns),
            "copies": copies,
            "copy_ns": int(largest.copy_ns),
            **({"nodes": nodes} if nodes else {}),
            "lines": lines,
        },
    )
