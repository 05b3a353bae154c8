"""Float32 products without tensor cores."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from traceanalyzer.model.arrays import Floats, numbered, sums_of
from traceanalyzer.model.text_queries import regex
from traceanalyzer.roofline.gpus import Gpu, Gpus, first_of, speedup
from traceanalyzer.roofline.lower_bounds import product_bytes_ns
from traceanalyzer.rule import Claims, Confidence, Hits, Work, clamp_to_floor, reduce_to, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, named_ops
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import is_half
from traceanalyzer.timeline import kernel_families as families


class Limits:
    min_gpu_share: float = 0.05
    """such products must take at least this share of GPU time; if they take less, a change of precision is
    not worth it"""
    floor_ns: int = 5_000
    """for the saving: kernels of at most this duration do not get faster on tensor cores; H200, torch 2.11"""
    fewer_products: float = 2.25
    """for the saving: a Winograd kernel F(2x2, 3x3) already does this many times fewer multiplications, so it
    gains less from tensor cores; Lavin and Gray, 2015"""
    unknown_speedup: float = 4.0
    """for the saving, on devices without known peaks: tensor cores are assumed to be this many times as fast
    as ordinary float32 units, as on MI300X"""


# The weight is the second input of a convolution, the third of its gradient; images of one channel have it, too.
_ONE_CHANNEL = r"^\[(\[[\d,]+\],){1,2}\[\d+,1(,\d+)+\]"
_SAID = {"tf32": "TF32", "bf16": "bfloat16", "fp16": "float16", "": "the same on matrix units"}
_TF32 = "{} computes float32 {} in TF32; autocast to bfloat16 is faster still."
_ADVICE = {
    "matmul": _TF32.format("torch.set_float32_matmul_precision('high')", "products"),
    "convolution": _TF32.format("torch.backends.cudnn.allow_tf32 = True", "convolutions"),
    "attention": "Run attention in bfloat16 (torch.autocast): flash attention has no float32 kernel.",
}
_LEFT_OUT = (
    "Use {{channels_last}}, {}, and set cudnn.benchmark = True. Or use autocast to bfloat16. TF32 is on (other "
    "convolutions use it), but cuDNN has no TF32 kernel for these layouts and shapes."
)
# Channels of the weight, or of the images in a gradient.
_CHANNELS = regex(r"^\[\[[\d,]+\],\[\d+,(\d{1,18})(,\d+)+\]")
# Channels that a TF32 kernel of cuDNN reads at once.
_MULTIPLE = 4
_OLDER = "This device has no TF32: use torch.autocast with {half}, which its matrix units support."
_UNKNOWN = "Use torch.autocast if the device has matrix units; TF32 (Ampere and later) needs no conversions."


@rule(since="0.1", claims=Claims.WORK, specificity=1, limits=Limits, causes=tuple(_ADVICE))
def no_tensor_cores(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Float32 matrix products, convolutions or attention run without tensor cores.

    What it looks for: kernels whose names show float32 arithmetic without tensor cores, such as sgemm, scudnn
    and fmha_cutlassF_f32. AMD's matrix cores compute in full float32, too: such kernels are reported if the
    device is known.
    Why it costs: tensor cores are 4 to 16 times as fast. They compute in bfloat16, float16 or TF32. TF32
    keeps the range of float32, and 10 bits of the mantissa.
    Bad: a float32 model without TF32; a part of a model outside autocast. Good: TF32, or autocast to bfloat16.
    How sure: kernel names show it, unless the op's inputs are in half precision. Kernels with tf32, s1688 or
    xf32 in their name use tensor cores.
    When it is wrong: results need full float32, as in some scientific code.
    Saving: the time shrinks by the ratio of the peak rates of the device. Small products gain less, because
    memory limits them.
    Source: "Numerical accuracy" and "CUDA semantics: TF32" in PyTorch's documentation.
    """
    matrix = work.name.matches(families.MATRIX_CORES)
    known = np.isin(work.device, [device for device, gpu in gpus.known.items() if gpu.peaks])
    full = work.name.meets(families.is_full_fp32) & ~inputs.meets(is_half) & (known | ~matrix)
    convolves = work.name.matches(families.CONVOLUTION) | named_ops(work).matches("convolution")
    # Filters of depthwise convolutions have one channel, which leaves tensor cores nothing to multiply.
    by_channel = work.name.matches(families.DEPTHWISE) | (convolves & work.dims.matches(_ONE_CHANNEL))
    slow = work[full & ~by_channel]
    in_tf32 = work[work.name.matches(families.CONVOLUTION) & work.name.meets(families.is_tf32)]
    attention = slow.name.matches(families.FP32_ATTENTION)
    convolution = convolves[slow.entries]
    kinds = {"attention": attention, "convolution": convolution & ~attention, "matmul": ~convolution & ~attention}
    for kind, chosen in kinds.items():
        for pieces, share in slow[chosen].device_shares(limits.min_gpu_share):
            left_out = kind == "convolution" and bool((in_tf32.device == pieces.device[0]).any())
            yield _hits(kind, pieces, inputs, gpus[int(pieces.device[0])], share, left_out, limits)


def _hits(kind: str, pieces: Work, inputs: WorkInputs, gpu: Gpu, share: float, left_out: bool, limits: Limits) -> Hits:
    target = first_of(gpu, *(("bf16", "fp16") if kind == "attention" else ("tf32", "bf16", "fp16"))) or ""
    times = speedup(gpu, kind, "fp32", target) or limits.unknown_speedup
    fewer = pieces.name.matches(families.FEWER_PRODUCTS)
    needed = pieces.dur_ns / np.where(fewer, max(times / limits.fewer_products, 1), times)
    needed = np.maximum(needed, _in_memory_ns(pieces, inputs, gpu))
    total = float(pieces.total_ns) / max(float(np.sum(needed)), 1.0)
    guess = "" if gpu.peaks else f" ({gpu.shown} is not in the table of peaks, so this is a guess)"
    advice = _LEFT_OUT.format(_channels(pieces)) if left_out else _ADVICE[kind]
    if kind != "attention" and target != "tf32":
        advice = _OLDER.format(half=_SAID[target]) if target else _UNKNOWN
    units = "in full precision" if pieces.name.matches(families.MATRIX_CORES).all() else "without tensor cores"
    return Hits(
        **reduce_to(pieces, clamp_to_floor(needed, pieces, limits.floor_ns)),
        of_format=True,
        cause=kind,
        message=f"float32 {{what}} runs {units}; {_SAID[target]} is about {{speedup}} times as fast{guess}; "
        "the kernels run {times_a_step} and take {gpu} of all GPU work, in {kernels}{where}",
        advice=advice,
        confidence=Confidence.HIGH if gpu.peaks else Confidence.MEDIUM,
        evidence=gpu_time_evidence(pieces)
        | {"what": kind, "gpu_share": share, "speedup": round(total, 1), "target": target}
        | gpu.guess,
    )


def _in_memory_ns(pieces: Work, inputs: WorkInputs, gpu: Gpu) -> Floats:
    """What each kernel's part of its op takes for the op's bytes, which no other arithmetic makes fewer."""
    if gpu.peaks is None:
        return np.zeros(len(pieces))
    each = inputs.values(pieces, partial(product_bytes_ns, peaks=gpu.peaks))
    call, calls = numbered(pieces.op.rows)
    part = pieces.dur_ns / np.maximum(sums_of(call, pieces.dur_ns, len(calls))[call], 1)
    return np.asarray(np.minimum(each * part, pieces.dur_ns))


def _channels(pieces: Work) -> str:
    """What to do about the channels of the images that take most time."""
    dims = next(iter(pieces.dims.sums(pieces.dur_ns)), "").replace(" ", "")
    channels = int(shape[1]) if (shape := _CHANNELS.match(dims)) else 0
    if channels % _MULTIPLE == 0:
        return f"pad channels to multiples of {_MULTIPLE}"
    return f"pad the {channels} input channels to {-(-channels // _MULTIPLE) * _MULTIPLE}"
