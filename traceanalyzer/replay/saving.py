"""The step without the profiler, and what edits save of it, each with its interval. Said here and nowhere else.

An interval is the range of the replays over the range of slowdowns, wider by how far such replays were from the truth
(calibration.py): for a saving by that share of the standard deviation sqrt(s (1 - s)) of the share s, because next to
nothing and next to all are both easily told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.calibration import RESIDUAL, STEP_RESIDUAL
from traceanalyzer.replay.draft import Draft
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.run import Bound, Step, run
from traceanalyzer.replay.slowdown import Slowdown
from traceanalyzer.timeline.steps import Steps

_LEAST = 0.005  # of a share: no saving is known better than the step itself from run to run; noise/
_SOLVED = 1e-3
_STRENGTHS = (0.0, 2.0)  # of what the profiler is said to add, between which the user's step is looked for


@dataclass(frozen=True, slots=True)
class Saving:
    """What edits take off the unprofiled step; negative where they make it longer.

    Attributes:
        step_ns, low_ns, high_ns: per step, and the interval.
        share, low_share, high_share: the same, of the unprofiled step.
        basis: one sentence on what was replayed.
    """

    step_ns: float
    low_ns: float
    high_ns: float
    share: float
    low_share: float
    high_share: float
    basis: str


@dataclass(frozen=True, slots=True)
class UnprofiledStep:
    """The step as traced, and as it is without the profiler.

    Attributes:
        traced_ns: from step to step under the profiler, median.
        unprofiled_ns, low_ns, high_ns: replayed, and the interval.
        bound: what limits the unprofiled step.
        basis: one sentence on which steps were replayed, and what the slowdown is from.
    """

    traced_ns: float
    unprofiled_ns: float
    low_ns: float
    high_ns: float
    bound: Bound
    basis: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The program's replays: the step, and what any edits save of it.

    Attributes:
        program: what is replayed.
        slowdown: by how much the profiler is taken to have slowed the CPU.
        step: the unprofiled step.
        base: the replays without edits, at the typical, the low and the high slowdown.
    """

    program: Program
    slowdown: Slowdown
    step: UnprofiledStep
    base: tuple[Step, Step, Step]

    @classmethod
    def build(cls, trace: Trace, steps: Steps, program: Program) -> Self:
        """From the trace alone; `pinned` where the user knows the step.

        Raises:
            Unavailable: as from `Program`.
        """
        slowdown = program.slowed.range
        base = _replays(Draft(program), slowdown)
        times = [step.ns for step in base]
        typical = base[0]
        basis = f"{_sampled(program)} replayed; slowdown {slowdown.typical:.1f}, {slowdown.basis}"
        low, high = min(times) * (1 - STEP_RESIDUAL), max(times) * (1 + STEP_RESIDUAL)
        step = UnprofiledStep(_traced_ns(steps, program), typical.ns, low, high, typical.bound, basis)
        return cls(program, slowdown, step, base)

    def pinned(self, step_ms: float) -> Self:
        """The same where the user knows the step without the profiler: the slowdown that makes it so.

        Places none does, because the device alone takes longer or less, shares are those of the nearest.
        """
        slowdown = _solve(self.program, step_ms * 1e6)
        base = _replays(Draft(self.program), slowdown)
        given = step_ms * 1e6
        basis = f"{_sampled(self.program)} replayed; {slowdown.basis}"
        step = UnprofiledStep(self.step.traced_ns, given, given, given, base[0].bound, basis)
        return replace(self, slowdown=slowdown, step=step, base=base)

    def saving(self, edits: Sequence[Edit]) -> Saving:
        """What the edits save together; they may be those of one finding or of several."""
        draft = Draft(self.program)
        for edit in edits:
            edit.apply(draft)
        fixed = _replays(draft, self.slowdown)
        shares = [
            1 - after.ns / before.ns if before.ns > 0 else 0.0
            for before, after in zip(self.base, fixed, strict=True)
        ]
        share, low, high = shares[0], min(shares), max(shares)
        wider = max((RESIDUAL[edit.kind] for edit in edits), default=0.0)
        low, high = low - _spread(low, wider), min(high + _spread(high, wider), 1.0)
        unit = self.step.unprofiled_ns
        basis = f"replayed without it: {_sampled(self.program)}, bound by the {_WORD[fixed[0].bound]} then"
        return Saving(share * unit, low * unit, high * unit, share, low, high, basis)


_WORD = {"gpu": "GPU", "cpu": "CPU", "wait": "waits of one for the other", "communication": "communication"}


def _spread(share: float, residual: float) -> float:
    return residual * float(np.sqrt(abs(share) * abs(1 - share))) + _LEAST


def _sampled(program: Program) -> str:
    count = len(program.steps)
    return f"{count} of {program.of_steps} step{'s' * (program.of_steps > 1)}"


def _replays(draft: Draft, slowdown: Slowdown) -> tuple[Step, Step, Step]:
    typical = run(draft, slowdown.typical)
    if slowdown.low == slowdown.high:
        return typical, typical, typical
    return typical, run(draft, slowdown.low), run(draft, slowdown.high)


def _traced_ns(steps: Steps, program: Program) -> float:
    """Median of the sampled steps: on the device that has most of them to do, or on the CPU where that is longer."""
    on_cpu = steps.durations_ns()[program.steps]
    on_device = [np.median(steps.durations_ns(device)[program.steps]) for device in steps.bounds_ns]
    return float(max([np.median(on_cpu), *on_device]))


def _solve(program: Program, wanted_ns: float) -> Slowdown:
    """The slowdown at which the step takes so long, by bisection of what the profiler added."""
    draft, (low, high) = Draft(program), _STRENGTHS
    slow, quick = (run(draft, program.slowed.slowdown(strength)).ns for strength in (low, high))
    basis = "the slowdown is the one that makes the step as long as was given"
    if not quick < wanted_ns < slow:
        low = high = low if wanted_ns >= slow else high
        basis = "no slowdown makes the step as long as was given: savings are shares of it"
    while high - low > _SOLVED:
        middle = (low + high) / 2
        if run(draft, program.slowed.slowdown(middle)).ns > wanted_ns:
            low = middle
        else:
            high = middle
    slowdown = program.slowed.slowdown((low + high) / 2)
    return Slowdown(slowdown, slowdown, slowdown, basis)
