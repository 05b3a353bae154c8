"""Which rank of a job each of several traces is: what it declares, or else what its file is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.folders import rank_of_name

_COMPARE = "To compare two recordings: traceanalyzer compare {} {}"


@dataclass(frozen=True, slots=True)
class Declared:
    """What a trace says of its place in a job.

    Attributes:
        source: its file.
        rank: None where it declares none.
        start_ns, end_ns: of what was recorded.
    """

    source: str
    rank: int | None
    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """From the whole trace."""
        lanes = [lane for lane in (trace.cpu, trace.gpu) if len(lane)]
        ends = [int((lane["start_ns"] + lane["dur_ns"]).max()) for lane in lanes]
        origin_ns = trace.meta.origin_ns
        return cls(trace.meta.source, trace.meta.rank, origin_ns, max(ends, default=origin_ns))


def ranked_by(traces: Sequence[Declared]) -> list[tuple[int, int | None]]:
    """(rank in the job, rank that the trace or the name of its file tells) of each; without one the lowest free.

    Raises:
        UnreadableTrace: two of them are recordings of one process.
    """
    known: dict[int, Declared] = {}
    traces = _named(traces)
    for one in traces:
        if one.rank is not None and known.setdefault(one.rank, one) is not one:
            problem = f"two traces of rank {one.rank}: {known[one.rank].source} and {one.source}"
            raise UnreadableTrace(problem, remedy=_COMPARE.format(known[one.rank].source, one.source))
    _refuse_recordings([one for one in traces if one.rank is None])
    free = (rank for rank in range(2 * len(traces)) if rank not in known)
    return [(next(free) if one.rank is None else one.rank, one.rank) for one in traces]


def _named(traces: Sequence[Declared]) -> list[Declared]:
    """The traces; where several declare no rank and the names of their files tell them apart, with these ranks."""
    names = {at: rank_of_name(one.source) for at, one in enumerate(traces) if one.rank is None}
    ranks = [*names.values(), *(one.rank for one in traces if one.rank is not None)]
    if len(names) < 2 or None in ranks or len(set(ranks)) < len(ranks):
        return list(traces)
    return [replace(one, rank=names[at]) if at in names else one for at, one in enumerate(traces)]


def _refuse_recordings(traces: Sequence[Declared]) -> None:
    """Two recordings of one program are no job of two ranks: they declare no rank, and do not overlap in time.

    Raises:
        UnreadableTrace: one ends before the other begins.
    """
    spans = sorted((one.start_ns, one.end_ns, number) for number, one in enumerate(traces))
    for (_, end_ns, one), (start_ns, _, other) in pairwise(spans):
        if end_ns <= start_ns:
            names = traces[min(one, other)].source, traces[max(one, other)].source
            problem = "{} and {} declare no rank and were recorded one after the other: no job".format(*names)
            raise UnreadableTrace(problem, remedy=_COMPARE.format(*names))
