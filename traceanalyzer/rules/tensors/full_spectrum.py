"""Complex Fourier transforms of real numbers: half of the spectrum is the conjugate of the other half."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, rule
from traceanalyzer.rule.slow_work import slow_work
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import with_inputs
from traceanalyzer.timeline import kernel_families as families

_FORWARD, _INVERSE = r"^aten::fft_fft[2n]?$", r"^aten::fft_ifft[2n]?$"
# What transforms of real numbers call: a conversion to complex numbers, or half a transform that is mirrored.
_OF_REAL = ("aten::_to_copy", "aten::_fft_r2c")
_COMPLEX = "c10::complex<"


@rule(since="0.2", claims=Claims.WORK, min_share=0.02)
def full_spectrum(calls: Calls, work: Work, inputs: WorkInputs) -> Iterator[Hits]:
    """Complex Fourier transforms are used, although the data is real.

    What it looks for: torch.fft.fft, fft2 or fftn of a real tensor, or of one that the op before has made
    complex. The rule also looks for ifft, ifft2 or ifftn if the next op takes the real part.
    Why it costs: the spectrum of real numbers has each value twice: once as it is, and once conjugated. The
    transforms, and every op on the spectrum, compute and move both values.
    Bad: torch.fft.ifft2(torch.fft.fft2(field) * filter).real. Good: torch.fft.irfft2(torch.fft.rfft2(field) *
    filter_half, s=field.shape). Here filter_half is the part of the filter that matches the result of rfft2.
    How sure: if an op takes the real part of an inverse transform, the imaginary part was probably zero, but
    this is not certain. So confidence is medium.
    When it is wrong: an op between the two transforms treats the two halves differently, as in a Hilbert transform.
    Saving: half of the time of the transforms and of other work on spectra. A conversion of
    the input to complex numbers is no longer needed, so its whole time is saved.
    Source: PyTorch's documentation of torch.fft.rfft; measured on an H200 with torch 2.11.
    """
    every, number, signatures = with_inputs(calls[calls.is_top_op].in_order())
    forward = every.name.matches(_FORWARD)
    together = (every.thread[1:] == every.thread[:-1]) & (every.step[1:] == every.step[:-1])
    copies, which, of_copies = with_inputs(calls[calls.name.one_of("aten::copy_")])
    widens = copies[np.array([_widens(op) for op in of_copies], bool)[which]]
    if not len(every):
        return
    # A conversion right before a transform, and the real part right after one.
    before = np.append(np.isin(every.rows, widens.outer_op.rows)[:-1] & forward[1:] & together, False)
    after = np.append(every.name.one_of("aten::real")[1:] & together, False)
    typed_real = np.array([bool(op.types[:1]) and _COMPLEX not in op.types[0] for op in signatures], bool)
    inner = calls[calls.name.one_of(*_OF_REAL)].index_of_enclosing(every)
    real = typed_real[number] | np.isin(np.arange(len(every)), inner) | np.roll(before, 1)
    wasted = (forward & real) | (every.name.matches(_INVERSE) & after)
    needed = forward & ~real | every.name.matches(_INVERSE) & ~after
    first = np.array([shape_text(next(iter(tensors(op)), ())) for op in signatures], object)[number]
    full, kept = set(first[wasted]), set(first[needed])
    if "" in full & kept:
        raise Unavailable("no shapes recorded: record_shapes=True shows which transforms are of real numbers")
    transforms = every[wasted & np.isin(first, list(full - kept))]
    on_spectrum = work.op.inside(transforms) | inputs.meets(partial(_reads, shapes=full - kept))
    if "" in full:
        on_spectrum |= work.op.inside(calls[calls.name.one_of("aten::_fft_c2c", "aten::_fft_r2c")])
        on_spectrum |= work.name.matches(families.POINTWISE) & work.name.matches(families.COMPLEX)
    converts = inputs.meets(_widens) | work.op.inside(calls[calls.name.one_of(_OF_REAL[0])])
    share = np.where(on_spectrum, 0.5, 1.0)
    share[converts & work.op.inside(transforms.joined([transforms, every[before]]))] = 0.0
    yield from slow_work(
        work,
        share,
        message="complex Fourier transforms work on real numbers: half of each spectrum is the conjugate of the other "
        "half; both take {gpu} of all GPU work, in {ops}{where}",
        advice="Use rfft2 and irfft2 (rfft, irfft, rfftn, irfftn; s= gives the size), and keep filters and "
        "wavenumbers for the half of the last dimension that they return.",
        confidence=Confidence.MEDIUM,
    )


def _widens(op: Signature) -> bool:
    return op.name == "aten::copy_" and [_COMPLEX in kind for kind in op.types[:2]] == [True, False]


def _reads(op: Signature, shapes: set[str]) -> bool:
    """Whether one of its inputs is a complex tensor of such a shape."""
    dims = tuple(dims for dims, kind in zip(op.dims, op.types, strict=False) if _COMPLEX in kind)
    return not shapes.isdisjoint(map(shape_text, tensors(Signature(op.name, dims, (), ()))))
