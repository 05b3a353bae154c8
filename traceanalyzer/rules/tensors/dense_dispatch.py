"""Tokens get to their experts, and back, by products with a tensor of ones and zeros."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.expert_gates import Gate, gates_of, in_forward, is_product, summed_dimension
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, tensors
from traceanalyzer.tensors.top_ops import require_shapes


@dataclass(frozen=True, slots=True)
class Limits:
    max_kept_share: float = limit(
        0.5,
        "reported only if topk keeps at most this share of the experts for a token; chosen",
    )
    min_rows: int = limit(
        64,
        "reported only if there are at least this many tokens; with fewer tokens, moving rows by index "
        "saves nothing; chosen",
    )
    min_gpu_share: float = limit(
        0.03,
        "reported only if work on the dense tensor takes at least this share of GPU time; chosen",
    )
    left_share: float = limit(
        0.9,
        "used for the predicted saving: moving rows by index is predicted to take at most this share of the"
        " products' time, forward and backward; measured on an H200 with torch 2.11",
    )
    moved_times: float = limit(
        4.0,
        "used for the predicted saving: moving rows by index is predicted to take this many passes over the"
        " product's result at the memory's peak rate; the passes (fill the slots, copy, gather, add up) "
        "were counted, not measured",
    )
    moved_floor_ns: int = limit(
        20_000,
        "used for the predicted saving: moving rows by index is predicted to take at least this time, "
        "because it is several short kernels; measured on an H100",
    )


@rule(since="0.2", claims=Claims.WORK, min_share=0.02, limits=Limits)
def dense_dispatch(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Tokens are dispatched to experts by products with a dense tensor of ones and zeros.

    What it looks for: topk chooses k of E experts for each of T tokens. Then ops work on tensors of T x E x C
    numbers. C is the number of slots of each expert. One of these ops is a matrix product in the forward pass
    that sums over all T tokens.
    Why it costs: for each token, all except k of the E x C numbers are zero. So work on the tensor mostly
    moves and multiplies zeros.
    Bad: torch.einsum("tec,td->ecd", dispatch, x). Good: use cumsum to count, for each token, the earlier
    tokens that go to the same expert. This number is the slot of the token. Then move rows with index_copy
    and index_select.
    How sure: shapes and the order of the products are recorded. The numbers themselves are not recorded, so
    confidence is medium.
    When it is wrong: each slot is a weighted mean of all tokens (soft dispatch). Then hardly any number is
    zero.
    Saving: the time of all work on the tensor, minus the predicted time to move the rows by index.
    Source: Shazeer et al., "Outrageously Large Neural Networks" (2017); measured on an H200 with torch 2.11.
    """
    require_shapes(inputs.signatures, "shows how tokens get to experts")
    forward = in_forward(work)
    for gate in gates_of(inputs.signatures, limits.max_kept_share, limits.min_rows):
        for slots in _capacities(gate, inputs.signatures):
            dispatch = forward & inputs.meets(partial(_dispatches, gate=gate, slots=slots))
            if dispatch.any():
                yield from _dispatch_hits(gate, slots, work, inputs, gpus, limits)


def _dispatch_hits(
    gate: Gate, slots: int, work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits
) -> Iterator[Hits]:
    dense = inputs.meets(partial(_on_dense, gate=gate, slots=slots))
    read = inputs.meets(partial(_reads_dense, gate=gate, slots=slots))
    moved = np.array([_bytes_made(op) for op in inputs.signatures] + [0.0])[inputs.number]
    passes_ns = limits.moved_times * moved / gpus.memory_gbps(work.device)
    needed_ns = np.minimum(limits.left_share * work.dur_ns, np.maximum(passes_ns, limits.moved_floor_ns))
    for pieces, share in work[dense & work.kind.one_of("compute", "copy_d2d", "memset")].device_shares(
        limits.min_gpu_share
    ):
        yield Hits(
            **reduce_to(pieces, np.where(read, needed_ns, 0.0)[pieces.entries]),
            named_by=f"{gate.experts} experts",
            message=(
                "matrix products with a tensor of {rows}x{experts}x{slots} send {rows} tokens to {experts} experts of "
                "{slots} slots; the tensor has {kept} nonzero numbers per token: {gpu} of all GPU work in {ops}"
            )
            + (", at {lines}" if pieces.line.sums(pieces.dur_ns) else ""),
            advice="Compute the slot of each token as an index, and move rows: before the experts, copy tokens into "
            "slots with index_copy; after them, read the results with index_select and apply the gate's weight. "
            "Then no tensor of tokens x experts x slots is needed.",
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "kept": gate.kept,
                "experts": gate.experts,
                "rows": gate.rows,
                "slots": slots,
            },
        )


def _capacities(gate: Gate, signatures: list[Signature]) -> list[int]:
    """The sizes C of tensors of tokens x experts x C, in whatever order, since einsum reorders what it copies."""
    shapes = {tuple(sorted(size for size in shape if size > 1)) for op in signatures for shape in tensors(op)}
    capacities = set()
    for shape in shapes:
        slots = math.prod(shape) // (gate.rows * gate.experts)
        dim = sorted((gate.rows, gate.experts, slots))
        # Per expert that topk chooses.
        each = sorted((gate.rows, gate.experts, slots // gate.kept, gate.kept))
        capacities |= {slots} if [*shape] == dim else {slots // gate.kept} if [*shape] == each else set()
    return sorted(slots for slots in capacities if 1 < slots < gate.rows)


def _dispatches(op: Signature, gate: Gate, slots: int) -> bool:
    """A product that sums over the tokens and gives a row for each slot."""
    sizes = {size for shape in tensors(op) for size in shape}
    return summed_dimension(op) == gate.rows and gate.experts * slots in sizes


def _reads_dense(op: Signature, gate: Gate, slots: int) -> bool:
    """A product that sums over the tokens or the slots, and does not make the dense tensor."""
    product = result_shape(op)
    sums = summed_dimension(op) in (gate.rows, gate.experts * slots)
    return is_product(op) and sums and product is not None and not _is_dense(product, gate, slots)


def _bytes_made(op: Signature) -> float:
    """Bytes of what a product makes; 0 of other ops."""
    product = result_shape(op) if is_product(op) else None
    return float(math.prod(product) * ITEM_BYTES.get(op.types[0], 0)) if product else 0.0


def _on_dense(op: Signature, gate: Gate, slots: int) -> bool:
    """Whether one of its tensors, or what it makes of them, has a number for each token, expert and slot."""
    shapes = *tensors(op), _broadcast(op), (result_shape(op) if is_product(op) else ()) or ()
    return any(_is_dense(shape, gate, slots) for shape in shapes)


def _is_dense(shape: tuple[int, ...], gate: Gate, slots: int) -> bool:
    sizes = {*shape}
    if math.prod(shape) % (gate.rows * gate.experts * slots):
        return False
    rows = not sizes.isdisjoint((gate.rows, gate.rows * gate.kept))
    return rows and ({gate.experts, slots} <= sizes or gate.experts * slots in sizes)


def _broadcast(op: Signature) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(*tensors(op)))
    except ValueError:
        return ()
