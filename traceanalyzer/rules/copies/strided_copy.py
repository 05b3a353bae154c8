"""Data that is moved only to lie otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropWork, Resize
from traceanalyzer.roofline.op_model import Signature
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline import kernel_families as families


@dataclass(frozen=True, slots=True)
class Limits:
    min_gpu_share: float = limit(0.05, "of GPU time that concatenations take")
    min_moved_share: float = limit(
        0.10, "of transposing copies: between heads and rows healthy models have 7 %; H200"
    )
    grown_part: float = limit(8.0, "times all other inputs of a cat that one is: it is appended to")
    append_ns: int = limit(3_000, "of writing a few rows in place; H200, torch 2.11")


_ADVICE = {
    "growing-buffer": "Allocate the whole buffer once and write the new rows into it: cache[:, :, n:n + 1] = new.",
    "concatenation": "Write the parts into one buffer where they are made (out=, or slices of a tensor that exists).",
    "transposition": "Keep the layout that the next op reads: drop .contiguous() and .clone() where a view will do, or "
    "write the tensor in that order in the first place.",
}
_WHAT = {
    "growing-buffer": "torch.cat copies a whole buffer to append {new} to it, {times_a_step}: {gpu} of GPU time{where}",
    "concatenation": "torch.cat copies its inputs side by side {times_a_step}: {gpu} of GPU time{where}",
    "transposition": "tensors are rewritten in another order of their dimensions {times_a_step} ({ops}): {gpu} of GPU "
    "time{where}",
}


@rule(since="0.2", claims=Claims.PATTERN, limits=Limits)
def strided_copy(work: Work, limits: Limits) -> Iterator[Hits]:
    """Tensors are copied only to lie otherwise in memory.

    What it looks for: copies between equal types that are no plain memcpy, so that one side is transposed or sliced
    (contiguous, clone, reshape, copy_), and concatenations (cat, stack), with a buffer that grows by cat told apart.
    Why it costs: they read and write all of the data, transposed ones at a quarter of the memory's rate, before the
    work that needs them begins.
    Bad: cache = torch.cat([cache, new]) for each token; x.permute(...).contiguous() back and forth. Good: a buffer of
    the final size that is written in place; one layout throughout.
    How sure: kernels' names tell such copies from others. Conversions of type are dtype-casts.
    When it is wrong: some kernels need the layout; a copy before many readers can pay.
    Saving: without these copies; of a growing buffer, the rows that are new stay.
    Source: "Tensor Views" in PyTorch's documentation; measured on an H200.
    """
    name = work.name
    joined = name.matches(families.CONCATENATION)
    moved = name.matches(families.STRIDED_COPY)
    growing = joined & _appends(work, limits.grown_part)
    for cause, chosen in (
        ("growing-buffer", growing),
        ("concatenation", joined & ~growing & (work.op.there | ~growing.any())),
        ("transposition", moved),
    ):
        for device, found in work[chosen].by(work[chosen].device):
            share = found.total_ns / max(work[work.device == device].total_ns, 1)
            least = limits.min_moved_share if cause == "transposition" else limits.min_gpu_share
            if share >= least:
                yield _hits(cause, found, share, limits)


def _hits(cause: str, found: Work, share: float, limits: Limits) -> Hits:
    grows = cause == "growing-buffer"
    stays = np.minimum(found.dur_ns, limits.append_ns if grows else 0)
    return Hits(
        at=found,
        cause=cause,
        lost=Lost.excess(found, found.dur_ns - stays),
        fix=Resize(found.entries, stays.astype(np.float64)) if grows else DropWork(found.entries),
        message=_WHAT[cause],
        advice=_ADVICE[cause],
        confidence=Confidence.HIGH if grows else Confidence.MEDIUM,
        evidence={
            **told(found),
            "gpu_share": share,
            "spent_ns": found.total_ns,
            "new": _appended(found) if grows else "",
        },
    )


def _parts(op: Signature) -> list[int]:
    """Elements of each input of a cat, largest first."""
    tensors = op.dims[0] if op.dims and isinstance(op.dims[0], list) else []
    sizes = [int(np.prod(shape)) for shape in tensors if isinstance(shape, list)]
    return sorted(sizes, reverse=True)


def _appends(work: Work, times: float) -> np.ndarray:
    """Which work belongs to a cat of one large input and little else."""
    number, signatures = signatures_of(work.events.trace, work.op.rows)
    known = [_parts(one) if one.name == "aten::cat" else [] for one in signatures]
    grown = [len(sizes) > 1 and 0 < times * sum(sizes[1:]) <= sizes[0] for sizes in known]
    return np.array(grown, bool)[number]


def _appended(found: Work) -> str:
    """Shape of what the last cat appended."""
    number, signatures = signatures_of(found.events.trace, found.op.rows)
    shapes = [shape for shape in signatures[int(number[-1])].dims[0] if isinstance(shape, list)]
    return "x".join(str(size) for size in min(shapes, key=lambda shape: int(np.prod(shape))))
