"""Fourier transforms: their lengths, which of them are awkward, and what transforms of good lengths need."""

import math
from functools import lru_cache

from traceanalyzer.tensors.ops.costs import OpCost
from traceanalyzer.tensors.signatures import Signature

_REAL = {"c10::Half": 2, "float": 4, "double": 8}
_COMPLEX = {"c10::complex<c10::Half>": 4, "c10::complex<float>": 8, "c10::complex<double>": 16}
_OPS = ("aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c")
_RADICES = (2, 3, 5, 7)
_AT_ONCE = 8_192  # complex float32 numbers: longer transforms pass over memory more than once
_ABSURD = 2**40  # damaged files have such lengths


def fft_lengths(op: Signature) -> tuple[int, ...]:
    """Length of the transform along each of its dimensions; empty for other ops and where the inputs do not say."""
    if op.name not in _OPS:
        return ()
    try:
        along, shape = op.scalar(1), op.shape(0)
        lengths = [shape[dim] for dim in along]
        if op.name == "aten::_fft_c2r":
            lengths[-1] = int(op.scalar(3))  # a real transform keeps half of its spectrum
    except (LookupError, TypeError, ValueError):
        return ()
    return tuple(lengths) if all(0 < length < _ABSURD for length in lengths) else ()


@lru_cache(maxsize=4_096)
def factors(number: int) -> tuple[int, ...]:
    """Its prime factors in order, `(2, 7, 73)` of 1,022."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return (*found, number) if number > 1 else tuple(found)


def is_awkward(length: int) -> bool:
    """Whether it has a prime factor that libraries have no quick kernels for: any above 7."""
    return max(factors(length), default=1) > _RADICES[-1]


@lru_cache(maxsize=4_096)
def next_length(length: int) -> int:
    """The next even length that has no prime factors but 2, 3, 5 and 7; real transforms of odd ones take longer."""
    best: int = 1 << max((length - 1).bit_length(), 1)
    products = [1]  # of 3, 5 and 7
    for radix in _RADICES[1:]:
        for product in list(products):
            while product * radix <= best:
                product *= radix
                products.append(product)
    for odd in products:
        even = 2 * odd
        while even < length:
            even *= 2
        best = min(best, even)
    return best


def fft_cost(op: Signature) -> OpCost:
    """Each dimension is a pass over memory; a complex one takes 5 n log2(n) operations, a real one half as many."""
    lengths = fft_lengths(op)
    if not lengths:
        raise LookupError("no lengths")
    complex_in = op.types[0] in _COMPLEX
    item = _COMPLEX[op.types[0]] if complex_in else 2 * _REAL[op.types[0]]  # of a complex number
    whole = math.prod(op.shape(0))
    if op.name == "aten::_fft_c2r":
        whole = whole // max(op.shape(0)[op.scalar(1)[-1]], 1) * lengths[-1]
    moved = 2 * whole * item * len(lengths)
    flops = 5 * whole * sum(math.log2(length) for length in lengths)
    kind = "long fft" if max(lengths) > _AT_ONCE else "fft"
    if op.name != "aten::_fft_c2c":
        moved, flops, kind = moved // 2, flops / 2, f"real {kind}"
    return OpCost(kind, int(flops), moved, "fp64" if item > _COMPLEX["c10::complex<float>"] else "fp32")
