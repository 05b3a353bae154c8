"""Attention takes a mask of queries by keys, which its kernels read and ops convert."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.finding import Severity
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import require_shapes

_ATTENTION = "aten::scaled_dot_product_attention"
_FUSED = r"^aten::_(cudnn|efficient|flash)_attention_(forward|backward)$"
# Position of the mask among the inputs of attention.
_MASK = 3


@dataclass(frozen=True, slots=True)
class Limits:
    min_queries: int = limit(
        64,
        "reported only if the mask has at least this many rows (queries); with few queries, most of the "
        "time goes into reading keys and values; chosen",
    )
    forward_share: float = limit(
        0.6,
        "for the cost: the time of the forward kernels without a mask, as a share of their time with one; "
        "measured with 4,096 positions, H200",
    )
    backward_share: float = limit(
        0.57,
        "for the cost: the time of the backward kernels without a mask, as a share of their time with one; "
        "measured with 4,096 positions, H200",
    )
    min_gpu_share: float = limit(0.1, "masked attention must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.03, limits=Limits)
def masked_attention(work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Attention gets a mask of shape (queries, keys) that is the same for all heads.

    What it looks for: calls of scaled_dot_product_attention that run fused kernels and get a mask. The mask
    has a row for each query, and is the same for all heads.
    Why it costs: flash attention accepts no mask. Fused kernels that accept a mask read it again for every
    head. If the mask is boolean, each layer converts it again.
    Bad: a padding mask where no sequence is padded; a causal mask instead of is_causal=True. Good: no mask;
    is_causal=True; nested tensors for sequences of different lengths. If a mask is needed: one mask in the
    model's dtype for all layers.
    How sure: the mask's values are not recorded. The mask may be needed, so confidence is low.
    When it is wrong: the mask hides something that is_causal=True would not hide.
    Saving: not predicted. The cost is the time that the mask causes, in conversions and in attention kernels.
    Source: F.scaled_dot_product_attention in PyTorch's documentation; measured on an H200 with torch 2.11.
    """
    require_shapes(inputs.signatures, "shows masks of attention")
    outer = work.outer_op
    masks = _masks(work, limits)
    if not masks:
        return
    forward = outer.name.one_of(_ATTENTION) & outer.text("input_dims").meets(
        lambda dims: _mask(Signature.parsed("", dims, None, None), limits) in masks
    )
    fused = work.op.name.matches(_FUSED)
    pairs = {mask[-2:] for mask in masks}
    reads_mask = fused & inputs.meets(lambda op: any(s[-2:] in pairs for s in tensors(op)))
    reads_mask &= work.op.name.matches("backward")
    # hand-written-attention reports attention that is written by hand.
    if not (forward & fused).any():
        return
    for pieces, share in work[(forward | reads_mask) & work.kind.one_of("compute")].device_shares(
        limits.min_gpu_share
    ):
        backward = pieces.op.name.matches("backward")
        attention = pieces.op.name.matches(_FUSED)
        remaining = np.where(attention, np.where(backward, limits.backward_share, limits.forward_share), 0.0)
        mask = max(masks, key=lambda shape: shape[-2:])
        converts = pieces[~attention]
        part = ", {conversions} of this in conversions of the mask" if len(converts) else ""
        yield Hits(
            occurrences=pieces,
            lost=LostTime.excess(pieces, np.asarray(pieces.dur_ns * (1 - remaining), np.int64)),
            message="attention takes a mask of {mask}, the same for all heads: {gpu} of all GPU work{where}"
            + f"{part}. The trace does not show what the mask hides",
            advice="If the mask hides nothing, pass no mask. If it is causal, pass is_causal=True. If it hides "
            "padding, cut the batch at its longest sequence. Else make one mask in the model's dtype for all "
            "layers.",
            confidence=Confidence.LOW,
            max_severity=Severity.LOW,
            evidence={
                **gpu_time_evidence(pieces),
                "mask": shape_text(mask),
                "conversions_ns": converts.total_ns,
                "gpu_share": share,
            },
        )


def _masks(work: Work, limits: Limits) -> set[Shape]:
    """Shapes of the masks of all calls."""
    calls = work.outer_op.name.one_of(_ATTENTION)
    texts = work[calls].outer_op.text("input_dims").distinct()
    masks = (_mask(Signature.parsed("", text, None, None), limits) for text in texts)
    return {mask for mask in masks if mask is not None}


def _mask(op: Signature, limits: Limits) -> Shape | None:
    """Shape of a mask of queries by keys, the same for all heads; None of other calls."""
    try:
        query, key, mask = op.shape(0), op.shape(1), op.shape(_MASK)
    except LookupError:
        return None
    whole = len(mask) >= 2 and mask[-2:] == (*query[-2:-1], *key[-2:-1]) and mask[-2] >= limits.min_queries
    return mask if whole and (len(mask) < 3 or mask[-3] == 1) else None
