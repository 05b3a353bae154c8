"""Kernels that leave most of the device's multiprocessors empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import named_ops, told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline import kernel_families as families

_IMAGE_NORM = r"1C11_kernel|batch_norm"  # cuDNN's and torch's, a block for each channel
_ROWS = (
    "Give it more rows at once (a larger batch, or the longer dimension as rows), or cut each long row into pieces and "
    "combine them."
)
_NORMS = "Use channels_last for model and images: norms of channels first have a block for each channel."


@dataclass(frozen=True, slots=True)
class Limits:
    max_grid_share: float = limit(
        0.5, "of the multiprocessors: with half of them at work nobody gains twofold"
    )
    min_dur_ns: int = limit(20_000, "shorter kernels are launches rather than work; H200, torch 2.11")
    max_beside_share: float = limit(
        0.5, "of a kernel's time that other streams' work may fill the rest of the device"
    )
    floor_ns: int = limit(
        5_000, "a small kernel takes so long on a device that is wide enough; H200, torch 2.11"
    )


@rule(since="0.2", claims=Claims.WORK, min_share=0.02, limits=Limits)
def low_occupancy(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A kernel's grid has fewer blocks than the device has multiprocessors.

    What it looks for: kernels of more than 20 us whose grid is smaller than half the number of multiprocessors.
    Why it costs: a block runs on one multiprocessor; the others stay empty while the kernel takes its time.
    Bad: cumsum, sort or a reduction along a few very long rows; a batch of one. Good: more rows at once (a batch, the
    other dimension), or an algorithm that cuts a row into pieces.
    How sure: grid and number of multiprocessors are recorded. The profiler's estimate of occupancy is not used: it is
    0 for kernels that use most of a multiprocessor's memory. Collectives, persistent kernels (a block for each
    multiprocessor) and kernels beside work of other streams are left out.
    When it is wrong: where the work has no more parallelism than it uses.
    Saving: the same blocks' work spread over all multiprocessors.
    Source: CUDA C++ Best Practices Guide, "Thread and block heuristics".
    """
    if not any(gpu.sms for gpu in gpus.known.values()):
        raise Unavailable("the trace does not say how many multiprocessors the device has")
    kernels = work.of_kind("compute")
    sms = np.array([gpus[device].sms or 0 for device in range(int(kernels.device.max(initial=0)) + 1)])
    wide = sms[np.maximum(kernels.device, 0)]
    few = (kernels.blocks > 0) & (kernels.blocks < limits.max_grid_share * wide)
    few &= (kernels.dur_ns > limits.min_dur_ns) & ~kernels.name.matches(families.NCHW_BATCH_NORM)
    found, wide = kernels[few], wide[few]
    alone = found.beside_ns() <= limits.max_beside_share * found.dur_ns
    found, wide = found[alone], wide[alone]
    spread = np.maximum(found.dur_ns * (found.blocks / wide), limits.floor_ns)
    for op, mine in found.by(named_ops(found)):
        chosen = np.isin(found.entries, mine.entries)
        yield _hits(op, found[chosen], spread[chosen], wide[chosen], work.total_ns)


def _hits(op: str, found: Work, spread: np.ndarray, wide: np.ndarray, busy_ns: int) -> Hits:
    blocks = int(np.median(found.blocks))
    product = found.name.matches(families.GEMM).any() or found.name.matches(families.CONVOLUTION).any()
    evidence = told(found) | {
        "blocks": blocks,
        "sms": int(wide[0]),
        "typical_ns": int(np.median(found.dur_ns)),
        "gpu_share": found.total_ns / max(busy_ns, 1),
    }
    return Hits(
        at=found,
        by=op,
        lost=Lost.excess(found, np.asarray(found.dur_ns - spread, np.int64)),
        fix=Resize(found.entries, spread),
        message="{by} runs {blocks} blocks on a device of {sms} multiprocessors, {typical} each, {times_a_step}: "
        "{gpu} of GPU time in {kernels}{where}",
        advice=_NORMS if found.name.matches(_IMAGE_NORM).all() else _ROWS,
        confidence=Confidence.MEDIUM if product else Confidence.HIGH,
        evidence=evidence,
    )
