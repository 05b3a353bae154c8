"""The job's step without the profiler, and what edits on some of its ranks save of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.saving import Saving, StepEstimate
from traceanalyzer.replay.calibration import STEP_RESIDUAL
from traceanalyzer.replay.draft import Draft
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.merging import merged
from traceanalyzer.replay.recurrence import Block
from traceanalyzer.replay.saving import LEAST, Forecast
from traceanalyzer.replay.together import JobStep, blocks_at, job_step

Edits = Mapping[int, Sequence[Edit]]  # rank -> what a fix changes there


@dataclass(frozen=True, slots=True)
class JobForecast:
    """All ranks replayed together.

    Attributes:
        forecasts: rank -> its own replays, as if the others came in time.
        blocks: rank -> its program at the typical slowdown.
        base: the job's step at that.
        step: the same with its interval.
    """

    forecasts: Mapping[int, Forecast]
    blocks: Mapping[int, Block]
    base: JobStep
    step: StepEstimate

    @classmethod
    def of(cls, forecasts: Mapping[int, Forecast]) -> Self:
        """
        Raises:
            Unavailable: ranks were not sampled alike, or nowhere meet.
        """
        samples = {len(one.program.sample) * one.program.sample.part for one in forecasts.values()}
        if len(forecasts) < 2 or len(samples) > 1:
            raise Unavailable("no steps that all ranks have: the job cannot be replayed as one")
        if not all((one.program.work.meet >= 0).any() for one in forecasts.values()):
            raise Unavailable("ranks without a collective that another rank's trace has")
        blocks = blocks_at(
            _drafts(forecasts), {rank: one.slowdown.typical for rank, one in forecasts.items()}
        )
        base = job_step(blocks, samples.pop())
        ends = (
            job_step(_at(forecasts, side), base.steps).ns if not _pinned(forecasts) else base.ns
            for side in ("low", "high")
        )
        return cls(forecasts, blocks, base, _estimate(forecasts, base, (*ends, base.ns)))

    def edited(self, edits: Edits) -> JobStep:
        """The job's step after edits of some of its ranks."""
        if not any(edits.values()):
            return self.base
        changed = {rank: _edited(self.forecasts[rank], list(own)) for rank, own in edits.items() if own}
        slowdowns = {rank: self.forecasts[rank].slowdown.typical for rank in changed}
        return job_step({**self.blocks, **blocks_at(changed, slowdowns)}, self.base.steps)

    def saving(self, edits: Edits, alone: Saving) -> Saving:
        """What the edits save the job.

        Args:
            alone: what they save a rank whose peers come in time: as wide is the interval.
        """
        share = 1 - self.edited(edits).ns / self.base.ns
        scale = math.sqrt(abs(share) * abs(1 - share) / max(alone.share * (1 - alone.share), LEAST**2, 1e-9))
        low = share - max((alone.share - alone.low_share) * min(scale, 1.0), LEAST)
        high = min(share + max((alone.high_share - alone.share) * min(scale, 1.0), LEAST), 1.0)
        unit = self.step.unprofiled_ns
        in_ns = round(share * unit), round(low * unit), round(high * unit)
        basis = f"all {len(self.forecasts)} ranks replayed together without it"
        return Saving(*in_ns, share, low, high, basis, beyond=alone.beyond)

    def fixed(self, edits: Edits) -> StepEstimate:
        """The job's step when all these edits are made."""
        after, whole = self.edited(edits), self.step
        factor = after.ns / self.base.ns
        low, high = (round(ns * factor) for ns in (whole.low_ns, whole.high_ns))
        basis = f"all {len(self.forecasts)} ranks replayed together with what is found put right"
        return replace(
            whole, unprofiled_ns=round(whole.unprofiled_ns * factor), low_ns=low, high_ns=high, basis=basis
        )

    def as_peers(self, ranks: Sequence[int]) -> StepEstimate:
        """The job's step if these ranks ran the program of the median rank of the others.

        Raises:
            Unavailable: none is left.
        """
        others = sorted((rank for rank in self.blocks if rank not in ranks), key=self._alone_ns)
        if not others:
            raise Unavailable("all ranks would be as their peers: name some of them")
        peer = others[len(others) // 2]
        blocks = {rank: self.blocks[peer if rank in ranks else rank] for rank in self.blocks}
        factor = job_step(blocks, self.base.steps).ns / self.base.ns
        low, typical, high = (
            round(ns * factor) for ns in (self.step.low_ns, self.step.unprofiled_ns, self.step.high_ns)
        )
        basis = f"all {len(self.blocks)} ranks replayed together, with the program of rank {peer} in place of theirs"
        return replace(self.step, unprofiled_ns=typical, low_ns=low, high_ns=high, basis=basis)

    def _alone_ns(self, rank: int) -> tuple[int, int]:
        return self.forecasts[rank].step.unprofiled_ns, rank

    def of_rank(self, rank: int) -> StepEstimate:
        """The job's step as this rank's: it takes as long, and its device is as busy as its own program has it."""
        own = self.forecasts[rank].step
        return replace(self.step, traced_ns=own.traced_ns, gpu_ns=own.gpu_ns)


def _drafts(forecasts: Mapping[int, Forecast]) -> dict[int, Draft]:
    return {rank: Draft(one.program) for rank, one in forecasts.items()}


def _edited(forecast: Forecast, edits: Iterable[Edit]) -> Draft:
    draft = Draft(forecast.program)
    for edit in merged(list(edits)):
        edit.apply(draft)
    return draft


def _at(forecasts: Mapping[int, Forecast], side: str) -> dict[int, Block]:
    return blocks_at(
        _drafts(forecasts), {rank: getattr(one.slowdown, side) for rank, one in forecasts.items()}
    )


def _pinned(forecasts: Mapping[int, Forecast]) -> bool:
    return all(one.step.measured for one in forecasts.values())


def _estimate(forecasts: Mapping[int, Forecast], base: JobStep, ends: Sequence[float]) -> StepEstimate:
    """The rank that waits least says what bounds the step: the others wait for it."""
    pace = min(base.waiting_ns, key=lambda rank: (base.waiting_ns[rank], rank))
    own, traced = forecasts[pace].step, max(one.step.traced_ns for one in forecasts.values())
    basis = f"{len(forecasts)} ranks replayed together: {forecasts[pace].program.sample.text}"
    if own.measured:
        return replace(own, traced_ns=traced)
    low, high = min(ends) * (1 - STEP_RESIDUAL), max(ends) * (1 + STEP_RESIDUAL)
    return replace(
        own,
        traced_ns=traced,
        unprofiled_ns=round(base.ns),
        low_ns=round(low),
        high_ns=round(high),
        basis=basis,
    )
