"""The wire format of protocol buffers, as far as a trace needs it.

Numbers that differ from slice to slice are written as varints of a fixed size, with continuation bits that a shorter
one would not need: every reader accepts these (Perfetto's own writer uses them for sizes), and packets that differ in
such numbers alone are the rows of one matrix.
"""

import struct

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

PADDED = 9  # bytes of a padded varint: 63 bits
MOST = (1 << 63) - 1
_VARINT, _FIXED64, _SIZED = 0, 1, 2


def varint(value: int) -> bytes:
    """An unsigned number up to 64 bits, 7 bits a byte; a negative one as its two's complement."""
    return _SHORT[value] if 0 <= value < len(_SHORT) else _varint(value)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT = [_varint(value) for value in range(1 << 11)]  # most are sizes and fields


def number(field: int, value: int) -> bytes:
    """A field that holds an integer, a bool or an enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def sized(field: int, content: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return varint(field << 3 | _SIZED) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field that holds a string: halves of surrogate pairs as escapes."""
    return sized(field, value.encode("utf-8", "backslashreplace"))


def double(field: int, value: float) -> bytes:
    """A field that holds a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def fixed64(field: int, value: int) -> bytes:
    """A field that holds an unsigned number of 8 bytes."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value)


def padded(values: NDArray[np.int64]) -> Bytes:
    """Varints of numbers from 0 to MOST, PADDED bytes each; uint8 (numbers, PADDED)."""
    shifts = np.arange(PADDED, dtype=np.uint64) * np.uint64(7)
    out = ((values.astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    out[:, :-1] |= np.uint8(0x80)
    return out


def doubles(values: NDArray[np.float64]) -> Bytes:
    """uint8 (numbers, 8), little-endian."""
    return np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)


def rows(parts: list[bytes | Bytes], count: int) -> Bytes:
    """A matrix of `count` rows: constant bytes and columns of bytes side by side."""
    columns = (np.frombuffer(part, np.uint8)[None] if isinstance(part, bytes) else part for part in parts)
    return np.concatenate([np.broadcast_to(one, (count, one.shape[1])) for one in columns], axis=1)
