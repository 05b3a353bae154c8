"""The ranks of a job replayed together, and what one of them does that its peers do not."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from traceanalyzer.job.ranks import JobView, Ranks, give
from traceanalyzer.model.analysis import Analysis, GivenByJob
from traceanalyzer.model.arrays import Floats, Rows, median
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import GIVEN, GivenStep, MeasuredStep, measured_step
from traceanalyzer.replay.job_saving import Fixes, JobForecast, RankForecast, Side, block_of
from traceanalyzer.replay.peer_comparison import Excess, ExcessOverPeers, StepBreakdown, excess_by_rank
from traceanalyzer.replay.program import Program, loading
from traceanalyzer.replay.sample import JointSteps, Sample
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.schedule import Block
from traceanalyzer.report.summary import attempt
from traceanalyzer.rule.judging import Judgement
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.unprofiled import Unprofiled


def replayed_together(ranks: Ranks, view: JobView, step_ms: GivenStep | None, first: Sequence[int] = ()) -> JobForecast:
    """The ranks replayed together, these `first`; each of them is told what it does that its peers do not."""
    every = dict.fromkeys(sorted(view.waits))
    sample_alike(ranks, every)
    by_call = view.held_up_ns()
    held = {rank: float(ns.sum()) for rank, ns in by_call.items()}
    told = ranks.each(hours, {rank: (view.waits[rank].entry, by_call[rank]) for rank in every})
    waits_ns = {rank: held_ns for rank, (_, held_ns, _) in told.items()}
    step_ns = {rank: took_ns for rank, (_, _, took_ns) in told.items()}
    more = excess_by_rank({rank: one for rank, (one, _, _) in told.items()}, waits_ns, step_ns)
    if view.pipelined:  # its stages may compute more
        more = {rank: one for rank, one in more.items() if not one.computes_more}
    ranks.each(know, more)
    found = ranks.each(forecast, every, _recorded_ms(ranks, every) if step_ms is None else step_ms)
    forecasts = {rank: one for rank, one in found.items() if isinstance(one, RankForecast)}
    for reason in found.values():
        if isinstance(reason, str):
            raise Unavailable(reason)

    def made(fixes: Fixes, side: Side) -> dict[int, Block]:
        return ranks.each(block, fixes, side)

    waited_for = replay_order([*first, *more], forecasts, held)
    return JobForecast.of(forecasts, made, waited_for)


def _recorded_ms(ranks: Ranks, every: Mapping[int, None]) -> GivenStep | None:
    """The step as the recorder timed it on all ranks; None where a time is missing or doubted."""
    told = [one for one in ranks.each(recorded_step, every, None).values() if one and not one.unused]
    if len(told) < len(every):
        return None
    ms = median([one.ms for one in told])
    return GivenStep(ms, ms, ms, median([one.waiting_ms for one in told]))


def replay_order(first: Sequence[int], forecasts: Mapping[int, RankForecast], held: Mapping[int, float]) -> list[int]:
    """All ranks: those first that stand out, then in turn those that held up others and those that take longest."""
    longest = sorted(forecasts, key=lambda rank: (-forecasts[rank].step.unprofiled_ns, rank))
    latest = sorted(forecasts, key=lambda rank: (-held[rank], rank))
    in_turn = [rank for pair in zip(latest, longest, strict=True) for rank in pair]
    return list(dict.fromkeys([*sorted(first, key=lambda rank: -held.get(rank, 0.0)), *in_turn]))


def sample_alike(ranks: Ranks, every: Mapping[int, None]) -> None:
    """Let all ranks be replayed by the same steps, where all count their steps alike."""
    chosen = ranks.each(sampled, every)
    both = frozenset.intersection(*chosen.values()) if 0 < len(chosen) == len(every) else None
    if both:
        ranks.each(give, dict.fromkeys(every, JointSteps(np.array(sorted(both), np.int64))))


def sampled(analysis: Analysis, _: None, __: None) -> frozenset[int]:
    """Numbers of the steps that stand for the rank; none where that is a part of one."""
    steps, nesting = analysis.index(Steps), analysis.index(Nesting)
    own = Sample.of(steps, nesting, loading(analysis.trace, nesting, analysis.index(DeviceWork)))
    return frozenset(steps.number[own.steps].tolist()) if own.part == 1.0 else frozenset()


def hours(analysis: Analysis, held: tuple[Rows, Floats], _: None) -> tuple[StepBreakdown, float, float]:
    """(what the rank's steps go to, what the others wait for it in the mean step, how long the median step is; ns).

    `held` are entries of `DeviceWork`, and what the others wait for the rank in each.
    """
    work, steps = analysis.index(DeviceWork), analysis.index(Steps)
    (entry, held_ns), found = held, StepBreakdown.of(analysis.trace, work, analysis.index(Program))
    in_steps = float(held_ns[steps.of_work[entry] >= 0].sum())
    took_ns = median(steps.durations_ns(min(steps.bounds_ns, default=None)))
    return found, in_steps / max(steps.working, 1), took_ns


def know(analysis: Analysis, more: Excess, _: None) -> None:
    analysis.provide(ExcessOverPeers.of(more, analysis.trace, analysis.index(Program)))


def recorded_step(analysis: Analysis, _: None, step_ms: GivenStep | None) -> MeasuredStep | None:
    """The rank's step as the recorder timed it, with the reason where it is not used."""
    measured = measured_step(analysis.trace.meta.extra)
    if measured is None:
        return None
    unprofiled = attempt({}, "step", lambda: analysis.index(Unprofiled), None)
    waiting_ms = measured.ms * unprofiled.waiting_share if unprofiled else 0.0
    if step_ms is not None:
        return replace(measured, unused=GIVEN, waiting_ms=waiting_ms)
    forecast = attempt({}, "step", lambda: analysis.index(Forecast), None)
    unused = None if forecast is None else forecast.doubt(measured.ms, waiting_ms)
    return replace(measured, unused=unused, waiting_ms=waiting_ms)


def too_short(analysis: Analysis, _: None, step_ms: GivenStep) -> str | None:
    """Why no step of the rank can be as short as that; None where one can, or the trace cannot tell."""
    forecast = attempt({}, "step", lambda: analysis.index(Forecast), None)
    return None if forecast is None else forecast.too_short(step_ms.low_ms)


def forecast(analysis: Analysis, _: None, step_ms: GivenStep | None) -> RankForecast | str:
    """What the rank's own replays say, or why there are none."""
    try:
        own = analysis.index(Forecast)
    except Unavailable as reason:
        return str(reason)
    kept = own if step_ms is None else own.pinned(step_ms)
    analysis.provide(InJob(kept))
    return RankForecast.of(kept)


def block(analysis: Analysis, fixed: Sequence[int], side: Side) -> Block:
    """The rank's program once these of its findings are fixed."""
    fixes = analysis.index(Said).judged.fixes if fixed else ()
    edits = [edit for number in fixed for edit in fixes[number]]
    return block_of(analysis.index(InJob).forecast, edits, side)


@dataclass(frozen=True, slots=True)
class InJob(GivenByJob):
    """The rank's replays as the job takes them: with its steps, and the user's step time."""

    forecast: Forecast
    missing: ClassVar[str] = "not replayed with other ranks"


@dataclass(frozen=True, slots=True)
class Said(GivenByJob):
    """What the rules said of a rank, kept where its trace is: fixes are edits of its program. Pickles take a fifth."""

    content: Judgement | bytes
    missing: ClassVar[str] = "not judged yet"

    @property
    def judged(self) -> Judgement:
        """Findings, fixes and faults."""
        if not isinstance(self.content, bytes):
            return self.content
        judgement: Judgement = pickle.loads(self.content)
        return judgement

    def packed(self) -> Self:
        """The same in less memory."""
        return type(self)(pickle.dumps(self.judged, pickle.HIGHEST_PROTOCOL))
