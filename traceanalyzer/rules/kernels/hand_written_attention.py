"""Attention written as products and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, starts_of_runs
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.rewrites import Fuse
from traceanalyzer.roofline.gpus import Gpu, Gpus
from traceanalyzer.roofline.op_model import work_of
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.rule.views.selection import Mask
from traceanalyzer.timeline import kernel_families as families

_PRODUCT = r"^aten::(bmm|baddbmm)$"
_SOFTMAX = r"^aten::_(safe_)?softmax$"
_SOFTMAX_BACKWARD = r"^aten::_softmax_backward_data$"


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    max_between: int = limit(
        8, "pieces of work between a product and the softmax: scale, mask, bias, casts, dropout"
    )
    fused_share: float = limit(
        0.2, "of bfloat16 attention that a fused kernel takes, shapes unknown; 512 to 2,048 tokens, H200"
    )
    fused_share_fp32: float = limit(0.7, "the same of float32 attention")


@rule(since="0.2", claims=Claims.PATTERN, limits=Limits)
def hand_written_attention(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Attention is written by hand: a batched product, a softmax, a batched product.

    What it looks for: on one stream, a batched matrix product, a softmax and another batched product with at most some
    pointwise work between them; in backward two products, the softmax's gradient, two products.
    Why it costs: the matrix of all queries by all keys goes to memory and back at each of these steps; fused attention
    never writes it.
    Bad: (q @ k.transpose(-2, -1) / d + mask).softmax(-1) @ v. Good: F.scaled_dot_product_attention(q, k, v,
    attn_mask=mask), or is_causal=True.
    How sure: the ops and their order are recorded. A softmax between other products (a router, a classifier) does not
    count: they are not batched.
    When it is wrong: where the attention weights themselves are wanted, or changed in a way that no fused kernel knows.
    Saving: the operations of both products at the rate that fused attention reaches on this device.
    Source: F.scaled_dot_product_attention in PyTorch's documentation; FlashAttention (Dao et al., 2022).
    """
    ordered = work.in_order()
    first, last, backward = _spans(ordered, limits.max_between)
    if len(first) == 0:
        return
    member, number = _members(first, last)
    found = ordered[member]
    for device in np.unique(found.device).tolist():
        chosen = found.device == device
        here = np.cumsum(starts_of_runs(number[chosen])) - 1
        mine = np.isin(np.arange(len(first)), number[chosen])
        yield _hits(found[chosen], here, backward[mine], gpus[device], limits)


def _spans(ordered: Work, most: int) -> tuple[Rows, Rows, Mask]:
    """(first piece, last piece, whether it is of backward) of each attention, positions in `ordered`."""
    name = ordered.op.name
    product = np.flatnonzero(name.matches(_PRODUCT) & ordered.kind.one_of("compute"))
    forward, backward = (
        np.flatnonzero(name.matches(_SOFTMAX)),
        np.flatnonzero(name.matches(_SOFTMAX_BACKWARD)),
    )
    softmax = np.concatenate((forward, backward))
    is_backward = np.arange(len(softmax)) >= len(forward)
    order = np.argsort(softmax)
    softmax, is_backward = softmax[order], is_backward[order]
    if len(product) < 2 or len(softmax) == 0:
        return softmax[:0], softmax[:0], is_backward[:0]
    before = np.searchsorted(product, softmax) - 1
    after = before + 1
    near = (before >= 0) & (after < len(product))
    low, high = product[np.maximum(before, 0)], product[np.minimum(after, len(product) - 1)]
    near &= (softmax - low <= most) & (high - softmax <= most)
    for column in (ordered.device, ordered.stream, ordered.step):
        near &= column[low] == column[high]
    before, after, softmax, is_backward = before[near], after[near], softmax[near], is_backward[near]
    first = np.where(is_backward, _further(product, before, -1, most), low[near])
    last = np.where(is_backward, _further(product, after, 1, most), high[near])
    first[1:] = np.maximum(first[1:], last[:-1] + 1)  # what two share belongs to the earlier
    own = first < softmax
    return first[own], last[own], is_backward[own]


def _further(product: Rows, at: Rows, by: int, most: int) -> Rows:
    """The product next to each, where it is near, else that one."""
    this = product[np.clip(at, 0, len(product) - 1)]
    other = product[np.clip(at + by, 0, len(product) - 1)]
    return np.where(np.abs(other - this) <= most, other, this)


def _members(first: Rows, last: Rows) -> tuple[Rows, Rows]:
    """Positions within the spans, and the number of the span of each."""
    count = last - first + 1
    number = np.repeat(np.arange(len(first)), count)
    start = np.cumsum(count) - count
    return np.arange(int(count.sum())) - start[number] + first[number], number


def _hits(found: Work, number: Rows, backward: Mask, gpu: Gpu, limits: Limits) -> Hits:
    total = np.bincount(number, weights=found.dur_ns)
    fp32 = bool(found.name.matches(families.FP32_ARITHMETIC).any())
    guess = total * (limits.fused_share_fp32 if fp32 else limits.fused_share)
    exact = _by_operations(found, number, gpu, fp32)
    fused = np.where(exact > 0, np.minimum(exact, total), guess)
    kept = fused / np.maximum(total, 1)
    return Hits(
        at=found,
        lost=Lost.excess(found, np.asarray(found.dur_ns * (1 - kept[number]), np.int64)),
        fix=Fuse(found.entries, number, fused),
        message="attention by hand, {forward} times forward and {backward} backward, {spent} in all: a product, a "
        "softmax and a product through memory{where}",
        advice="Use F.scaled_dot_product_attention (is_causal=True or attn_mask= for the mask): it never writes the "
        "matrix of queries by keys.",
        confidence=Confidence.HIGH if (exact > 0).any() else Confidence.MEDIUM,
        evidence={
            **told(found),
            "spent_ns": found.total_ns,
            "forward": int((~backward).sum()),
            "backward": int(backward.sum()),
        },
    )


def _by_operations(found: Work, number: Rows, gpu: Gpu, fp32: bool) -> Floats:
    """What fused attention takes for the products' operations, ns per span; 0 where shapes or peaks are unknown."""
    signature, signatures = signatures_of(found.events.trace, found.op.rows)
    models = [work_of(one) if one.name in ("aten::bmm", "aten::baddbmm") else None for one in signatures]
    flops = np.array([model.flops or 0 if model else 0 for model in models], np.float64)[signature]
    rate = gpu.peaks.reached_tflops("attention", "fp32" if fp32 else "bf16") if gpu.peaks else None
    done = np.bincount(number, weights=flops) / ((rate or np.inf) * 1e3)
    return np.asarray(done, np.float64)
