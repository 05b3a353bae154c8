"""What a report says of a job: its step, who waits for whom, and every rank's steps, waits and clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.saving import StepEstimate
from traceanalyzer.model.verdict import NO_VERDICT, Verdict


@dataclass(frozen=True, slots=True)
class Clock:
    """How one rank's clock reads against the reference's.

    Attributes:
        reference: the rank whose clock is taken for right.
        offset_ns: what it reads more at `at_ns`; of that rank's times, with the base time of its file.
        drift_ppm: by how many microseconds it gains in a second; 0 where the recording is too short to tell.
        uncertainty_ns: of the offset anywhere in the recording: what ends differ by is no more.
        at_ns: where the offset is taken, on the reference's clock.
        pairs: collectives that both have.
        broken: collectives that would have ended before another rank had come; none where the pairing is right.
    """

    reference: int
    offset_ns: int = 0
    drift_ppm: float = 0.0
    uncertainty_ns: int = 0
    at_ns: int = 0
    pairs: int = 0
    broken: int = 0

    def ahead_ns(self, instants: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it reads more than the reference at each instant of its own time, int64."""
        elapsed = instants - self.offset_ns - self.at_ns
        return np.asarray(self.offset_ns + np.rint(elapsed * (self.drift_ppm * 1e-6)), np.int64)

    def ahead_within_ns(self, start_ns: int, end_ns: int) -> int:
        """What it reads more in the middle of a stretch of its own time: at its ends half of the drift is left."""
        return int(self.ahead_ns(np.array([(start_ns + end_ns) // 2]))[0])


@dataclass(frozen=True, slots=True)
class RankReport:
    """One rank of a job.

    Attributes:
        rank: as the report calls it.
        base_ns: base time of its file; its times plus this are those that `clock` is about.
        clock: None where it has no collective in common with another rank.
        step: numbers of its steps, as marked.
        start_ns, dur_ns: where these begin on its first device, and how long they take there, as recorded.
        waits_ns: what it waits for other ranks in each of them, in collectives.
        holds_up_ns: what the others wait for it in each of them, on average.
        waiting_ns, holding_up_ns: the same in the mean step.
        last_share: of the time that ranks wait, what they wait for this one (0 to 1).
        alone_ns: predicted step if the others came in time; None where it could not be replayed, or where much of
            the waiting is for what was sent before, which the replay keeps.
        predicted_waiting_ns: what it waits in a step of the replayed job; None where that could not be replayed.
    """

    rank: int
    base_ns: int
    clock: Clock | None
    step: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    dur_ns: tuple[int, ...] = ()
    waits_ns: tuple[int, ...] = ()
    holds_up_ns: tuple[int, ...] = ()
    waiting_ns: int = 0
    holding_up_ns: int = 0
    last_share: float = 0.0
    alone_ns: int | None = None
    predicted_waiting_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How much slower a job is than one of even ranks, as recorded: S = T / T_ideal.

    Attributes:
        s: T / T_ideal; 1.0 where all ranks are even.
        by_rank, by_stage: the same where only this rank, or the ranks of this stage, take what they took.
    """

    s: float
    by_rank: Mapping[int, float]
    by_stage: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class JobReport:
    """All ranks together.

    Attributes:
        ranks: one entry per rank, by rank.
        world_size: as the traces declare it; None where they do not.
        missing: ranks of the job whose traces were not given.
        step: the job's step; None where it could not be replayed, with the reason in `unavailable`.
        together: the step when all findings above `info` are fixed.
        culprits: ranks that the others wait for, the one that costs most first.
        verdict: `summary` as one sentence.
        summary: how long a step takes, who sets its pace and whom the others wait for, and what the fixes give.
        slowdown: against even ranks, as recorded.
        as_peers: what-if: ranks -> the job's step if these ranks were as their peers.
        unavailable: part of this -> why it is not there.
    """

    ranks: tuple[RankReport, ...]
    world_size: int | None = None
    missing: tuple[int, ...] = ()
    step: StepEstimate | None = None
    together: StepEstimate | None = None
    culprits: tuple[int, ...] = ()
    verdict: str = ""
    summary: Verdict = NO_VERDICT
    slowdown: Slowdown | None = None
    as_peers: Mapping[str, StepEstimate] | None = None
    unavailable: Mapping[str, str] | None = None
