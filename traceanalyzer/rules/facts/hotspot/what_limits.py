"""What limits some work, in words, and what to do about it: the device's peaks, the link, other ranks, its start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.roofline.op_work import Inputs, OpWork, shapes_of
from traceanalyzer.rule.views import Work
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.timeline.kernel_families import GEMM_OR_CONVOLUTION

_MUCH = 0.25  # of an op's time: where the costliest inputs take less, their rate says little of the op
_WELL_SHAPED = 0.75  # of the peak: large bfloat16 products reach about this on an H200; chosen
_LEAST = 0.005  # of the peak: less rounds to 0 %
_OVER_LINK = ("copy_h2d", "copy_d2h")


@dataclass(frozen=True, slots=True)
class Bound:
    """What limits it (kebab-case, empty where unknown), the end of a sentence about it, and advice."""

    kind: str
    words: str
    advice: str


COMMUNICATION = Bound(
    "communication",
    "this includes transfer, any waiting for other ranks, and any overlap with compute",
    "To measure how much of this is waiting, diagnose the traces of all ranks together.",
)
TRANSFER = Bound(
    "communication",
    "only transfer counts here, not the measured waiting for other ranks",
    "Overlap it with compute, or send fewer bytes.",
)
"""Where waiting was measured and taken off."""
_LATENCY = Bound(
    "latency",
    "its kernels are so short that the GPU spends much of this time on starting them",
    "Fuse these kernels, or use a larger batch.",
)
_SHORT_PRODUCTS = "Use a larger batch. Matrix products cannot be fused with one another."
_LINK_ADVICE = "Move fewer bytes between host and device, from pinned memory, while the GPU computes."
_LINK = Bound("link", "transfer over the link to the host", _LINK_ADVICE)
_COPIES = Bound("copies", "copies within the device", "Work in place or on views, and copy less.")
_NO_SHAPES = "Record with record_shapes=True to see how near this op is to its limits."
_IN_GRAPH = (
    "Kernels of a CUDA graph have no recorded inputs: record a step without the graph to see how near they are to "
    "their limits."
)
UNKNOWN = "its kernels: {kernels:of the op's time}"
_UNMODELLED = "The tool cannot compute how fast this op could be: profile the op with {ncu}."
_FEW_BLOCKS = (
    "Give the device more parallel work: more rows, a larger batch, or split rows and combine the parts."
)
_FEW_TILES = (
    "Give the device more parallel work: a larger batch, smaller tiles or split-K in the product's kernel, or several "
    "products in one grouped call."
)
_NORMS = r"linalg_vector_norm|_foreach_norm|aten::norm$"  # of gradients or weights, as a rule
_FEW_NORMS = "Take all norms with one call (torch._foreach_norm), or split long rows and combine the parts."
_RESIZING = r"^aten::_?upsample_"
_RESIZES = (
    "If a 1x1 convolution to fewer channels follows, apply this convolution before you resize: the result is the "
    "same. "
)
_BATCH_NORM = r"1C11_kernel|batch_norm"  # kernels of cuDNN's and torch's
_FEW_CHANNELS = (
    "Use {channels_last} for model and images: with channels first, a batch norm has one CUDA block per "
    "channel."
)
_ADVICE = {
    "compute": "Limited by arithmetic, and near the peak: a smaller dtype or less work helps.",
    "memory": "Limited by memory: fuse the op with its neighbours, or move fewer bytes.",
    "below-bounds": "Profile the op with {ncu}, unless another finding explains its time. Neither compute nor memory "
    "is near its limit.",
}
_MORE_COMPUTE = (
    "Limited by arithmetic: a smaller dtype or less work helps most. Larger or padded dimensions, fused epilogues or "
    "{torch.compile}(mode='max-autotune') may bring it nearer to the peak."
)
LIMITS = (
    *(known.kind for known in (COMMUNICATION, _LATENCY, _LINK, _COPIES)),
    *_ADVICE,
    "few-blocks",
)  # every kind of a bound

_BEYOND = {
    False: "more than memory delivers: caches serve a part",
    True: "above the device's peak: its algorithm needs fewer operations than counted",
}


def what_limits(found: Work, rates: OpWork, pace: float, min_near_share: float, max_latency_ns: int) -> Bound:
    """What limits most of the time of some work of one op.

    Args:
        found: not empty.
        rates: of the whole window.
        pace: by how much quicker the work is than on average over the whole window.
        min_near_share: of a peak; what reaches more of it is limited by it.
        max_latency_ns: mean duration up to which kernels are limited by their start.
    """
    if _mostly(found, "communication"):
        return COMMUNICATION
    if found.total_ns / len(found) < max_latency_ns:
        multiplies = 2 * found[found.name.matches(GEMM_OR_CONVOLUTION)].total_ns > found.total_ns
        advice = _FEW_NORMS if found.op.name.matches(_NORMS).all() else _LATENCY.advice
        return replace(_LATENCY, advice=_SHORT_PRODUCTS if multiplies else advice)
    if _mostly(found, *_OVER_LINK):
        return _over_link(found.of_kind(*_OVER_LINK))
    if _mostly(found, "copy_d2d"):
        return _COPIES
    bound = _by_peaks(found, rates, pace, min_near_share)
    resizes = 2 * found[found.op.name.matches(_RESIZING)].total_ns > found.total_ns
    return replace(bound, advice=_RESIZES + bound.advice) if resizes else bound


def _over_link(copies: Work) -> Bound:
    moved = int(np.maximum(copies.bytes, 0).sum())
    rate = f"it reaches {moved / copies.total_ns:,.1f} GB/s over the link to the host"
    return replace(_LINK, words=rate) if moved else _LINK


def _mostly(found: Work, *kinds: str) -> bool:
    return 2 * found.of_kind(*kinds).total_ns > found.total_ns


def _peak_of(one: Inputs) -> str:
    """How high it is, for the kind of numbers that the op computes with."""
    if one.limit == "compute":
        return f" ({one.peak_tflops:,.0f} TFLOP/s)" if one.peak_tflops else ""
    return f" ({one.peak_gbps:,.0f} GB/s)" if one.peak_gbps else ""


def _by_peaks(found: Work, rates: OpWork, pace: float, min_near_share: float) -> Bound:
    """By the inputs of which shapes and peaks say what they need: the costliest, or the mean of many."""
    inner = next(iter(found.op.name.sums(found.dur_ns)), None)
    by_shape = _spent(found)
    known = [
        (one, one.peak_share, by_shape[one.shapes])
        for one in rates.inputs
        if one.op == inner and one.peak_share is not None and by_shape.get(one.shapes, 0) > 0
    ]
    if not known:
        return _by_rate(inner, found, rates, pace)
    shares, spent = np.array([one[1] for one in known]), np.array([one[2] for one in known], np.float64)
    best = known[int(spent.argmax())][0]
    compute, share = best.limit == "compute", pace * known[int(spent.argmax())][1]
    rate = f"{pace * (best.tflops or 0):,.0f} TFLOP/s" if compute else f"{pace * (best.gbps or 0):,.0f} GB/s"
    rate = f"{'with its costliest inputs ' * (len(by_shape) > 1)}it reaches {rate}"
    part = float(spent.max()) / found.total_ns
    mean = pace * float((shares * spent).sum() / spent.sum())
    kind = str(best.limit) if (share if part >= _MUCH else mean) >= min_near_share else "below-bounds"
    near = (
        ""
        if share > 1 or share < _LEAST
        else f", {100 * share:.0f} % of the {best.limit} peak{_peak_of(best)}"
    )
    if part < _MUCH:
        own = np.array([one.limit == best.limit for one, *_ in known])
        of_those = pace * float((shares * spent)[own].sum() / spent[own].sum())
        which = "calls" if own.all() else f"{best.limit}-bound calls"
        whose = " of their dtype" * (best.limit == "compute")
        rate = f"on average, its {which} reach {100 * of_those:.0f} % of the {best.limit} peak{whose}"
        near = ""
    elif share > 1:  # no device is quicker than its peak
        near = f", {_BEYOND[compute]}"
    if kind in ("compute", "memory"):
        far = kind == "compute" and (share if part >= _MUCH else mean) < _WELL_SHAPED
        return Bound(kind, f"{rate}{near}", _MORE_COMPUTE if far else _ADVICE[kind])
    few = _few_blocks(found)
    return replace(few, words=f"{rate}{near}; {few.words}") if few else _below(f"{rate}{near}")


def _below(rate: str) -> Bound:
    return Bound(
        "below-bounds",
        f"{rate}; its kernels: {{kernels:of the op's time}}",
        _ADVICE["below-bounds"],
    )


def _few_blocks(found: Work) -> Bound | None:
    """Where most of the time goes to kernels of so few blocks that most of the device has nothing to do."""
    sms = max((device.sms or 0 for device in found.events.trace.meta.devices), default=0)
    few = found[(found.blocks > 0) & (2 * found.blocks < sms)]
    if 2 * few.total_ns <= found.total_ns:
        return None
    blocks = int(few.blocks[np.argmax(few.dur_ns)])
    told = f"{blocks} block{'s' * (blocks > 1)}"
    advice = _FEW_NORMS if few.op.name.matches(_NORMS).all() else _FEW_BLOCKS
    advice = _FEW_CHANNELS if few.name.matches(_BATCH_NORM).all() else advice
    advice = _FEW_TILES if few.name.matches(GEMM_OR_CONVOLUTION).all() else advice
    return Bound("few-blocks", f"its longest kernel has {told} for {sms} multiprocessors", advice)


def _spent(found: Work) -> dict[str, int]:
    """Shapes of an op's inputs -> ns."""
    sums: dict[str, int] = {}
    for dims, ns in found.dims.sums(found.dur_ns).items():
        text = shapes_of(Signature.parsed("", dims, None, None))
        sums[text] = sums.get(text, 0) + ns
    return sums


def _by_rate(inner: str | None, found: Work, rates: OpWork, pace: float) -> Bound:
    """Where no peak is known for it: what it moves or computes a second, or how much of the device its grid covers."""
    shaped = bool(found.events.trace.meta.capabilities.get("shapes"))
    best = next((one for one in rates.inputs if one.op == inner and one.gbps is not None), None)
    if best is not None and best.gbps is not None:
        computes = "" if best.tflops is None else f"{pace * best.tflops:,.1f} TFLOP/s and "
        reached = f"it reaches {computes}{pace * best.gbps:,.0f} GB/s, by the shapes of its inputs"
        return Bound("", reached, _UNMODELLED)
    advice = _UNMODELLED if shaped else _NO_SHAPES
    return _few_blocks(found) or Bound("", UNKNOWN, _IN_GRAPH if found.in_graph.any() else advice)
