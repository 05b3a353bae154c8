"""Fourier transforms of lengths with large prime factors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, numbered, sums_of
from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_rates import call_times
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.rule import Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.ffts import factors, fft_lengths, is_awkward, next_length

_BLUESTEIN = r"(?i)bluestein"
_IN_PASSES = r"(?i)multi_bluestein"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Limits:
    times: float = limit(
        1.5,
        "a transform of a good length is assumed to take this many times the minimum time for its bytes and"
        " operations at the device's peak rates; on an H100, nine of ten transforms take less",
    )
    min_call_ns: int = limit(
        10_000,
        "shorter calls are ignored, because their time is latency; measured on an H100 with torch 2.11",
    )
    floor_ns: int = limit(
        8_000,
        "used for the predicted saving: no transform of a good length is predicted to take less than this "
        "time; measured: 7 to 13 µs for a million numbers, H100, torch 2.11",
    )
    speedup: float = limit(
        2.0,
        "if lengths are not recorded: a transform of a good length is assumed to be this many times as fast"
        " as Bluestein in one kernel; measured on an H100: 2.4 to 4 times",
    )
    speedup_passes: float = limit(
        8.0,
        "if lengths are not recorded: a transform of a good length is assumed to be this many times as fast"
        " as Bluestein in several passes; measured on an H100: 10 to 33 times",
    )


@rule(since="0.1", claims=Claims.WORK, limits=Limits)
def fft_length(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Fourier transforms have a length with a large prime factor.

    What it looks for: torch.fft calls along a dimension whose length has a prime factor above 7. A good
    length has only prime factors up to 7. If lengths are not recorded, the rule looks for kernels with
    Bluestein in their name.
    Why it costs: for large prime factors, the library computes a much longer convolution (Bluestein's
    algorithm). This takes up to eight passes over memory instead of one.
    Bad: a convolution by FFT of 8,191 numbers, which is a prime. Good: a convolution of 8,192 numbers; then
    cut the result to the needed part. scipy.fft.next_fast_len finds good lengths.
    How sure: length and time are recorded. Padding is possible if the transform belongs to a convolution,
    which the trace does not show.
    When it is wrong: the spectrum itself is the result and needs exactly this length.
    Saving: the recorded time minus the predicted time for a good length.
    Source: cuFFT's documentation, "Accuracy and Performance"; measured on an H100 with torch 2.11: 8,191
    numbers take 33 times as long as 8,192.
    """
    chosen = inputs.meets(lambda op: _slow_lengths(fft_lengths(op))) | work.name.matches(_BLUESTEIN)
    for device, pieces in work[chosen & work.kind.one_of("compute")].by_device():
        call, _ = numbered(np.where(pieces.op.there, pieces.op.rows, -1 - np.arange(len(pieces))))
        spent = sums_of(call, pieces.dur_ns, len(pieces))[call]
        share = _share(pieces, spent, inputs, gpus[device].peaks, limits)
        slow = (share * limits.times < 1) & (spent > limits.min_call_ns)
        if slow.any():
            yield _hits(pieces[slow], share[slow], inputs)


def _share(pieces: Work, spent: Rows, inputs: WorkInputs, peaks: Peaks | None, limits: Limits) -> Floats:
    """The part of its time that each kernel would take in a transform of a good length.

    Args:
        spent: of the whole call that each belongs to, ns.
    """
    name, number = pieces.name, inputs.number[pieces.entries]
    passes, bluestein = name.matches(_IN_PASSES), name.matches(_BLUESTEIN)
    guess = 1 / np.where(passes, limits.speedup_passes, np.where(bluestein, limits.speedup, 1.0))
    if peaks is None:
        return guess
    reached, _ = call_times(number, name, inputs.signatures, peaks)
    longer = np.array([_padding(fft_lengths(op)) for op in inputs.signatures])
    target = np.maximum(reached * longer, limits.floor_ns)[number]
    bounded = np.where(reached[number] > 0, target / np.maximum(spent, 1), guess)
    # Bluestein's algorithm is slower by this factor at any size.
    return np.where(bluestein | passes, np.minimum(bounded, guess), bounded)


def _slow_lengths(lengths: tuple[int, ...]) -> list[int]:
    return [length for length in lengths if is_awkward(length)]


def _padding(lengths: tuple[int, ...]) -> float:
    """How many times the numbers there are when each awkward length is padded to the next good one."""
    return math.prod(next_length(length) / length for length in _slow_lengths(lengths))


def _hits(pieces: Work, share: Floats, inputs: WorkInputs) -> Hits:
    lengths = _lengths(pieces, inputs)
    padded = ", ".join(f"{length:,} to {next_length(length):,}" for length in lengths)
    why = ", ".join(_describe_length(length) for length in lengths)
    return Hits(
        **reduce_to(pieces, pieces.dur_ns * share),
        message="Fourier transforms of unfavourable lengths take {spent_a_step}, in {kernels}{where}"
        + (f": {why}" if why else ": Bluestein's algorithm, for lengths with a large prime factor"),
        advice=(f"Pad {padded}" if padded else "Pad to a length without prime factors above 7")
        + (
            " (n= or s= of torch.fft), and cut the result. A convolution needs a length of at least signal + "
            "kernel - 1. If the spectrum itself is the result, choose a window of such a length, or crop or "
            "resample the data."
        ),
        confidence=Confidence.HIGH if lengths else Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(pieces),
            "spent_ns": pieces.total_ns,
            "lengths": lengths,
            "good_lengths": [next_length(length) for length in lengths],
            "largest_factors": [factors(length)[-1] for length in lengths],
        },
    )


def _lengths(pieces: Work, inputs: WorkInputs) -> list[int]:
    """The awkward lengths that took most."""
    spent = sums_of(inputs.number[pieces.entries], pieces.dur_ns, len(inputs.signatures))
    sums: dict[int, int] = {}
    for which in np.flatnonzero(spent).tolist():
        for length in set(_slow_lengths(fft_lengths(inputs.signatures[which]))):
            sums[length] = sums.get(length, 0) + int(spent[which])
    return sorted(sums, key=lambda size: (-sums[size], size))[:_SHOWN]


def _describe_length(length: int) -> str:
    """`8,191 is prime`, `1,022 has the prime factor 73`."""
    largest = factors(length)[-1]
    text = "is prime" if largest == length else f"has the prime factor {largest:,}"
    return f"the transform's length {length:,} {text}"
