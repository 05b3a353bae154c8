"""Float32 products in a program that computes in half precision elsewhere."""

from collections.abc import Iterator

from traceanalyzer.roofline.gpus import Gpus, speedup
from traceanalyzer.rule import Claims, Confidence, Hits, Work, clamp_to_floor, gpu_time_evidence, reduce_to, rule
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import is_half
from traceanalyzer.timeline import kernel_families as families


class Limits:
    min_gpu_share: float = 0.05
    """such products must take at least this share of GPU time; a head or a router kept in float32 takes less"""
    min_half_share: float = 0.1
    """reported only if at least this share of the time of all products is in half precision; this shows that
    the program is meant to use half precision"""
    floor_ns: int = 5_000
    """for the saving: products of at most this duration do not get faster in half precision; H200, torch
    2.11"""
    speedup: float = 2.0
    """for the saving, on an unknown device: bfloat16 is assumed to be this many times as fast as TF32,
    because it has half the bits"""


@rule(since="0.1", claims=Claims.WORK, specificity=1, limits=Limits)
def outside_autocast(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Part of a half-precision program computes matrix products in float32.

    What it looks for: matrix products and convolutions in TF32 (float32 on tensor cores), in a program that
    also runs products or convolutions in bfloat16 or float16.
    Why it costs: in TF32 a product runs at half the rate of half precision, and the operands have twice the bytes.
    Bad: an autocast block that ends before the decoder. Good: forward and loss within one autocast block.
    How sure: the types of the op's inputs show the dtype, or kernel names if no types are recorded. The trace
    does not show whether float32 is deliberate.
    When it is wrong: some parts need float32, such as a loss over large logits.
    Saving: the present time of these products, minus their predicted time in half precision on this device.
    Source: "Automatic Mixed Precision" in PyTorch's documentation; rates: the device's data sheet.
    """
    full = work.name.meets(families.is_tf32) & ~inputs.meets(is_half)
    half = work.name.meets(families.is_product) & work.name.matches(families.LOW_PRECISION) & ~full
    for pieces, share in work[full].device_shares(limits.min_gpu_share):
        gpu = gpus[int(pieces.device[0])]
        half_ns = work[half & (work.device == pieces.device[0])].total_ns
        if half_ns < limits.min_half_share * (half_ns + pieces.total_ns):
            continue
        times = speedup(gpu, "matmul", "tf32", "bf16") or limits.speedup
        yield Hits(
            **reduce_to(pieces, clamp_to_floor(pieces.dur_ns / times, pieces, limits.floor_ns)),
            of_format=True,
            message="float32 products run {times_a_step}, although the program uses half precision elsewhere; they "
            "take {gpu} of all GPU work, in {ops}{where}",
            advice="Extend the autocast block over forward and loss, or convert these layers to bfloat16.",
            confidence=Confidence.MEDIUM,
            evidence={**gpu_time_evidence(pieces), "gpu_share": share, **gpu.guess},
        )
