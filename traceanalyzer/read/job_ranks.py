"""Which rank of a job each of several traces is: what it declares, or else what its file is called.

Two recordings of one rank are told apart: a copy, one program twice, such as before and after a change, or two jobs.
"""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Self

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.trace import Skipped, Trace, ints, matching, narrow_codes, texts_of
from traceanalyzer.read.folders import any_rank, rank_of_name

_COMPARE = "To compare two recordings: traceanalyzer compare {} {}"
_EACH = "Diagnose each job alone, with the files of all its ranks: traceanalyzer diagnose {}, and then {}."
_SKETCH = 128  # names kept of a program: the share that two have in common is known to 0.04; chosen
_ALIKE = 0.5  # of the names: 51 of 65 programs before and after a change share more, 6 % of other pairs; H200


@dataclass(frozen=True, slots=True)
class Declared:
    """What a trace says of its place in a job; `program` numbers names of its ops and kernels, alike for alike ones."""

    source: str
    rank: int | None
    start_ns: int
    end_ns: int
    world_size: int | None = None
    program: tuple[int, ...] = ()
    events: int = 0

    @classmethod
    def of(cls, trace: Trace) -> Self:
        lanes = [lane for lane in (trace.lanes.cpu, trace.lanes.gpu) if len(lane)]
        ends = [int((ints(lane, "start_ns") + ints(lane, "dur_ns")).max()) for lane in lanes]
        meta = trace.meta
        start_ns = meta.base_time_ns + meta.origin_ns
        end_ns = meta.base_time_ns + max(ends, default=meta.origin_ns)
        return cls(meta.source, meta.rank, start_ns, end_ns, meta.world_size, sketch(trace), meta.events)


def sketch(trace: Trace) -> tuple[int, ...]:
    """The least hashes of the names of ops and kernels: two sketches share about as much as the names do."""
    return tuple(sorted(hashed_names(trace))[:_SKETCH])


def hashed_names(trace: Trace) -> dict[int, str]:
    """Hash -> name of each op and kernel; the same in all processes."""
    names: set[str] = set()
    for lane, category in ((trace.lanes.cpu, "cpu_op"), (trace.lanes.gpu, "kernel")):
        rows = matching(lane, "category", category.__eq__)
        used = distinct(narrow_codes(lane, "name")[rows])
        names.update(texts_of(lane, "name")[used[used >= 0]])
    return {zlib.crc32(name.encode("utf-8", "replace")): name for name in names}


def shared_part(sketch: Sequence[int], other: Sequence[int]) -> float:
    """Which part of two programs' names, of which these are the sketches, is in both; 1 where neither has any."""
    least = set(sorted({*sketch, *other})[:_SKETCH])
    return len(least & set(sketch) & set(other)) / len(least) if least else 1.0


def find_duplicate_traces(traces: Sequence[Declared]) -> tuple[set[int], list[Skipped]]:
    """(positions of traces that are copies of an earlier one, the same as skipped files)."""
    first: dict[Declared, str] = {}
    copies: set[int] = set()
    skipped = []
    for position, declared in enumerate(traces):
        original = first.setdefault(replace(declared, source=""), declared.source)
        if original != declared.source and declared.rank is not None:
            copies.add(position)
            skipped.append(Skipped(declared.source, f"the same recording as {Path(original).name}"))
    return copies, skipped


def assign_ranks(traces: Sequence[Declared]) -> list[tuple[int, int | None]]:
    """(rank in the job, rank that the trace declares or its file is named by) of each; without one the lowest free.

    Raises UnreadableTrace: two of them are recordings of one process.
    """
    by_rank: dict[int, Declared] = {}
    traces = _named(traces)
    for declared in traces:
        if declared.rank is not None and by_rank.setdefault(declared.rank, declared) is not declared:
            raise _conflicting_ranks(by_rank[declared.rank], declared)
    _refuse_recordings([declared for declared in traces if declared.rank is None])
    free = (rank for rank in range(2 * len(traces)) if rank not in by_rank)
    return [(next(free) if declared.rank is None else declared.rank, declared.rank) for declared in traces]


def _conflicting_ranks(first: Declared, other: Declared) -> UnreadableTrace:
    """The error for two recordings of one rank: two jobs, or one program recorded twice."""
    names = first.source, other.source
    problem = "two traces of rank {}: {} and {}".format(first.rank, *names)
    part = shared_part(first.program, other.program)
    each, compare = (text.format(*map(shlex.quote, _apart(*names))) for text in (_EACH, _COMPARE))
    if first.world_size != other.world_size:
        sizes = f"one of {first.world_size} ranks, one of {other.world_size}"
        return UnreadableTrace(f"{problem}: these are of two jobs, {sizes}", remedy=each)
    if part < _ALIKE:
        share = f"only {part:.0%} of the names of ops and kernels are in both"
        problem = f"{problem}: these are of two jobs, or of one job before and after a large change; {share}"
        return UnreadableTrace(problem, remedy=f"{each} {compare}")
    return UnreadableTrace(f"{problem}: one program, recorded twice", remedy=compare)


def _apart(first: str, other: str) -> tuple[str, str]:
    """What stands for the files of each job: the folders of two files, or else their names for any rank."""
    for told in ((str(Path(first).parent), str(Path(other).parent)), (any_rank(first), any_rank(other))):
        if told[0] != told[1]:
            return told
    return first, other


def _named(traces: Sequence[Declared]) -> Sequence[Declared]:
    """The traces; where several declare no rank and the names of their files tell them apart, with these ranks."""
    ranks = [rank_of_name(one.source) if one.rank is None else one.rank for one in traces]
    unnamed = sum(declared.rank is None for declared in traces)
    if unnamed < 2 or None in ranks or len(set(ranks)) < len(ranks):
        return traces
    return [replace(declared, rank=rank) for declared, rank in zip(traces, ranks, strict=True)]


def _refuse_recordings(traces: Sequence[Declared]) -> None:
    """Two recordings of one program are no job of two ranks: they declare no rank, and do not overlap in time."""
    spans = sorted((first.start_ns, first.end_ns, number) for number, first in enumerate(traces))
    for (_, end_ns, first), (start_ns, _, other) in pairwise(spans):
        if end_ns <= start_ns:
            names = traces[min(first, other)].source, traces[max(first, other)].source
            problem = "{} and {} declare no rank and were recorded one after the other: no job".format(*names)
            raise UnreadableTrace(problem, remedy=_COMPARE.format(*names))
