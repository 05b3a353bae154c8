"""What a report says of all ranks together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from traceanalyzer.job.cross_rank_indexes import moved
from traceanalyzer.job.ranks import JobView, Ranks
from traceanalyzer.job.rates import Rate, rates
from traceanalyzer.job.slowdown import of_job
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, median, sums_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Clock, JobReport, RankReport, Slowdown, TraceReport, Verdict
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.job_saving import JobForecast
from traceanalyzer.report.finding_order import compares_ranks
from traceanalyzer.report.rank_report import OfRank
from traceanalyzer.report.step_line import by_whom, unexplained_text, without_unit
from traceanalyzer.report.summary import attempt
from traceanalyzer.report.verdict import NOTHING, NOTHING_SURE
from traceanalyzer.report.words import format_span, listed
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.steps import Steps

SAME_SHARE = 0.05
"""Of the step: half of the replays are nearer than that to what was measured, so that ranks so near are alike."""

_COMMUNICATION = ("communication", "compute_over_communication")  # classes of the accounting begin so


def slowest_of(traces: Sequence[TraceReport]) -> TraceReport | None:
    """The rank with the longest step without the profiler, of ranks that all communicate; the first of equal ones.

    A rank is replayed alone, as if the others were there in time: all of them take as long as the slowest. Where
    waiting was measured, of ranks that take about as long the one that waits least: the others wait for it. None where
    there are fewer than two traces, the step of one is unknown, or all take as long (a time that the user gave).
    """
    if len(traces) < 2 or not all(trace.step is not None and _communicates(trace) for trace in traces):
        return None
    if len({unprofiled_ns(trace) for trace in traces}) == 1:
        return None
    longest = max(traces, key=unprofiled_ns)
    if any(trace.waiting_ns is None for trace in traces):
        return longest
    least = (1 - SAME_SHARE) * unprofiled_ns(longest)
    return min((one for one in traces if unprofiled_ns(one) >= least), key=lambda one: one.waiting_ns or 0)


def rank_of(trace: TraceReport, slowest: TraceReport | None) -> str:
    """What stands before its verdict: `rank 1, the slowest`; `rank 0, replayed alone`, whose time is not the job's."""
    role = "" if slowest is None else ", the slowest" if trace is slowest else ", replayed alone"
    return f"rank {trace.rank}{role}"


def unprofiled_ns(trace: TraceReport) -> int:
    """Its step without the profiler; 0 where that is unknown."""
    return trace.step.unprofiled_ns if trace.step is not None else 0


def _communicates(trace: TraceReport) -> bool:
    parts = chain.from_iterable(time.parts_ns.items() for time in trace.accounting)
    return any(ns > 0 and name.startswith(_COMMUNICATION) for name, ns in parts)


@dataclass(frozen=True, slots=True)
class CollectivesReport:
    """What a job's ranks exchange by kind, group and size, their clocks, and how much slower it is than of even ranks.

    `alone` are ranks that have no collective in common with another.
    """

    collectives: tuple[Rate, ...]
    clocks: Mapping[int, Clock]
    slowdown: Slowdown | None
    alone: tuple[int, ...]


def collectives_of_job(ranks: Ranks, view: JobView | None) -> CollectivesReport:
    """The report, of what `introduce` returned."""
    if view is None:
        raise Unavailable("the traces have no collective in common: rates need those of several ranks of one job")
    told = rates(view.runs, view.waits, ranks.each(moved, dict.fromkeys(view.waits)))
    alone = tuple(rank for rank in ranks.all if rank is not None and rank not in view.waits)
    return CollectivesReport(tuple(rate for rate, _ in told), view.clocks, of_job(view), alone)


_NAMED = 3  # of the ranks that the others wait for
_SURE = 0.6  # of the waiting: then it is one rank's; chosen
_LESS = 0.995  # of the step: more is next to nothing saved
_MUCH = Severity.MEDIUM.least_share  # of the step: less waiting is not worth a word
_WORTH = 0.05  # of the step: a lesser possible gain is not worth a word
_GONE = 0.5  # of the waiting for a rank: less than that is saved where the others take nearly as long; chosen
_NO_ONE = "no single rank delays the others"
_ALONE = "no collective in common with another rank: it is diagnosed alone, not as part of the job"
_UNMET = 0.1  # of a rank's waiting in collectives whose ranks are not in them at once: chosen
_BOUNDS = {
    "gpu": "its GPU",
    "cpu": "its CPU",
    "wait": "its CPU and GPU by turns (each waits for the other)",
    "communication": "communication",
}

_OF_ALL = {
    "gpu": "the GPU of each rank",
    "cpu": "the CPU of each rank",
    "wait": "CPU and GPU of each rank by turns (each waits for the other)",
}


def culprits_of(findings: Sequence[Finding]) -> tuple[int, ...]:
    """Ranks that others wait for, as the findings above `info` say, each once."""
    comparing = compares_ranks()
    wrong = (one for one in findings if one.rule in comparing and one.severity is not Severity.INFO)
    return tuple(dict.fromkeys(rank for one in wrong if one.rank is not None for rank in (one.rank, *one.ranks)))


def job_report(
    ranks: Ranks,
    said: Sequence[OfRank],
    view: JobView,
    forecast: JobForecast | None,
    together: StepEstimate | None,
    findings: Sequence[Finding],
    unavailable: Mapping[str, str],
) -> JobReport:
    """Of ranks that have a collective in common with another; the others are in `unavailable`."""
    heads = {one.head.rank: one.head for one in said}
    every, held = sorted(view.waits), view.held_up_ns()
    told = ranks.each(in_steps, {rank: (view.waits[rank], held[rank]) for rank in every})
    total = max(sum(float(one.sum()) for one in held.values()), 1.0)
    shares = {rank: float(held[rank].sum()) / total for rank in every}
    reports = tuple(
        replace(_rank(rank, heads[rank], view, shares[rank], forecast), **told.get(rank, {})) for rank in every
    )
    alone = {f"rank {rank}": _ALONE for rank in heads if rank not in view.waits}
    sizes = [one.meta.world_size for one in heads.values()]
    world = max((size for size in sizes if size is not None), default=None)
    missing = tuple(rank for rank in range(world or 0) if rank not in heads)
    culprits = culprits_of(findings)
    step = None if forecast is None else forecast.step
    uneven = attempt({}, "slowdown", partial(of_job, view), None)
    summary = job_verdict([heads[rank] for rank in every], reports, step, together, culprits, findings)
    said_of_job = step, together, culprits, summary.sentence, summary
    unknown = {**unavailable, **alone} or None
    return JobReport(reports, world, missing, *said_of_job, slowdown=uneven, unavailable=unknown)


def in_steps(analysis: Analysis, collectives: tuple[CollectiveWaits, Floats], _: None) -> dict[str, Any]:
    """Fields of `RankReport`: how long each step is, what the rank waits in its collectives, and the others for it."""
    steps, (waited, held) = analysis.index(Steps), collectives
    device = min(steps.bounds_ns, default=None)
    start = steps.cpu_start_ns if device is None else steps.bounds_ns[device][:-1]
    of_step = steps.of_work[waited.entry]
    inside = of_step >= 0
    size, working = len(steps), max(steps.working, 1)
    waits = sums_of(of_step[inside], waited.waiting_ns[inside], size)
    holds = sums_of(of_step[inside], np.rint(held[inside]).astype(np.int64), size)
    return {
        "step": tuple(steps.number.tolist()),
        "start_ns": tuple(np.asarray(start).tolist()),
        "dur_ns": tuple(steps.durations_ns(device).tolist()),
        "waits_ns": tuple(waits.tolist()),
        "holds_up_ns": tuple(holds.tolist()),
        "waiting_ns": int(waits.sum()) // working,
        "holding_up_ns": int(holds.sum()) // working,
    }


def _rank(rank: int, head: TraceReport, view: JobView, share: float, forecast: JobForecast | None) -> RankReport:
    base, clock, waits = head.meta.base_time_ns, view.clocks.get(rank), view.waits.get(rank)
    # What is received after it was sent may wait, too, and is replayed as recorded: without waiting it is not known.
    met = waits is None or waits.waiting_ns[~waits.meets].sum() <= _UNMET * waits.waiting_ns.sum()
    alone = forecast.forecasts[rank].step.unprofiled_ns if forecast is not None and met else None
    waiting = None if forecast is None else forecast.base.waiting_ns.get(rank)
    predicted = None if waiting is None else round(waiting)
    return RankReport(rank, base, clock, last_share=share, alone_ns=alone, predicted_waiting_ns=predicted)


def job_verdict(
    heads: Sequence[TraceReport],
    ranks: Sequence[RankReport],
    step: StepEstimate | None,
    together: StepEstimate | None,
    culprits: Sequence[int],
    findings: Sequence[Finding],
) -> Verdict:
    head = heads[0]
    measured = head.measured is not None or (step is not None and step.measured)
    whom = _whom(ranks, culprits, step, measured)
    pace = job_pace(ranks, step) if whom or step is None else _exchange(heads, ranks)
    pace = pace or (_OF_ALL.get(step.bound, step.bound) if step is not None else "")
    lacking = unexplained_text(step) if step is not None and step.unexplained_ns else ""
    limit = "; ".join(part for part in (lacking or pace, whom or _NO_ONE) if part)
    return Verdict(_step(head, ranks, step), limit, _fix(step, together, findings))


def _exchange(heads: Sequence[TraceReport], ranks: Sequence[RankReport]) -> str:
    """The limit where ranks communicate, with nothing computed meanwhile, for longer than they compute or idle."""
    parts, kinds = Counter[str](), Counter[str]()
    for device in chain.from_iterable(head.accounting for head in heads):
        for name, ns in device.parts_ns.items():
            kind = name.partition(":")[0].partition("_")[0]
            parts[kind] += ns
            kinds[name] += ns * (kind == "communication")
    medians = [float(np.median(rank.dur_ns)) for rank in ranks if rank.dur_ns]
    if not medians or max(parts, key=parts.__getitem__, default="") != "communication":
        return ""
    step_ns = float(np.median(medians)) / parts.total()
    split = [
        f"{format_ns(round(kinds[f'communication_{part}'] * step_ns))} of {part}"
        for part in ("transfer", "waiting")
        if kinds[f"communication_{part}"]
    ]
    whole = format_ns(round(parts["communication"] * step_ns))
    return f"communication: {' and '.join(split) or whole} in each recorded step, without compute"


def _step(head: TraceReport, ranks: Sequence[RankReport], step: StepEstimate | None) -> str:
    medians = [median(rank.dur_ns) for rank in ranks if rank.dur_ns]
    if step is None and not medians:
        return ""
    longest_ns = round(max(medians)) if medians or step is None else step.traced_ns
    recorded = f"{format_ns(longest_ns)} recorded"
    if step is None:
        return recorded
    if step.measured:
        return f"{recorded}, {format_ns(step.unprofiled_ns)} without the profiler, {by_whom(head)}"
    alone = format_ns(step.unprofiled_ns)
    span = without_unit(format_span(step.low_ns, step.high_ns), alone)
    return f"{recorded}, {alone} predicted without the profiler ({span})"


def _fix(step: StepEstimate | None, together: StepEstimate | None, findings: Sequence[Finding]) -> str:
    printed = {number: one for number, one in enumerate(findings, 1) if not one.pedantic}
    above = [number for number, one in printed.items() if one.severity is not Severity.INFO]
    if not above:
        return _possible(findings)
    first = f"finding {above[0]}" + (" first" if len(above) > 1 else "")
    if step is None or together is None or together.unprofiled_ns > _LESS * step.unprofiled_ns:
        return first
    with_all = f"; with {listed(above)} fixed" if len(above) > 1 else ""
    takes = format_span(step.unprofiled_ns, together.unprofiled_ns, "-> about")
    return f"{first}{with_all}: {takes}"


def _possible(findings: Sequence[Finding]) -> str:
    """Where nothing is certain: the finding that may save most, if that is much."""
    high = {number: one.saving.high_share for number, one in enumerate(findings, 1) if one.saving is not None}
    number = max(high, key=high.__getitem__, default=0)
    if high.get(number, 0.0) < _WORTH:
        return NOTHING
    return f"{NOTHING_SURE}; finding {number} may help"


def job_pace(ranks: Sequence[RankReport], step: StepEstimate | None) -> str:
    if step is None:
        return ""
    waits = {rank.rank: rank.predicted_waiting_ns for rank in ranks}
    _, slowest = min((ns, rank) for rank, ns in waits.items() if ns is not None)
    return f"rank {slowest} is the slowest, limited by {_BOUNDS.get(step.bound, step.bound)}"


def _whom(ranks: Sequence[RankReport], culprits: Sequence[int], step: StepEstimate | None, measured: bool) -> str:
    """For whom the others wait; empty where no rank holds up the others. `measured` steps were timed unprofiled."""
    if culprits:
        held = max(rank.holding_up_ns for rank in ranks if rank.rank in culprits)
        named, more = sorted(culprits[:_NAMED]), len(culprits) - _NAMED
        names = f"{', '.join(map(str, named))} and {more} more" if more > 0 else listed(named)
        what = f"the other ranks wait{f' {format_ns(held)} a step' * (held > 0)} for"
        alone = max((rank.alone_ns or 0 for rank in ranks if rank.rank not in culprits), default=0)
        little = step is not None and step.unprofiled_ns - alone < _GONE * held  # of the wait is saved
        rest = f"; without this wait they would still take up to {format_ns(alone)}" * little
        return f"{what} rank{'s' * (len(culprits) > 1)} {names}{rest}"
    latest = max(ranks, key=lambda rank: (rank.holding_up_ns, -rank.rank))
    recorded = max((median(rank.dur_ns) for rank in ranks if rank.dur_ns), default=0.0)
    if latest.last_share < _SURE or latest.holding_up_ns < _MUCH * recorded:
        return ""
    peers = [rank.rank for rank in ranks if rank is not latest]
    pair = len(peers) == 1
    others, all_do = (f"rank {peers[0]} waits", "both") if pair else ("the other ranks wait", "all")
    where = f"in the recording, {others} {format_ns(latest.holding_up_ns)} a step for rank {latest.rank}"
    doubt = "so do not trust this wait: time some steps without the profiler"
    known = "and the step was measured without the profiler" if measured else doubt
    return f"{where}; {all_do} do the same work, {known}"
