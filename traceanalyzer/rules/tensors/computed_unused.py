"""Ops compute what no op reads."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.execution_trace import Access
from traceanalyzer.replay.edits import Drop, DropWork
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.timeline.backward_nodes import backward_nodes_of, outer_nodes_of

# Kernels, or ops nested in an op, that make some of its results alone: op, bits of the results, kernel, nested op.
_MAKERS = (
    ("aten::convolution_backward", 0b001, r"dgrad|_bwd_data|backward_data", None),
    ("aten::convolution_backward", 0b010, r"wgrad|_bwd_weight|backward_filter", None),
    ("aten::convolution_backward", 0b100, None, "aten::sum"),
    ("aten::native_layer_norm_backward", 0b110, "GammaBeta", None),
    ("aten::native_group_norm_backward", 0b110, "GammaBeta", None),
)
_ADVICE = {
    "unread-results": "Remove this work, or do it only in the steps that use its result.",
    "unread-gradients": "Call requires_grad_(False) on parameters that the optimizer does not train in this pass, or "
    "run that part of the model under torch.no_grad().",
    "diagonal": "Compute the diagonal itself: (A * B.T).sum(-1) for that of A @ B, and .variance or .stddev of a "
    "distribution instead of its covariance_matrix.",
    "partly-read": "Slice first, and run these ops on the slice alone: head(hidden[:, -1:]), resize(frames[:, ::8]). "
    "Models of transformers take logits_to_keep.",
    "alternatives": "Group the rows by the alternative that they pick, and run each one on its own rows only. The "
    "results are the same, unless a layer mixes rows, as batch norm does in training. Numbers of rows that only the "
    "GPU knows cost a synchronisation.",
}
_TRIM = (
    "In a graph network on sampled nodes, call trim_to_layer() of torch_geometric.utils before each layer. It leaves "
    "out nodes and edges that no later layer needs, which saves more than these ops. "
)


class Limits:
    min_ops: int = 2
    """reported only if at least this many ops a step are unused; the loss that nobody prints is one; chosen"""
    max_read_share: float = 0.5
    """causes `partly-read` and `alternatives`: at most this share of the results is read; a larger share saves
    little; chosen"""
    min_rows: int = 64
    """cause `diagonal`: reported for matrices of at least this many rows; smaller ones cost little; chosen"""
    floor_ns: int = 2_000
    """for the saving: no kernel is predicted to take less than this time; H200, torch 2.11"""


@rule(since="0.4", claims=Claims.WORK, specificity=3, min_share=0.02, limits=Limits, causes=tuple(_ADVICE))
def computed_unused(flow: Flow, idle: IdleTime, work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Ops compute what no op reads.

    What it looks for: with an execution trace (NAME.et.json.gz beside the trace), ops whose results no needed
    op reads before their memory is freed. The findings' causes:
    `unread-results`: forward work, for example statistics in hooks, or a head whose output is dropped.
    `unread-gradients`: backward work, for example gradients of a frozen backbone, or of the discriminator in
    the generator's step. Of a convolution's or norm's backward whose input gradient is read, the part that
    computes gradients of weights counts.
    `diagonal`: products, and ops element by element, that make a matrix of which later ops read the diagonal.
    `alternatives`: several layers or networks (towers, experts, heads) work on all rows, their results are joined,
    and an index picks one of them for each row.
    `partly-read`: work on rows of which later ops read a small part, such as logits of all positions, frames of
    which an index takes some, or nodes of which the seeds are read; with the backward of these ops.
    Why it costs: the GPU computes it, and the CPU launches it.
    Bad: optimizer over the head alone, but backbone parameters with requires_grad. Good: requires_grad_(False)
    on the backbone, or torch.no_grad() around it.
    Bad: head(hidden)[:, -1]. Good: head(hidden[:, -1:]).
    Bad: resize(frames).index_select(1, index). Good: resize(frames.index_select(1, index)).
    Bad: torch.stack([tower(x) for tower in towers], 1).gather(1, which). Good: tower(x[which == i]) for each tower.
    Bad: torch.diag(phi @ cov @ phi.T). Good: ((phi @ cov) * phi).sum(-1).
    How sure: tensors are identified by their ids. For what is partly read, and in training, confidence is
    high. Without a backward pass it is low for unread results: a benchmark may drop what users read.
    When it is wrong: host code reads the result without an op of PyTorch.
    Saving: the time of these ops, and of everything that they launch. Of results that are partly read, the
    part that is not read. Of alternatives, it is as if they cost the same. Of a product whose diagonal is read, all but
    the time to read its inputs twice.
    Source: dead code elimination (Aho, Lam, Sethi, Ullman: Compilers).
    """
    unread = flow.unread[flow.number]
    backward = flow.recorded.backward[flow.number]
    if flow.recorded.backward.any():
        yield from _unread_hits("unread-results", flow, unread & ~backward, idle, limits)
        yield from _unread_hits("unread-gradients", flow, unread & backward, idle, limits)
    else:
        launched = work[work.kind.one_of("compute") & np.isin(work.launch.step, flow.ops.step)]
        # Kernels that no op has launched may read any tensor.
        lost = flow.abandoned[flow.number] & bool(launched.op.there.all())
        yield from _unread_hits("unread-results", flow, unread & lost, idle, limits, Confidence.MEDIUM)
        yield from _unread_hits("unread-results", flow, unread & ~lost, idle, limits, Confidence.LOW)
    yield from _diagonals(flow, gpus, limits)
    in_part = ~unread & (flow.read_share[flow.number] <= limits.max_read_share)
    alternative = flow.alternative[flow.number]
    yield from _partly_read("partly-read", flow, in_part & ~alternative, limits)
    yield from _partly_read("alternatives", flow, in_part & alternative, limits)


def _unread_hits(
    cause: str, flow: Flow, chosen: Mask, idle: IdleTime, limits: Limits, confidence: Confidence = Confidence.HIGH
) -> Iterator[Hits]:
    in_part, parts, owner_of_part = _made_in_part(flow, chosen, backward=cause == "unread-gradients")
    members = in_part.joined([flow.ops[chosen], in_part])
    steps = max(len(distinct(members.step)), 1)
    if len(members) < limits.min_ops * steps:
        return
    needless = _with_nodes(flow, chosen)
    spent, owner = needless.launched()
    lost = LostTime.all_of(spent, owner), LostTime.all_of(parts, len(needless) + owner_of_part)
    yield Hits(
        occurrences=needless.joined([needless, in_part]),
        cause=cause,
        lost=LostTime.joined([LostTime.launched_by(idle, needless), *lost]),
        fix=(Drop(needless.rows), *([DropWork(parts.entries)] if len(parts) else [])),
        message="no op reads the results of {ops_a_step} ops a step"
        + (" ({parts_a_step} of them: some of the results)" if len(in_part) else "")
        + ": {by_ops:of these ops' time}. They take "
        + ("{cpu} of CPU time, " if len(needless) else "")
        + "{gpu} of GPU time and {launches} launches a step"
        + "{at_lines}"
        + ("; code outside of PyTorch may read them" if confidence is not Confidence.HIGH else ""),
        advice=_ADVICE[cause],
        confidence=confidence,
        info=confidence is Confidence.LOW,
        evidence={
            **_evidence(members, spent, parts),
            "lines": _made_for(flow, members).lines_with_common(spent_ns=members.dur_ns),
            "cpu_ns": needless.total_ns // steps,
            "parts_a_step": round(len(in_part) / steps),
        },
    )


def _made_in_part(flow: Flow, chosen: Mask, *, backward: bool) -> tuple[Calls, Work, Rows]:
    """(other ops that make some results in vain, the work that makes these results alone, its positions of ops)."""
    others = ~chosen & (flow.recorded.backward[flow.number] == backward)
    bits = np.where(others, flow.unread_results[flow.number], 0)
    ops = flow.ops[bits > 0]
    pieces, owner = ops.launched()
    vain = np.zeros(len(pieces), bool)
    for name, results, kernel, nested in _MAKERS:
        makes = pieces.name.matches(kernel) if kernel else pieces.op.name.one_of(nested or "")
        of_op = ops.name.one_of(name) & ((bits[bits > 0] & results) == results)
        vain |= makes & of_op[owner]
    places, position = np.unique(owner[vain], return_inverse=True)
    return ops[places], pieces[vain], position


def _made_for(flow: Flow, members: Calls) -> Calls:
    """The op that recorded the node of backward around each op; of sums of gradients, that of the last summand."""
    forward, values = flow.ops[~flow.recorded.backward[flow.number]], flow.values
    nodes, recorder = backward_nodes_of(Calls.build(forward.events), forward)
    recorder = pick(recorder, flow.ops.index_of_enclosing(nodes))
    last = values.reads_from[flow.number + 1] - 1
    reads = last >= values.reads_from[flow.number]
    summand = np.where(reads, values.producer[values.read[last]], -1)
    recorder = np.where(recorder < 0, pick(recorder, flow.places(summand)), recorder)
    order = np.argsort(flow.ops.rows)
    place = order[np.searchsorted(flow.ops.rows[order], members.rows)]
    return Calls(members.events, np.where(recorder[place] < 0, members.rows, pick(forward.rows, recorder[place])))


def _with_nodes(flow: Flow, chosen: Mask) -> Calls:
    """The ops, with the nodes of backward around them that do nothing else, and those that take their gradients."""
    gone = np.zeros(len(flow.recorded) + 1, bool)
    gone[flow.number[chosen]] = True
    reads_gone = np.zeros(len(flow.recorded), bool)
    reads_gone[flow.values.reads[gone[flow.values.producer[flow.values.read]]]] = True
    chosen = chosen | (flow.view & reads_gone)[flow.number]
    nodes = flow.ops.outer_op
    around, place = np.unique(nodes.rows, return_inverse=True)
    whole = np.bincount(place, chosen, len(around)) >= np.bincount(place, minlength=len(around))
    inside = chosen & whole[place]
    rest, leaves = flow.ops[chosen & ~inside], flow.leaves[reads_gone[flow.leaf_number]]
    return rest.joined([rest, nodes[inside].distinct(), leaves.outer_op.distinct()]).distinct()


def _diagonals(flow: Flow, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    recorded, size = flow.recorded, flow.diagonal[flow.number]
    bytes_read = np.bincount(
        recorded.op, recorded.elements * recorded.item_bytes * (recorded.access == Access.READ), len(recorded)
    )
    product = np.array([op_row(name).kind is Kind.GEMM for name in recorded.names])[recorded.name][flow.number]
    for rows in distinct(size[size >= limits.min_rows]).tolist():
        chosen = size == rows
        members = flow.ops[chosen]
        pieces, owner = members.launched()
        of_op = np.bincount(owner, pieces.dur_ns, len(members))[owner]
        # A product of the inputs' elements, and sums of its rows.
        moved_ns = 2 * bytes_read[flow.number[chosen]][owner] / gpus.memory_gbps(pieces.device)
        share = np.where(product[chosen][owner], np.minimum(moved_ns / np.maximum(of_op, 1), 1.0), 1 / rows)
        for device, of_device in pieces.by_device():
            needed = (pieces.dur_ns * share)[pieces.device == device]
            needed = clamp_to_floor(needed, of_device, limits.floor_ns)
            rest_ns = (of_device.total_ns - needed.sum()) / len(distinct(members.step))
            yield Hits(
                **reduce_to(of_device, needed),
                cause="diagonal",
                named_by=f"{rows} x {rows}",
                message="later ops read only the diagonal of a matrix of {by} elements, which {ops_a_step} ops a step "
                "compute: {by_ops:of these ops' time}. Computing the rest takes {rest} of GPU time a step{at_lines}",
                advice=_ADVICE["diagonal"],
                evidence={**_evidence(members, of_device), "rest_ns": round(rest_ns)},
            )


def _partly_read(cause: str, flow: Flow, chosen: Mask, limits: Limits) -> Iterator[Hits]:
    """These ops, and the nodes of backward that they recorded: what nobody reads has no gradient."""
    members, values = flow.ops[chosen], flow.values
    shares = np.where(chosen, flow.read_share[flow.number], 1.0)
    # The gradient of a view, such as a slice, has as many rows as what it views.
    first, after = values.reads_from[flow.number], values.reads_from[flow.number + 1]
    viewed = flow.places(np.append(values.producer[values.read], -1)[first])
    views = flow.view[flow.number] & (first < after) & (viewed >= 0) & chosen[viewed]
    shares[views] = shares[viewed[views]]
    nodes, recorder = outer_nodes_of(Calls.build(members.events), flow.ops[chosen | views])
    others = ~np.isin(nodes.rows, members.outer_op.rows)
    pieces, owner = members.joined([members, nodes[others]]).launched()
    share = np.append(shares[chosen], shares[chosen | views][recorder[others]])[owner]
    for device, of_device in pieces.by_device():
        needed = clamp_to_floor(of_device.dur_ns * share[pieces.device == device], of_device, limits.floor_ns)
        yield Hits(
            **reduce_to(of_device, needed),
            cause=cause,
            message="later ops read {read} of the results of {ops_a_step} ops a step"
            + ", of which each row picks only some" * (cause == "alternatives")
            + ": {by_ops:of these ops' time}. "
            "They take {gpu} of GPU time a step" + " with their backward" * bool(others.any()) + "{at_lines}",
            advice=_TRIM * _sums_over_edges(flow, chosen) + _ADVICE[cause],
            confidence=Confidence.HIGH,
            evidence={**_evidence(members, of_device), "read_share": float(shares[chosen].min())},
        )


def _sums_over_edges(flow: Flow, chosen: Mask) -> bool:
    """Whether the ops read what a scatter has summed, as layers of a graph network do."""
    read = flow.values.read[np.isin(flow.values.reads, flow.number[chosen])]
    makers = distinct(flow.values.producer[read])
    names = distinct(flow.recorded.name[makers[makers >= 0]]).tolist()
    return any(op_row(flow.recorded.names[name]).kind is Kind.SCATTER for name in names)


def _evidence(members: Calls, *spent: Work) -> dict[str, Any]:
    steps = max(len(distinct(members.step)), 1)
    return {
        "ops_a_step": round(len(members) / steps),
        "by_ops": members.name.sums(members.dur_ns),
        "gpu_ns": sum(part.total_ns for part in spent) // steps,
        "launches": round(sum(map(len, spent)) / steps),
        "lines": members.lines_with_common(),
    }
