"""What all ranks of a job have in common, as any of them sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceanalyzer.job.runs import PAIR, CollectiveRuns, is_pair
from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Floats, pick
from traceanalyzer.model.report import Clock
from traceanalyzer.timeline.collective_waits import CollectiveWaits


@dataclass(frozen=True, slots=True)
class JobView(GivenByJob):
    """
    Attributes:
        runs: rank -> its collectives.
        waits: rank -> what it waited in those that another rank's trace has, too.
        clocks: rank -> its clock.
        base_ns: rank -> base time of its file, which its times are relative to.
    """

    runs: Mapping[int, CollectiveRuns]
    waits: Mapping[int, CollectiveWaits]
    clocks: Mapping[int, Clock]
    base_ns: Mapping[int, int]

    @property
    def pipelined(self) -> bool:
        """Whether ranks send to each other, as stages of a pipeline do: these run other programs."""
        return any(is_pair(group) for one in self.runs.values() for group in set(one.group[one.what == PAIR]))

    def held_up_ns(self) -> dict[int, Floats]:
        """Rank -> what the others wait for it in each of its collectives, on average; float64, as its waits."""
        size = 1 + max((int(one.number.max(initial=-1)) for one in self.waits.values()), default=-1)
        waited, ranks = np.zeros(size), np.zeros(size, np.int64)
        last = np.full(size, -1, np.int64)
        for one in self.waits.values():
            np.add.at(waited, one.number, one.waiting_ns)
            np.add.at(ranks, one.number, 1)
            last[one.number] = one.last
        others = waited / np.maximum(ranks - 1, 1)
        return {
            rank: np.where(pick(last, one.number) == rank, others[one.number], 0.0)
            for rank, one in self.waits.items()
        }
