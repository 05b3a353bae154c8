"""Whole numbers as bytes, small ones in few: what processes send each other."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows

_BITS = 7  # of a number in each byte; the eighth says that more follow
_MOST = 10  # bytes of a number


def short(numbers: Rows) -> bytes:
    """The numbers, of any sign, as bytes that `numbers_of` reads."""
    left = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)  # small whatever the sign
    many = np.ones(len(left), np.int64)
    for more in range(1, _MOST):
        many += left >> np.uint64(_BITS * more) > 0
    place = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    byte = (np.repeat(left, many) >> (_BITS * place).astype(np.uint64)).astype(np.uint8) & 127
    follows = place < np.repeat(many, many) - 1
    return (byte | follows.astype(np.uint8) << _BITS).tobytes()


def numbers_of(packed: bytes) -> Rows:
    """What was made `short`."""
    byte = np.frombuffer(packed, np.uint8)
    if len(byte) == 0:
        return np.empty(0, np.int64)
    begins = np.flatnonzero(np.append(True, byte[:-1] < 1 << _BITS))
    place = np.arange(len(byte)) - np.repeat(begins, np.diff(begins, append=len(byte)))
    parts = (byte & 127).astype(np.uint64) << (_BITS * place).astype(np.uint64)
    left = np.bitwise_or.reduceat(parts, begins)
    return np.asarray((left >> np.uint64(1)).astype(np.int64) ^ -(left & np.uint64(1)).astype(np.int64))
