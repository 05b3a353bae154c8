"""The line of a report that says how long a step takes: recorded, without the profiler, and what is left out."""

from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.step_times import SlowSteps, StepEstimate
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_ns, percent
from traceanalyzer.replay.sample import MUCH
from traceanalyzer.report.summary import ALL_CUT
from traceanalyzer.report.words import format_span

_EVEN = 0.1  # by which steps differ that count as equally long; chosen
_REPLAYED = regex(r"(\d+) of (\d+) steps")  # in what an estimate is based on


def step_line(trace: TraceReport) -> str:
    """How long a step takes: recorded, and predicted without the profiler; and what of the recording is left out."""
    return _step_takes(trace) + _outside(trace)


def _step_takes(trace: TraceReport) -> str:
    step = trace.step
    if step is not None:
        alone, traced = format_ns(step.unprofiled_ns), format_ns(step.traced_ns)
        span = f" ({without_unit(format_span(step.low_ns, step.high_ns), alone)})"
        if step.measured:
            takes = f", {alone} without the profiler, {by_whom(trace)}{span * (step.low_ns < step.high_ns)}"
        else:
            same = traced == alone or step.unprofiled_ns > step.traced_ns
            takes = f"{f' and {traced}' if same else f', {alone}'} predicted without the profiler{span}"
        return f"{traced} recorded{_mean(step)}{takes}{_longer(trace, step)}"
    if trace.steps is not None and trace.steps.marked:
        known = trace.steps.steady or trace.steps.every
        if trace.steps.source.endswith(ALL_CUT):
            return f"not known: the window of {format_ns(trace.window.length_ns)} has no whole step"
        return f"{format_ns(known.median_ns)} recorded{f' (median of {known.count:,} steps)' * (known.count > 1)}"
    return f"not known, since no step is marked; the recording takes {format_ns(trace.window.length_ns)}"


def _outside(trace: TraceReport) -> str:
    """Of a trace without steps how much of the recording the window leaves out, where it is more than the window."""
    steps = trace.steps
    before, after = steps.left_out_ns if steps is not None and not steps.marked else (0, 0)
    parts = [
        f"{format_ns(ns)} {where} GPU work"
        for ns, where in ((before, "before the first"), (after, "after the last"))
        if ns > MUCH * trace.window.length_ns
    ]
    return f"; of the recording, {' and '.join(parts)} are left out" if parts else ""


def _mean(step: StepEstimate) -> str:
    """Of which steps the recorded time is the mean, where it is not of all: only these are replayed."""
    replayed = _REPLAYED.match(step.basis)
    if replayed is None or replayed[1] == replayed[2]:
        return ""
    return f" (mean of {replayed[0]})" if replayed[1] != "1" else f" (one step of {replayed[2]})"


def _longer(trace: TraceReport, step: StepEstimate) -> str:
    """The steps that are not replayed, where the mean of all is far from theirs: the first alone, as a rule."""
    first = _slow_start(trace)
    if step.slow is not None or trace.steps is None:
        return f"{first}; {_slow_steps(step.slow)}" if step.slow else ""
    whole, every = trace.steps.every, trace.steps.steady or trace.steps.every
    much = step.left_out_share >= MUCH and whole.max_ns > (1 + _EVEN) * whole.min_ns
    if not much and every.total_ns <= (1 + MUCH) * every.count * step.traced_ns:
        return first
    replayed = _REPLAYED.match(step.basis)
    if replayed is None and much:
        return f"{first}; long steps are left out, {percent(step.left_out_share)} of the time"
    left = int(replayed[2]) - int(replayed[1]) if replayed else 1
    if replayed and left > 1:
        share = percent(max(1 - int(replayed[1]) * step.traced_ns / max(whole.total_ns, 1), 0.0))
        return f"; {left} of {replayed[2]} steps, with {share} of the recorded time, are left out"
    return f"{first}; the longest of {every.count:,} steps, {format_ns(every.max_ns)}, is left out"


def _slow_steps(slow: SlowSteps) -> str:
    """`1 of 3 steps takes 10.1 s longer than the others, with 10.1 s in cudaMemGetInfo`."""
    several = slow.count > 1
    which = f"{slow.count} of {slow.of} steps ({percent(slow.share)} of the recorded time)"
    if slow.name is None and slow.usual_ns:
        times = f"{slow.longest_ns / slow.usual_ns:.2g}"
        return f"{which} {'do' if several else 'does'} {times} times the GPU work, as prefills do"
    much = f"{format_ns(slow.more_ns)} longer than the others{', on average' * several}"
    longer = f"{which} take{'s' * (not several)} {much}"
    if slow.name is None:
        return longer
    where = f"{longer}, with {format_ns(slow.longest_ns)} in {slow.name}"
    if slow.usual_ns:
        return f"{where}, usually {format_ns(slow.usual_ns)}: the GPU may be shared with another process"
    return where + ", blocked in the driver by another thread or process" * slow.blocked


def _slow_start(trace: TraceReport) -> str:
    """The first steps that take several times as long as later ones, where they take much of the time."""
    cold, every = (trace.steps.cold, trace.steps.every) if trace.steps else (None, None)
    if cold is None or every is None or cold.total_ns < MUCH * every.total_ns:
        return ""
    share = percent(cold.total_ns / every.total_ns)
    which, are = ("step", "is") if cold.count == 1 else (f"{cold.count} steps", "are")
    return f"; the slow first {which}, {share} of the time, {are} left out"


def unexplained_text(step: StepEstimate) -> str:
    """What of the recorded step nothing in the trace explains, so that it is not taken off."""
    return (
        f"nothing in the trace explains {format_ns(step.unexplained_ns)} of the recorded step: the GPU may be shared "
        "with another process"
    )


def by_whom(trace: TraceReport) -> str:
    """Who measured the step; of the recorder's times both where they differ."""
    measured = trace.measured
    if measured is None or measured.unused:
        return "as you measured it"
    before, after = measured.parts_ms
    apart = f" ({before:.3g} ms before the recorded steps, {after:.3g} ms after them)" if measured.differ else ""
    return f"as the recorder measured it{apart}"


def without_unit(span: str, time: str) -> str:
    """`20.6 to 29.5 ms` beside `22.9 ms` as `20.6 to 29.5`; with both units where they differ."""
    unit = time.rpartition(" ")[2]
    return span if " " in span.partition(" to ")[0] else span.removesuffix(f" {unit}")
