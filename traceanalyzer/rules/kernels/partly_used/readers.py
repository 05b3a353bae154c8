"""Which ops read a tensor of some size, looked up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.roofline.made import made
from traceanalyzer.tensors.signatures import Shape, Signature, tensors


@dataclass(frozen=True, slots=True)
class Readers:
    """Ops in order of thread and time, and which of them read a tensor of some size.

    Attributes:
        number, signatures: of each op, and what the numbers stand for.
        views: whether an op only views.
        last: position after the last op of its thread.
        places: positions of the ops of each signature.
        by_size: signatures by columns and elements of an input.
        unknown: positions of ops whose inputs are not recorded.
        results: shapes of what ops make, by signature, as far as they were asked for.
    """

    number: Rows
    signatures: Sequence[Signature]
    views: Mask
    last: Rows
    places: Sequence[Rows]
    by_size: Mapping[tuple[int, int], set[int]]
    unknown: Rows
    results: dict[int, Shape] = field(default_factory=dict)

    @classmethod
    def of(cls, number: Rows, signatures: Sequence[Signature], views: Mask, thread: Rows) -> Self:
        """Of all ops; those of a thread follow each other."""
        ends = np.cumsum(np.bincount(number, minlength=len(signatures)))
        by_size: dict[tuple[int, int], set[int]] = {}
        for which, op in enumerate(signatures):
            for shape in tensors(op):
                by_size.setdefault(_size(shape), set()).add(which)
        places = np.split(np.argsort(number, kind="stable"), ends[:-1])
        unknown = np.flatnonzero(np.array([not op.dims for op in signatures], bool)[number])
        last = np.searchsorted(thread, thread, side="right")
        return cls(number, signatures, views, last, places, by_size, unknown)

    def op(self, at: int) -> Signature:
        """The op at a position, with its inputs."""
        return self.signatures[int(self.number[at])]

    def result(self, at: int) -> Shape:
        """Shape of what the op at a position makes; empty where that is not known."""
        which = int(self.number[at])
        if which not in self.results:
            self.results[which] = made(self.signatures[which]) or ()
        return self.results[which]

    def next_alike(self, at: int, after: int) -> int:
        """Position of the next op on the thread, after another one, with the same inputs; or after its last op."""
        alike = self.places[self.number[at]]
        following = alike[np.searchsorted(alike, after, side="right") :][:1]
        return int(following[0]) if len(following) and following[0] < self.last[at] else int(self.last[at])

    def between(self, at: int, end: int, whole: Shape) -> Iterator[tuple[Signature, Rows]]:
        """Ops after one position and before another that read so many rows and columns, with their positions."""
        for which in sorted(self.by_size.get(_size(whole), ())):
            own = self.places[which]
            low, high = np.searchsorted(own, (at + 1, end))
            if high > low:
                yield self.signatures[which], own[low:high]

    def reads(self, at: int, whole: Shape) -> bool:
        """Whether an op takes a tensor of so many rows and columns, or its inputs are not known."""
        return int(self.number[at]) in self.by_size.get(_size(whole), ()) or not self.op(at).dims


def _size(shape: Shape) -> tuple[int, int]:
    return shape[-1], math.prod(shape)
