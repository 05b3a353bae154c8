"""Arithmetic in float64, and where it came from."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.roofline.gpus import Gpu, Gpus, Peaks, first_of, speedup
from traceanalyzer.roofline.lower_bounds import bound_of, least_ns
from traceanalyzer.roofline.op_rates import shapes_of
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, clamp_to_floor, gpu_time_evidence, rule
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import (
    ITEM_BYTES,
    NARROWER,
    Signature,
    has_float64,
    mixes_float64,
    tensor_types,
    tensors,
    widens_to_float64,
)
from traceanalyzer.timeline import kernel_families as families

_WITH_TF32 = (
    " Let float32 products use TF32: torch.set_float32_matmul_precision('high'). Without TF32, float32 products are "
    "hardly faster than float64 products on devices with float64 tensor cores."
)

_CHOICE = (
    "Decide this first. A numpy array is float64 by default, and everything computed from it becomes float64. If "
    "float32 is precise enough, or if you can refine in float64 at the end, make the inputs float32."
)

# Kernels that say what they compute in: the doubles among an op's inputs are others'.
_OTHER_ARITHMETIC = r"[sh]gemm|_(s|bf|h)16|tf32|f32f32|Functor\w*<(float|c10::)|<float, float"

# Share of the memory peak from which on half the bytes take half the time: where and cat on an H200, torch 2.11.
_FULL_RATE = 0.87
# Kinds of bounds whose rate depends on the indices.
_MOVES = frozenset({"transposition", "gather", "reduction", "compiled"})
# Kernels that work out where each element lies, because inputs are broadcast or strided: 2.5 to 3.4 ps an element of
# one to eight bytes, 132 multiprocessors; H200, torch 2.11.
_PLACED = r"(?<!_)elementwise_kernel<"
_PLACED_NS, _PLACED_SMS = 3.0e-3, 132


class Limits:
    floor_ns: int = 2_000
    """used for the predicted saving: kernels of at most this duration do not get faster with half the bytes;
    measured on an H200 with torch 2.11"""
    moving_share: float = 0.5
    """used for the predicted saving: memory-bound kernels take this share of their float64 time in float32,
    because they move half the bytes"""
    unknown_speedup: float = 2.0
    """used for the predicted saving: on devices without known peaks, float32 products are assumed to be this
    many times as fast as float64 products, because they have half the bytes"""


@rule(since="0.1", claims=Claims.WORK, limits=Limits, causes=("throughout",), choices=("throughout",))
def float64_math(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Work runs in float64.

    What it looks for: kernels whose names say double, and ops with a float64 tensor among their inputs. If
    shapes are recorded, the finding names the op that first mixes float64 with another type.
    Why it costs: float64 needs twice the bytes of float32. On most devices its rate is between 1/2 and 1/64
    of the float32 rate.
    Bad: in a float32 model, a tensor made from a numpy array (float64 by default) or with dtype float64. Results that
    are computed from this tensor are usually float64, too. Good: torch.from_numpy(a).float(), dtype=torch.float32.
    How sure: kernels and types are recorded.
    When it is wrong: results need float64. If every floating-point tensor is float64, this is probably
    deliberate. The severity is then usually info.
    Saving: predicted as if all this work ran in float32, usually with TF32 in matrix products. Other kernels
    move half the bytes, so they save up to half of their time.
    Source: "Type promotion" in PyTorch's documentation (torch.result_type).
    """
    name, kind = work.name, work.kind
    wide = inputs.meets(has_float64) & ~kind.one_of("memset", "copy_h2d", "copy_d2h")
    wide &= ~work.in_graph & ~name.matches(_OTHER_ARITHMETIC)
    wide |= name.matches(families.FP64_ARITHMETIC) & kind.one_of("compute")
    # float32 products without TF32 show that the program leaves it off
    tf32 = not name.matches(families.FP32_ARITHMETIC).any()
    # Whether every floating tensor that work was launched for is float64, and none of them comes from the host.
    kinds = set().union(*map(tensor_types, inputs.signatures))
    uploaded = inputs.meets(has_float64) & work.kind.one_of("copy_h2d")
    chosen = "double" in kinds and kinds.isdisjoint(NARROWER) and not uploaded.any()
    for device, pieces in work[wide & ~name.matches("multi_tensor_apply")].by_device():
        hits = _hits(pieces, inputs, gpus[device], tf32, limits)
        if chosen:
            hits = replace(hits, cause="throughout", lost=LostTime.none(), info=True)
            message = f"every floating tensor is float64, which may be deliberate: {hits.message}"
            hits = replace(hits, message=message, advice=_CHOICE)
        yield hits


def _at_peak_ns(op: Signature, peaks: Peaks | None) -> float:
    """What a copy, a reduction or a fused kernel takes at the peak; 0 of other ops, and where it is not known."""
    bound = bound_of(op)
    if peaks is not None and bound is not None and bound.kind in _MOVES:
        return float(least_ns(bound, peaks, None))
    if peaks is None or bound is not None or not op.name.startswith("triton_"):
        return 0.0
    # Fused kernels pass over their inputs and results.
    return sum(op.bytes(i) for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i]) / peaks.gbps


def _broadcast_elements(op: Signature) -> int:
    return math.prod(map(max, zip_longest(*map(reversed, tensors(op)), fillvalue=1)))


def _hits(pieces: Work, inputs: WorkInputs, gpu: Gpu, tf32: bool, limits: Limits) -> Hits:
    casts = inputs.meets(widens_to_float64)[pieces.entries]
    at_peak_ns = inputs.values(pieces, partial(_at_peak_ns, peaks=gpu.peaks))
    placed_ns = _PLACED_NS * _PLACED_SMS / (gpu.sms or _PLACED_SMS) * inputs.values(pieces, _broadcast_elements)
    times = speedup(gpu, "matmul", "fp64", (tf32 and first_of(gpu, "tf32")) or "fp32")
    product = pieces.name.matches(families.GEMM_OR_CONVOLUTION)
    rate = np.where(at_peak_ns > 0, at_peak_ns / np.maximum(pieces.dur_ns, 1) / _FULL_RATE, 1.0)
    # Time that is not spent on moving bytes stays.
    moving = 1 - (1 - limits.moving_share) * np.minimum(rate, 1.0) ** 2
    needed = np.where(product, 1 / (times or limits.unknown_speedup), moving) * pieces.dur_ns
    needed = np.maximum(needed, np.where(pieces.name.matches(_PLACED), np.minimum(placed_ns, pieces.dur_ns), 0.0))
    first, source = _first(pieces[inputs.meets(mixes_float64)[pieces.entries]])
    where = f"before {first}, the first op that reads it" if first else "before the first op that reads it"
    return Hits(
        **reduce_to(pieces, np.where(casts, 0.0, clamp_to_floor(needed, pieces, limits.floor_ns))),
        of_format=True,
        message="work in float64 runs {times_a_step} and takes {spent_on_average}, in {ops}" + source,
        advice=f"Convert the float64 tensor to float32 {where}: torch.from_numpy(a).float(), or dtype=torch.float32."
        + (_WITH_TF32 if tf32 and product.any() else ""),
        confidence=Confidence.HIGH if first else Confidence.MEDIUM,
        evidence=gpu_time_evidence(pieces)
        | {"spent_ns": pieces.total_ns, "first_op": first, "casts": int(casts.sum())}
        | (gpu.guess if product.any() else {}),
    )


def _first(leak: Work) -> tuple[str, str]:
    """(the op of each step that mixed float64 into another type first, the end of a sentence about it)."""
    inside = leak[leak.step >= 0] if (leak.step >= 0).any() else leak
    if len(inside) == 0:
        return "", ""
    ordered = inside[np.argsort(inside.launch.start_ns, kind="stable")]
    first_step = ordered[np.searchsorted(ordered.step, distinct(ordered.step)[-1:])]
    op = first_step.outer_op.name[0] or ""
    shapes = shapes_of(Signature.parsed("", first_step.dims[0], None, None))
    where = (f" at {first_step.line[0]}" if first_step.line[0] else "") + (f" of {shapes}" if shapes else "")
    return op, f"; float64 enters with {op}{where}"
