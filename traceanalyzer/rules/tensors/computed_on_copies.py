"""Layers work on rows that were copied before."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import distinct, pick
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import REACHED
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, clamp_to_floor, gpu_time_evidence, reduce_to, rule
from traceanalyzer.tensors.copies import Form, OnCopies, on_copies, steps_by_id, steps_by_size
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.backward_nodes import recording_ops

# Bytes that a gather and its backward move, of those of the gather; chosen.
_BACK_AND_FORTH = 2
_ADVICE = {
    "product-of-copies": "Apply the linear layer before the rows are gathered: multiply the rows once by each part of "
    "its weight, then gather and add the results. The result is the same.",
    "encoded-copies": "Run these layers once on each item, then gather, expand, repeat or unfold their results.",
}


class Limits:
    min_times: float = 1.25
    """at least this many copies of each row on average; fewer save too little; chosen"""
    min_times_by_size: float = 3.0
    """the same without an execution trace; chosen"""
    min_gpu_share: float = 0.05
    """these ops must take at least this share of GPU time; chosen"""
    floor_ns: int = 2_000
    """for the saving: no kernel is predicted to take less than this time; H200, torch 2.11"""


@rule(since="0.4", claims=Claims.WORK, min_share=0.03, limits=Limits, causes=tuple(_ADVICE))
def computed_on_copies(calls: Calls, work: Work, gpus: Gpus, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Layers work on rows that were copied before.

    What it looks for: an op that copies rows (index_select, x[index], repeat, expand, windows that overlap), and
    layers that work on each copy. The findings' causes:
    `product-of-copies`: one linear layer, whose input may be joined by cat with other data.
    `encoded-copies`: several layers, for example a whole network.
    Why it costs: copies of a row give the same result.
    Bad: linear(torch.cat([edges, nodes[source], nodes[target]], -1)). Good: split the weight into three parts.
    x = edges @ w1 + (nodes @ w2)[source] + (nodes @ w3)[target].
    Bad: model(prompts.repeat_interleave(4, 0)). Good: model(prompts), then repeat the cache and the logits.
    How sure: with an execution trace, tensors are identified by their ids, and confidence is high. Without one,
    the order of ops and the numbers of elements show it: medium for one layer, low for several.
    Layers after a dropout in training do not count: it draws numbers for each copy.
    When it is wrong: attention draws random numbers, or its mask differs between copies although it is computed of
    masks that are copied in the same way. Without an execution trace: another tensor of this size is read.
    Saving: the time of forward and backward on all copies but one of each row, less what copying the results and
    adding up their parts moves.
    Source: calculated from the linearity of products; measured on an H200 with torch 2.11.
    """
    ops, number, signatures = top_ops(calls, "shows which rows are copies", in_steps=False)
    forms = [Form.of(op) for op in signatures]
    if flow is None:
        makes = np.array([form.copies or not is_view(form.name) for form in forms], bool)[number]
        ops, number = ops[makes], number[makes]
        steps = steps_by_size(forms, number.tolist())
    else:
        makes = ~flow.recorded.backward[flow.number] & ~flow.view[flow.number]
        recorded = pick(flow.number[makes], ops.index_of_enclosing(flow.ops[makes]))
        ops, number = ops[recorded >= 0], number[recorded >= 0]
        steps = steps_by_id(forms, number.tolist(), flow, recorded[recorded >= 0].tolist())
    makers: dict[int, list[OnCopies]] = {}
    for one in on_copies(steps, limits.min_times_by_size if flow is None else limits.min_times):
        makers.setdefault(one.maker, []).append(one)
    for cause in _ADVICE:
        several = cause == "encoded-copies"
        chosen = [
            one
            for members in makers.values()
            if (layers := max(member.layers for member in members)) and (layers > 1) == several
            for one in members
            if one.layer or several or flow is not None
        ]
        if chosen:
            yield from _hits(cause, chosen, ops, calls, work, gpus, limits, exact=flow is not None)


def _hits(
    cause: str, chosen: list[OnCopies], ops: Calls, calls: Calls, work: Work, gpus: Gpus, limits: Limits, *, exact: bool
) -> Iterator[Hits]:
    places = np.array([one.position for one in chosen])
    needed, moved = np.ones(len(ops) + 1), np.zeros(len(ops) + 1)
    needed[places] = [one.needed_share for one in chosen]
    if cause == "product-of-copies":
        # A network's last result alone is copied.
        moved[places] = [one.moved_bytes for one in chosen]
    owner = work.op.index_of_enclosing(ops)
    recorder = recording_ops(calls, ops, work)
    owner = np.where(needed[owner] < 1, owner, recorder)
    moved *= _BACK_AND_FORTH if (needed[recorder] < 1).any() else 1
    # The sum that is a bias's gradient runs over all rows of what cat has joined.
    joined = np.zeros(len(ops) + 1, bool)
    joined[places] = [one.joined for one in chosen]
    products = work.op.name.meets(lambda name: op_row(name).kind is Kind.GEMM)
    on_copied = (needed[owner] < 1) & work.kind.one_of("compute") & (products | ~joined[owner])
    steps = max(len(distinct(ops.step[places])), 1)
    largest = max(chosen, key=lambda one: one.times)
    confidence = Confidence.HIGH if exact else Confidence.LOW if cause == "encoded-copies" else Confidence.MEDIUM
    for pieces, share in work[on_copied].device_shares(limits.min_gpu_share):
        # What the other order moves in addition is spread over the pieces of each layer.
        added_ns = moved / (gpus.memory_gbps(pieces.device[:1]).item() * REACHED["elementwise"])
        spent_ns = np.bincount(owner[pieces.entries], pieces.dur_ns, len(needed))
        of_op = needed + added_ns / np.maximum(spent_ns, 1)
        needed_ns = np.minimum(pieces.dur_ns * of_op[owner[pieces.entries]], pieces.dur_ns)
        needed_ns = clamp_to_floor(needed_ns, pieces, limits.floor_ns)
        yield Hits(
            **reduce_to(pieces, needed_ns),
            cause=cause,
            message="{layers} ops a step work on rows that {maker} has copied {times_copied} times: {gpu} of GPU "
            "time{where}",
            advice=_ADVICE[cause],
            confidence=confidence,
            evidence=gpu_time_evidence(pieces)
            | {"gpu_share": share, "layers": round(len(chosen) / steps)}
            | {"maker": str(ops.name[largest.maker]), "times_copied": round(largest.times, 1)},
        )
