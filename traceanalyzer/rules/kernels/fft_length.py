"""Fourier transforms of lengths with large prime factors."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.rule import Claims, Confidence, Hits, Work, rule
from traceanalyzer.rule.slow_work import slow_work
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.ffts import factors, fft_lengths, is_awkward, next_length

# Share of the time of Bluestein's algorithm that a good length needs, in several passes (measured on an H100: 3 to
# 10 %) and in one kernel (25 to 42 %).
_IN_PASSES, _PASSES_SHARE = r"(?i)multi_bluestein", 1 / 8
_BLUESTEIN, _KERNEL_SHARE = r"(?i)bluestein", 1 / 2
_SHOWN = 3


@rule(since="0.1", claims=Claims.WORK)
def fft_length(work: Work, inputs: WorkInputs) -> Iterator[Hits]:
    """Fourier transforms have a length with a large prime factor.

    What it looks for: kernels of torch.fft with Bluestein in their name, which compute lengths with a prime
    factor above 7.
    Why it costs: for large prime factors, the library computes a much longer convolution (Bluestein's
    algorithm). This takes up to eight passes over memory instead of one.
    Bad: a convolution by FFT of 8,191 numbers, which is a prime. Good: a convolution of 8,192 numbers; then
    cut the result to the needed part. scipy.fft.next_fast_len finds good lengths.
    How sure: the algorithm and its time are recorded, and lengths if shapes are. Padding is possible if the
    transform belongs to a convolution, which the trace does not show.
    When it is wrong: the spectrum itself is the result and needs exactly this length.
    Saving: seven eighths of the time of Bluestein's algorithm in several passes, half of that in one kernel.
    Source: cuFFT's documentation, "Accuracy and Performance"; measured on an H100 with torch 2.11: 8,191
    numbers take 33 times as long as 8,192.
    """
    named = (work.name.matches(name) for name in (_BLUESTEIN, _IN_PASSES))
    # With the other kernels that the same calls launched.
    bluestein, passes = (kernels | (work.op.there & np.isin(work.op.rows, work.op.rows[kernels])) for kernels in named)
    share = np.where(passes, _PASSES_SHARE, np.where(bluestein, _KERNEL_SHARE, 1.0))
    spent = np.bincount(inputs.number, np.where(bluestein, work.dur_ns, 0), len(inputs.signatures))
    lengths: dict[int, float] = {}
    for which in np.flatnonzero(spent).tolist():
        for length in filter(is_awkward, set(fft_lengths(inputs.signatures[which]))):
            lengths[length] = lengths.get(length, 0) + spent[which]
    longest = sorted(lengths, key=lambda length: (-lengths[length], length))[:_SHOWN]
    why = ", ".join(f"the transform's length {length:,} {_reason(length)}" for length in longest)
    padded = ", ".join(f"{length:,} to {next_length(length):,}" for length in longest)
    yield from slow_work(
        work,
        share,
        message="Fourier transforms of unfavourable lengths take {gpu} of all GPU work, in {kernels}{where}: "
        + (why or "Bluestein's algorithm, for lengths with a large prime factor"),
        advice=f"Pad {padded or 'to a length without prime factors above 7'} (n= or s= of torch.fft), and cut the "
        "result. A convolution needs a length of at least signal + kernel - 1. If the spectrum itself is the result, "
        "choose a window of such a length, or crop or resample the data.",
        confidence=Confidence.HIGH if longest else Confidence.MEDIUM,
        evidence={"lengths": longest, "good_lengths": list(map(next_length, longest))},
    )


def _reason(length: int) -> str:
    """`is prime`, `has the prime factor 73`."""
    largest = factors(length)[-1]
    return "is prime" if largest == length else f"has the prime factor {largest:,}"
