"""Ops that take many times what their shapes need."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, median, numbered, quantile_within
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.roofline.gpus import Gpu, Gpus
from traceanalyzer.roofline.lower_bounds import CONTENDED, bound_of
from traceanalyzer.roofline.op_rates import call_times, shapes_of
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Unavailable, Work, reduce_to, rule
from traceanalyzer.rule.evidence_texts import kernel_times
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.strides import adds_transposed, stride_reason, worked_along
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, is_half, largest_odd_size
from traceanalyzer.tensors.top_ops import require_shapes
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline.backward_nodes import lines_of
from traceanalyzer.timeline.kernel_chains import elements_per_thread

_FLASH = r"flash|fmha_cutlass|cudnn_generated_fort_native_sdpa"
# With deterministic algorithms, index_add calls index_put_, which sorts.
_DETERMINISTIC = r"^aten::index_add_?$"
_ADDS = r"ReduceAdd|scatter|index_add|atomicAdd|gpuAtomicAdd"
# Share of the SMs: fewer blocks leave half of the device empty.
_FEW = 0.5
# Elements: tensor cores load so many at once.
_ALIGNED = 8
_SORTING = "it sorts the indices, and adds equal ones one after the other"
_ADDS_ROWS = ("index_add_", "index_add", "index_copy_", "scatter_add_", "scatter_add")
SHAPE = "Give the device more parallel work: more rows, another dimension, or split rows and combine the parts"
_FULL = (
    "Its blocks fill the device already: try another layout or dtype, or let {torch.compile}(mode='max-autotune') "
    "choose another kernel"
)
_OTHER_ALGORITHM = (
    "Set torch.backends.cudnn.benchmark = True: cuDNN then measures its algorithms for these shapes and takes the "
    "fastest."
)
_PAD = "Pad the dimension that is not a multiple of 8, or split the product along one that is much longer than the rest"
_PARTS = "If one dimension is much longer than the others, split the product along it"
_PLACES = "Let fewer additions hit the same row: sum equal indices first, or add into several tables"
_ADD_FIRST = (
    "If all additions go to few addresses, such as classes or bins, use torch.bincount(index, weights) or torch.histc: "
    "they add in each block's shared memory first. Else sum equal indices before."
)
EQUAL = (
    "Equal indices are added one after the other: use F.embedding or index_select instead of table[index], and "
    "index_add_ instead of index_put_(accumulate=True); they add many at once"
)
_ORDER = "Reduce along the dimension that is contiguous in memory, or transpose once before"
BROADCAST = (
    "In backward it sums the gradient of a bias or another broadcast tensor: put the layer under {torch.compile}, or "
    "drop a bias before a batch norm (bias=False)"
)
NORM = "Put the norm under {torch.compile}: torch's own kernels use one block per row, which short rows do not fill"
PASSES = (
    "If the filter is the product of a column and a row, as a Gaussian or a mean is, convolve in two passes: "
    "conv2d(conv2d(x, row), column), with weights of 1 x k and k x 1"
)
_ATTENTION = (
    "Enable the flash kernel: is_causal=True instead of a causal mask, no mask where nothing is masked; for biases "
    "and other masks torch.nn.attention.flex_attention"
)
_PATCHES = (
    "Its stride is its kernel size: cut the input into patches and use a product, F.linear(F.unfold(x, k, stride=k)"
    ".transpose(1, 2), weight.flatten(1), bias)"
)
_TRANSPOSED = (
    "Its input lies transposed in memory, and sums hand the layout on: call .contiguous() once, after the "
    "transpose() or permute() that makes it"
)
SQUEEZE = "Drop the dimension with a view (squeeze): one element needs no reduction"
FLASH = (
    "The flash kernel runs already: give it more parallel work (more heads, sequences or queries), or a head size "
    "that it is made for (64 or 128)"
)
_PAIRS = (
    "cdist takes one block for each pair of rows here, which short rows do not fill: put "
    "(a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1).sqrt() under {torch.compile}; or let its default "
    "compute_mode multiply, where rounding does not matter"
)
_SCALAR = (
    "For these sizes cuDNN has no kernel in 16 bit that uses tensor cores, but may have one for TF32: run this layer "
    "in float32 with TF32 on (torch.autocast('cuda', enabled=False) around it), or choose another kernel size, stride "
    "or number of channels"
)
REMEDIES: Mapping[str, str] = {
    "scatter": _PLACES,
    "row scatter": _PLACES,
    "histogram": _ADD_FIRST,
    **dict.fromkeys(("sorted sum", "sorted row sum", "indexed sum", "indexed row sum"), EQUAL),
    "softmax": _ORDER,
    "reduction": f"{_ORDER}, or put it under {{torch.compile}}",
    "norm": NORM,
    "norm backward": NORM,
    "scan": f"{_ORDER}; cut a few long rows into pieces",
    "matmul": _PARTS,
    "attention": _ATTENTION,
    "separable conv": PASSES,
    "depthwise conv": "Use {channels_last}, for which cuDNN has special kernels, or put the layer under "
    "{torch.compile}",
    "distances": _PAIRS,
    "batch norm": "Use {channels_last}, or more channels or images at once",
}


class Limits:
    times: float = 3.0
    """a call is reported only if it takes at least this many times its expected time; in healthy H200 traces,
    95 % of 5,357 calls take less than 2.9 times their expected time"""
    passes_times: float = 1.5
    """a blur with one wide filter is reported if it takes at least this many times the predicted time of two filters,
    one along each direction; this limit is lower than `times`, because both ways compute the same result; chosen"""
    min_call_ns: int = 10_000
    """shorter calls are ignored, because their time is latency; measured on an H200 with torch 2.11"""
    floor_ns: int = 5_000
    """no call is expected to take less than this time, even with few bytes, because some calls run several kernels"""
    adding_ns: int = 10_000
    """used for the predicted saving: if index_add_ (one kernel) replaces index_put_ (which sorts), the launch
    of index_add_ is predicted to take this CPU time; measured on an H200 with torch 2.11"""
    geometry_times: float = 30.0
    """without shapes, an elementwise kernel is reported only if it takes at least this many times the time to move its
    elements; of 500 traces one kernel takes over 25 times this time: it adds to 19 addresses; H200"""
    element_bytes: int = 24
    """without shapes: bytes that an elementwise kernel moves for each element at most: three of 8 bytes"""
    min_gpu_share: float = 0.02
    """reported only if the excess of all these calls together (recorded minus expected time) is at least this
    share of GPU time"""
    usual_share: float = 0.10
    """a finding is info if its saving is below this share of the step, because healthy models have such
    calls, too (a layer norm's backward: up to 5.3 % of the step, H200)"""


@rule(since="0.1", claims=Claims.CATCH_ALL, min_share=0.03, limits=Limits)
def far_from_bound(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """An op takes many times what its shapes and types need.

    What it looks for: calls that take far longer than expected. The rule computes a minimum time from a call's inputs
    and the device's peak rates. The expected time is the minimum time multiplied by a factor for this kind of call.
    Why it costs: neither memory nor arithmetic limits the call. Typical reasons:
    - too few rows to run in parallel;
    - a size that is not divisible by the number of elements in a load or a tile;
    - additions to the same addresses;
    - a bad order of memory accesses;
    - one wide blur filter, where two filters, one along each direction, are faster.
    Bad: table[index] in training, if the table has few rows: its backward pass adds to the same addresses.
    Good: F.embedding(index, table).
    How sure: the time is measured. A reason is named only if grid, strides or sizes show it.
    When it is wrong: calls read only a part of their inputs, or their data is sparse or irregular.
    Without shapes only elementwise kernels are judged, by the elements of their grids.
    Saving: the recorded time minus the expected time, with a wide range.
    Source: the roofline model (Williams et al., 2009); the factors were measured on an H200.
    """
    if not any(gpu.peaks for gpu in gpus.known.values()):
        raise Unavailable("the device is not in the table of peaks")
    if not any(op.dims for op in inputs.signatures):
        by_geometry = list(_slow_by_geometry(work[work.kind.one_of("compute")], gpus, limits))
        yield from by_geometry
        if not by_geometry:
            require_shapes(inputs.signatures, "shows the least that each op needs")
    chosen = work[inputs.meets(lambda op: op.dims) & work.kind.one_of("compute", "copy_d2d")]
    chosen = chosen[~chosen.op.parent.parent.name.matches(_DETERMINISTIC)]
    for device, pieces in chosen.by_device():
        if gpus[device].peaks is not None:
            whole_ns = work[work.device == device].total_ns
            yield from _slow_hits(pieces, inputs, gpus[device], limits.min_gpu_share * whole_ns, limits)


def _slow_hits(pieces: Work, inputs: WorkInputs, gpu: Gpu, least_ns: float, limits: Limits) -> Iterator[Hits]:
    assert gpu.peaks is not None
    number, (call, _) = inputs.number[pieces.entries], numbered(pieces.op.rows)
    spent = LostTime.all_of(pieces, call).sums(int(call.max(initial=-1)) + 1)[call]
    reached, needed = call_times(number, pieces.name, inputs.signatures, gpu.peaks, inputs.recorded)
    target = np.maximum(reached, limits.floor_ns)[number]
    # The median: one slow call is not the rate of the op.
    usual = quantile_within(number, spent, 0.5)
    models = map(bound_of, inputs.signatures)
    passes = [model is not None and model.kind == "separable conv" for model in models]
    times = np.where(passes, limits.passes_times, limits.times)[number]
    far = (reached[number] > 0) & (np.minimum(spent, usual) > times * target) & (spent > limits.min_call_ns)
    pieces, number, spent, target = pieces[far], number[far], spent[far], target[far]
    fixed = pieces.dur_ns * (target / np.maximum(spent, 1))
    for op, _ in pieces.by(pieces.op.name):
        members = pieces.op.name.one_of(op)
        if np.asarray(pieces.dur_ns[members] - fixed[members], np.int64).sum() >= least_ns:
            usual_spent = np.minimum(spent, usual[far])[members]
            worst = int(np.flatnonzero(members)[np.argmax(usual_spent)])
            shape = inputs.signatures[int(number[worst])]
            worst_times = int(needed[number[worst]]), int(usual_spent.max())
            yield _hits(op, pieces[members], fixed[members], shape, worst_times, gpu.sms, limits)


def _slow_by_geometry(kernels: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Elementwise kernels that take far longer than moving their elements does, by the grids of their launches."""
    elements = kernels.blocks * kernels.threads * elements_per_thread(kernels.name)
    for device, on_device in kernels.by_device():
        if (peaks := gpus[device].peaks) is None:
            continue
        here = (kernels.device == device) & (elements > 0)
        needed = np.maximum(elements[here] * limits.element_bytes / peaks.gbps, limits.floor_ns)
        pieces = kernels[here]
        far = pieces.dur_ns > limits.geometry_times * needed
        for op, _ in pieces[far].by(pieces[far].op.name):
            members = far & pieces.op.name.one_of(op)
            of_op, needed_ns = pieces[members], needed[members]
            if (of_op.dur_ns - needed_ns).sum() < limits.min_gpu_share * on_device.total_ns:
                continue
            worst = int(np.argmax(of_op.dur_ns))
            adds = bool(of_op.name.matches(_ADDS).all())
            lines = lines_of(of_op).sums(of_op.dur_ns)
            yield Hits(
                **reduce_to(of_op, needed_ns),
                named_by=op,
                message="{by} takes {call} per call in {kernels}, but moving its elements needs only {needed}"
                + (", from {lines}" if lines else "")
                + (": many of its additions hit the same addresses, one after the other" if adds else ""),
                advice=_ADD_FIRST if adds else f"{SHAPE}; {{ncu}} shows what the kernel waits for.",
                confidence=Confidence.MEDIUM,
                evidence={
                    "call_ns": int(of_op.dur_ns[worst]),
                    "needed_ns": int(needed_ns[worst]),
                    "ratio": round(float(of_op.dur_ns[worst] / needed_ns[worst])),
                    "kernels": kernel_times(of_op),
                    "lines": lines,
                },
            )


def _hits(
    op: str, pieces: Work, fixed: Floats, shape: Signature, times: tuple[int, int], sms: int | None, limits: Limits
) -> Hits:
    needed_ns, taken_ns = times  # of the call that is usual at its worst
    model, lines = bound_of(shape), lines_of(pieces).sums(pieces.dur_ns)
    line = f", from {next(iter(lines))}" if lines else ""
    kind = model.kind if model else ""
    remedy = REMEDIES.get(kind, SHAPE)
    if kind == "reduction" and pieces.outer_op.name.matches(r"Backward\d*$").any():
        remedy = BROADCAST
    if kind == "attention" and (pieces.name.matches(_FLASH) | pieces.op.name.matches(_FLASH)).any():
        remedy = FLASH
    if kind == "matmul" and largest_odd_size(shape, _ALIGNED):
        remedy = _PAD
    if remedy == SHAPE and len(pieces.blocks) and sms and not _few_blocks(pieces.blocks, sms):
        remedy = _FULL if kind != "conv" else f"{_OTHER_ALGORITHM} {_FULL}"
    if kind == "conv" and is_half(shape) and pieces.name.matches(families.SCALAR_CONVOLUTION).any():
        remedy = _SCALAR
    if reduces_nothing(shape):
        remedy = SQUEEZE
    if cuts_patches(shape):
        remedy = _PATCHES
    if adds_transposed(shape):
        remedy = _TRANSPOSED
    explained = remedy in (SQUEEZE, PASSES)
    torchs_own = remedy in (BROADCAST, NORM)
    why = reason(shape, kind, pieces.blocks, sms)
    slower = reduce_to(pieces, fixed)
    # Sorting takes a dozen more kernels and the CPU time of their ops.
    if remedy == EQUAL:
        slower["fix"] = (_in_one_kernel(pieces, fixed, limits.adding_ns),)
    what = "passes in each direction need" if remedy == PASSES else "its bytes and operations need"
    what = "a call so small needs" if needed_ns < limits.floor_ns else what
    needed_ns = max(needed_ns, limits.floor_ns)
    return Hits(
        **slower,
        named_by=op,
        message=f"{{by}} of {{shapes}} ({{types}}) takes {{call}} per call in {{kernels}}, but {what} only "
        "{needed}" + line + why,
        advice=f"{remedy}." if explained else f"{remedy}; {{ncu}} shows what the kernel waits for.",
        confidence=Confidence.MEDIUM,
        evidence={
            "shapes": shapes_of(shape),
            "types": ", ".join(dict.fromkeys(kind for kind in shape.types if kind in ITEM_BYTES)),
            "call_ns": taken_ns,
            "needed_ns": needed_ns,
            "ratio": round(taken_ns / needed_ns),
            "reason": why.removeprefix(": "),
            "kernels": kernel_times(pieces),
            "lines": lines,
        },
        normal_share=limits.usual_share if torchs_own else 0.0,
        fault_key="transposed-tensor" if remedy == _TRANSPOSED else "",
    )


def _in_one_kernel(pieces: Work, fixed: Floats, cpu_ns: int) -> Replace:
    """Each call as one kernel of the time that all of its pieces are to take."""
    _, first, call = np.unique(pieces.op.rows, return_index=True, return_inverse=True)
    op = pieces[first].op
    return Replace(op.start_ns, op.end_ns, np.bincount(call, fixed).astype(np.float64)[:, None], cpu_ns)


def reason(op: Signature, kind: str, blocks: Rows, sms: int | None) -> str:
    """The end of a sentence, empty if the trace does not show it; `blocks` are those of one call's grids or of all."""
    if reduces_nothing(op):
        return ": the dimension that it reduces has one element, so that its input is only copied"
    try:
        sorting = _SORTING * (kind in ("indexed sum", "indexed row sum"))
        explanation = _contention(op, kind) or sorting or _few_blocks(blocks, sms) or stride_reason(op)
        if kind == "separable conv":
            taps = op.shape(2 if op.name.endswith("_backward") else 1)[2:]
            explanation = f"one pass multiplies {math.prod(taps):,} taps, one pass in each direction {sum(taps):,}"
    except (LookupError, TypeError, ValueError):
        explanation = _few_blocks(blocks, sms)
    return f": {explanation}" if explanation else ""


def reduces_nothing(op: Signature) -> bool:
    """Whether the dimension that it reduces has one element: such a call only copies its input."""
    try:
        shape, _, dim = worked_along(op)
    except (LookupError, TypeError, ValueError):
        return False
    return dim is not None and shape[dim] == 1


def cuts_patches(op: Signature) -> bool:
    """Whether a convolution has its kernel size, more than one, as its stride."""
    try:
        kernel, stride = list(op.shape(1)[2:]), op.scalar(3)
    except LookupError:
        return False
    return "convolution" in op.name and kernel == stride and math.prod(kernel) > 1


def _contention(op: Signature, kind: str) -> str:
    """Additions that meet in few places."""
    name = op.name.removeprefix("aten::")
    if name == "embedding_dense_backward":
        added, places = math.prod(op.shape(1)), int(op.scalar(2))
    elif name in _ADDS_ROWS:
        dim, along = int(op.scalar(1)), op.shape(2)
        added, places = along[dim] if len(along) > 1 else math.prod(along), op.shape(0)[dim]
    elif name == "_index_put_impl_" and "sum" in kind:
        added, places = math.prod(op.shape(2)) // max(math.prod(op.shape(0)[1:]), 1), op.shape(0)[0]
    else:
        return ""
    if added < CONTENDED * max(places, 1):
        return ""
    return f"each of {places:,} rows takes about {added // max(places, 1):,} additions, one after the other"


def _few_blocks(blocks: Rows, sms: int | None) -> str:
    most = int(median(blocks)) if len(blocks) else 0
    if not sms or not 0 < most < _FEW * sms:
        return ""
    return f"{most} blocks leave most of {sms} SMs empty"
