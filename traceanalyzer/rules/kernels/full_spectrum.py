"""Complex Fourier transforms of real numbers: half of the spectrum says the same again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.model.shapes import elements_of
from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import Shape, tensors
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import not_below, quicker

_FORWARD, _INVERSE = r"^aten::fft_fft[2n]?$", r"^aten::fft_ifft[2n]?$"
_REAL_PART = r"^aten::real$"
_COMPLEX = "c10::complex<"


@dataclass(frozen=True, slots=True)
class Limits:
    left_share: float = limit(
        0.5, "work on half of the spectrum takes this share of the time of work on all of it; algebra"
    )
    floor_ns: int = limit(
        2_000, "kernels of at most this duration do not get faster with half the numbers; H200, torch 2.11"
    )
    min_elements: int = limit(
        1 << 16, "a spectrum must have at least this many numbers; launching limits smaller ones; chosen"
    )
    min_gpu_share: float = limit(
        0.05, "work on full spectra must take at least this share of GPU time; chosen"
    )


@rule(since="0.2", claims=Claims.WORK, min_share=0.02, limits=Limits)
def full_spectrum(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Complex Fourier transforms work on real numbers.

    What it looks for: torch.fft.fft, fft2 or fftn of a real tensor, and ifft, ifft2 or ifftn if the next op
    takes the real part of the result. Other ops on complex tensors of that shape count, too.
    Why it costs: the spectrum of real numbers has each value twice, once conjugated. The transforms, and every
    op on the spectrum, compute and move both.
    Bad: torch.fft.ifft2(torch.fft.fft2(field) * filter).real. Good: torch.fft.irfft2(torch.fft.rfft2(field) *
    half, s=field.shape), with the half of the filter that rfft2 gives.
    How sure: input dtypes are recorded. If the real part is taken, the spectrum is probably one of real
    numbers, so confidence is medium.
    When it is wrong: an op between the two transforms treats the two halves differently, as a Hilbert transform
    does.
    Saving: half of the transforms and of the work on spectra, and the conversion of inputs to complex numbers.
    Source: PyTorch's documentation of torch.fft.rfft; measured on an H200 with torch 2.11.
    """
    ops = calls[calls.is_top_op & calls.name.matches(f"{_FORWARD}|{_INVERSE}")]
    if len(ops) == 0:
        return
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    if not any(one.dims for one in signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows what is transformed")
    real = np.array([one.types[:1] != () and _COMPLEX not in one.types[0] for one in signatures], bool)[
        number
    ]
    wasted = np.where(ops.name.matches(_FORWARD), real, _real_part_follows(calls, ops))
    shapes = [next(iter(tensors(one)), ()) for one in signatures]
    full = {shapes[which] for which in number[wasted].tolist()}
    full -= {shapes[which] for which in number[~wasted].tolist()}
    full = {shape for shape in full if elements_of(shape) >= limits.min_elements}
    if full:
        yield from _of(ops[wasted], full, work, inputs, limits)


def _real_part_follows(calls: Calls, ops: Calls) -> Mask:
    """Whether the next op of the thread takes the real part."""
    every = calls[calls.is_top_op]
    every = every[np.lexsort((every.start_ns, every.thread))]
    after = np.append(every.name.matches(_REAL_PART)[1:] & (every.thread[1:] == every.thread[:-1]), False)
    return np.isin(ops.rows, every.rows[after])


def _of(ops: Calls, full: set[Shape], work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    member = inputs.meets(lambda op: _on_spectrum(op, full))
    widened = inputs.meets(_from_real) & (work.op.index_of_enclosing(ops) >= 0)
    shape = max(full, key=elements_of)
    for device, found in work[member & work.kind.one_of("compute", "copy_d2d")].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        needed = not_below(
            np.multiply(found.dur_ns, limits.left_share, dtype=np.float64), found, limits.floor_ns
        )
        yield Hits(
            **quicker(found, np.where(widened[found.entries], 0.0, needed)),
            message=(
                "complex Fourier transforms work on real numbers ({size}): half of each spectrum is the conjugate "
                "of the other half; both take {gpu} of GPU time, in {ops}"
            )
            + (", at {lines}" if found.line.sums(found.dur_ns) else ""),
            advice="Use rfft2 and irfft2 (rfft, irfft, rfftn, irfftn; s= gives the size), and keep filters and "
            "wavenumbers for the half of the last dimension that they return.",
            confidence=Confidence.MEDIUM,
            evidence={
                **told(found),
                "gpu_share": share,
                "size": "x".join(map(str, shape)),
                "transforms": len(ops),
            },
        )


def _on_spectrum(op: Signature, full: set[Shape]) -> bool:
    """Whether one of its tensors is a complex one of such a shape."""
    plain = (dims for dims, kind in zip(op.dims, op.types, strict=False) if _COMPLEX in kind)
    return not full.isdisjoint(tensors(Signature(op.name, tuple(plain), (), ())))


def _from_real(op: Signature) -> bool:
    """A conversion of real to complex numbers."""
    return op.name == "aten::copy_" and [_COMPLEX in kind for kind in op.types[:2]] == [True, False]
