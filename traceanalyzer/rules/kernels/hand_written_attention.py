"""Attention written as products and a softmax."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, numbered, ranges
from traceanalyzer.replay.rewrites import Fuse
from traceanalyzer.roofline.gpus import Gpu, Gpus, reached_flops_per_ns
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, gpu_time_evidence, rule
from traceanalyzer.rule.idioms import idiom_of
from traceanalyzer.rule.messages import times
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import flops_of
from traceanalyzer.timeline import kernel_families as families

_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_PRODUCT = r"^aten::(bmm|baddbmm)$"
_SOFTMAX = r"^aten::_(safe_)?softmax$"
# Attention chooses and sorts nothing, and looks nothing up with what the softmax gave: a router of experts does.
_CHOOSES = r"^aten::(topk|sort|argsort|nonzero|scatter\w*)$"
_LOOKS_UP = r"^aten::(index|index_select|gather|embedding)$"
_SOFTMAX_BACKWARD = r"^aten::_softmax_backward_data$"


class Limits:
    max_kernels_between: int = 8
    """the softmax comes at most this many kernels after the first product, and the second product at most
    this many after the softmax; between them are scale, mask, bias, conversions, dropout"""
    fused_share: float = 0.475
    """if shapes are not recorded: fused bfloat16 attention is predicted to take this share of the time of the
    two hand-written products (without the softmax); measured with 512 to 2,048 tokens on an H200"""
    fused_share_fp32: float = 0.7
    """if shapes are not recorded: fused float32 attention is predicted to take this share of the time of all
    kernels of the hand-written attention (with the softmax)"""


@rule(since="0.1", claims=Claims.PATTERN, specificity=1, limits=Limits)
def hand_written_attention(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Attention is written by hand: a batched product, a softmax, a batched product.

    What it looks for: a batched matrix product, a softmax and another batched product, with only pointwise
    work between them. The rule also finds the backward pass of such attention.
    Why it costs: these ops write the attention matrix (queries x keys) to memory and read it again several
    times. Fused attention never writes it.
    Bad: (q @ k.transpose(-2, -1) / d ** 0.5 + mask).softmax(-1) @ v. Good: F.scaled_dot_product_attention(q,
    k, v, attn_mask=mask), or is_causal=True.
    How sure: the ops and their order are recorded.
    When it is wrong: the attention weights themselves are needed, or are changed in a way that no fused
    kernel supports.
    Saving: the recorded time, minus the predicted time of fused attention on this device.
    Source: F.scaled_dot_product_attention in PyTorch's documentation; FlashAttention (Dao et al., 2022).
    """
    names = work.op.name
    if not (names.matches(_SOFTMAX) | names.matches(_SOFTMAX_BACKWARD)).any():
        return
    ordered = work.in_order()
    first, last, backward = _spans(ordered, limits.max_kernels_between)
    number, member = ranges(first, last - first + 1)
    every = ordered[member]
    for device, pieces in every.by_device():
        which, on_device = numbered(number[every.device == device])
        yield _hits(pieces, which, backward[on_device], inputs, gpus[device], limits)


def _hits(pieces: Work, number: Rows, backward: Mask, inputs: WorkInputs, gpu: Gpu, limits: Limits) -> Hits:
    total = np.bincount(number, weights=pieces.dur_ns)
    fp32 = bool(pieces.name.matches(families.FP32_ARITHMETIC).any())
    # What fused attention takes for the products' operations, for each; 0 where shapes or peaks are unknown.
    flops = inputs.values(pieces, lambda op: flops_of(op) if op.name in _PRODUCTS else 0)
    done = np.bincount(number, weights=flops)
    exact = done / (reached_flops_per_ns(gpu, "attention", "fp32" if fp32 else "bf16") or np.inf)
    products = np.bincount(number, weights=pieces.dur_ns * pieces.op.name.one_of(*_PRODUCTS))
    guess = total * limits.fused_share_fp32 if fp32 else products * limits.fused_share
    fused = np.where(exact > 0, np.minimum(exact, total), guess)
    remaining = fused / np.maximum(total, 1)
    falls_back = pieces.outer_op.name.one_of("aten::scaled_dot_product_attention").any()
    library = idiom_of("attention", pieces.line.sums(pieces.dur_ns))
    return Hits(
        occurrences=pieces,
        lost=LostTime.excess(pieces, np.asarray(pieces.dur_ns * (1 - remaining[number]), np.int64)),
        fix=Fuse(pieces.entries, number, fused),
        message=("scaled_dot_product_attention without a fused kernel" if falls_back else "attention by hand")
        + f" runs {_calls_per_step(pieces, backward)} and takes {{spent_a_step}}: the result of each "
        "product and of the softmax is written to memory{where}",
        advice=(
            "Find out why: `with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)` warns what "
            "prevents the fused kernel, such as float64, a head size above 256 or not a multiple of 8, or a mask "
            "that needs a gradient."
        )
        if falls_back
        else (f"{library.fix} " if library else "")
        + "Use {F.scaled_dot_product_attention} (is_causal=True or attn_mask= for the mask): it never writes the "
        "attention matrix to memory.",
        confidence=Confidence.HIGH if (exact > 0).any() else Confidence.MEDIUM,
        evidence=gpu_time_evidence(pieces)
        | {"spent_ns": pieces.total_ns, "forward": int((~backward).sum()), "backward": int(backward.sum())},
    )


def _calls_per_step(pieces: Work, backward: Mask) -> str:
    """`4 times a step in forward and once in backward`; in all where steps differ."""
    counts = int((~backward).sum()), int(backward.sum())
    steps = len(distinct(pieces.step)) if (pieces.step >= 0).all() else 0
    whole = steps > 0 and not any(count % steps for count in counts)
    forward, back = (count // steps if whole else count for count in counts)
    when = "a step" if whole else "in all"
    parts = [f"{times(forward)} {when} in forward"] if forward else []
    parts += [f"{times(back)}{f' {when}' * (not parts)} in backward"] if back else []
    return " and ".join(parts)


def _spans(ordered: Work, most: int) -> tuple[Rows, Rows, Mask]:
    """(first piece, last piece, whether it is of backward) of each attention, positions in `ordered`.

    Args:
        most: pieces between a product and the softmax.
    """
    name = ordered.op.name
    product = np.flatnonzero(name.matches(_PRODUCT) & ordered.kind.one_of("compute"))
    forward, backward = (np.flatnonzero(name.matches(ops)) for ops in (_SOFTMAX, _SOFTMAX_BACKWARD))
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
    first = np.where(is_backward, _next_product(product, before, -1, most), low[near])
    last = np.where(is_backward, _next_product(product, after, 1, most), high[near])
    # Kernels that two spans share belong to the earlier one.
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    members = first < softmax
    first = np.minimum(first, softmax)
    members &= _count(name.matches(_CHOOSES), first, last) == 0
    members &= is_backward | (_count(name.matches(_LOOKS_UP), softmax, last) == 0)
    return first[members], last[members], is_backward[members]


def _count(which: Mask, first: Rows, last: Rows) -> Rows:
    """How many lie in each span [first, last]."""
    before = np.concatenate(([0], np.cumsum(which)))
    return np.asarray(before[np.maximum(last, first) + 1] - before[first], np.int64)


def _next_product(product: Rows, place: Rows, by: int, most: int) -> Rows:
    """The product next to each, where it is near, else that one."""
    this = product[np.clip(place, 0, len(product) - 1)]
    other = product[np.clip(place + by, 0, len(product) - 1)]
    return np.where(np.abs(other - this) <= most, other, this)
