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
    """Starts and ends of the rows of each thread, in order: no index, since the ends are sorted faster than kept.

    Attributes:
        starts, ends: per thread as in `Nesting`, int64 ns, sorted.
    """

    starts: tuple[Rows, ...]
    ends: tuple[Rows, ...]

    @classmethod
    def of(cls, nesting: Nesting) -> Self:
        """Of all threads."""
        ends = tuple(np.sort(nesting.end_ns.take(rows), kind="stable") for rows in nesting.thread_rows)
        return cls(nesting.thread_start_ns, ends)

    def around(self, thread: int, at: Rows, side: Literal["left", "right"]) -> tuple[Rows, Rows]:
        """The last edge before and the first one after each instant, both of the shape of `at`.

        The least and the largest int64 stand for no edge at all.

        Args:
            side: of an edge at the instant itself, on which the instant is put, as `np.searchsorted` has it.
        """
        before, after = np.full(len(at), _NEVER.min), np.full(len(at), _NEVER.max)
        for edges in (self.starts[thread], self.ends[thread]):
            place = np.searchsorted(edges, at, side=side)
            later, earlier = np.flatnonzero(place < len(edges)), np.flatnonzero(place)
            after[later] = np.minimum(after[later], edges[place[later]])
            before[earlier] = np.maximum(before[earlier], edges[place[earlier] - 1])
        return before, after
