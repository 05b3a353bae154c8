"""All ranks' programs in one replay: each runs alone until it meets the others at a collective.

A collective ends on every rank when the last one has come and the data has moved: end = latest start + transfer. No
common clock is needed for that, since all ranks begin the block of steps at once and repeat it until it is steady.
"""

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from traceanalyzer.replay.recurrence import Block, State

_MIN_STEPS = 12  # as for one rank: so often has a GPU-bound program filled its queue


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
    runs = max(-(-_MIN_STEPS // max(int(steps), 1)), 3) + 1
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
