"""Every instant at which something starts or ends on a thread of the CPU lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.timeline.nesting import Nesting

_NEVER = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Starts and ends of the rows of each thread, in order.

    Attributes:
        starts, ends: per thread as in `Nesting`, int64 ns, sorted, each with the least and the largest int64 at its
            ends, which stand for no edge at all.
    """

    starts: tuple[Rows, ...]
    ends: tuple[Rows, ...]

    @classmethod
    def build(cls, nesting: Nesting) -> Self:
        ends = [np.sort(nesting.end_ns[rows]) for rows in nesting.thread_rows]
        return cls(tuple(map(_padded, nesting.thread_start_ns)), tuple(map(_padded, ends)))

    def around(self, thread: int, at: Rows, side: Literal["left", "right"]) -> tuple[Rows, Rows]:
        """The last edge before and the first one after each instant, both of the shape of `at`.

        Args:
            side: of an edge at the instant itself, on which the instant is put, as `np.searchsorted` has it.
        """
        starts, ends = self.starts[thread], self.ends[thread]
        start, end = (np.searchsorted(edges, at, side=side) for edges in (starts, ends))
        before = np.maximum(starts[start - 1], ends[end - 1])
        return before, np.minimum(starts[start], ends[end])


def _padded(sorted_ns: Rows) -> Rows:
    return np.concatenate(([_NEVER.min], sorted_ns, [_NEVER.max]))
