"""The replay: one pass over launches and waits in their order, again and again until a step takes as long as the last.

Of a job all ranks' programs run at once, each alone until it meets the others at a collective. That ends on every rank
when the last one has come and the data has moved: end = latest start + transfer. No common clock is needed, since all
ranks begin the block of steps at once and repeat it until it is steady.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.schedule import Block, Layout, Schedule, Schedules, State

Bound = Literal["gpu", "cpu", "wait", "communication"]

_MIN_STEPS = 12  # so often does the block of steps run that a GPU-bound program has filled its queue
_SETTLED = 1e-3  # two blocks in a row that differ by less
# Of the busiest stream's work: minimum communication for it to limit the step; chosen.
_MIN_COMMUNICATION_SHARE = 0.5
_BOUND = 0.97  # share of the step that a side must be busy for it to be what bounds the step

# Share of the recorded step that its own replay, on the CPU as recorded, lacks: at most 0.17 in 269 recordings of known
# steps and 0.04 in 44 jobs. What is lacking beyond is no model's error: nothing in the trace explains it.
_MOST_LACKING = 0.25
RECORDED = 1.0
"""The slowdown at which the CPU is as slow as recorded."""
LEAST = 0.005  # of a share: no saving is known better than the step itself from run to run; noise/
# Of what is left, by what bounds the step: another process may take so much less. The error in the median of 81
# replayed steps that the CPU or waits limit, and on average of 87 that the GPU does; H200, nothing was fitted on them.
# Of rounds left out no more would be held if it might take so much more as well.
PROCESS = {"gpu": 0.02, "communication": 0.02, "cpu": 0.08, "wait": 0.08}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the steady state.

    Attributes:
        cpu_ns: the CPU's own time in it, without waiting.
        gpu_ns: time of the busiest stream in it, the gaps between queued work included.
        gap_ns: these gaps, in which nothing runs.
        bound: which of these is the step, "communication" where the busiest stream mostly communicates; "wait" where
            neither is, because each waits for the other.
    """

    ns: float
    cpu_ns: float
    gpu_ns: float
    gap_ns: float
    bound: Bound

    @property
    def on_device(self) -> tuple[int, int]:
        """(work of the busiest stream, gaps between what is queued there), in whole ns."""
        return round(self.gpu_ns - self.gap_ns), round(self.gap_ns)


def run(edited: EditedProgram, slowdown: float) -> Step:
    return run_at(edited, (slowdown,))[0]


def unexplained_ns(traced_ns: float, replayed_ns: float) -> float:
    """What of the recorded step its own replay lacks, where that is much; else 0."""
    lacking = traced_ns - replayed_ns
    return lacking if lacking > _MOST_LACKING * traced_ns else 0.0


def run_at(edited: EditedProgram, slowdowns: Sequence[float]) -> list[Step]:
    """Replay what the edits left at each of the slowdowns."""
    schedules = list(map(Schedules(edited).at, slowdowns))
    layout = Layout(schedules[0])
    return [_run(edited, schedule, layout.block(schedule)) for schedule in schedules]


def _run(edited: EditedProgram, schedule: Schedule, block: Block) -> Step:
    sample = edited.program.sample
    period = block.period_ns(_repeats(len(sample)), _SETTLED)
    steps = len(sample) * sample.part
    gpu = max(block.taken_ns, default=0.0)
    busiest = schedule.stream == (int(np.argmax(block.taken_ns)) if block.taken_ns else -1)
    gap = float(schedule.gap_ns[busiest].sum())
    return Step(period / steps, block.cpu_ns / steps, gpu / steps, gap / steps, step_bound(edited, block, period))


def _repeats(steps: int) -> int:
    """How often a block of so many steps is run."""
    return max(-(-_MIN_STEPS // max(steps, 1)), 3)


def step_bound(edited: EditedProgram, block: Block, period: float) -> Bound:
    gpu = max(block.taken_ns, default=0.0)
    if block.cpu_ns >= max(_BOUND * period, gpu):
        return "cpu"
    if gpu < _BOUND * period and edited.waits.any():
        return "wait"
    busiest = edited.alive & (edited.stream == int(np.argmax(block.taken_ns)))
    communicating = edited.dur_ns[busiest & edited.program.work.communication].sum()
    return "communication" if communicating > _MIN_COMMUNICATION_SHARE * edited.dur_ns[busiest].sum() else "gpu"


def unknown(share: float, process: float) -> float:
    """How far off any saving may be: the step from run to run, and what is left in another process."""
    return LEAST + process * abs(1 - share)


Meeting = tuple[int, int]  # which run of the block, which collective
Arrivals = Generator[tuple[Meeting, float], float, None]  # when it comes -> when the last one comes


@dataclass(frozen=True, slots=True)
class JobStep:
    """One step of the job's steady state.

    Attributes:
        ns: from step to step of the slowest rank.
        steps: of how many steps it is the mean.
        waiting_ns: rank -> what it waits for others in collectives, in a step.
        last: rank -> share of the collectives to which it comes last (0 to 1).
    """

    ns: float
    steps: float
    waiting_ns: Mapping[int, float]
    last: Mapping[int, float]


class _Rank(State):
    """One rank's program, which stops at every collective until it is told when the last rank comes."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.finished: list[float] = []
        meets = [number + 1 for number, stretch in enumerate(block.stretches) if stretch.meet >= 0]
        cuts = sorted({0, *meets, len(block.stretches)})
        self._parts = [block.stretches[begin:end] for begin, end in pairwise(cuts)]  # each up to a collective

    def arrivals(self, blocks: int) -> Arrivals:
        """Runs the block so often; yields at each collective."""
        for count in range(blocks):
            ends: list[float] = []
            for part in self._parts:
                self.enter(part, ends)
                stretch = part[-1]
                if stretch.meet >= 0:
                    start = self.done[stretch.stream] - stretch.meet_ns
                    last = yield (count, stretch.meet), start
                    if last > start:  # what the stream's work ends later because another rank came later
                        self.done[stretch.stream] += last - start
                        self.lead[stretch.stream] += last - start
                        launched, _ = self.queue.pop()
                        self.queue.append((launched, self.done[stretch.stream]))
                    ends[-1] = self.done[stretch.stream]
            self.finished.append(self.repeat())


def job_step(blocks: Mapping[int, Block], steps: float) -> JobStep:
    """Replay all ranks together: rank -> its program, all of the same `steps`."""
    runs = _repeats(int(steps)) + 1
    ranks = {rank: _Rank(block) for rank, block in blocks.items()}
    expected = Counter(stretch.meet for block in blocks.values() for stretch in block.stretches)
    waited, last = _met(ranks, expected, runs)
    first, end = (max(rank.finished[which] for rank in ranks.values()) for which in (0, -1))
    meetings = max(sum(last.values()), 1)
    repeated = (runs - 1) * steps
    return JobStep(
        (end - first) / repeated,
        steps,
        {rank: waited[rank] / (runs * steps) for rank in ranks},
        {rank: last[rank] / meetings for rank in ranks},
    )


def _met(ranks: Mapping[int, _Rank], expected: Mapping[int, int], runs: int) -> tuple[Counter[int], Counter[int]]:
    """Run all to their end; (ns that each rank waited, to how many collectives it came last).

    Where programs wait for each other in a circle, which NCCL could not run either, the first to come goes on.
    """
    going = {rank: program.arrivals(runs) for rank, program in ranks.items()}
    arrived_at: dict[Meeting, dict[int, float]] = {}
    waited: Counter[int] = Counter()
    last: Counter[int] = Counter()
    ready: list[tuple[int, float | None]] = [(rank, None) for rank in ranks]
    while ready or arrived_at:
        if not ready:
            first = min(arrived_at, key=lambda meeting: min(arrived_at[meeting].values()))
            ready = _released(arrived_at.pop(first), waited, last)
        rank, answer = ready.pop()
        try:
            meeting, start = next(going[rank]) if answer is None else going[rank].send(answer)
        except StopIteration:
            continue
        arrived = arrived_at.setdefault(meeting, {})
        arrived[rank] = start
        if len(arrived) == expected[meeting[1]]:
            ready += _released(arrived_at.pop(meeting), waited, last)
    return waited, last


def _released(arrived: Mapping[int, float], waited: Counter[int], last: Counter[int]) -> list[tuple[int, float | None]]:
    latest = max(arrived.values())
    if len(arrived) > 1:
        last[max(arrived, key=lambda rank: (arrived[rank], -rank))] += 1
        for rank, start in arrived.items():
            waited[rank] += int(latest - start)
    return [(rank, latest) for rank in arrived]
