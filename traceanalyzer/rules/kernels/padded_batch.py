"""Batches that are padded far beyond their longest sequence, as the lengths that a loss was given tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import tensors
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.padded_shapes import is_padded, padded_sizes
from traceanalyzer.rule.quicker_work import not_below, quicker

_LOSS = r"ctc_loss"


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.8, "in each step the longest sequence may have at most this share of the padded length; chosen"
    )
    min_steps: int = limit(
        3,
        "at least this many steps are needed, and max_used_share must hold in each of them; chosen",
    )
    min_gpu_share: float = limit(
        0.1, "work on padded tensors must take at least this share of GPU time; chosen"
    )
    floor_ns: int = limit(2_000, "a kernel takes at least this time, even with few bytes; H200, torch 2.11")


@rule(since="0.2", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def padded_batch(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Batches are padded far beyond their longest sequence.

    What it looks for: ctc_loss, for which the lengths of all sequences are recorded. In each step the longest
    sequence has at most 80 % of the frames of the padded batch.
    Why it costs: layers compute padding like everything else. Masks only hide the results.
    Bad: F.pad(x, (0, 0, 0, 2048 - len(x))) for each utterance. Good: padding to the longest of the batch,
    rounded up to a multiple of 64; batches of sequences of about the same length.
    How sure: the lengths are recorded. ctc_loss gets the length after the encoder's subsampling. So work counts
    as work on padded tensors if a shape has the batch's size and 1, 2, 4 or 8 times that length. Confidence is
    medium.
    When it is wrong: the length is fixed on purpose: for a compiled model, for a CUDA graph, or because a
    library sets up its kernels once for each shape.
    Saving: work on padded tensors shrinks to (longest sequence / padded length) of its time.
    Source: torch.nn.CTCLoss in PyTorch's documentation (input_lengths).
    """
    losses = calls[calls.is_op & (calls.step >= 0) & calls.name.matches(_LOSS)]
    number, signatures = signatures_of(losses.events.trace, losses.rows)
    read = [_lengths(one) for one in signatures]
    known = np.array([one is not None for one in read], bool)[number]
    losses, number = losses[known], number[known]
    batches = {one[0] for one in read if one is not None}
    frames = {frames for _, frames in batches}
    if len(frames) != 1 or len(np.unique(losses.step)) < limits.min_steps:
        return
    longest = np.zeros(int(losses.step.max()) + 1)
    np.maximum.at(longest, losses.step, [max(one[1]) for which in number.tolist() if (one := read[which])])
    used = longest / frames.copy().pop()
    if not (used <= limits.max_used_share).all():
        return
    sizes = {size for batch, length in batches for size in padded_sizes(batch, length)}
    padded = inputs.meets(lambda op: any(is_padded(shape, sizes) for shape in tensors(op)))
    mine = padded & work.kind.one_of("compute") & (work.step >= 0) & (work.step < len(used))
    mine &= np.append(used, 0.0)[np.clip(work.step, -1, len(used) - 1)] > 0
    for device, found in work[mine].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share >= limits.min_gpu_share:
            needed = not_below(found.dur_ns * used[found.step], found, limits.floor_ns)
            yield _hits(found, needed, share, longest[longest > 0], max(frames))


def _hits(found: Work, needed: np.ndarray, share: float, longest: np.ndarray, frames: int) -> Hits:
    return Hits(
        **quicker(found, needed),
        message="batches are padded to {frames} frames, but the longest sequence has {longest} (median; at most "
        "{most}), by the lengths that ctc_loss gets: {gpu} of GPU time is work on padded tensors{where}",
        advice="Pad each batch to its longest sequence, rounded up to a multiple of 64. Make batches of sequences "
        "of about the same length.",
        confidence=Confidence.MEDIUM,
        evidence={
            **told(found),
            "gpu_share": share,
            "frames": frames,
            "longest": round(float(np.median(longest))),
            "most": round(float(longest.max())),
        },
    )


def _lengths(op: Signature) -> tuple[tuple[int, int], list[int]] | None:
    """((sequences, frames), the lengths of the sequences) of a loss over (frames, sequences, classes)."""
    scores = next((shape for shape in tensors(op) if len(shape) == 3), ())
    for place in range(len(op.scalars)):
        try:
            found = op.scalar(place)
        except LookupError:
            continue
        if scores and isinstance(found, list) and len(found) == scores[1]:
            return (scores[1], scores[0]), [int(length) for length in found]
    return None
