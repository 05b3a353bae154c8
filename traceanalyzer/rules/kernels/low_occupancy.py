"""Kernels that leave most of the device's SMs empty."""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from traceanalyzer.model.arrays import median
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, reduce_to, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, named_ops
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.strides import is_strided
from traceanalyzer.timeline import kernel_families as families

_NOT_MEANT = rf"{families.NCHW_BATCH_NORM.pattern}|multi_tensor_apply"
_ROWS = (
    "Give the op more rows at once, as with a larger batch; or split its few long rows into parts, and combine the "
    "results of the parts."
)
_STRIDED = (
    "Put the reduced dimension last, contiguous in memory (for a loss: logits of shape rows x classes). Along another "
    "dimension the kernel has few CUDA blocks, and more rows add none."
)
# Norms of lists are mostly norms of gradients or weights.
_OF_LISTS = r"linalg_vector_norm|_foreach_norm|aten::norm$"
_LISTS = "Take all norms with one call (torch._foreach_norm), or split each long row and combine the parts."
_TORCHS_OWN = r"GammaBetaBackward"
# Kernels of cuDNN and torch -> remedy.
_REMEDIES: Mapping[str | re.Pattern[str], str] = {
    r"1C11_kernel|batch_norm": (
        "Use {channels_last} for model and images: with channels first, a batch norm has one CUDA block per channel."
    ),
    _TORCHS_OWN: "Put the norm under {torch.compile}: torch's own kernel for the weight gradients has only "
    "about one CUDA block per 32 channels.",
    families.GEMM_OR_CONVOLUTION: "Let more blocks share the product: more rows (a larger batch), smaller tiles or "
    "split-K in its kernel, several products in one grouped call, or another library's kernel.",
}


class Limits:
    max_grid_share: float = 0.5
    """reported only if the number of a kernel's CUDA blocks is less than this share of the number of SMs; a
    kernel with more CUDA blocks could become at most twice as fast"""
    min_dur_ns: int = 20_000
    """shorter kernels are ignored, because starting them takes much of their time; H200, torch 2.11"""
    max_beside_share: float = 0.5
    """reported only if other streams work for at most this share of a kernel's time"""
    floor_ns: int = 5_000
    """for the saving: the improved kernel is predicted to take at least this time; H200, torch 2.11"""
    usual_share: float = 0.10
    """for the backward pass of norms, a finding is info if its saving is below this share of the step.
    Healthy models have such kernels, too (LayerNorm: up to 7.5 % of the step, H200)"""


@rule(since="0.1", claims=Claims.WORK, min_share=0.02, limits=Limits)
def low_occupancy(work: Work, gpus: Gpus, inputs: WorkInputs | None, limits: Limits) -> Iterator[Hits]:
    """A kernel has so few CUDA blocks that most of the device's SMs have no work.

    What it looks for: kernels that take more than 20 µs. Their number of CUDA blocks is less than half the
    number of SMs.
    Why it costs: each CUDA block runs on one SM. The other SMs are unused.
    Bad: cumsum, sort or a reduction along a few very long rows; a batch of one. Good: more rows at once, or
    an algorithm that splits rows. For a matrix product: smaller tiles or split-K.
    How sure: the trace records the grid and the number of SMs.
    When it is wrong: the work cannot be split further.
    Saving: as if the work were split evenly among all SMs. If it now runs on a quarter of them,
    the time shrinks to a quarter.
    Source: CUDA C++ Best Practices Guide, "Thread and block heuristics".
    """
    if not any(gpu.sms for gpu in gpus.known.values()):
        raise Unavailable("the trace does not record the device's number of SMs")
    long = work[(work.dur_ns > limits.min_dur_ns) & ~work.name.matches(_NOT_MEANT)].of_kind("compute")
    for device, kernels in long.by_device():
        sms, busy_ns = gpus[device].sms or 0, work[work.device == device].total_ns
        few = kernels[(kernels.blocks > 0) & (kernels.blocks < limits.max_grid_share * sms)]
        unaccompanied = few[few.beside_ns() <= limits.max_beside_share * few.dur_ns]
        for op, pieces in unaccompanied.by(named_ops(unaccompanied)):
            linked = pieces[pieces.op.there]
            strided = inputs is not None and len(linked) > 0 and inputs.values(linked, is_strided).all()
            of_lists = pieces.op.name.matches(_OF_LISTS).all()
            remedy = _LISTS if of_lists else _STRIDED if strided else _ROWS
            yield _hits(op, pieces, sms, busy_ns, limits, remedy)


def _hits(op: str, pieces: Work, sms: int, busy_ns: int, limits: Limits, remedy: str) -> Hits:
    product = pieces.name.matches(families.GEMM_OR_CONVOLUTION).any()
    evidence = gpu_time_evidence(pieces) | {
        "blocks": int(median(pieces.blocks)),
        "sms": sms,
        "typical_ns": int(median(pieces.dur_ns)),
        "gpu_share": pieces.total_ns / max(busy_ns, 1),
    }
    return Hits(
        **reduce_to(pieces, np.maximum(pieces.dur_ns * (pieces.blocks / sms), limits.floor_ns)),
        named_by=op,
        message="{by} runs {times_a_step} on at most {blocks} of {sms} SMs, for {typical} each time: "
        "{gpu} of all GPU work" + ("" if list(evidence["kernels"]) == [op] else ", in {kernels}") + "{where}",
        advice=next((advice for kernels, advice in _REMEDIES.items() if pieces.name.matches(kernels).all()), remedy),
        confidence=Confidence.MEDIUM if product else Confidence.HIGH,
        evidence=evidence,
        normal_share=limits.usual_share if pieces.name.matches(_TORCHS_OWN).all() else 0.0,
    )
