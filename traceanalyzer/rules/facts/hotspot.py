"""The op that takes most of the step, and what limits it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.replay.sample import JobStep
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.roofline.op_rates import Inputs, OpWork, shapes_of
from traceanalyzer.rule import Claims, Hits, Kind, LostTime, Work, rule
from traceanalyzer.rule.evidence_texts import (
    MORE_WORK,
    counted_shapes,
    display_names,
    kernel_times,
    largest_shapes,
    launched_in_steps,
    uncovered_ns,
)
from traceanalyzer.tensors.ops.table import Kind as Kinds
from traceanalyzer.tensors.ops.table import op_row
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.timeline.backward_nodes import lines_of
from traceanalyzer.timeline.collective_waits import CollectiveWaits, without_waiting
from traceanalyzer.timeline.kernel_families import GEMM_OR_CONVOLUTION
from traceanalyzer.timeline.steps import Steps

# Of an op's time: where the costliest inputs take less, their rate says little of the op.
_MIN_COSTLIEST_SHARE = 0.25
# Share of the peak that large bfloat16 GEMMs reach on an H200; chosen.
_WELL_SHAPED = 0.75
# Smaller shares of the peak round to 0 %.
_MIN_PEAK_SHARE = 0.005
_OVER_LINK = ("copy_h2d", "copy_d2h")
_SHORT_PRODUCTS = "Use a larger batch. Matrix products cannot be fused with one another."
_LINK_ADVICE = "Move fewer bytes between host and device, from pinned memory, while the GPU computes."
_NO_SHAPES = "Record with record_shapes=True to see how near this op is to its limits."
UNKNOWN = "its kernels: {kernels:of the op's time}"
_UNMODELLED = "The tool cannot compute how fast this op could be: profile the op with {ncu}."
_FEW_BLOCKS = "Give the device more parallel work: more rows, a larger batch, or split rows and combine the parts."
_FEW_TILES = (
    "Give the device more parallel work: a larger batch, smaller tiles or split-K in the product's kernel, or several "
    "products in one grouped call."
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
# By its shapes an op would be faster than the device can be: no rate is known.
_ABOVE_PEAK = {
    "memory": "memory cannot deliver all bytes of these shapes in this time{peak}: it reads a part, or from caches",
    "compute": "its shapes need more operations than the device does in this time{peak}: it skips a part",
}
# What takes fewer bytes depends on what the op computes; others can be fused.
_FEWER_BYTES = {
    Kinds.ATTENTION: "Limited by memory: it reads all keys and values. Pass only the filled part of the cache, share "
    "heads (grouped queries), or use a smaller dtype.",
    Kinds.GEMM: "Limited by memory: the matrix is read for few rows. Use more rows at once (a larger batch), or a "
    "smaller dtype.",
    Kinds.REDUCTION: "Limited by memory: fuse it with the op that computes its input, or use a smaller dtype. For "
    "windows that overlap, use cumulative sums (torch.cumsum).",
    Kinds.LOOKUP: "Limited by memory: read fewer or smaller rows, or use a smaller dtype.",
    Kinds.SCATTER: "Limited by memory: sort the indices once and reduce segments (torch.segment_reduce), or add fewer "
    "rows.",
    Kinds.SORT: "Limited by memory: sort fewer elements or a smaller dtype, or use topk.",
}
# What torch marks: the parts of compiled code, the optimizer, a collective and its process group.
_COMPILED = r"^Torch-Compiled Region|CompiledFunction|^## Call CompiledFxGraph"
_NO_USERS = r"^## |CompiledF|^Torch-Compiled|^TorchDynamo|^\[|^(nccl|gloo|mpi):|^Optimizer\.|^(DistributedD|FSDP::)"


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
# Where waiting was measured and subtracted.
TRANSFER = Bound(
    "communication",
    "only transfer counts here, not the measured waiting for other ranks",
    "Overlap it with compute, or send fewer bytes.",
)
_LATENCY = Bound(
    "latency",
    "its kernels are so short that the GPU spends much of this time on starting them",
    "Fuse these kernels, or use a larger batch.",
)
_LINK = Bound("link", "transfer over the link to the host", _LINK_ADVICE)
_COMPILED_REGION = Bound(
    "",
    "its kernels are {kernels}",
    "Look at the longest kernels of this region. A name such as triton_poi_fused_add_mul lists the ops fused in the "
    "kernel; other kernels are those of libraries.",
)
_COPIES = Bound("copies", "copies within the device", "Work in place or on views, and copy less.")
# Every kind of a bound.
LIMITS = (*(bound.kind for bound in (COMMUNICATION, _LATENCY, _LINK, _COPIES)), *_ADVICE, "few-blocks")


class Limits:
    min_part_share: float = 0.05
    """reported only if the op takes at least this share of the step; a smaller op is not worth looking at first"""
    min_near_share: float = 0.5
    """a peak (of arithmetic, memory or link) limits an op if the op reaches at least this share of the peak"""
    max_latency_ns: int = 5_000
    """if the kernels of an op take at most this time on average, the start of each kernel limits the op;
    measured on H200 and MI300X"""


@rule(since="0.1", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, causes=LIMITS, kind=Kind.FACT)
def hotspot(
    work: Work,
    steps: Steps,
    rates: OpWork,
    forecast: Forecast | None,
    job: JobStep | None,
    waits: CollectiveWaits | None,
    limits: Limits,
) -> Iterator[Hits]:
    """The op that takes the largest share of the step, and what limits it.

    What it looks for: the op or collective that takes the most GPU time. An op here is what the user calls,
    or its backward node. Of collectives and copies, only the time counts in which nothing computes.
    Why it matters: this op is the first to look at. The finding is a fact, not a fault, so it is always info.
    Bad: tuning a kernel that takes 2 % of the step. Good: starting with the kernel that takes 60 %.
    How sure: the time is measured. What limits the op is computed from its shapes and the device's peak
    rates. Without recorded shapes, the limit is usually unknown.
    When it is wrong: an op that runs at the same time as work of another stream costs less than its share.
    Source: roofline model (Williams, Waterman, Patterson 2009).
    """
    within = work.step >= 0 if (work.step >= 0).any() else np.ones(len(work), bool)
    usual = forecast.program.sample.steps if forecast else np.flatnonzero(steps.steady)
    for device in distinct(work.device[within]).tolist():
        on_device = work.device == device
        step_work, alone_ns = work[on_device & within], uncovered_ns(work[on_device])[within[on_device]]
        names = display_names(step_work)
        # Steps that tune kernels differ; all count if the usual ones run none.
        counts = np.isin(step_work.step, usual)
        counts = counts if counts.any() else np.ones(len(step_work), bool)
        own_ns = without_waiting(step_work, waits)
        took_ns = np.where(counts, own_ns, 0)
        # Work that compute overlaps is no hot spot, nor is work queued before the recording.
        launched = launched_in_steps(step_work)
        alone_ns = np.where(launched | ~launched.any(), np.minimum(took_ns, alone_ns), 0)
        op = next(iter(names.sums(alone_ns)), None)
        if op is None:
            continue
        chosen = names.one_of(op)
        op_work, every = step_work[chosen & counts], step_work[chosen]
        gpu_ns = int(took_ns[chosen].sum()) // max(len(usual), 1)
        # Communication is left out: without other work, ranks wait less for each other.
        work_ns = int(alone_ns[~step_work.kind.one_of("communication")].sum()) / max(len(usual), 1)
        whole_ns, judged_step = _judged_step(steps, job or (forecast.step if forecast else None), work_ns)
        share = gpu_ns / max(whole_ns, 1.0)
        if share >= limits.min_part_share:
            pace = every.total_ns / len(every) / max(op_work.total_ns / len(op_work), 1.0)
            bound = what_limits(op_work, rates, pace, limits)
            bound = TRANSFER if waits is not None and bound.kind == TRANSFER.kind else bound
            bound = _over_link(every.of_kind(*_OVER_LINK)) if bound is _LINK else bound
            if not bound.kind and op_work.outer_op.name.matches(_COMPILED).any():
                bound = _COMPILED_REGION
            yield _hits(op, every, op_work, bound, gpu_ns, share, judged_step)


def _judged_step(steps: Steps, predicted: JobStep | StepEstimate | None, work_ns: float) -> tuple[float, str]:
    """(time in ns that shares refer to, its name): the predicted or recorded step, or all GPU work if longer."""
    whole_ns = predicted.unprofiled_ns if predicted else steps.window_ns / max(len(steps), 1)
    if work_ns > (1 + MORE_WORK) * whole_ns:
        return work_ns, "all GPU work"
    return whole_ns, f"the {'predicted' if predicted else 'recorded'} step"


def _hits(op: str, every: Work, kernels: Work, bound: Bound, gpu_ns: int, share: float, judged_step: str) -> Hits:
    """The fact about one op: it points at all work of the op, its numbers are of the usual steps."""
    lines, users = lines_of(kernels).sums(kernels.dur_ns), kernels[~kernels.launch.annotation.matches(_NO_USERS)]
    annotations = {} if lines else users.launch.annotation.sums(users.dur_ns)
    # The predicted step has less waiting for other ranks than the recorded ones.
    shown = share <= 1 and bound is not COMMUNICATION
    part = (
        f", {{part}} of {judged_step}"
        if shown
        else ", the sum of its kernels, some of which run at the same time" * (share > 1)
    )
    same = list(kernel_times(kernels)) == [op.removesuffix("...")] and bound.words == UNKNOWN
    words = "" if same else f"; {bound.words}"
    where = ", at {lines}" if lines else ", under the annotation {annotations}" if annotations else ""
    dims = kernels.dims.sums(kernels.dur_ns)
    if inputs := largest_shapes(kernels):
        where += f", {'mostly ' if len(dims) > 1 else ''}for inputs of {counted_shapes(inputs)}"
    return Hits(
        occurrences=every,
        named_by=op,
        cause=bound.kind,
        lost=LostTime.none(),
        message=f"{{by}} takes {{gpu}} of GPU time a step{part}{where}{words}",
        advice=bound.advice,
        evidence={
            "gpu_ns": gpu_ns,
            "part_share": min(share, 1.0),
            "kernels": kernel_times(kernels),
            "shapes": next(iter(dims), None),
            "lines": lines,
            "annotations": annotations,
        },
        info=True,
    )


def what_limits(kernels: Work, rates: OpWork, pace: float, limits: Limits) -> Bound:
    """The bound of most of the time of one op's work, which is `pace` times as quick as over the whole window."""
    if _mostly(kernels, "communication"):
        return COMMUNICATION
    if kernels.total_ns / len(kernels) < limits.max_latency_ns:
        multiplies = 2 * kernels[kernels.name.matches(GEMM_OR_CONVOLUTION)].total_ns > kernels.total_ns
        return replace(_LATENCY, advice=_SHORT_PRODUCTS) if multiplies else _LATENCY
    if _mostly(kernels, *_OVER_LINK):
        return _LINK
    if _mostly(kernels, "copy_d2d"):
        return _COPIES
    return _by_peaks(kernels, rates, pace, limits.min_near_share)


def _over_link(copies: Work) -> Bound:
    """With the mean rate of all these copies, as `exposed-copy` gives it."""
    moved = int(np.maximum(copies.bytes, 0).sum())
    rate = f"it reaches {moved / copies.total_ns:,.3g} GB/s (mean of all its copies) over the link to the host"
    return replace(_LINK, words=rate) if moved else _LINK


def _mostly(kernels: Work, *kinds: str) -> bool:
    return 2 * kernels.of_kind(*kinds).total_ns > kernels.total_ns


def _by_peaks(kernels: Work, rates: OpWork, pace: float, min_near_share: float) -> Bound:
    """Bound by the inputs whose needed time is known: the costliest, or their mean."""
    inner, by_shape = next(iter(kernels.op.name.sums(kernels.dur_ns)), None), _spent(kernels)
    rated = [item for item in rates.inputs if item.op == inner and item.peak_share and by_shape.get(item.shapes)]
    if not rated:
        return _by_rate(inner, kernels, rates, pace)
    spent_ns = np.array([by_shape[item.shapes] for item in rated])
    best = rated[int(spent_ns.argmax())]
    if spent_ns.max() >= _MIN_COSTLIEST_SHARE * kernels.total_ns:
        share = pace * float(best.peak_share or 0)
        words = _reached(best, share, pace, several=len(by_shape) > 1)
    else:
        share = pace * float(np.average([item.peak_share or 0 for item in rated], weights=spent_ns))
        words = f"on average, its calls reach {100 * share:.0f} % of their peak"
    kind = str(best.limit)
    if share < min_near_share:
        if few := _few_blocks(kernels):
            return replace(few, words=f"{words}; {few.words}")
        return Bound("below-bounds", f"{words}; {UNKNOWN}", _ADVICE["below-bounds"])
    if kind == "memory":
        return Bound(kind, words, _FEWER_BYTES.get(op_row(best.op).kind, _ADVICE[kind]))
    return Bound(kind, words, _ADVICE[kind] if share >= _WELL_SHAPED else _MORE_COMPUTE)


def _reached(item: Inputs, share: float, pace: float, *, several: bool) -> str:
    """A part of a message: the rate with these inputs, and its share of the peak."""
    compute = item.limit == "compute"
    peak, unit = (item.peak_tflops, "TFLOP/s") if compute else (item.peak_gbps, "GB/s")
    rate = pace * ((item.tflops if compute else item.gbps) or 0)
    shown = f" ({peak:,.0f} {unit})" if peak else ""
    if share > 1:
        return _ABOVE_PEAK[str(item.limit)].format(peak=shown)
    if share < _MIN_PEAK_SHARE:
        return f"it reaches less than 1 % of the {item.limit} peak{shown}"
    inputs = "with its costliest inputs " * several
    return f"{inputs}it reaches {rate:,.0f} {unit}, {100 * share:.0f} % of the {item.limit} peak{shown}"


def _few_blocks(kernels: Work) -> Bound | None:
    """Bound if most of the time goes to kernels with too few blocks to fill the device, else None."""
    sms = max((device.sms or 0 for device in kernels.events.trace.meta.devices), default=0)
    few = kernels[(kernels.blocks > 0) & (2 * kernels.blocks < sms)]
    if 2 * few.total_ns <= kernels.total_ns:
        return None
    blocks = int(few.blocks[np.argmax(few.dur_ns)])
    advice = _FEW_TILES if few.name.matches(GEMM_OR_CONVOLUTION).all() else _FEW_BLOCKS
    return Bound("few-blocks", f"its longest kernel has {blocks} block{'s' * (blocks > 1)} for {sms} SMs", advice)


def _spent(kernels: Work) -> dict[str, int]:
    """Time in ns by input shapes."""
    sums: dict[str, int] = {}
    for dims, ns in kernels.dims.sums(kernels.dur_ns).items():
        text = shapes_of(Signature.parsed("", dims, None, None))
        sums[text] = sums.get(text, 0) + ns
    return sums


def _by_rate(inner: str | None, kernels: Work, rates: OpWork, pace: float) -> Bound:
    """Bound of an op without a known peak: its rate, or the share of the device that its grid fills."""
    best = next((item for item in rates.inputs if item.op == inner and item.gbps is not None), None)
    if best is not None and best.gbps is not None:
        computes = "" if best.tflops is None else f"{pace * best.tflops:,.1f} TFLOP/s and "
        reached = f"it reaches {computes}{pace * best.gbps:,.0f} GB/s, by the shapes of its inputs"
        return Bound("", reached, _UNMODELLED)
    shaped = kernels.events.trace.meta.capabilities.get("shapes")
    return _few_blocks(kernels) or Bound("", UNKNOWN, _UNMODELLED if shaped else _NO_SHAPES)
