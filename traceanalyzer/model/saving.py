"""What the step takes without the profiler, and what a fix would save of it: replayed, with intervals."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saving:
    """What fixing one finding takes off the unprofiled step; negative where the fix makes it longer.

    Attributes:
        step_ns, low_ns, high_ns: saved per step, and the interval that the true saving lies in.
        share, low_share, high_share: the same as shares of the unprofiled step (at most 1).
        basis: how it was found, as text.
        beyond: whether it comes on top of what fixing the more specific findings saves.
    """

    step_ns: int
    low_ns: int
    high_ns: int
    share: float
    low_share: float
    high_share: float
    basis: str
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """One step of the loop, as recorded and without the profiler.

    Attributes:
        traced_ns: as recorded.
        unprofiled_ns, low_ns, high_ns: without the profiler, and the interval that the truth lies in.
        bound: what sets the pace of the unprofiled step: gpu, cpu, wait or communication.
        basis: how it was found, as text.
    """

    traced_ns: int
    unprofiled_ns: int
    low_ns: int
    high_ns: int
    bound: str
    basis: str

    @property
    def measured(self) -> bool:
        """Whether the user has given the time: an estimate's interval is never empty."""
        return self.low_ns == self.high_ns
