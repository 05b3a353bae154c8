"""The report's first sentence: what a step takes, what bounds it, and what the fixes would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import StepEstimate, TraceReport
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.report.costs import Cost
from traceanalyzer.report.words import format_span, in_words

LARGEST = 3
_NOTHING = "nothing found to fix"
_NEXT_TO_NOTHING = 0.005  # of the step: below it a finding is `info`
_CHOICES, _DEAR = (
    ("recomputation",),
    0.05,
)  # rules that find what is no fault; the least share that is worth a word
_LEAST_SHARE = 0.005  # of the window: less rounds to 0 %
_KINDS = {
    "gpu": ("gpu", "communication"),
    "communication": ("communication",),
    "cpu": ("idle",),
    "wait": ("idle",),
}
_UNSEEN, _MUCH = ("idle:waiting", "idle:unknown"), 0.25  # of the window
_COLD = "cold-start"  # the rule: what it finds is paid once, and a step without it is not in the trace
_BOUNDS = {
    "gpu": "the GPU",
    "cpu": "the CPU",
    "wait": "the CPU and the GPU waiting for one another",
    "communication": "communication",
}


def verdict_of(trace: TraceReport, findings: Sequence[Finding], costs: Sequence[Cost] = ()) -> str:
    """One sentence without a full stop; where the trace has no work of a device, it says so.

    Args:
        findings: all of the report, in the order of their numbers.
        costs: the largest items of the trace's step, largest first; without them the accounting's classes are told.
    """
    wrong = {
        number: finding
        for number, finding in enumerate(findings, start=1)
        if finding.rank == trace.rank and finding.severity is not Severity.INFO
    }
    cold = next((finding for finding in wrong.values() if finding.rule == _COLD), None)
    if cold is not None and cold.severity is Severity.HIGH:
        return _cold(trace, cold)
    if not wrong:
        parts = (
            _pace(trace),
            _unseen(trace),
            _goes_to(trace, costs) or _largest(trace),
            _choices(trace, findings),
        )
        return "; ".join(part for part in parts if part)
    said = ": ".join(part for part in (_pace(trace), _telling(trace, costs)) if part)
    return "; ".join(part for part in (said, _unseen(trace), _fixes(trace, wrong)) if part)


def _pace(trace: TraceReport) -> str:
    """How long a step takes, without the profiler where that is known, and what sets its pace."""
    step = trace.step
    if step is not None:
        alone, traced = format_ns(step.unprofiled_ns), format_ns(step.traced_ns)
        known = f"without the profiler ({format_span(step.low_ns, step.high_ns)})"
        takes = f"{alone} a step {'as you measured' if step.measured else known}"
        with_it = "as much" if traced == alone else traced
        profiler = "the profiler" if step.measured else "it"
        return f"{takes}, {with_it} with {profiler}; {_bound(step)}"
    unseen = "" if trace.accounting else "no work of a GPU is in the trace"
    if trace.steps is not None and trace.steps.marked:
        pace = f"{format_ns((trace.steps.steady or trace.steps.every).median_ns)} a step, as recorded"
        return f"{pace}; {unseen}" if unseen else pace
    return unseen or f"{format_ns(trace.window.length_ns)}, as recorded"


def _bound(step: StepEstimate) -> str:
    """What sets the pace; where the trace leaves that open, how much it leaves open and what settles it."""
    if _alike(step):
        return "bound by the CPU and the GPU alike"
    if not step.open:
        return f"bound by {_BOUNDS.get(step.bound, step.bound)}"
    low, high = (round(100 * share) for share in step.idle_shares)
    either = (", or by " if "wait" in step.bounds else " or ").join(map(_BOUNDS.__getitem__, step.bounds))
    return (
        f"bound by {either}, which the trace alone cannot tell: the GPU is idle for {low} to {high} % of it "
        "(a measured step says how much: --step-ms)"
    )


def _alike(step: StepEstimate) -> bool:
    """Whether the CPU sets the pace of a device that is as busy as can be told."""
    busy = step.gpu_ns > (1 - MIN_OPEN_SHARE) * step.unprofiled_ns
    return step.bound == "cpu" and busy and not step.open


def _unseen(trace: TraceReport) -> str:
    """What no replay can tell, where it is much: time in which the device waits for what was not recorded."""
    parts = [device.parts_ns for device in trace.accounting]
    whole = max(sum(sum(part.values()) for part in parts), 1)
    share = sum(part.get(name, 0) for part in parts for name in _UNSEEN) / whole
    if trace.step is None or share < _MUCH:
        return ""
    return f"for {100 * share:.0f} % of the window the GPU waits for what the trace does not show"


def _telling(trace: TraceReport, costs: Sequence[Cost]) -> str:
    """The largest cost of the side that bounds the step: an op of the GPU, or what it is idle for; of both none."""
    if trace.step is not None and trace.step.open:
        return ""
    kinds = _KINDS.get(trace.step.bound) if trace.step is not None and not _alike(trace.step) else None
    one = next((cost for cost in costs if kinds is None or cost.kind in kinds), None)
    if one is None or one.share < _LEAST_SHARE:
        return ""
    share = f"{100 * one.share:.0f} % of the step"
    return f"for {share} the GPU is {one.words}" if one.kind == "idle" else f"{share} is {one.words}"


def _goes_to(trace: TraceReport, costs: Sequence[Cost]) -> str:
    """Where nothing is wrong: what the step goes to."""
    named = [f"{cost.words} ({100 * cost.share:.0f} %)" for cost in costs if cost.share >= _LEAST_SHARE]
    nothing = "nothing found that surely needs a fix" if trace.step and trace.step.open else _NOTHING
    return f"{nothing}; the time goes to {', '.join(named)}" if named else ""


def _choices(trace: TraceReport, findings: Sequence[Finding]) -> str:
    """What is no fault but takes a large part of the step: checkpoints, where memory would do without them."""
    said = [
        f"finding {number} ({finding.rule}) is a choice that takes {100 * finding.saving.share:.0f} % of it"
        for number, finding in enumerate(findings, start=1)
        if finding.rank == trace.rank
        and finding.rule in _CHOICES
        and finding.saving is not None
        and finding.saving.low_share >= _DEAR
    ]
    return said[0] if said else ""


def _cold(trace: TraceReport, finding: Finding) -> str:
    """Where the recording is a cold start for the most part: nothing else can be told from it."""
    return (
        f"{format_ns(trace.window.length_ns)}, as recorded: {100 * finding.cost_share:.0f} % of it is a cold start, "
        "which the usual step does not pay; record again after a warm-up"
    )


def _fixes(trace: TraceReport, wrong: Mapping[int, Finding]) -> str:
    """What to look at first, and what fixing the findings gives, where a replay says so of any."""
    replayed = [number for number, finding in wrong.items() if finding.saving is not None]
    first, top = next(iter(wrong.items()))
    if trace.step is None or trace.together is None or not replayed:
        return f"begin with finding {first} ({top.rule})"
    begin = "" if first in replayed else f"begin with {first} ({top.rule}); "
    best = wrong[replayed[0]].rule + (" first" if len(replayed) > 1 else "")
    saved = 1 - trace.together.unprofiled_ns / max(trace.step.unprofiled_ns, 1)
    gives = "saves next to nothing" if saved < _NEXT_TO_NOTHING else ""
    gives = gives or f"brings it to about {format_ns(trace.together.unprofiled_ns)}"
    return f"{begin}fixing {_listed(replayed)} ({best}) {gives}"


def _listed(numbers: Sequence[int]) -> str:
    """`1 to 3`, `1, 3 and 5`, `1 and 2`."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = [
        text
        for run in runs
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + f" and {texts[-1]}"


def _largest(trace: TraceReport) -> str:
    """Where nothing is wrong: what the window went to."""
    sums: Counter[str] = Counter()
    for device in trace.accounting:
        sums.update(device.parts_ns)
    whole = max(sum(sums.values()), 1)
    named = [
        f"{_part(name)} ({100 * ns / whole:.0f} %)"
        for name, ns in sums.most_common(LARGEST)
        if ns >= _LEAST_SHARE * whole
    ]
    return f"{_NOTHING}; the time goes to {', '.join(named)}" if named else ""


def _part(name: str) -> str:
    return f"idle time, {in_words(name)}" if name.startswith("idle") else in_words(name)
