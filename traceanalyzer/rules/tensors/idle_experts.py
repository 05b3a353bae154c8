"""Every expert works on every token, and most of the results are multiplied by zero."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.expert_gates import gates_of, in_forward, is_product, summed_dimension
from traceanalyzer.rule import Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.tensors.top_ops import require_shapes


@dataclass(frozen=True, slots=True)
class Limits:
    max_kept_share: float = limit(
        0.5,
        "reported only if topk keeps at most this share of the experts for each token; chosen",
    )
    capacity_times: float = limit(
        1.25,
        "for the saving: after tokens are sorted by expert, each expert gets room for this many times the "
        "average number of rows per expert; usual in the literature",
    )
    min_rows: int = limit(
        64,
        "reported only if there are at least this many tokens; with fewer tokens, sorting saves nothing; "
        "chosen",
    )
    min_gpu_share: float = limit(
        0.05, "work on all experts and tokens must take at least this share of GPU time; chosen"
    )


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits)
def idle_experts(work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Matrix products run for all experts and tokens, though a few experts are chosen for each token.

    What it looks for: topk keeps k of E scores for each of N tokens. But batched matrix products compute E x N
    rows, those of all experts for all tokens.
    Why it costs: the products take E / k times as many operations as necessary. Most results are multiplied
    by zero.
    Bad: torch.einsum("nd,edh->enh", x, w) for all experts, although the gate is zero for most of them. Good:
    sort the tokens by expert, so that each expert computes only its own tokens: index_select, grouped or
    batched products, index_add.
    How sure: shapes and k are recorded. The values of the gate are not recorded, so confidence is medium.
    When it is wrong: the topk that the rule found chooses something other than experts.
    Saving: the new time is predicted as 1.25 * k / E of the present time. The factor 1.25 is a reserve, because
    some experts get more tokens than others.
    Source: Shazeer et al., "Outrageously Large Neural Networks" (2017).
    """
    require_shapes(inputs.signatures, "shows the number of experts")
    forward = in_forward(work)
    for rows, experts, chosen in gates_of(inputs.signatures, limits.max_kept_share, limits.min_rows):
        dense = inputs.meets(partial(_on_all, rows=rows, experts=experts))
        products = dense & inputs.meets(is_product)
        as_width = products & forward & inputs.meets(partial(_sums_over, size=rows))
        if not products.any() or as_width.any():
            continue
        part = min(limits.capacity_times * chosen / experts, 1.0)
        for pieces, share in work[dense & work.kind.one_of("compute", "copy_d2d")].device_shares(
            limits.min_gpu_share
        ):
            if not products[pieces.entries].any():
                continue
            yield Hits(
                **reduce_to(pieces, np.asarray(pieces.dur_ns * part)),
                named_by=f"{experts} experts",
                message=(
                    "topk keeps {kept} of {experts} experts for each of {rows} rows, but products run for all "
                    "{experts} x {rows}: {gpu} of all GPU work in {ops}"
                )
                + (", at {lines}" if pieces.line.sums(pieces.dur_ns) else ""),
                advice="Sort the tokens by expert and let each expert work on its own rows: index_select "
                "into slots of a fixed capacity and a batched product, or a grouped product; index_add puts "
                "the results back.",
                confidence=Confidence.MEDIUM,
                evidence={
                    **gpu_time_evidence(pieces),
                    "gpu_share": share,
                    "kept": chosen,
                    "experts": experts,
                    "rows": rows,
                },
            )


def _on_all(op: Signature, rows: int, experts: int) -> bool:
    """Whether it reads a tensor with the experts as first and all rows as second dimension."""
    shapes = (shape for shape in op.dims if isinstance(shape, list) and len(shape) == 3)
    return any(shape[0] == experts and rows in shape[1:] for shape in shapes)


def _sums_over(op: Signature, size: int) -> bool:
    return summed_dimension(op) == size
