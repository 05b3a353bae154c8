"""Batches that are padded far beyond their sequences, as recorded lengths tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.padded_shapes import is_padded, padded_sizes
from traceanalyzer.rule.quicker_work import not_below, quicker
from traceanalyzer.rules.kernels.padded_batch.uneven import uneven_batches
from traceanalyzer.tensors.signatures import Signature, signatures_of, tensors

_LOSS = r"ctc_loss"
_PAD = "aten::constant_pad_nd"


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.8,
        "reported only if in each step the longest sequence has at most this share of the padded length; "
        "chosen",
    )
    min_steps: int = limit(
        3,
        "reported only if there are at least this many steps, and max_used_share holds in each of them; "
        "chosen",
    )
    min_lengths: int = limit(
        3,
        "reported only if F.pad fills up sequences of at least this many different lengths; if all have "
        "one length, F.pad adds the border of an image; chosen",
    )
    min_gpu_share: float = limit(
        0.1, "work on padded tensors must take at least this share of GPU time; chosen"
    )
    floor_ns: int = limit(
        2_000,
        "for the saving: no kernel is predicted to take less than this time; H200, torch 2.11",
    )

    max_sorted_share: float = limit(
        0.8,
        "for `uneven`: reported only if, after sorting by length, at most this share of the padded "
        "positions is needed; chosen",
    )
    min_batches: int = limit(
        3,
        "for `uneven`: reported only if at least this many batches are recorded; fewer say little about "
        "the batches that are not recorded; chosen",
    )


@rule(since="0.2", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("uneven",))
def padded_batch(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Batches are padded far beyond their longest sequence.

    What it looks for: in each step, a batch whose longest sequence has at most 80 % of the padded length. The
    rule reads the lengths from ctc_loss, or from F.pad of each sequence.
    A second case (cause `uneven`, named in the finding's title): pad_sequence joins short and long sequences
    in a batch. The rule reports this only if batches of sequences of similar length would make the padded
    tensors at least 20 % smaller.
    Why it costs: layers compute padded positions like all other positions. Masks only hide the results.
    Bad: F.pad(x, (0, 0, 0, 2048 - len(x))) for each utterance. Good: padding to the longest sequence of the
    batch, rounded up to a multiple of 64; batches of sequences of about the same length.
    How sure: the lengths are recorded. The rule recognises padded tensors only by their sizes, so confidence
    is medium.
    When it is wrong: the length is fixed on purpose, for instance for a compiled model or a CUDA graph.
    Saving: predicted as if the time of work on padded tensors were proportional to the number of positions.
    Source: torch.nn.CTCLoss in PyTorch's documentation (input_lengths).
    """
    yield from _of_uneven(calls, work, inputs, limits)
    known = _of_losses(calls) or _of_pads(calls, limits)
    if known is None or np.count_nonzero(known.longest) < limits.min_steps:
        return
    used = known.longest / known.frames
    if not (used <= limits.max_used_share).all():
        return
    padded = inputs.meets(lambda op: any(is_padded(shape, known.sizes) for shape in tensors(op)))
    mine = padded & work.kind.one_of("compute") & (work.step >= 0) & (work.step < len(used))
    mine &= np.append(used, 0.0)[np.clip(work.step, -1, len(used) - 1)] > 0
    for device, found in work[mine].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share >= limits.min_gpu_share:
            needed = not_below(found.dur_ns * used[found.step], found, limits.floor_ns)
            yield _hits(found, needed, share, known)


def _of_uneven(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Of batches that pad_sequence makes of sequences of unlike lengths."""
    known = uneven_batches(calls)
    if known is None or known.batches < limits.min_batches or known.sorted_share > limits.max_sorted_share:
        return
    padded = inputs.meets(lambda op: any(is_padded(shape, known.sizes) for shape in tensors(op)))
    for device, found in work[padded & work.kind.one_of("compute")].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share >= limits.min_gpu_share:
            yield Hits(
                **quicker(
                    found, not_below(np.multiply(found.dur_ns, known.sorted_share), found, limits.floor_ns)
                ),
                cause="uneven",
                message="pad_sequence joins sequences of unlike lengths, which fill {used} of the padded positions: "
                "{gpu} of all GPU work is work on padded tensors{where}; sorted by length, the same sequences need "
                "{sorted} of these positions",
                advice="Sort the data by length, or draw batches from buckets of about the same length. In evaluation, "
                "put the results back in order afterwards.",
                confidence=Confidence.MEDIUM,
                evidence={
                    **told(found),
                    "gpu_share": share,
                    "used": f"{100 * known.used:.0f} %",
                    "sorted": f"{100 * known.sorted_share:.0f} %",
                    "batches": known.batches,
                },
            )


@dataclass(frozen=True, slots=True)
class _Known:
    """What a trace says of the lengths in its batches.

    Attributes:
        longest: float64 (steps,), length of the longest sequence in each step, 0 where none is known.
        frames: padded length.
        sizes: (sequences, positions) of padded tensors.
        source: what says so.
    """

    longest: Floats
    frames: int
    sizes: set[tuple[int, int]]
    source: str


def _hits(found: Work, needed: np.ndarray, share: float, known: _Known) -> Hits:
    longest = known.longest[known.longest > 0]
    return Hits(
        **quicker(found, needed),
        message="batches are padded to {frames} frames, but the longest sequence has {longest} (median; at most "
        "{most}), by {source}: {gpu} of all GPU work is work on padded tensors{where}",
        advice="Pad each batch to its longest sequence, rounded up to a multiple of 64. Make batches of sequences "
        "of about the same length.",
        confidence=Confidence.MEDIUM,
        evidence={
            **told(found),
            "gpu_share": share,
            "frames": known.frames,
            "source": known.source,
            "longest": round(float(np.median(longest))),
            "most": round(float(longest.max())),
        },
    )


def _of_losses(calls: Calls) -> _Known | None:
    """By the lengths that ctc_loss gets; None where batches have several padded lengths."""
    losses = calls[calls.is_op & (calls.step >= 0) & calls.name.matches(_LOSS)]
    number, signatures = signatures_of(losses.events.trace, losses.rows)
    read = [_lengths(one) for one in signatures]
    whole = np.array([one is not None for one in read], bool)[number]
    losses, number = losses[whole], number[whole]
    batches = {one[0] for one in read if one is not None}
    if len({frames for _, frames in batches}) != 1:
        return None
    longest = np.zeros(int(losses.step.max()) + 1)
    np.maximum.at(longest, losses.step, [max(one[1]) for which in number.tolist() if (one := read[which])])
    sizes = {size for batch in batches for size in padded_sizes(*batch)}
    return _Known(longest, batches.pop()[1], sizes, "the lengths that ctc_loss gets")


def _of_pads(calls: Calls, limits: Limits) -> _Known | None:
    """By F.pad of each sequence; None where its calls fill up to several lengths, or always add as much."""
    pads = calls[calls.is_op & (calls.step >= 0) & calls.name.one_of(_PAD)]
    number, signatures = signatures_of(pads.events.trace, pads.rows)
    read = [_filled(one) for one in signatures]
    whole = np.array([one is not None for one in read], bool)[number]
    pads, number = pads[whole], number[whole]
    if len({one[1] for one in read if one}) != 1:
        return None
    lengths = np.array([one[0] if one else 0 for one in read], np.int64)[number]
    counts = np.bincount(pads.step)
    if len(np.unique(lengths)) < limits.min_lengths or len(set(counts[counts > 0].tolist())) != 1:
        return None
    frames = next(one[1] for one in read if one)
    longest = np.zeros(len(counts))
    np.maximum.at(longest, pads.step, lengths)
    count = int(counts.max())  # of one to four tensors for each sequence
    batches = [count // each for each in (1, 2, 3, 4) if count % each == 0 and count > each]
    sizes = {size for batch in batches for size in padded_sizes(batch, frames)}
    return _Known(longest, frames, sizes, "what F.pad adds to each sequence")


def _filled(op: Signature) -> tuple[int, int] | None:
    """(length before, length after) of what is padded at the end of its first dimension, ones apart; else None."""
    try:
        shape, added = op.shape(0), op.scalar(1)
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        whole = isinstance(added, list) and len(added) == 2 * len(shape) and not any(added[:-1])
        return (shape[0], shape[0] + int(added[-1])) if whole else None
    except (LookupError, TypeError, ValueError):
        return None


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
