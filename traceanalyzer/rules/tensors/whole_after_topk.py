"""Whole rows are worked on after topk has left a few of their elements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.signatures import Signature, tensors
from traceanalyzer.tensors.top_ops import top_ops

Shape = tuple[int, ...]

_COMPARES = re.compile(r"^aten::(lt|le|gt|ge)$")
_MASKS = re.compile(r"^aten::(masked_fill|where|index_put|scatter)_?$")
_PRODUCTS = re.compile(r"^aten::(linear|matmul|mm|addmm|bmm|baddbmm)$")
_FILLS = re.compile(r"^aten::(full|zeros|ones|empty)_like$")


@dataclass(frozen=True, slots=True)
class Limits:
    min_row_elements: int = limit(
        4_096,
        "reported only if rows have at least this many elements; work on shorter rows takes little time; "
        "chosen",
    )
    max_kept_share: float = limit(0.125, "reported only if topk keeps at most this share of a row; chosen")
    near_ops: int = limit(
        6,
        "reported only if at most this many ops are between topk and the mask, views not counted; chosen",
    )
    floor_ns: int = limit(
        5_000,
        "for the saving: a sort, scan or softmax of few elements is predicted to take this time; H200, "
        "torch 2.11",
    )
    min_gpu_share: float = limit(0.03, "work on such rows must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.02, limits=Limits)
def whole_after_topk(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Whole rows are sorted, scanned or normalised, though topk has kept only a few elements of each row.

    What it looks for: a topk that keeps a small part of long rows. Elements that are smaller than the
    smallest kept element are then masked, but later ops still work on whole rows.
    Why it costs: sorts, scans and softmax pass over the whole row, though only k elements matter.
    Bad: scores.masked_fill(scores < scores.topk(50).values[:, -1:], -inf), then softmax and cumsum for top-p
    sampling. Good: values, indices = scores.topk(50). Then softmax and cumsum of `values`, and indices.gather
    at the end.
    How sure: the rule concludes from shapes and the order of ops that the mask keeps what topk has chosen. So
    confidence is medium.
    When it is wrong: the rows are compared with a number that does not come from topk.
    Saving: predicted as if the later ops worked on k elements of each row, instead of on whole rows.
    Source: top_k_top_p_filtering in Hugging Face's transformers; torch.topk returns sorted values.
    """
    ops, number, signatures = top_ops(calls, "shows the length of rows", views=False)
    chosen, part, chosen_count = np.zeros(len(ops), bool), np.ones(len(ops)), (0, 0)
    for place in np.flatnonzero(ops.name.one_of("aten::topk")).tolist():
        shape, count = _chosen_by_topk(signatures[number[place]])
        if not shape or shape[-1] < limits.min_row_elements or count > limits.max_kept_share * shape[-1]:
            continue
        later = _later_ops(place, number, signatures, shape, limits)
        chosen[later], part[later] = True, count / shape[-1]
        chosen_count = (count, shape[-1]) if len(later) else chosen_count
    owner = work.op.index_of_enclosing(ops[chosen])
    for pieces, share in work[owner >= 0].device_shares(limits.min_gpu_share):
        needed = clamp_to_floor(pieces.dur_ns * part[chosen][owner[pieces.entries]], pieces, limits.floor_ns)
        yield Hits(
            **reduce_to(pieces, needed),
            message="topk keeps {kept} of {length} elements of each row and the others are masked, but then {ops} work "
            "on whole rows: {gpu} of all GPU work{where}",
            advice="Work on the values that topk returns, which are sorted, and look up the chosen index at the end: "
            "indices.gather(-1, choice).",
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "kept": chosen_count[0],
                "length": chosen_count[1],
            },
        )


def _chosen_by_topk(op: Signature) -> tuple[Shape, int]:
    """(shape of what topk chooses from, how many it keeps) along the last dimension; nothing where it is another."""
    try:
        shape, count, dim = op.shape(0), int(op.scalar(1)), int(op.scalar(2))
    except (LookupError, TypeError, ValueError):
        return (), 0
    return (shape, count) if dim in (-1, len(shape) - 1) and count > 0 else ((), 0)


def _later_ops(
    place: int, number: Rows, signatures: list[Signature], shape: Shape, limits: Limits
) -> list[int]:
    """Positions of the ops after topk that compare, mask and then pass over whole rows; none where no mask is seen."""
    following = [signatures[which] for which in number[place + 1 : place + 65].tolist()]
    near = following[: limits.near_ops]
    rows = (*shape[:-1], 1)
    compared = next(
        (i for i, op in enumerate(near) if _COMPARES.match(op.name) and tensors(op) == [shape, rows]), None
    )
    if compared is None or not any(
        _MASKS.match(op.name) and shape in tensors(op) for op in near[compared + 1 :]
    ):
        return []
    end = compared
    while end < len(following) and (shape in tensors(following[end]) or _FILLS.match(following[end].name)):
        end += 1
    # A product that reads the rows needs them: they are attention scores.
    taking = following[compared:end]
    return (
        []
        if any(_PRODUCTS.match(op.name) for op in taking)
        else list(range(place + 1 + compared, place + 1 + end))
    )
