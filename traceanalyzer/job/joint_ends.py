"""Kernels that wait for other ranks, though no name tells: who starts late is done in less time.

Ranks come to a collective at different times and leave it together. So across ranks the durations of one execution
differ as much as its starts do, the other way round. Kernels that compute take the same time wherever they start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.communication import Kernels, unexplained
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import COMMUNICATION

_COMMUNICATES = KINDS.index("communication")
_EXECUTIONS = 4  # fewer correlate by chance
_MAKING_UP = (
    -0.6
)  # correlation of start and duration: collectives -0.66 to -1.0, 2 to 8 ranks of H200 and V100
_LESS_SPREAD = (
    0.95  # ends to starts: collectives 0.0 to 0.93, kernels that compute 0.98 and more, beside noise
)
_DIFFERING = 0.02  # of the duration: matmuls beside a collective correlate as well, by up to 0.02 of theirs


@dataclass(frozen=True, slots=True)
class RankKernels:
    """Kernels of one rank that may communicate.

    Attributes:
        runs: name -> starts and durations in ns, float64, in order of start.
        known: names of those that the rank's own trace shows to communicate.
    """

    runs: Mapping[str, tuple[Floats, Floats]]
    known: frozenset[str]

    @classmethod
    def of(cls, trace: Trace, work: DeviceWork) -> RankKernels:
        """What of a rank others are compared with."""
        kernels = Kernels(trace, work.row, work.device, work.stream, work.op)
        every = Texts.column(trace.lanes.gpu, "name", work.row)
        known = frozenset(every[work.kind == _COMMUNICATES].distinct())
        rows = np.flatnonzero(unexplained(kernels, every.matches(COMMUNICATION)))
        names = Texts.column(trace.lanes.gpu, "name", work.row[rows])
        order = np.lexsort((work.start_ns[rows], names.code))
        parts = np.split(order, np.flatnonzero(np.diff(names.code[order])) + 1) if len(order) else []
        start, dur = work.start_ns[rows], (work.end_ns - work.start_ns)[rows]
        return cls(
            {str(names[part[0]]): (start[part].astype(float), dur[part].astype(float)) for part in parts},
            known,
        )


def waiting_together(ranks: Mapping[int, RankKernels]) -> frozenset[str]:
    """Names of kernels that communicate on one rank at least, or end together on all since they wait for each other."""
    if len(ranks) < 2:
        return frozenset()
    known: frozenset[str] = frozenset().union(*(rank.known for rank in ranks.values()))
    shared = set.intersection(*(set(rank.runs) for rank in ranks.values())) - known
    return known.union(name for name in shared if _wait([rank.runs[name] for rank in ranks.values()]))


def with_waiting(trace: Trace, work: DeviceWork, names: frozenset[str]) -> DeviceWork:
    """The work with those kernels as communication."""
    chosen = Texts.column(trace.lanes.gpu, "name", work.row).meets(names.__contains__) & (work.kind == 0)
    return replace(work, kind=np.where(chosen, _COMMUNICATES, work.kind))


def _wait(runs: list[tuple[Floats, Floats]]) -> bool:
    count = min(len(start) for start, _ in runs)
    if count < _EXECUTIONS or max(len(start) for start, _ in runs) > 2 * count:
        return False
    start, dur = (np.stack([run[column][-count:] for run in runs]) for column in (0, 1))
    start = start - start[:1]
    late, longer = _apart(start), _apart(dur)
    spread = np.abs(late).sum()
    if spread == 0 or np.abs(longer).mean() < _DIFFERING * dur.mean():
        return False
    together = (late * longer).sum() / max(np.sqrt((late**2).sum() * (longer**2).sum()), 1.0)
    return bool(together <= _MAKING_UP and np.abs(late + longer).sum() <= _LESS_SPREAD * spread)


def _apart(values: Floats) -> Floats:
    """How far each rank is from the mean of an execution, without what it always is: clocks differ, and devices."""
    own = values - np.median(values, axis=1, keepdims=True)
    return np.asarray(own - own.mean(axis=0))
