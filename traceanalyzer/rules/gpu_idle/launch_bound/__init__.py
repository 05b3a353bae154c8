"""The CPU launches short kernels more slowly than the GPU runs them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, median
from traceanalyzer.model.finding import NOTHING_TO_DO, Confidence, Severity
from traceanalyzer.model.texts import STANDS_OUT, Texts
from traceanalyzer.regions.responsible import FORWARD, Leading
from traceanalyzer.replay.saving import Forecast, is_busy, only_profiled
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, Work, rule
from traceanalyzer.rule.advice import busy_advice
from traceanalyzer.rule.claims import REGION
from traceanalyzer.rule.idioms import idiom_of
from traceanalyzer.rule.region_hits import region_hits
from traceanalyzer.rules.gpu_idle.launch_bound.launch_remedies import STACK, Part, Remedy, launching_part, remedy_of
from traceanalyzer.timeline.repeated_kernels import same_steps
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

_DIFFERENT = "all steps launch the same kernels and grids (pad inputs, and use caches of a fixed size)"
_IN_TWO = (
    "Between its launches the step waits for the GPU once, and no CUDA graph can contain this wait: move it to the end "
    "of the step, or capture the step in two graphs, one before and one after it."
)
# Causes of idle time in the accounting's table.
_DISPATCHING = ("dispatching", "launch-latency")
_BETWEEN_OPS = ("host-code", "python", "engine")
_MEASURE = (
    "Measure the step without the profiler in milliseconds, and pass it with --step-ms MS: this shows whether the GPU "
    "is idle."
)
_CALLS = (
    "If this code runs once for each of several independent pieces, such as chunks of a batch, make fewer and larger "
    "calls; if each call gets the same input, keep the result."
)
_MINOR = f"{NOTHING_TO_DO} here: launching explains too little of the {{whole}}. If these waits grow: "
_OTHERS = "; for {awaited} of the step this rank probably waits for other ranks that launch as slowly"
EVERYWHERE = "launches in all parts of the step"
OF_ONE_OP = "the launches of {ops:of this waiting}"
WITHIN_COLLECTIVES = (
    "launches, mostly within collectives: probably for other ranks, which launch as slowly, for {awaited} of the step"
)
_ALL_RANKS = " Pass the files of all ranks: they show which rank this one waits for."
_NO_FAULT = {
    "profiled-only": "",
    "small-part": "; these waits, with short pauses between ops, are {share} of the window",
    "unsure": "; without the profiler the GPU may be busy all the time",
}


class Limits:
    max_pause_ns: int = 1_000_000
    """a pause between two ops is a part of launching if it is at most this long; for instance, the start of
    an optimizer's step takes 0.2 to 0.8 ms, H200 host"""
    min_launch_share: float = 0.5
    """reported only if the CPU is inside ops during at least this share of the GPU's idle time; if it is
    less, Python code between ops is the problem; chosen"""
    min_window_share: float = 0.05
    """if launching explains less than this share of the recorded time, the cause is small-part"""
    min_idle_share: float = 0.3
    """if launching explains less than this share of all idle time, the cause is small-part, because other
    causes matter more"""
    min_sure_share: float = 0.02
    """the cause is unsure if the GPU may be busy all the time without the profiler. It is also unsure if the
    saving's interval begins below this share of the step, and the predicted saving is small: below medium
    severity, or below min_saved_share. (Larger batches cannot be simulated: the interval of a CUDA graph then
    stands for theirs.)"""
    min_saved_share: float = 0.5
    """used by min_sure_share: a predicted saving is small if it is less than this share of the predicted idle
    time. Most idle time then has other causes, such as a data loader; chosen"""
    min_gap_share: float = Severity.HIGH.least_share
    """a GPU whose next kernel is always queued still pauses between kernels, and a CUDA graph removes these
    pauses. If a fix surely saves at least this share of the step (the low end of its interval), the fix is
    reported even if the GPU never waits for a launch"""
    min_same_share: float = 0.5
    """a CUDA graph is advised only if at least this share of the steps launch the same kernels on the same
    grids; chosen"""
    max_syncs: float = 1.0
    """a CUDA graph is advised only if a step has at most this many synchronisations; one read-back at the end
    does not prevent a graph"""
    min_compile_share: float = 0.1
    """torch.compile is advised only if its predicted saving is at least this share of the step, and
    min_pointwise_share holds as well. The prediction is rough: in measurements it was right only on whether
    torch.compile helps, not on how much"""
    min_loop_share: float = 0.4
    """the finding names a loop if at least this share of the ops of one thread in a step are inside the loop; chosen"""
    slow_launch_ns: int = 100_000
    """the cause is slow-launches if the median launch that the GPU waits for takes at least this time: ten
    times what a launch takes on V100 to H200, at most"""
    min_pointwise_share: float = 0.3
    """torch.compile is advised only if at least this share of the launches are eager pointwise kernels, which
    a compiler fuses, and min_compile_share holds as well"""


@rule(
    since="0.1",
    claims=Claims.LAUNCHES,
    min_share=0.02,
    limits=Limits,
    causes=(REGION, "profiled-only", "small-part", "unsure", "graph", "compile", "batch", "slow-launches"),
)
def launch_bound(
    calls: Calls,
    work: Work,
    idle: IdleTime,
    steps: Steps,
    syncs: SyncCalls,
    forecast: Forecast | None,
    leading: Leading | None,
    limits: Limits,
) -> Iterator[Hits]:
    """Launching takes longer than running: many short kernels.

    What it looks for: idle time of the GPU while the CPU dispatches ops, or during short pauses between two ops.
    Why it costs: an eager op takes about 5 µs of CPU time. If the op's kernel is shorter, the GPU waits for
    the next launch.
    Bad: 300 kernels of 1 µs a step. Good: the same step in a CUDA graph, fused by torch.compile, or with a
    larger batch.
    How sure: idle time is measured. The profiler slows the CPU, so the rule also simulates the step without
    the profiler. The rule assumes how much the profiler slowed the CPU, unless you pass the time of a step
    that you measured without the profiler (--step-ms).
    With the trace of one rank of a job: if this rank is launch-bound for at least half of the step, the rule assumes
    that the other ranks are launch-bound, too. The cost then includes the time that this rank waits in collectives for
    other ranks. With the traces of all ranks, nothing is assumed: they show why each rank comes late.
    If one region of code that is no layer of a model takes much of the step, there is a finding of its own
    for it, and the other findings are about the rest. A region is a call of a function (of the program or of a
    package), an annotation, a block of ops that repeats, or weights that torch.nn.utils.parametrize computes.
    The saving is predicted without the region, or with one repeat that does the work of all.
    After "launch-bound:", a title says which case it is. The cases, each with the name of its cause in JSON
    output:
    - the name of a region (`region`): its own remedy comes before a CUDA graph;
    - "only while profiling" (`profiled-only`, always info): in the simulation, the next kernel is always
      queued in time;
    - "... may help" (`unsure`, always info): the simulated GPU waits only under some assumptions, or the
      saving is small and may be zero;
    - "little of the idle time" (`small-part`, always info): launching explains little of the GPU's idle time;
    - "a CUDA graph can help" (`graph`): most steps launch the same kernels on the same grids;
    - "torch.compile can help" (`compile`): eager pointwise kernels can be fused;
    - "fewer launches can help" (`batch`): neither a CUDA graph nor torch.compile fits;
    - "each launch is slow" (`slow-launches`): the call itself takes far longer than a launch does elsewhere, in the
      driver or in its profiler.
    When it is wrong: shapes are equal in the few recorded steps, but change later. Then one CUDA graph is not enough.
    Source: PyTorch's "Accelerating PyTorch with CUDA Graphs"; measured on an H200 with torch 2.11.
    """
    gaps = between_launches(idle, limits.max_pause_ns, limits.min_launch_share)
    if len(gaps) == 0:
        return
    if median(gaps.launch.dur_ns) >= limits.slow_launch_ns:
        yield _slow_launches(gaps)
        return
    # Of a busy GPU, a region without its kernels saves their time, and no waiting.
    if leading is not None and not is_busy(forecast):
        rest = np.ones(len(gaps), bool)
        for hits, members in region_hits(gaps, leading, limits.min_sure_share):
            yield hits
            rest[members] = False
        gaps = gaps[rest]
    if len(gaps) == 0:
        return
    eager = work[(work.step >= 0) & ~work.in_graph]
    stops = _waits_between_launches(eager, steps, syncs.start_ns[~syncs.profiler])
    against = obstacles(eager, steps, stops, limits)
    kernels = eager.of_kind("compute", "communication")
    part = launching_part(calls, kernels, limits.min_loop_share)
    loop = part is not None and not part.layers
    shares = limits.min_pointwise_share, limits.min_compile_share
    remedy = remedy_of(eager, calls, loop, against, steps.working, forecast, *shares)
    base, least_ns = least_explained(idle, steps, limits)
    awaited = 0.0 if forecast is None else forecast.program.awaited
    minor = gaps.total_ns + awaited * steps.window_ns < least_ns
    cause = _cause(remedy, forecast, limits, minor=minor)
    advice = f"{_IN_TWO} {remedy.advice}" if remedy.name == "graph" and stops >= 1 else remedy.advice
    advice = f"{advice} {STACK}" if loop and remedy.name != "batch" else advice
    repeated = _repeated_calls(leading)
    if repeated and not FORWARD.search(str(repeated["repeated"])):
        named = idiom_of("calls", [str(repeated["repeated"])])
        advice = f"{named.fix if named else _CALLS} {advice}"
    # Most of the waiting is estimated: the launches are within collectives.
    guessed = awaited * steps.window_ns > gaps.total_ns
    waits = awaited >= limits.min_window_share
    longest = max(_launching_ops(gaps).sums(gaps.dur_ns).values(), default=0)
    awaits = OF_ONE_OP if longest >= STANDS_OUT * gaps.total_ns else EVERYWHERE
    awaits = WITHIN_COLLECTIVES if waits and guessed else awaits
    lines, pace = gaps.launch.line.sums(gaps.dur_ns), pace_ns(kernels)
    count = round(len(kernels) / max(steps.working, 1))
    yield Hits(
        occurrences=gaps,
        cause=cause,
        fix=() if minor or cause == "profiled-only" else remedy.fix,
        confidence=Confidence.LOW if guessed else remedy.sure,
        message=launch_message(count, pace, part, awaits, placed=not lines, profiled=cause == "profiled-only")
        + (_OTHERS if waits and not guessed else "")
        + doubt_text(cause, forecast),
        advice=full_advice(advice, cause, forecast, base) + (_ALL_RANKS if waits else ""),
        evidence={
            "kernels": count,
            "launches": round(len(eager) / max(steps.working, 1)),
            "kernel_ns": int(median(kernels.dur_ns)) if len(kernels) else 0,
            "launch_ns": pace,
            "ops": _launching_ops(gaps),
            "lines": lines,
            "remedy": remedy.name,
            "busy_share": forecast.busy_share if forecast else None,
            **({"awaited_share": awaited} if awaited else {}),
            **({} if part is None else part.evidence),
            # With copies a function may launch more than there are kernels: it is no part of them then.
            **(repeated if repeated.get("repeated_launches", 0) <= count else {}),
        },
        info=cause in _NO_FAULT,
    )


def _repeated_calls(leading: Leading | None) -> dict[str, Any]:
    if leading is None or leading.repeated is None:
        return {}
    name, calls, launches = leading.repeated
    return {"repeated": f"{calls:,.0f} calls of {name}", "repeated_launches": round(launches)}


def _slow_launches(gaps: IdleTime) -> Hits:
    calls = gaps.launch.name.sums(gaps.dur_ns)
    return Hits(
        occurrences=gaps,
        cause="slow-launches",
        confidence=Confidence.MEDIUM,
        message="{calls} takes {launch} (median), where 4 to 10 µs are usual, and the GPU waits for it",
        advice="The time passes in the driver or in its profiler: look for a newer driver, and for settings that make "
        "launches synchronous (on CUDA, CUDA_LAUNCH_BLOCKING=1).",
        evidence={"calls": calls, "launch_ns": int(median(gaps.launch.dur_ns))},
        max_severity=Severity.MEDIUM,
    )


def _cause(remedy: Remedy, forecast: Forecast | None, limits: Limits, *, minor: bool) -> str:
    """The name of the remedy, or the reason why launching may be no fault."""
    surely = bool(remedy.fix) and remedy.saved is not None and remedy.saved.low_share >= limits.min_gap_share
    if is_busy(forecast) and not surely:
        return "profiled-only"
    if minor:
        return "small-part"
    unsure = only_profiled(forecast) or may_save_nothing(remedy, forecast, limits)
    return "unsure" if unsure and not surely else remedy.name


def _launching_ops(gaps: IdleTime) -> Texts:
    """The outermost op of the launch after each gap, or else the launch."""
    return gaps.launch.outer_op.name.or_else(gaps.launch.name)


def launch_message(
    count: int, pace: int | None, part: Part | None, awaits: str, *, placed: bool, profiled: bool
) -> str:
    """How much is launched, and what the GPU waits for; `placed` launches have no lines, or their part has one."""
    whole = part is not None and part.launches >= count
    return (
        f"the CPU launches {{kernels}} kernel{'s' if count != 1 else ''} a step"
        + (" (a kernel takes {kernel}" if count > 1 else " (it takes {kernel}")
        + (", a launch comes every {launch}" if pace else "")
        + ("; medians)" if count > 1 else ")")
        + (f", {'all from' if whole else '{loop_launches} of them from'} {{loop}}" if part else "")
        + f"; {'in this recording ' * profiled}the GPU waits for {awaits}"
        + ("" if placed or (part and part.placed) else "; it waits longest at {lines:of this waiting}")
        + "{elsewhere:of this waiting}"
    )


def least_explained(idle: IdleTime, steps: Steps, limits: Limits) -> tuple[str, float]:
    """(the base that launching must explain a share of, the least time in ns): the larger of two bases."""
    least = {
        "window's idle time": limits.min_idle_share * idle.total_ns,
        "window": limits.min_window_share * steps.window_ns,
    }
    return max(least.items(), key=lambda item: item[1])


def may_save_nothing(remedy: Remedy, forecast: Forecast | None, limits: Limits) -> bool:
    """True if the saving is small and its interval reaches zero. Without an edit, a graph's saving counts."""
    saved = remedy.saved
    if forecast is None or saved is None or saved.low_share >= limits.min_sure_share:
        return False
    least = max(Severity.MEDIUM.least_share, limits.min_saved_share * forecast.idle_share)
    return not remedy.fix or saved.share < least


def doubt_text(cause: str, forecast: Forecast | None) -> str:
    """The reason why it may be no fault, empty if there is none."""
    if cause == "unsure" and forecast is not None and not only_profiled(forecast):
        return "; other work of the CPU may be the reason"
    return _NO_FAULT.get(cause, "")


def full_advice(advice: str, cause: str, forecast: Forecast | None, whole: str) -> str:
    """The remedy, after what the user must do or measure first."""
    if cause == "profiled-only":
        return busy_advice(advice)
    if cause == "small-part":
        return f"{_MINOR.format(whole=whole)}{advice[0].lower()}{advice[1:]}"
    if cause != "unsure" or not only_profiled(forecast) or forecast is None or forecast.step.measured:
        return advice
    return f"{_MEASURE} If it does: {advice[0].lower()}{advice[1:]}"


def obstacles(eager: Work, steps: Steps, stops: float, limits: Limits) -> list[str]:
    """What keeps a step from one CUDA graph; no graph launched the `eager` work, and the CPU waits at its `stops`."""
    same = same_steps(eager.events.trace, eager.events.work, steps) if len(steps) > 1 else 1.0
    reasons = {
        "the CPU waits for the GPU only at the end of a step (at present it also waits between launches, "
        f"{stops:.0f} times a step)": stops > limits.max_syncs,
        "all ranks capture the collectives in the same way": len(eager.of_kind("communication")) > 0,
        _DIFFERENT: same < limits.min_same_share,
    }
    return [reason for reason, holds in reasons.items() if holds]


def _waits_between_launches(eager: Work, steps: Steps, waits_ns: Rows) -> float:
    """Waits between the first and the last launch of the median step."""
    launched = eager.launch.start_ns[eager.launch.there]
    step = steps.at_cpu(launched)
    first, last = np.full(len(steps), np.iinfo(np.int64).max), np.zeros(len(steps), np.int64)
    np.minimum.at(first, step[step >= 0], launched[step >= 0])
    np.maximum.at(last, step[step >= 0], launched[step >= 0])
    wait_step = steps.at_cpu(waits_ns)
    between = (wait_step >= 0) & (waits_ns > first[wait_step]) & (waits_ns < last[wait_step])
    return median(np.bincount(wait_step[between], minlength=len(steps)))


def between_launches(idle: IdleTime, max_pause_ns: int, min_launch_share: float) -> IdleTime:
    """Idle time inside ops and on the way from one to the next; only inside, if that is the smaller part."""
    inside = idle.cause.one_of(*_DISPATCHING)
    pause_ns = max_pause_ns * (2 if idle.events.user_code.recorded else 1)  # to record stacks takes time
    way = idle.cause.one_of(*_BETWEEN_OPS) & (idle.dur_ns <= pause_ns)
    launched = idle.has_next & ~idle.launch.name.matches(r"GraphLaunch")
    both = idle[(inside | way) & launched]
    most = idle[inside].total_ns >= min_launch_share * both.total_ns
    return both if most else idle[inside & launched]


def pace_ns(work: Work) -> int:
    """Median time from one launch to the next in ns, 0 for fewer than two."""
    launch = work.launch
    starts = distinct(launch.start_ns[launch.there])
    return int(median(np.diff(starts))) if len(starts) > 1 else 0
