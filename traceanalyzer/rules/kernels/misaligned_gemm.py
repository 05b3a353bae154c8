"""Half-precision products with a dimension that loads cannot use."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.roofline.gpus import Gpu, Gpus, reached_flops_per_ns
from traceanalyzer.roofline.lower_bounds import product_bytes_ns
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, clamp_to_floor, gpu_time_evidence, rule
from traceanalyzer.rule.hits import Numbers, reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import flops_of
from traceanalyzer.tensors.signatures import largest_odd_size
from traceanalyzer.timeline import kernel_families as families

_PRODUCTS = r"^aten::_?(mm|bmm|addmm|baddbmm|addbmm|linear|matmul|einsum|addmm_activation|scaled_mm)$"
_ODD = r"align1(?!\d)|_a1_|aligna1_"


class Limits:
    aligned_elements: int = 8
    """a dimension must be a multiple of this number: a 16-byte load holds this many elements of 2 bytes;
    CUTLASS, cuBLAS: align8"""
    pad_to_elements: int = 64
    """the advice is to pad to a multiple of this number, so that tiles of all sizes fit well; 50,257 becomes 50,304"""
    floor_ns: int = 5_000
    """for the saving: products of at most this duration do not get faster when aligned; H200, torch 2.11"""
    speedup: float = 3.5
    """for the saving, if shapes are not recorded: aligned kernels are assumed to be this many times as fast
    as align2 kernels; H200, torch 2.11, k = 4,002"""
    speedup_odd: float = 7.0
    """for the saving, if shapes are not recorded: aligned kernels are assumed to be this many times as fast
    as align1 kernels; H200, n = 50,257 and k = 4,001"""


@rule(since="0.1", claims=Claims.WORK, limits=Limits)
def misaligned_gemm(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A half-precision matrix product has a dimension that is not a multiple of 8.

    What it looks for: bfloat16 and float16 matrix products whose kernels load less than 16 bytes at a time (align1,
    align2, align4). Or the kernels were written for the tensor cores of an older GPU (cutlass_75_tensorop).
    Why it costs: fast kernels need rows that start at multiples of 16 bytes. For other rows cuBLAS uses
    kernels that reach less than a third of the rate.
    Bad: a vocabulary of 50,257. Good: the vocabulary is padded to 50,304; the additional rows are never used.
    How sure: kernel names show the width of loads. In rare cases all dimensions are multiples of 8, and the
    finding says so. Then an operand is a slice or view whose start is not aligned.
    When it is wrong: the products are too small to run faster when aligned.
    Saving: the present time of these products, minus their predicted time with aligned kernels.
    Source: NVIDIA's Matrix Multiplication Background User's Guide, "Tensor Core requirements"; measured on an H200.
    """
    products = work.name.matches(families.GEMM)
    if products.any() and work[products].name.matches(families.AMD_PRODUCT).all():
        raise Unavailable("names of AMD's kernels do not show the width of loads")
    narrow = work[work.name.meets(families.is_half_with_narrow_loads)]
    named = narrow.op.name.matches(_PRODUCTS) | ~narrow.op.there
    for device, pieces in narrow[named].by_device():
        gpu = gpus[device]
        if gpu.capability is None or gpu.capability >= (8, 0):
            yield _hits(pieces, inputs, gpu, limits)


def _hits(pieces: Work, inputs: WorkInputs, gpu: Gpu, limits: Limits) -> Hits:
    size = inputs.values(pieces, partial(largest_odd_size, multiple=limits.aligned_elements)).astype(np.int64)
    odd = sorted(set(size[size > 0].tolist()), key=lambda number: (-pieces.dur_ns[size == number].sum(), number))[:3]
    sizes = ", ".join(f"{size:,}" for size in odd)
    advice = "Pad the dimension that is not a multiple of 8 (a vocabulary, a number of classes)."
    if odd:
        least = limits.pad_to_elements
        padded = ", ".join(f"{size} to {-(-size // least) * least}" for size in odd)
        advice = f"Pad the dimension from {padded}, {'a multiple' if len(odd) == 1 else 'multiples'} of {least}."
    elif pieces.dims.there.any():
        advice = "All dimensions are multiples of 8: make the operand contiguous, or slice it at a multiple of 8."
    which = "is not a multiple" if len(odd) == 1 else "are not multiples"
    why = f"; {sizes} {which} of {limits.aligned_elements}" if odd else ""
    return Hits(
        **reduce_to(pieces, clamp_to_floor(_aligned_ns(pieces, size, inputs, gpu, limits), pieces, limits.floor_ns)),
        message="half-precision GEMMs run {times_a_step} in kernels with narrow loads and take {spent_on_average}, in "
        "{kernels}{where}" + why,
        advice=advice,
        confidence=Confidence.HIGH if odd else Confidence.MEDIUM,
        evidence={**gpu_time_evidence(pieces), "spent_ns": pieces.total_ns, "sizes": odd, **gpu.guess},
    )


def _aligned_ns(pieces: Work, size: Rows, inputs: WorkInputs, gpu: Gpu, limits: Limits) -> Numbers:
    """What each takes when aligned, by its operations if known; a small unaligned `size`, padded, is far larger."""
    guess = pieces.dur_ns / np.where(pieces.name.matches(_ODD), limits.speedup_odd, limits.speedup)
    rate = reached_flops_per_ns(gpu, "matmul", "bf16", "fp16")
    if not rate or gpu.peaks is None:
        return guess
    flops = inputs.values(pieces, flops_of)
    needed = np.maximum(flops / rate, inputs.values(pieces, partial(product_bytes_ns, peaks=gpu.peaks)))
    needed = np.where(flops > 0, np.minimum(needed, pieces.dur_ns), guess)
    return np.where((size > 0) & (size < limits.pad_to_elements), pieces.dur_ns, needed)
