"""How much slower a job is than one of even ranks: S = T / T_ideal, of the whole job and of each rank or stage.

All ranks' tasks are run again from their durations alone: a task begins when the one before it on its rank has ended,
and a transfer when all ranks that take part have come. T_ideal has the mean over ranks for compute and the median for
transfers, as published for the jobs of a cluster (Lin et al., "Understanding Stragglers in Large Model Training Using
What-if Analysis", 2025).
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.runs import is_pair
from traceanalyzer.model.arrays import Floats, Mask
from traceanalyzer.model.report import Slowdown
from traceanalyzer.model.step_times import median

_MOST = 16  # ranks whose own part is said, those that hold up the others longest


@dataclass(frozen=True, slots=True)
class Task:
    """What a rank does at a time: tasks of one kind take the same on even ranks, a transfer from the last rank's start.

    `meets` is which transfer it is, the same on all ranks that take part; None of compute.
    """

    kind: Hashable
    ns: float
    meets: Hashable | None = None


Program = Sequence[Sequence[Task]]
"""Tasks of one rank in order; those of one place run at once: a send beside a receive."""


def slowdown(
    programs: Sequence[Mapping[int, Program]], stages: Mapping[int, int], ranks: Sequence[int] = ()
) -> Slowdown:
    """Of a job's steps, each with a program per rank; with the parts of these ranks, and of their stages by rank."""
    every, named = sorted({rank for program in programs for rank in program}), sorted(set(stages.values()))
    keeps = [[False] * len(every), [True] * len(every)]
    keeps += [[program == rank for program in every] for rank in ranks]
    keeps += [[stages.get(program) == stage for program in every] for stage in named]
    kept = dict(zip(every, np.array(keeps).T, strict=True))
    ideal = _ideal(programs)
    took = np.mean([_steps_ns(program, ideal, kept) for program in programs], axis=0)
    s = (took / max(float(took[0]), 1.0)).tolist()
    of_ranks, of_stages = s[2 : 2 + len(ranks)], s[2 + len(ranks) :]
    return Slowdown(s[1], dict(zip(ranks, of_ranks, strict=True)), dict(zip(named, of_stages, strict=True)))


def _ideal(programs: Sequence[Mapping[int, Program]]) -> dict[Hashable, float]:
    took: dict[Hashable, list[float]] = {}
    moves: set[Hashable] = set()
    for step in programs:
        for program in step.values():
            for task in (task for place in program for task in place):
                took.setdefault(task.kind, []).append(task.ns)
                if task.meets is not None:
                    moves.add(task.kind)
    return {kind: median(every) if kind in moves else math.fsum(every) / len(every) for kind, every in took.items()}


def _steps_ns(programs: Mapping[int, Program], ideal: Mapping[Hashable, float], recorded: Mapping[int, Mask]) -> Floats:
    """When the last rank finishes, of jobs in which a rank's tasks take `recorded` (jobs,) or ideal time; (jobs,)."""
    tasks = (task for program in programs.values() for place in program for task in place)
    job = _Job(Counter(task.meets for task in tasks if task.meets is not None), ideal)
    ranks = {rank: job.places(program, recorded[rank]) for rank, program in programs.items()}
    done_before: dict[int, int] = {}
    while ranks:
        done = {rank: count for rank, run in ranks.items() if (count := next(run, None)) is not None}
        # Tasks wait for each other in a circle, or for a rank that never comes.
        if done == done_before:
            break
        ranks, done_before = {rank: ranks[rank] for rank in done}, done
    return np.asarray(np.max(job.ends_ns, axis=0), np.float64)


class _Job:
    """Ranks that run their programs and wait for each other; `ends_ns` is when each one's last place ends (jobs,)."""

    def __init__(self, participants: Counter[Hashable], ideal: Mapping[Hashable, float]) -> None:
        self.ends_ns: list[Floats] = []
        self._participants = participants
        self._ideal = ideal
        self._arrived: Counter[Hashable] = Counter()
        self._last_arrival: dict[Hashable, Floats] = {}

    def places(self, program: Program, recorded: Mask) -> Iterator[int]:
        """Runs a rank's program; yields the number of finished places whenever it waits."""
        end_ns = np.zeros(len(recorded))
        number = len(self.ends_ns)
        self.ends_ns.append(end_ns)
        for count, place in enumerate(program):
            meetings = [task.meets for task in place if task.meets is not None]
            for meeting in meetings:
                self._arrived[meeting] += 1
                self._last_arrival[meeting] = np.maximum(self._last_arrival.get(meeting, 0.0), end_ns)
            while any(self._arrived[meeting] < self._participants[meeting] for meeting in meetings):
                yield count
            ends = [self._end_ns(task, end_ns, recorded) for task in place]
            end_ns = ends[0] if len(ends) == 1 else np.max(ends, axis=0)
            self.ends_ns[number] = end_ns

    def _end_ns(self, task: Task, start_ns: Floats, recorded: Mask) -> Floats:
        begin_ns = start_ns if task.meets is None else self._last_arrival[task.meets]
        return np.asarray(begin_ns + np.where(recorded, task.ns, self._ideal[task.kind]), np.float64)


def of_job(view: JobView) -> Slowdown | None:
    """Of a job as it was recorded, from what each rank does between its collectives; None where nothing is shared.

    What runs beside a collective is not in its way, and counts as none.
    """
    programs = {rank: list(recorded_rank(view, rank)) for rank in view.waits}
    held = {rank: float(ns.sum()) for rank, ns in view.held_up_ns().items()}
    most = sorted(programs, key=lambda rank: (-held[rank], rank))[:_MOST]
    return slowdown([programs], stages_of(view), sorted(most)) if any(programs.values()) else None


def recorded_rank(view: JobView, rank: int) -> Iterator[Sequence[Task]]:
    waits, runs = view.waits[rank], view.runs[rank]
    position = np.searchsorted(runs.entry, waits.entry)
    start, end = runs.start_ns[position], runs.end_ns[position]
    own = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)
    moved = end - start - waits.waiting_ns
    for number, before_ns, transfer_ns in zip(waits.number.tolist(), [0, *own.tolist()], moved.tolist(), strict=True):
        yield [Task(("before", number), float(before_ns))]
        yield [Task(("transfer", number), float(transfer_ns), number)]


def stages_of(view: JobView) -> dict[int, int]:
    """Rank -> its place in the pipeline, by who sends to whom first; empty where ranks do not send to each other."""
    first: dict[frozenset[int], tuple[int, int]] = {}
    for run in view.runs.values():
        for group in run.group.tolist():
            if is_pair(group):
                sender, receiver = map(int, group.split(" to "))
                first.setdefault(frozenset((sender, receiver)), (sender, receiver))
    ranks = {rank for pair in first for rank in pair}
    stage = dict.fromkeys(sorted(ranks), 0)
    for _ in ranks:
        for sender, receiver in first.values():
            stage[receiver] = min(max(stage[receiver], stage[sender] + 1), len(ranks))
    return stage
