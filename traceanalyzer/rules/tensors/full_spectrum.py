"""Complex Fourier transforms of real numbers: half of the spectrum says the same again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.shapes import elements_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, signatures_of, tensors
from traceanalyzer.timeline import kernel_families as families

_FORWARD, _INVERSE = r"^aten::fft_fft[2n]?$", r"^aten::fft_ifft[2n]?$"
_REAL_PART = r"^aten::real$"
_COMPLEX = "c10::complex<"
# What a transform of real numbers calls: fft2 and fftn convert them to complex ones, fft computes half and mirrors it.
_CONVERSION, _HALF, _ALL = "aten::_to_copy", "aten::_fft_r2c", "aten::_fft_c2c"
# Complex numbers that need not be a full spectrum.
_OTHERS = r"^aten::(complex|polar|view_as_complex|stft|istft|fft_i?[hr]fft[2n]?)$"


@dataclass(frozen=True, slots=True)
class Limits:
    left_share: float = limit(
        0.5,
        "used for the predicted saving: work on half of a spectrum takes this share of the time of work on "
        "the whole spectrum; calculated, not measured",
    )
    floor_ns: int = limit(
        2_000,
        "used for the predicted saving: kernels of at most this duration do not get faster with half the "
        "numbers; measured on an H200 with torch 2.11",
    )
    min_elements: int = limit(
        1 << 16,
        "reported only if a spectrum has at least this many numbers; with smaller spectra, launching takes "
        "longer than computing; chosen",
    )
    min_gpu_share: float = limit(
        0.05,
        "reported only if work on full spectra takes at least this share of GPU time; chosen",
    )
    pointwise_share: float = limit(
        0.5,
        "without recorded shapes: a pointwise kernel on complex numbers is regarded as work on a full "
        "spectrum if it is long enough: at least this share of the median time of the transforms' kernels; "
        "such a kernel moves at least as many bytes as a kernel of a transform; measured on an H100 with "
        "torch 2.11",
    )


@rule(since="0.2", claims=Claims.WORK, min_share=0.02, limits=Limits)
def full_spectrum(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Complex Fourier transforms are used, although the data is real.

    What it looks for: torch.fft.fft, fft2 or fftn of a real tensor, or of one that the op before has made
    complex. The rule also looks for ifft, ifft2 or
    ifftn if the next op takes the real part.
    Why it costs: the spectrum of real numbers has each value twice: once as it is, and once conjugated. The
    transforms, and every op on the spectrum, compute and move both values.
    Bad: torch.fft.ifft2(torch.fft.fft2(field) * filter).real. Good: torch.fft.irfft2(torch.fft.rfft2(field) *
    filter_half, s=field.shape). Here filter_half is the part of the filter that matches the result of rfft2.
    How sure: if an op takes the real part of an inverse transform, the imaginary part was probably zero, but
    this is not certain. So confidence is medium.
    When it is wrong: an op between the two transforms treats the two halves differently, as a Hilbert
    transform does.
    Saving: half of the time of the transforms and of other work on spectra. A conversion of
    the input to complex numbers is no longer needed, so its whole time is saved.
    Source: PyTorch's documentation of torch.fft.rfft; measured on an H200 with torch 2.11.
    """
    ops = calls[calls.is_top_op & calls.name.matches(f"{_FORWARD}|{_INVERSE}")]
    if len(ops) == 0:
        return
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    if not any(signature.dims for signature in signatures):
        yield from _unrecorded(calls, ops, work, limits)
        return
    real = np.array(
        [signature.types[:1] != () and _COMPLEX not in signature.types[0] for signature in signatures], bool
    )[number]
    widens, widened_transforms = _widened_before(calls)
    real |= np.isin(ops.rows, widened_transforms.rows)
    wasted = np.where(ops.name.matches(_FORWARD), real, _real_part_follows(calls, ops))
    shapes = [next(iter(tensors(signature)), ()) for signature in signatures]
    full = {shapes[which] for which in number[wasted].tolist()}
    full -= {shapes[which] for which in number[~wasted].tolist()}
    full = {shape for shape in full if elements_of(shape) >= limits.min_elements}
    if full:
        member = inputs.meets(lambda op: _on_spectrum(op, full))
        converting = ops.joined([ops[wasted], widens])
        widened = inputs.meets(_from_real) & (work.op.index_of_enclosing(converting) >= 0)
        yield from _spectrum_hits(ops[wasted], max(full, key=elements_of), work, member, widened, limits)


def _unrecorded(calls: Calls, ops: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Without shapes: by what the transforms call, where all of them are of real numbers."""
    inner = calls[calls.name.one_of(_CONVERSION, _HALF)]
    real = np.isin(ops.rows, ops[_owners(inner, ops)].rows)
    wasted = np.where(ops.name.matches(_FORWARD), real, _real_part_follows(calls, ops))
    if not wasted.any():
        return
    if not wasted.all():
        raise Unavailable("no shapes recorded: record_shapes=True shows which transforms are of real numbers")
    transforms = calls[calls.name.one_of(_ALL, _HALF)]
    of_transform = work.op.inside(transforms) | work.op.inside(ops)
    widened = work.op.inside(inner[inner.name.one_of(_CONVERSION)]) & work.op.inside(ops)
    kernels = work[of_transform & ~widened & work.kind.one_of("compute")]
    if len(kernels) == 0:
        return
    pointwise = work.name.matches(families.POINTWISE) & work.name.matches(families.COMPLEX)
    pointwise &= work.dur_ns >= limits.pointwise_share * np.median(kernels.dur_ns)
    if len(calls[calls.is_op & calls.name.matches(_OTHERS)]):
        pointwise[:] = False
    yield from _spectrum_hits(ops, None, work, of_transform | pointwise, widened, limits)


def _owners(inner: Calls, ops: Calls) -> Rows:
    """Positions of the transforms that call these."""
    owner = inner.index_of_enclosing(ops)
    return owner[owner >= 0]


def _real_part_follows(calls: Calls, ops: Calls) -> Mask:
    """Whether the next op of the thread takes the real part."""
    every = calls[calls.is_top_op].in_order()
    after = np.append(every.name.matches(_REAL_PART)[1:] & (every.thread[1:] == every.thread[:-1]), False)
    return np.isin(ops.rows, every.rows[after])


def _widened_before(calls: Calls) -> tuple[Calls, Calls]:
    """(ops that convert real numbers to complex ones for the transform right after them, these transforms)."""
    every = calls[calls.is_top_op].in_order()
    copies = calls[calls.name.one_of("aten::copy_")]
    number, signatures = signatures_of(calls.events.trace, copies.rows)
    widens = copies[np.array([_from_real(op) for op in signatures], bool)[number]].outer_op
    converts = np.isin(every.rows, widens.rows) & every.name.meets(
        lambda name: op_row(name).kind is Kind.COPY
    )
    together = (every.thread[1:] == every.thread[:-1]) & (every.step[1:] == every.step[:-1])
    before = converts[:-1] & every.name.matches(_FORWARD)[1:] & together
    return every[:-1][before], every[1:][before]


def _spectrum_hits(
    ops: Calls, shape: Shape | None, work: Work, member: Mask, widened: Mask, limits: Limits
) -> Iterator[Hits]:
    """Of the work on full spectra, `member`, half is needed, and of conversions to complex numbers, `widened`, none."""
    size = shape_text(shape) if shape else ""
    for pieces, share in work[member & work.kind.one_of("compute", "copy_d2d")].device_shares(
        limits.min_gpu_share
    ):
        needed = clamp_to_floor(
            np.multiply(pieces.dur_ns, limits.left_share, dtype=np.float64), pieces, limits.floor_ns
        )
        yield Hits(
            **reduce_to(pieces, np.where(widened[pieces.entries], 0.0, needed)),
            message="complex Fourier transforms work on real numbers"
            + " ({size})" * bool(size)
            + (
                ": half of each spectrum is the conjugate "
                "of the other half; both take {gpu} of all GPU work, in {ops}"
            )
            + (", at {lines}" if pieces.line.sums(pieces.dur_ns) else ""),
            advice="Use rfft2 and irfft2 (rfft, irfft, rfftn, irfftn; s= gives the size), and keep filters and "
            "wavenumbers for the half of the last dimension that they return.",
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "size": size,
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
