"""Batches of one width with masked padding. The trace does not show how much is padding."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Kind, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors

_ATTENTION = "aten::scaled_dot_product_attention"
# Ops that mask scores in attention without a fused kernel.
_MASKS = r"^aten::(masked_fill_?|where|add_?)$"
_SOFTMAX = re.compile(r"^aten::_?softmax$")
# Position of the mask among attention's inputs.
_MASK = 3
# This op gets the lengths.
_LENGTHS = r"ctc_loss"


@dataclass(frozen=True, slots=True)
class Limits:
    min_positions: int = limit(
        64,
        "reported only if batches are at least this many positions wide; narrower batches have little "
        "padding; chosen",
    )
    min_calls: int = limit(
        3,
        "reported only if at least this many ops have a mask of that width; if steps are marked, at least "
        "this many steps must have such an op, or all steps if fewer are marked; chosen",
    )
    min_gpu_share: float = limit(
        0.3,
        "reported only if ops on these positions take at least this share of GPU time; a smaller share is "
        "not worth a look; chosen",
    )


@rule(since="0.2", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, kind=Kind.QUESTION)
def fixed_length(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Batches of every step have the same width, and a mask hides their padding.

    What it looks for: attention with a key padding mask, of shape (sequences, 1, 1, width). The rule also
    finds such a mask in attention that is written by hand.
    Why it matters: layers compute the padding like all other positions, and the mask only hides the results.
    Bad: tokenizer(texts, padding="max_length"). Good: padding=True, which pads to the longest sequence of the
    batch; batches of sequences with about the same length; sequences packed one after the other.
    How sure: shapes are recorded, the lengths of sequences are not. So this is never called a
    fault, and always info. To see how much of the width is filled, compute the mean of the mask in your program.
    When it is wrong: the sequences fill the width. Or a compiled model or a CUDA graph needs the same width
    in every step.
    Source: F.scaled_dot_product_attention in PyTorch's documentation; "Padding and truncation" in Hugging
    Face's documentation.
    """
    if not any(op.dims for op in inputs.signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows the mask of attention")
    masked, sizes = _masked(calls, limits)
    widths = {width for _, width in sizes}
    if len(widths) != 1 or calls.name.matches(_LENGTHS).any():
        return
    marked = len(np.unique(calls.step[calls.step >= 0]))
    steps = len(np.unique(masked.step[masked.step >= 0]))
    if len(masked) < limits.min_calls or (marked and steps < min(marked, limits.min_calls)):
        return
    wanted = {size for size_pair in sizes for size in padded_sizes(*size_pair)}
    padded = inputs.meets(lambda op: any(is_padded(shape, wanted) for shape in tensors(op)))
    for device, kernels in work[padded & work.kind.one_of("compute", "copy_d2d")].by_device():
        with_op = work[(work.device == device) & work.op.there]
        share = kernels.total_ns / max(with_op.total_ns, 1)
        if share >= limits.min_gpu_share:
            yield _hits(kernels, share, max(sizes))


def _hits(kernels: Work, share: float, size: tuple[int, int]) -> Hits:
    return Hits(
        occurrences=kernels,
        lost=LostTime.none(),
        message="all batches are {width} positions wide (up to {sequences} sequences), and a mask hides the padding of "
        "each sequence: {gpu} of all GPU work is work on these positions, padding included, most in {ops}",
        advice="First check how much of the width is filled: mask.float().mean(). If it is clearly below 1, pad each "
        "batch to its longest sequence only, put sequences of about the same length into one batch, or pack them.",
        confidence=Confidence.LOW,
        evidence={**gpu_time_evidence(kernels), "gpu_share": share, "width": size[1], "sequences": size[0]},
        info=True,
    )


def _masked(calls: Calls, limits: Limits) -> tuple[Calls, set[tuple[int, int]]]:
    """(ops that mask keys for each sequence, their (sequences, width))."""
    ops = calls[calls.is_op & (calls.name.one_of(_ATTENTION) | calls.name.matches(_MASKS))]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    normed = _normed(calls) if ops.name.matches(_MASKS).any() else frozenset()
    sizes = [_size(op, normed, limits.min_positions) for op in signatures]
    has_size = np.array([op is not None for op in sizes], bool)[number]
    return ops[has_size], {op for op in sizes if op is not None}


def _normed(calls: Calls) -> frozenset[Shape]:
    """Shapes of softmax inputs."""
    ops = calls[calls.is_op & calls.name.meets(_SOFTMAX.match)]
    _, signatures = signatures_of(ops.events.trace, ops.rows)
    return frozenset(shape for op in signatures for shape in tensors(op)[:1])


def _size(op: Signature, normed: frozenset[Shape], min_positions: int) -> tuple[int, int] | None:
    """(sequences, width) of an op's key mask, None for other ops."""
    try:
        if op.name == _ATTENTION:
            query, key = op.shape(0), op.shape(1)
            return _of_mask(_stored_mask_shape(op), (*query[:-1], key[-2]), min_positions)
    except LookupError:
        return None
    shapes = tensors(op)
    scores = next((shape for shape in shapes if shape in normed), ())
    sizes: Sequence[tuple[int, int] | None] = [_of_mask(mask, scores, min_positions) for mask in shapes]
    return next((size for size in sizes if size is not None), None)


def _stored_mask_shape(op: Signature) -> Shape:
    """Shape of attention's mask in memory, 1 for expanded dimensions."""
    mask = op.shape(_MASK)
    return tuple(size if step else 1 for size, step in zip(mask, op.stride(_MASK) or mask, strict=True))


def _of_mask(mask: Shape, scores: Shape, min_positions: int) -> tuple[int, int] | None:
    """(sequences, width) of a score mask with one row of keys per sequence, None for other tensors."""
    if not 3 <= len(mask) == len(scores) or mask == scores or scores[-2] < min_positions:
        return None
    row = mask[0] == scores[0] and set(mask[1:-1]) == {1} and mask[-1] == scores[-1]
    return (mask[0], mask[-1]) if row and mask[-1] >= min_positions else None


_STRIDES = (1, 2, 4, 8)  # frames before subsampling for each after it


def padded_sizes(batch: int, length: int) -> list[tuple[int, int]]:
    """(sequences, positions) of a batch, before and after its positions are subsampled by up to 8."""
    return [(batch, length * stride) for stride in _STRIDES]


def is_padded(shape: Shape, sizes: Collection[tuple[int, int]]) -> bool:
    """Whether it has the batch's size and length among its dimensions, or their product."""
    return any({batch, length} <= set(shape) or batch * length in shape for batch, length in sizes)
