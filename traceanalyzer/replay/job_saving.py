"""The job's step without the profiler, and what edits on some of its ranks save of it."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import Saving, StepEstimate
from traceanalyzer.replay.calibration import STEP_RESIDUAL
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.run import LEAST, RECORDED, JobStep, job_step, unexplained_ns
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.schedule import Block, Layout, Schedules

Side = Literal["typical", "low", "high", "recorded"]  # of the slowdown's range, or none
Fixes = Mapping[int, tuple[int, ...]]  # rank -> the numbers there of the findings that are fixed
Blocks = Callable[[Fixes, Side], dict[int, Block]]
"""Each rank's program, with these findings fixed, at this slowdown."""

# Ranks that are replayed together: those that no one waits for change little; 0.4 to 5 ms each.
MOST_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class RankForecast:
    """What the job's replay needs of one rank: its `step` if others came in time, and whether it `meets` them."""

    step: StepEstimate
    steps: float
    text: str
    meets: bool

    @classmethod
    def of(cls, forecast: Forecast) -> Self:
        program = forecast.program
        steps = len(program.sample) * program.sample.part
        return cls(forecast.step, steps, program.sample.text, bool((program.work.meet >= 0).any()))


@dataclass(frozen=True, slots=True)
class JobForecast:
    """Ranks replayed together.

    Attributes:
        forecasts: rank -> what its own replays say, as if the others came in time; of all ranks.
        blocks: rank -> its program at the typical slowdown; of the ranks that are replayed together.
        base: the job's step at that.
        lacking_ns: of the recorded step, what the replay of the recording lacks; it stays whatever is fixed.
    """

    forecasts: Mapping[int, RankForecast]
    made: Blocks
    blocks: Mapping[int, Block]
    base: JobStep
    step: StepEstimate
    lacking_ns: float = 0.0

    @classmethod
    def of(cls, forecasts: Mapping[int, RankForecast], made: Blocks, waited_for: Sequence[int]) -> Self:
        """The first `MOST_TOGETHER` of the ranks in `waited_for`, those first that the others wait for.

        Raises:
            Unavailable: ranks were not sampled alike, or nowhere meet.
        """
        samples = {one.steps for one in forecasts.values()}
        if len(forecasts) < 2 or len(samples) > 1:
            raise Unavailable("no steps that all ranks have: the job cannot be replayed as one")
        if not all(one.meets for one in forecasts.values()):
            raise Unavailable("ranks without a collective that another rank's trace has")
        chosen: Fixes = dict.fromkeys(sorted([rank for rank in waited_for if rank in forecasts][:MOST_TOGETHER]), ())
        steps, pinned = samples.pop(), all(one.step.measured for one in forecasts.values())
        blocks = made(chosen, "typical")
        base = job_step(blocks, steps)
        sides: tuple[Side, ...] = () if pinned else ("low", "high")
        ends = [job_step(made(chosen, side), steps).ns for side in sides]
        estimate, lacking = _estimate(forecasts, base, [*ends, base.ns]), 0.0
        if not pinned:
            lacking = unexplained_ns(estimate.traced_ns, job_step(made(chosen, "recorded"), steps).ns)
        if lacking:  # it may go or stay
            whole, high = estimate.unprofiled_ns + round(lacking), round(lacking * (1 + STEP_RESIDUAL))
            estimate = replace(estimate, unprofiled_ns=whole, high_ns=estimate.high_ns + high, bound="wait")
            estimate = replace(estimate, bounds=("wait",), unexplained_ns=round(lacking))
        return cls(forecasts, made, blocks, base, estimate, lacking)

    def edited(self, fixes: Fixes) -> JobStep:
        """The job's step after the fixes of some findings of some of its ranks."""
        changing = {rank: numbers for rank, numbers in fixes.items() if numbers and rank in self.blocks}
        if not changing:
            return self.base
        return job_step({**self.blocks, **self.made(changing, "typical")}, self.base.steps)

    def saving(self, fixes: Fixes, alone: Saving) -> Saving:
        """What the fixes save the job; as wide as `alone`, for a rank whose peers come in time, is the interval."""
        share = (self.base.ns - self.edited(fixes).ns) / (self.base.ns + self.lacking_ns)
        scale = math.sqrt(abs(share) * abs(1 - share) / max(alone.share * (1 - alone.share), LEAST**2, 1e-9))
        low = share - max((alone.share - alone.low_share) * min(scale, 1.0), LEAST)
        high = min(share + max((alone.high_share - alone.share) * min(scale, 1.0), LEAST), 1.0)
        unit = self.step.unprofiled_ns
        in_ns = round(share * unit), round(low * unit), round(high * unit)
        basis = f"{_together(self.blocks, self.forecasts)} replayed together without it"
        return Saving(*in_ns, share, low, high, basis, beyond=alone.beyond)

    def fixed(self, fixes: Fixes) -> StepEstimate:
        """The job's step when all these findings are fixed."""
        basis = f"{_together(self.blocks, self.forecasts)} replayed together with all findings fixed"
        return self._scaled(self.edited(fixes), basis)

    def as_peers(self, ranks: Sequence[int]) -> StepEstimate:
        """The job's step if these ranks ran the program of the median rank of the others.

        Raises:
            Unavailable: none is left.
        """
        steps = {rank: self.forecasts[rank].step for rank in self.blocks}
        alone_ns = {rank: step.unprofiled_ns - step.unexplained_ns for rank, step in steps.items()}
        others = sorted(alone_ns.keys() - set(ranks), key=lambda rank: (alone_ns[rank], rank))
        if not others:
            raise Unavailable("all ranks are named: keep some as peers")
        peer = others[len(others) // 2]
        blocks = {rank: self.blocks[peer if rank in ranks else rank] for rank in self.blocks}
        basis = f"replayed together, with the program of rank {peer} in place of theirs"
        basis = f"{_together(self.blocks, self.forecasts)} {basis}"
        return self._scaled(job_step(blocks, self.base.steps), basis)

    def _scaled(self, after: JobStep, basis: str) -> StepEstimate:
        whole = self.step
        factor = (after.ns + self.lacking_ns) / (self.base.ns + self.lacking_ns)
        low, typical, high = (round(ns * factor) for ns in (whole.low_ns, whole.unprofiled_ns, whole.high_ns))
        return replace(whole, unprofiled_ns=typical, low_ns=low, high_ns=high, basis=basis)

    def of_rank(self, rank: int) -> StepEstimate:
        """The job's step as this rank's: it takes as long, and its device is as busy as its own program has it."""
        own = self.forecasts[rank].step
        return replace(self.step, traced_ns=own.traced_ns, gpu_ns=own.gpu_ns, gap_ns=own.gap_ns)


def block_of(forecast: Forecast, edits: Sequence[Edit], side: Side) -> Block:
    """The rank's program after the edits as it is replayed, without the profiler; in whole ns, so that it is short."""
    edited = forecast.replays.edited(list(edits))
    slowdown = RECORDED if side == "recorded" else getattr(forecast.replays.slowdown, side)
    schedule = Schedules(edited).at(slowdown, whole=True)
    return Layout(schedule, meeting=True).block(schedule)


def _together(replayed: Collection[int], forecasts: Collection[int]) -> str:
    some = f"the {len(replayed)} most awaited of {len(forecasts)} ranks"
    return some if len(replayed) < len(forecasts) else f"all {len(forecasts)} ranks"


def _estimate(forecasts: Mapping[int, RankForecast], base: JobStep, ends: Sequence[float]) -> StepEstimate:
    """The rank that waits least says what bounds the step: the others wait for it."""
    pace = min(base.waiting_ns, key=lambda rank: (base.waiting_ns[rank], rank))
    own, traced = forecasts[pace].step, max(one.step.traced_ns for one in forecasts.values())
    every = len(base.waiting_ns) == len(forecasts)
    many = f"{len(forecasts)} ranks" if every else _together(base.waiting_ns, forecasts)
    basis = f"{many} replayed together: {forecasts[pace].text}"
    if own.measured:
        return replace(own, traced_ns=traced)
    low, high = round(min(ends) * (1 - STEP_RESIDUAL)), round(max(ends) * (1 + STEP_RESIDUAL))
    typical = round(base.ns)
    return replace(own, traced_ns=traced, unprofiled_ns=typical, low_ns=low, high_ns=high, basis=basis)
