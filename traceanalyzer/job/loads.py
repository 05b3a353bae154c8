"""What each rank of a job computes in a step, beside how long it waits for the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.job.waits import CollectiveWaits
from traceanalyzer.model.arrays import sums_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps

_FEW = 3  # steps: of so many the first is left out, which launches what a queue of work runs later, or runs it cold


@dataclass(frozen=True, slots=True)
class Load:
    """One rank's mean step.

    Attributes:
        compute_ns: time of kernels that compute; of several streams the sum.
        waiting_ns: measured waiting for other ranks, also beside compute.
        error_ns: standard error of `compute_ns`, from step to step; 0 where there is only one.
    """

    compute_ns: float
    waiting_ns: float
    error_ns: float = 0.0

    @classmethod
    def of(cls, work: DeviceWork, steps: Steps, waits: CollectiveWaits) -> Self:
        """
        Raises:
            Unavailable: no steps are marked, so that ranks cannot be compared.
        """
        if not steps.marked:
            raise Unavailable("no steps are marked: what ranks compute in one cannot be compared")
        first = 1 if len(steps) >= _FEW else 0
        count = len(steps) - first
        computes = (work.kind == KINDS.index("compute")) & (steps.of_work >= first)
        took_ns = (work.end_ns - work.start_ns)[computes]
        compute_ns = sums_of(steps.of_work[computes] - first, took_ns, count)
        error_ns = float(np.std(compute_ns, ddof=1)) / math.sqrt(count) if count > 1 else 0.0
        waited_ns = waits.waiting_ns[steps.of_work[waits.entry] >= first].sum()
        return cls(float(compute_ns.mean()), float(waited_ns) / count, error_ns)


@dataclass(frozen=True, slots=True)
class RankLoads:
    """The load of every rank that has one, as one of them sees it.

    Attributes:
        rank: whose trace this is.
        of: rank -> its load; at least two.
    """

    rank: int
    of: Mapping[int, Load]

    @classmethod
    def build(cls) -> Self:
        """Only a job gives it.

        Raises:
            Unavailable: always.
        """
        raise Unavailable("one rank's trace alone: what the others compute shows in theirs")

    @property
    def others(self) -> list[Load]:
        """All but the own."""
        return [load for rank, load in self.of.items() if rank != self.rank]

    @property
    def mean_compute_ns(self) -> float:
        """What each would compute in a step if all computed as much."""
        return float(np.mean([load.compute_ns for load in self.of.values()]))
