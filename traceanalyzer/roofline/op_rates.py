"""Ops with the GPU work that they launched: op -> shapes -> kernels, and how near to the device's peak they came."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct_pairs, grouped, sums_of
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.roofline.gpus import Peaks, device_peaks
from traceanalyzer.roofline.lower_bounds import bound_of, least_ns, reached_ns
from traceanalyzer.tensors.launch_inputs import PAGED, WorkInputs
from traceanalyzer.tensors.ops.costs import ARITHMETIC, DEPTHWISE, OpCost, typed_inputs
from traceanalyzer.tensors.ops.table import flops_of, op_cost
from traceanalyzer.tensors.signatures import NO_OP, Signature
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.kernel_families import FP32_ARITHMETIC, TENSOR_CORES_FP32
from traceanalyzer.timeline.steps import Steps

Recorded = Callable[[Signature, int], OpCost | None]  # `WorkInputs.recorded`


def call_times(
    number: Rows, kernels: Texts, signatures: list[Signature], peaks: Peaks, recorded: Recorded | None = None
) -> tuple[Floats, Floats]:
    """(what well-shaped calls take, what each needs at the peaks), ns by signature; 0 where no model knows."""
    reached, least = np.zeros(len(signatures)), np.zeros(len(signatures))
    for which, names in _kernels(number, kernels).items():
        op = signatures[which]
        needed = bound_of(op) or (recorded(op, which) if recorded else None)
        if needed is not None:
            arithmetic = arithmetic_of(needed, " ".join(names)) if needed.flops else None
            least[which] = least_ns(needed, peaks, arithmetic)
            reached[which] = reached_ns(needed, peaks, arithmetic)
    return reached, least


def call_flops(
    number: Rows, kernels: Texts, signatures: list[Signature], peaks: Peaks | None, recorded: Recorded
) -> tuple[Floats, Floats, list[str]]:
    """(operations of a call, ns at the peak of their arithmetic, its kind), by signature, 0 if unknown."""
    flops, peak_ns, kinds = np.zeros(len(signatures)), np.zeros(len(signatures)), [""] * len(signatures)
    for which, names in _kernels(number, kernels).items():
        op, other = signatures[which], recorded(signatures[which], which)
        cost = op_cost(op) or other
        flops[which] = flops_of(op) or (other and other.flops) or 0
        if cost is not None and flops[which]:
            kinds[which] = arithmetic_of(cost, " ".join(names)) or cost.arithmetic or ""
            rate = peaks.tflops.get(kinds[which]) if peaks else None
            peak_ns[which] = flops[which] / (rate * 1e3) if rate else 0.0
    return flops, peak_ns, kinds


def _kernels(number: Rows, names: Texts) -> dict[int, list[str]]:
    """The names of all kernels of each signature."""
    together: dict[int, list[str]] = {}
    for which, code in zip(*distinct_pairs(number, names.code), strict=True):
        together.setdefault(int(which), []).append(str(names.names[code]))
    return together


# Names of kernels that compute in full float32, beside those of products.
_FP32 = regex(r"sgemm|simt|f32f32_f32f32|ffma|conv_depthwise|cdist_kernel", re.IGNORECASE)
_OVER_LINK = ("copy_h2d", "copy_d2h")  # limited by the link to the host, not by device memory

# Look at a part of their inputs, or at none: their shapes say nothing of what they read.
_READS_PART = regex(
    r"^aten::(_?index|take|select|slice|narrow|diagonal|gather|resize|as_strided|empty|set_|_coalesce|sparse|_sparse|item"
    r"|_local_scalar|randperm|arange|masked_scatter|embedding|_scaled_grouped_mm)"
)
_UNRECORDED = {
    PAGED: "neither marks nor kernels tell how many keys its queries see",
    "aten::_scaled_grouped_mm": "how many of its rows are padding is not recorded",
}
_NO_TYPES = ("Scalar", "ScalarList", "TensorList")
_MOST_SHAPES = 4  # that a sentence can hold: a CUDA graph or an optimizer has hundreds of inputs


@dataclass(frozen=True, slots=True)
class Inputs:
    """One op with inputs of one shape and type on one device; None for what is not known.

    Attributes:
        calls, gpu_ns: of all its calls; where no op launched the work, pieces of work are counted.
        peak_share, limit: of the limit that it came nearest to, "compute" or "memory".
        why: the share is not known.
    """

    op: str
    shapes: str
    dtypes: str
    device: int
    calls: int
    gpu_ns: int
    kind: str | None = None
    flops: int | None = None
    bytes: int | None = None
    tflops: float | None = None
    gbps: float | None = None
    peak_tflops: float | None = None
    peak_gbps: float | None = None
    peak_share: float | None = None
    limit: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class OpWork:
    """GPU work by the op that launched it.

    Attributes:
        inputs: most GPU time first.
        by_kernel: (op, shapes, dtypes, kernel, count, gpu_ns) for each kernel of the same inputs, likewise.
        window_ns, steps: what the shares are of; 0 steps where none are marked.
        peaks: by device ordinal, None for devices that are not in the table.
    """

    inputs: tuple[Inputs, ...]
    by_kernel: tuple[tuple[str, str, str, str, int, int], ...]
    window_ns: int
    steps: int
    peaks: dict[int, Peaks | None]

    @cached_property
    def shapes(self) -> pd.DataFrame:
        """`inputs` as a frame."""
        names = [field.name for field in fields(Inputs)]
        frame = pd.DataFrame([[getattr(one, name) for name in names] for one in self.inputs], columns=names)
        return frame.astype({"flops": "Int64", "bytes": "Int64", **dict.fromkeys(_FLOATS, "float64")})

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """`by_kernel` as a frame."""
        return pd.DataFrame(self.by_kernel, columns=["op", "shapes", "dtypes", "kernel", "count", "gpu_ns"])

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per op, most GPU time first: op, calls, gpu_ns, share (of the window)."""
        ops = self.shapes.groupby("op", sort=False)[["calls", "gpu_ns"]].sum().reset_index()
        ops["share"] = ops["gpu_ns"] / max(self.window_ns, 1)
        return ops.sort_values("gpu_ns", ascending=False, kind="stable", ignore_index=True)

    def frame(self) -> pd.DataFrame:
        """One row per op, inputs and kernel, with the rates of the inputs beside each kernel."""
        keys = ["op", "shapes", "dtypes"]
        rates = self.shapes.drop(columns=["device", "gpu_ns"]).drop_duplicates(keys)
        return self.kernels.merge(rates, on=keys, how="left", sort=False)

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, steps: Steps, inputs: WorkInputs) -> Self:
        peaks = {device.ordinal: device_peaks(device.name) for device in trace.meta.devices}
        signature, signatures = inputs.number, inputs.signatures
        types = [dict.fromkeys(kind for kind in op.types if kind and kind not in _NO_TYPES) for op in signatures]
        described = [(op.name, shapes_of(op), ", ".join(used)) for op, used in zip(signatures, types, strict=True)]
        kernel, took_ns = codes_at(trace.lanes.gpu, "name", work.row), work.end_ns - work.start_ns
        pairs, first = grouped([signature, kernel])
        names = texts_of(trace.lanes.gpu, "name")
        number, count = signature[first].tolist(), np.bincount(pairs, minlength=len(first)).tolist()
        gpu_ns = sums_of(pairs, took_ns, len(first))
        names_of = _kernels(signature, Texts(kernel, names))
        linked = np.isin(work.kind, [KINDS.index(kind) for kind in _OVER_LINK])
        over_link = np.bincount(signature, weights=linked, minlength=len(signatures)) > 0
        needed = [
            linked_op_cost_of(op) if linked else _needed(op) or inputs.recorded(op, which) or inputs_once(op)
            for which, (op, linked) in enumerate(zip(signatures, over_link, strict=True))
        ]
        kernels = (" ".join(names_of.get(which, ())) for which in range(len(signatures)))
        known = list(zip(kernels, over_link.tolist(), needed, strict=True))
        each = zip(number, names[kernel[first]].tolist(), count, gpu_ns.tolist(), strict=True)
        by_kernel = [(*described[which], *more) for which, *more in each]
        largest = tuple(by_kernel[order] for order in np.argsort(-gpu_ns, kind="stable").tolist())
        group, first = grouped([signature, work.device])
        _, launched = grouped([group, work.op])
        calls, pieces = (np.bincount(numbers, minlength=len(first)).tolist() for numbers in (group[launched], group))
        gpu_ns, rows = sums_of(group, took_ns, len(first)), []
        for order in np.argsort(-gpu_ns, kind="stable").tolist():
            which, ordinal = int(signature[first[order]]), int(work.device[first[order]])
            times = pieces[order] if signatures[which].name == NO_OP else calls[order]
            of_device = Inputs(*described[which], ordinal, times, int(gpu_ns[order]))
            rows.append(_with_rates(of_device, signatures[which], *known[which], peaks.get(ordinal)))
        return cls(tuple(rows), largest, steps.window_ns, len(steps) if steps.marked else 0, peaks)


def linked_op_cost_of(signature: Signature) -> OpCost | None:
    """As `op_cost`, of a copy between host and device: the target's bytes, as torch converts types before it copies."""
    work = op_cost(signature)
    if work is None or signature.name.removeprefix("aten::") != "copy_":
        return work
    return replace(work, bytes=math.prod(signature.shape(0)) * signature.item_bytes(0))


def inputs_once(op: Signature) -> OpCost | None:
    """Reads its tensors once, whatever it does with them; None where it may look at a part only, or has none."""
    tensors = [] if _READS_PART.search(op.name) or not op.name.startswith("aten::") else typed_inputs(op)
    try:
        moved = sum(op.bytes(i) for i in tensors)
    except LookupError:
        return None
    return OpCost("inputs", None, moved, ARITHMETIC.get(op.types[tensors[0]])) if moved else None


def _needed(op: Signature) -> OpCost | None:
    """What it does as it stands, at least: a direct convolution is held against its products, not against FFTs."""
    cost = op_cost(op)
    as_it_stands = cost is not None and (cost.kind in ("conv", DEPTHWISE) or cost.most_bytes is not None)
    return cost if as_it_stands else bound_of(op)


def shapes_of(signature: Signature) -> str:
    """Tensor shapes as people write them: `4096x4096, 4096x1024`; empty where none were recorded, four at most."""
    shapes = [shape for shape in signature.dims if isinstance(shape, list) and shape]
    texts = ["x".join(str(size) for size in shape) for shape in shapes[:_MOST_SHAPES]]
    left = len(shapes) - len(texts)
    return ", ".join([*texts, f"and {left} more"] if left else texts)


_FLOATS = ("tflops", "gbps", "peak_tflops", "peak_gbps", "peak_share")


def _with_rates(
    inputs: Inputs, op: Signature, kernels: str, over_link: bool, work: OpCost | None, peaks: Peaks | None
) -> Inputs:
    if work is None:
        unmodelled = _UNRECORDED.get(op.name, "no model for this op and these inputs")
        unknown = unmodelled if op.dims else "no shapes recorded"
        return replace(inputs, why="not launched by an op" if op.name == NO_OP else unknown)
    calls, gpu_ns = inputs.calls, inputs.gpu_ns
    tflops = work.flops * calls / gpu_ns / 1e3 if work.flops and gpu_ns else None
    gbps = work.bytes * calls / gpu_ns if work.bytes and gpu_ns else None
    arithmetic = arithmetic_of(work, kernels)
    peak = peaks.tflops.get(arithmetic or "") if peaks and tflops else None
    peak_gbps = peaks.gbps if peaks else None
    limits = (tflops, peak, "compute"), (gbps, peak_gbps, "memory")
    shares = [(done / most, limit) for done, most, limit in limits if done and most]
    known = not over_link and (tflops is None or peak is not None)
    share, limit = max(shares, default=(None, None)) if known else (None, None)
    return replace(
        inputs,
        kind=work.kind,
        flops=work.flops,
        bytes=work.bytes,
        tflops=tflops,
        gbps=gbps,
        peak_tflops=peak,
        peak_gbps=peak_gbps,
        peak_share=share,
        limit=limit,
        why=None if share is not None else _why_no_peak(peaks, arithmetic, over_link),
    )


def arithmetic_of(work: OpCost, kernels: str) -> str | None:
    """Kind of arithmetic: for float32 the kernels' names tell whether it was TF32; None where they do not."""
    if work.arithmetic != "fp32":
        return work.arithmetic
    if TENSOR_CORES_FP32.search(kernels):
        return "tf32"
    return "fp32" if _FP32.search(kernels) or FP32_ARITHMETIC.search(kernels) else None


def _why_no_peak(peaks: Peaks | None, arithmetic: str | None, over_link: bool) -> str:
    if over_link:
        return "copies between host and device"
    if peaks is None:
        return "device not in the table of peaks"
    if arithmetic is None:
        return "kernel names do not separate TF32 from FP32"
    return f"no {arithmetic} peak known for {peaks.name}"
