"""What a report says of several iterations of one job: recordings of the same ranks, one after the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartChange:
    """What a part of the step takes more in one iteration than in the others.

    Attributes:
        part: class of the accounting, idle time as `idle:<cause>`.
        rank: where it differs most.
        more_ns: in the mean step; negative for less.
    """

    part: str
    rank: int | None
    more_ns: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One of them.

    Attributes:
        name: number of the iteration as the files' paths tell it, else its place among the recordings.
        diagnosed: whether the findings are of this one.
        ranks: how many of its files could be read.
        steps: recorded steps of a rank, cold ones left out.
        step_ns: the median step of the slowest rank; None without steps.
        more_ns: than the median iteration, of two than the other, where that is beyond the noise; else None.
        parts: what of the step that is, the largest part first; empty where `more_ns` is None.
        program_share: of the names of ops and kernels, those in common with the diagnosed iteration (0 to 1).
        skipped: files that could not be read, with the reason.
    """

    name: str
    diagnosed: bool
    ranks: int
    steps: int
    step_ns: int | None
    more_ns: int | None = None
    parts: tuple[PartChange, ...] = ()
    program_share: float = 1.0
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Iterations:
    """All of them.

    Attributes:
        each: in order.
        step_ns: the median of their steps; None where none has steps.
        noise_ns: by how much steps of one iteration must differ from the others' to be told apart; None where nothing
            tells, as of two iterations of one step each.
    """

    each: tuple[Iteration, ...]
    step_ns: int | None
    noise_ns: int | None
