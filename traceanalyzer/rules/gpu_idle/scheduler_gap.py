"""Idle time that no other rule explains."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.idle.causes import BETWEEN_OPS, CAUSES, ELSE, NOT_THE_CODE, TEXTS
from traceanalyzer.model.arrays import grouped, median, sums_of
from traceanalyzer.model.finding import NOTHING_TO_DO, Confidence, Severity
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.saving import Forecast, is_busy, only_profiled
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, Kind, rule
from traceanalyzer.rule.advice import busy_advice
from traceanalyzer.timeline.names import GRAPH_LAUNCH, OPTIMIZER_MARK
from traceanalyzer.timeline.steps import Steps

# At most medium: recording stacks makes this cause several times as slow.
_STRETCHED = "python"
_LARGE_GRAPH = "Launch the graph while the GPU still runs: prepare its inputs on the device, and wait after the launch."
_OPTIMIZERS = (
    "Capture the step in a CUDA graph (capturable=True, where the optimizer has it), or put optimizer.step() under "
    "{torch.compile}: with either, this Python code does not run. It takes less time with fewer, larger parameters."
)
_ONE_PLACE = "one and the same call of the op takes unusually long on the CPU"
_SAME_PLACE = (
    "Other calls of the op are quick: look at the code just before the slow one. Usual reasons: garbage "
    "collection that an allocation starts, a lock that another thread holds, memory that is used for the first time."
)
_READY = f"{NOTHING_TO_DO}: to fetch a batch that is ready takes this time, too."
# What every program pays that is not queued ahead.
_USUAL = ("host-code", "host-work", "engine", "long-call", "python")
# Not the code's cause unless the same op is delayed again and again.
_JITTER = "long-call"


class Limits:
    min_gap_ns: int = 2_000
    """shorter gaps are ignored; queued kernels follow each other within 0.8 to 1.7 µs on an H200 with torch
    2.11"""
    min_steps: int = 3
    """the rule judges whether a cost recurs only if there are at least this many steps; fewer do not show it"""
    min_steps_share: float = 0.5
    """idle time is regarded as recurring if at least this share of the steps has it; chosen"""
    max_fetch_ns: int = 200_000
    """if fetching a batch takes less than this time, the batch was ready, and a finding of the cause
    data-loading is info. Fetching each of 24 batches from worker processes took 25 to 90 µs, H200 and V100
    hosts. The rule dataloader-stall reports longer waits"""
    usual_share: float = 0.03
    """for idle time between ops, in the autograd engine or inside an op, if no saving can be predicted: below
    this share of the window the severity is info, above it the severity is medium. Programs without a fault
    have up to 1.1 % on an H100"""
    spike_times: float = 5.0
    """a gap is regarded as an exception of one step if it is at least this many times as long as the same gap
    in the median step"""


@rule(
    since="0.1",
    claims=Claims.REMAINDER,
    limits=Limits,
    causes=("start", *CAUSES, *(f"{cause}-once" for cause in CAUSES)),
    kind=Kind.REMAINDER,
)
def scheduler_gap(
    idle: IdleTime, calls: Calls, steps: Steps, forecast: Forecast | None, limits: Limits
) -> Iterator[Hits]:
    """The GPU is idle between kernels, and no other, more specific rule reports this time.

    What it looks for: idle time of the GPU within a step that no other rule reports. There is one finding for
    each cause of idle time. `traceanalyzer explain CAUSE` describes a cause.
    Why it costs: you pay for a GPU that does nothing.
    Bad: Python that prepares each launch while the GPU waits. Good: the CPU launches kernels early enough, so
    that the GPU always has queued work.
    How sure: the rule concludes each cause from recorded events. Idle time in every step comes from the code.
    Idle time in only one step may be chance, so its severity is info.
    When it is wrong: the profiler slows the CPU. If the GPU is probably busy all the time without the profiler, the
    severity is info. Short idle times between ops are normal: if a fix saves less than 3 % of the step, the severity is
    info. Recording stacks slows Python, so severity is at most medium for the cause `python`.
    Source: the table of causes in docs/accounting.md.
    """
    lasting = idle[(idle.dur_ns >= limits.min_gap_ns) | idle.cause.one_of("in-graph")]
    start, once = lasting.standing_out(limits.min_steps, limits.spike_times)
    if start.any():
        text = TEXTS["start"]
        yield _hits(lasting[start], "start", text.happened, text.advice)
    recurring, single = lasting[~once & ~start], lasting[once & ~start]
    for (cause, mark), gaps in recurring.by(recurring.cause, _optimizers(recurring, calls)):
        optimizer = mark and mark.partition("#")[2]
        # In how many steps there is a gap; of jitter, in how many one and the same call is delayed.
        place = gaps.held_up_at() if cause == _JITTER else np.zeros(len(gaps), np.int64)
        often = int(np.bincount(place[grouped([place, gaps.step])[1]]).max())
        rare = len(steps) >= limits.min_steps and often < limits.min_steps_share * len(steps)
        ready = cause == "data-loading" and median(gaps.call.dur_ns) < limits.max_fetch_ns
        what, advice = _describe(cause, gaps, optimizer, ready=ready, rare=rare)
        advice = busy_advice(advice) if is_busy(forecast) and cause not in NOT_THE_CODE else advice
        yield replace(
            _hits(gaps, cause, what, advice),
            named_by=optimizer,
            confidence=Confidence.LOW if cause in ("unknown", "waiting") else Confidence.HIGH,
            info=cause in NOT_THE_CODE or only_profiled(forecast) or rare or ready,
            normal_share=limits.usual_share if cause in _USUAL else 0.0,
            recurring_share=limits.min_steps_share if len(steps) >= limits.min_steps else 0.0,
            max_severity=Severity.MEDIUM if cause == _STRETCHED else Severity.HIGH,
        )
    for cause, gaps in single.by(single.cause):
        what = TEXTS.get(cause, ELSE).happened
        what += "; this happens in one step only, so it may be the profiler or chance"
        advice = "Record longer before you change anything: it may not recur."
        yield _hits(gaps, f"{cause}-once", what, advice)


def _describe(cause: str, gaps: IdleTime, optimizer: str | None, *, ready: bool, rare: bool) -> tuple[str, str]:
    """(message, advice) for a recurring cause."""
    if optimizer:
        return f"torch's own Python ran in {optimizer}()", _OPTIMIZERS
    text = TEXTS.get(cause, ELSE)
    if ready:
        return text.happened, _READY
    if cause == _JITTER and not rare:
        return _ONE_PLACE, _SAME_PLACE
    of_graphs = gaps.launch.name.matches(GRAPH_LAUNCH)
    mostly = 2 * gaps.dur_ns[of_graphs].sum() > gaps.total_ns
    return text.happened, _LARGE_GRAPH if mostly else text.advice


def _optimizers(gaps: IdleTime, calls: Calls) -> Texts:
    """The optimizer's step that holds most of each gap and its launch, else null."""
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    around = gaps.launch.index_of_enclosing(marks)
    begin = np.append(marks.start_ns, np.iinfo(np.int64).max)[around]
    within_ns = np.maximum(gaps.end_ns - np.maximum(gaps.start_ns, begin), 0)
    gap, first = grouped([gaps.device, gaps.before_entries, gaps.next_entries])
    spent_ns, whole_ns = (sums_of(gap, ns, len(first)) for ns in (within_ns, gaps.dur_ns))
    within = (2 * spent_ns >= whole_ns)[gap]
    codes = np.append(marks.name.code, -1)[around]
    return Texts(np.where(within & gaps.cause.one_of(*BETWEEN_OPS), codes, -1), marks.name.names)


def _hits(gaps: IdleTime, cause: str, what: str, advice: str) -> Hits:
    names = gaps.op.name
    ops = names if names.there.all() else names.or_else(gaps.launch.op.name)
    by_ops = " during {ops:of this idle time}" if cause == _JITTER else " before {ops:of this idle time}"
    return Hits(
        occurrences=gaps,
        cause=cause,
        message="{in_steps}, the GPU is idle" + by_ops * (cause == _JITTER or bool(ops.there.any())) + f": {what}",
        advice=advice,
        evidence={"largest_gap_ns": int(gaps.dur_ns.max()), "ops": ops},
        info=True,
    )
