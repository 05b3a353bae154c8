"""What each rank computes in a step, how long it waits for the others, and what it runs that they do not."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Floats, median, sums_of
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.job_ranks import hashed_names
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps

_FEW = 3  # steps: of so many the first is left out, which launches what a queue of work runs later, or runs it cold


@dataclass(frozen=True, slots=True)
class Load:
    """One rank's mean step: `compute_ns` is summed over streams, with its standard error from step to step.

    `held_ns` is what the others wait for it, `kernels` compute in all steps; without marks the recording is one step.
    """

    compute_ns: float
    waiting_ns: float
    error_ns: float = 0.0
    held_ns: float = 0.0
    step_ns: float = 0.0
    kernels: int = 0
    marked: bool = True

    @classmethod
    def of(cls, work: DeviceWork, steps: Steps, waits: CollectiveWaits, held_ns: Floats) -> Self:
        """`held_ns` is what the others wait for this rank in each of its collectives; float64, as `waits`."""
        first = 1 if len(steps) >= _FEW else 0
        count = len(steps) - first
        computes = (work.kind == KINDS.index("compute")) & (steps.of_work >= first)
        took_ns = (work.end_ns - work.start_ns)[computes]
        compute_ns = sums_of(steps.of_work[computes] - first, took_ns, count)
        error_ns = float(np.std(compute_ns, ddof=1)) / math.sqrt(count) if count > 1 else 0.0
        later = steps.of_work[waits.entry] >= first
        waited, held = (float(one[later].sum()) / count for one in (waits.waiting_ns, held_ns))
        step_ns = median(steps.durations_ns(min(steps.bounds_ns, default=None))[first:])
        mean_ns, kernels = float(compute_ns.mean()), int(computes.sum())
        return cls(mean_ns, waited, error_ns, held, step_ns, kernels, steps.marked)


def comparable(loads: Mapping[int, Load]) -> bool:
    """Whether these are of the same steps: marked, or of as many kernels on every rank."""
    return all(load.marked for load in loads.values()) or len({load.kernels for load in loads.values()}) == 1


@dataclass(frozen=True, slots=True)
class RankLoads(GivenByJob):
    """The loads of all ranks that have one, at least two, as the trace of `rank` sees them."""

    rank: int
    of: Mapping[int, Load]

    @property
    def own(self) -> Load:
        return self.of[self.rank]

    @property
    def others(self) -> list[Load]:
        return [load for rank, load in self.of.items() if rank != self.rank]

    @property
    def mean_compute_ns(self) -> float:
        """What each would compute in a step if all computed as much."""
        return float(np.mean([load.compute_ns for load in self.of.values()]))


Hashes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OtherProgram(GivenByJob):
    """Names of ops and kernels that this rank has, and less than half of the others."""

    names: tuple[str, ...]
    others: int
    missing: ClassVar[str] = "needs the traces of several ranks that run the same program (stages of a pipeline do not)"

    @classmethod
    def of(cls, trace: Trace, rare: Hashes, others: int) -> Self:
        known = hashed_names(trace)
        return cls(tuple(sorted(known[one] for one in rare if one in known)), others)


def rare_in(programs: Mapping[int, Hashes]) -> dict[int, Hashes]:
    """Rank -> those of its names that less than half of the other ranks have."""
    having = Counter(name for names in programs.values() for name in names)
    others = len(programs) - 1
    return {rank: tuple(name for name in names if 2 * (having[name] - 1) < others) for rank, names in programs.items()}
