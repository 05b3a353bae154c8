"""The same sequence of small ops runs many times, and one call could do all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, ranges, rank_within
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import Resize
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, limit, rule
from traceanalyzer.rules.gpu_idle.repeated_calls.evaluations import evaluation_hits
from traceanalyzer.timeline.backward_nodes import outer_nodes_of
from traceanalyzer.timeline.loops import exact_loops
from traceanalyzer.timeline.names import OPTIMIZER_MARK

# A recurrent cell needs the state of the call before, DistributedDataParallel calls its own op for each parameter, and
# the backward of layers alone may be that of a model.
_EXCLUDED = regex(
    r"lstm|gru|rnn|Rnn|_cell|Cell|^torch\.distributed|([Mm]m|Convolution|Norm|Attention)\w*Backward"
)
_HEAVY = regex(r"linear|matmul|mm\b|mm_|conv|attention|einsum|(layer|batch|group|instance|rms)_norm")
_PICKS = regex(r"::(select|index|index_select|gather|take|where|nonzero|unbind|item)$")
_GATHERS = r"::(unbind|split|split_with_sizes|chunk|stack|cat|concat|vstack|hstack)$"
_ON_LISTS = regex(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")
_NORMS = regex(r"^aten::(norm|linalg_vector_norm)$")
_SLICES = regex(r"^aten::(slice|narrow|select)$")
# Ops that decide about the next repeat, as in decoding.
_DECODES = regex(r"::(argmax|multinomial|topk|cat|stack|index_copy_|scatter_?|randn?\w*|normal_)$")
# Ops whose result's size depends on data.
_COUNTS = r"^aten::(nonzero|masked_select|_unique2)$"
# Ops before or after the loop.
_NEAR = 2
# Loops of a step and thread, such as layers, an op for each parameter, and a loop of the loss.
_ROUNDS = 3
# Share of the repeats whose shapes differ from those of the repeat before, and of a loop's ops that are nodes of
# another loop; chosen.
_MOST = 0.5
_SIZED = "; before each repeat, the GPU counts the repeat's rows, and the CPU waits for this number"


@dataclass(frozen=True, slots=True)
class Limits:
    min_repeats: int = limit(
        16,
        "a sequence repeats at least this many times in a step; fewer repeats may be the layers of a model",
    )
    few_repeats: int = limit(
        4, "this many repeats are enough if shapes change from repeat to repeat, as with experts of a model"
    )
    max_kernel_ns: int = limit(
        10_000,
        "the kernels take at most this time on average; launching longer kernels less often gains little; H200",
    )
    kernel_floor_ns: int = limit(
        2_000, "for the saving: a nearly empty kernel takes this time; measured: 1.1 to 2 µs, H200"
    )
    max_loop_launches: int = limit(
        16,
        "a repeat with a matrix product launches at most this many kernels; measured per repeat: a loop over "
        "samples launches 6, an expert 13, a small U-Net 36; H200",
    )


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.02, limits=Limits, causes=("evaluated-anew",))
def repeated_calls(calls: Calls, work: Work, idle: IdleTime, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """The same sequence of small ops runs many times a step.

    What it looks for: a sequence of small ops that repeats in a row within a step, usually at least 16 times.
    Each repeat launches tiny kernels. The sequence is often a loop over samples, requests, parameters or a
    list. The cost includes the loop's backward pass.

    The cause `evaluated-anew`: the same network is evaluated several times, with autograd.grad after each,
    before one backward pass. If the inputs are the same, one evaluation is enough. An example is a
    physics-informed network with several residuals.
    Why it costs: every op costs microseconds of CPU time, and every kernel has a start-up time. One call on
    all elements pays both costs only once.
    Bad: `[x[i] * torch.tensor(w[i], device="cuda") for i in range(64)]`. Good: one tensor of all weights, `x
    * torch.tensor(w, device="cuda")[:, None]`.
    How sure: the repetition is measured. The trace does not show whether the repeats are independent. So
    confidence is at most medium. Confidence is low for most repeats with a matrix product: these may be the
    layers of a model.
    When it is wrong: each repeat needs the previous result.
    Source: PyTorch's performance tuning guide; measured on an H200 with torch 2.11.
    """
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    counting_ns = calls.start_ns[calls.name.matches(_COUNTS)]
    by_ops: dict[tuple[str, ...], list[Repeats]] = {}
    for loop in repeats_of(outer[~outer.inside(marks)], work, limits):
        by_ops.setdefault(tuple(sorted(loop.names)), []).append(loop)
    # In another step, some repeats of the same loop may take another branch.
    sure = {
        key: [confidence_of(loop, counting_ns, limits) for loop in loops] for key, loops in by_ops.items()
    }
    chosen = [(loops, next(filter(None, sure[key]))) for key, loops in by_ops.items() if any(sure[key])]
    members = [loops[0].ops.joined([loop.ops for loop in loops]) for loops, _ in chosen]
    nodes = [outer_nodes_of(calls, ops) for ops in members]
    in_backward = np.concatenate([np.empty(0, np.int64), *(each.rows for each, _ in nodes)])
    for (loops, confidence), ops, backward in zip(chosen, members, nodes, strict=True):
        # The backward of a loop counts with that loop.
        if np.isin(ops.rows, in_backward).mean() < _MOST:
            lost, fix = batched(loops, ops, *backward, idle, gpus, limits.kernel_floor_ns)
            hits = _hits(loops, sized=loops[0].is_sized_by_data(counting_ns))
            yield replace(hits, lost=lost, fix=fix, confidence=confidence)
    yield from evaluation_hits(calls, outer, work, idle)


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """One loop within one step: its ops in order, the ops of one repeat, and the work that it launched.

    Attributes:
        end_ns: of the last op, or of an op after it that stacks the results.
        collected: unbind or split comes before the loop, or stack or cat after it.
    """

    ops: Calls
    period: int
    pieces: Work
    end_ns: int
    collected: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.ops[np.arange(self.period)].name.values()))

    @property
    def first_ops(self) -> Calls:
        return self.ops[np.arange(0, len(self.ops), self.period)]

    @property
    def ends_ns(self) -> Rows:
        return np.append(self.first_ops.start_ns[1:], self.end_ns)

    @property
    def shapes_change(self) -> bool:
        """True if in most repeats some op gets other shapes than in the repeat before."""
        dims = self.ops.text("input_dims").code.reshape(-1, self.period)
        return bool((np.diff(dims, axis=0) != 0).any(axis=1).mean() > _MOST)

    def is_sized_by_data(self, counting_ns: Rows) -> bool:
        """True if the device counts the rows of each repeat first, such as the rows of an expert."""
        inside = (counting_ns >= self.ops.start_ns[0]) & (counting_ns < self.end_ns)
        return self.shapes_change and int(inside.sum()) >= len(self.first_ops)


def repeats_of(outer: Calls, work: Work, limits: Limits) -> Iterator[Repeats]:
    """The loops that cover most ops of each step and thread, and launch short work in each repeat."""
    outer = outer.in_order(by_step=True)
    # Ops within a row of equal ops that launch nothing, such as views of parameters, hide a loop.
    same = np.diff(outer.name.code) == 0
    outer = outer[
        ~(np.append(False, same) & np.append(same, False)) | np.isin(outer.rows, work.outer_op.rows)
    ]
    group, _ = grouped([outer.step, outer.thread])
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
                yield Repeats(outer[members.ravel()], members.shape[1], pieces, end_ns, bool(near.any()))


def confidence_of(loop: Repeats, counting_ns: Rows, limits: Limits) -> Confidence | None:
    """Confidence that the loop could be one call; None if it needs its order."""
    names, count = loop.names, len(loop.first_ops)
    picks = loop.collected or any(map(_PICKS.search, names))
    if any(map(_EXCLUDED.search, names)):
        return None
    if loop.is_sized_by_data(counting_ns):
        return Confidence.MEDIUM
    few_launches = len(loop.pieces) <= limits.max_loop_launches * count
    if count < limits.min_repeats:
        return Confidence.LOW if loop.shapes_change and picks and few_launches else None
    if any(map(_HEAVY.search, names)):
        samples = _SLICES.search(names[0]) and not any(map(_DECODES.search, names))
        return Confidence.LOW if samples or (few_launches and picks) else None
    sent = loop.pieces.kind.one_of("copy_h2d").any()
    if loop.collected or sent or loop.shapes_change or all(map(_ON_LISTS.search, names)):
        return Confidence.MEDIUM
    # Other repeats of pointwise ops are left to launch-bound: a CUDA graph helps them.
    return Confidence.LOW if picks else None


def batched(
    loops: Sequence[Repeats],
    ops: Calls,
    nodes: Calls,
    recorder: Rows,
    idle: IdleTime,
    gpus: Gpus,
    floor_ns: int,
) -> tuple[LostTime, tuple[Resize, Batch]]:
    """(idle time by repeat, the edits that leave one repeat of each loop), both with the loops' backward.

    A kernel of few blocks leaves most of the device empty. The same kernels of other repeats then fit next to it.

    Args:
        ops: of all loops.
        nodes, recorder: nodes of backward, and position in `ops` of the op that recorded each.
        floor_ns: duration of a nearly empty kernel, which is paid once.
    """
    period, repeat = loops[0].period, recorder // loops[0].period
    first_ops = ops[np.arange(0, len(ops), period)]
    loop_of = np.repeat(np.arange(len(loops)), [len(loop.first_ops) for loop in loops])
    spans = first_ops.joined([first_ops, nodes])
    ends_ns = np.concatenate([*(loop.ends_ns for loop in loops), nodes.end_ns])
    lost = LostTime.launched_within(idle, spans.start_ns, ends_ns).owned_by(
        np.append(np.arange(len(first_ops)), repeat)
    )
    # Nodes of the same name do the same for other repeats.
    place = rank_within(grouped([repeat, nodes.name.code])[0])
    group = np.append(loop_of, len(loops) + grouped([loop_of[repeat], nodes.name.code, place])[0])
    pieces, owner = ops.joined([ops, nodes]).launched()
    span = np.append(np.arange(len(ops)) // period, len(first_ops) + np.arange(len(nodes)))[owner]
    sms = np.array([gpus[device].sms or 0 for device in pieces.device.tolist()])
    share = np.where((sms > 0) & (pieces.blocks > 0), np.minimum(pieces.blocks / np.maximum(sms, 1), 1), 1.0)
    beyond_start = np.maximum(pieces.dur_ns - floor_ns, 0)
    total = np.bincount(group[span], beyond_start * share, len(spans))[group]
    alone = np.bincount(span, beyond_start, len(spans))
    factor = np.maximum(total / np.maximum(alone, 1), 1)[span]
    resized = Resize(pieces.entries, pieces.dur_ns + beyond_start * (factor - 1))
    return lost, (resized, Batch(spans.start_ns, ends_ns, group))


def _hits(loops: Sequence[Repeats], *, sized: bool) -> Hits:
    """Hits for loops of the same ops, without confidence and times."""
    ops = loops[0].first_ops.joined([loop.first_ops for loop in loops])
    largest = max(loops, key=lambda loop: len(loop.pieces))
    names, pieces = largest.names, largest.pieces
    spans_ns = np.concatenate([loop.ends_ns for loop in loops]) - ops.start_ns
    lines = ops.line.or_else(ops.annotation).sums(spans_ns)
    counted = [f"{name} ({times} times)" if times > 1 else name for name, times in Counter(names).items()]
    others, more = len(counted) - 1, f" and {len(counted) - 4} more" if len(counted) > 4 else ""
    return Hits(
        occurrences=ops,
        named_by=next(iter(lines), None) or names[0] + f" + {others} op{'s' * (others > 1)}" * (others > 0),
        message=("a sequence of {members} ops, {ops}," if len(names) > 1 else "{ops}")
        + " runs {times_a_step} and launches {launches} kernels each time, copies included ({piece} on average)"
        + (", at {lines}" if lines else "")
        + _SIZED * sized,
        advice=loop_advice(names, sent=bool(pieces.kind.one_of("copy_h2d").any()), sized=sized),
        evidence={
            "ops": ", ".join(counted[:4]) + more,
            "members": len(names),
            "repeats": len(largest.first_ops),
            "launches": round(len(pieces) / len(largest.first_ops), 1),
            "piece_ns": round(float(pieces.dur_ns.mean())),
            "lines": lines,
        },
    )


def loop_advice(names: Sequence[str], *, sent: bool = False, sized: bool = False) -> str:
    """Advice to replace the repeats by one call.

    Args:
        sent: the repeats copy from the host.
        sized: the device counts the rows of each repeat.
    """
    if sized:
        return (
            "Sort the rows once by the expert or class that each belongs to (argsort), read all sizes at once "
            "(bincount(...).tolist()), and give each its slice of the sorted rows. Or use one grouped product."
        )
    if any(map(_HEAVY.search, names)):
        return (
            "Stack the inputs, and call the layer or model once. If each call has weights of its own, use bmm, vmap "
            "or a grouped GEMM."
        )
    if sent:
        return "Collect on the host what each repetition copies, copy it once as one tensor, and compute on all of it."
    if set(names) == {"aten::zero_"}:
        return "Set gradients to None instead of zero: zero_grad(set_to_none=True) launches nothing."
    if any(map(_NORMS.search, names)):
        return "Compute all norms with one call of torch._foreach_norm, and read one number."
    if all(name.endswith("_") for name in names):
        return (
            "Update all tensors with one call: torch._foreach_ ops take the whole list. If DistributedDataParallel "
            "copies its buffers, use broadcast_buffers=False if each rank may keep its own."
        )
    return "Stack the inputs and use one op for all of them."
