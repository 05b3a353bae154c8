"""Which tensors hold a batch of padded sequences, by their sizes."""

from __future__ import annotations

from collections.abc import Collection

from traceanalyzer.tensors.signatures import Shape

_STRIDES = (1, 2, 4, 8)  # frames before subsampling for each after it


def padded_sizes(batch: int, length: int) -> list[tuple[int, int]]:
    """(sequences, positions) of a batch, before and after its positions are subsampled by up to 8."""
    return [(batch, length * stride) for stride in _STRIDES]


def is_padded(shape: Shape, sizes: Collection[tuple[int, int]]) -> bool:
    """Whether it has the batch's size and length among its dimensions, or their product."""
    return any({batch, length} <= set(shape) or batch * length in shape for batch, length in sizes)
