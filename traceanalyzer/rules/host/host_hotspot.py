"""What the CPU works on while the GPU waits, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import grouped, sums_of
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime
from traceanalyzer.rule.views.quiet_calls import HostCalls
from traceanalyzer.rule.views.selection import Mask, Rows
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Limits:
    min_stretch_ns: int = limit(
        100_000, "without a launch; dispatching an op takes tens of us; twice that with stacks"
    )
    min_cost_share: float = limit(
        0.02, "of the usual step; below it a stretch is jitter, noise/ traces, H200"
    )
    min_steps_share: float = limit(0.5, "by definition: what is in half of the steps is the step's")
    most: float = limit(
        0.5, "of a stretch: an op that takes so much of it is what it is about; by definition"
    )
    alone: float = limit(
        0.8, "of the ops of a function: one that takes so much is what it does, else all are; by definition"
    )
    skew: float = limit(2.0, "the longest, in medians, from which on both are said; by definition")


@rule(since="0.3", claims=Claims.NET, min_share=0.02, limits=Limits)
def host_hotspot(stretches: HostCalls, idle: IdleTime, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """The CPU works on something itself while the GPU waits.

    What it looks for: stretches in which nothing is launched, by the op in them that takes most of the time without
    making a call, or else, and where several ops of one function do so, by the user's function: random numbers or
    indexing on CPU tensors, numpy, tokenising, decoding, JSON, sorting. By total time over all steps.
    Why it costs: the device has nothing to do until the next launch.
    Bad: torch.randn(...).to("cuda"). Good: torch.randn(..., device="cuda").
    How sure: an op without a call works on the CPU; how long, and how long the device was idle, is measured. A line
    takes what goes by while it is the innermost of the user's, which may be others' work that it called.
    When it is wrong: it is a net for what no rule knows: where a specific rule has the same time, that one says
    more and keeps it.
    Source: the blog's "one event dominates: start there".
    """
    into, leaving = stretches.by_autograd
    least_ns = limits.min_stretch_ns * (2 if stretches.events.user_code.recorded else 1)
    found = stretches[(stretches.dur_ns >= least_ns) & ~into & ~leaving]
    if not len(found):
        return
    by = _subject(found, limits)
    often = (by.code >= 0) & (found.in_steps(by) >= limits.min_steps_share * len(steps))
    worth_ns = limits.min_cost_share * float(np.median(steps.durations_ns())) * len(steps)
    for key, where in found[often].by(by[often]):
        ops, _ = where.ops()
        own = _with_head(ops[ops.name.one_of(key)], idle, key)
        at: Calls = own if len(own) else where
        lost = Lost.idle_within(idle, at.start_ns, at.end_ns)
        if intervals.length(lost.spans()) >= worth_ns:
            computes = ops.total_ns >= limits.most * where.total_ns
            parts = {} if len(own) or not computes else ops.name.sums(ops.dur_ns)
            yield _hits(at, lost, key, parts, limits)


def _with_head(own: Calls, idle: IdleTime, key: str) -> Calls:
    """These ops and those of the name that idle time is charged to: the first may come before any launch."""
    charged = idle.charged_to("host-work").call
    more = charged[charged.name.one_of(key)]
    return Calls(own.events, np.union1d(own.rows, more.rows)) if len(own) else own


def _hits(at: Calls, lost: Lost, key: str, parts: dict[str, int], limits: Limits) -> Hits:
    """Of an op, or of a function with the ops in it that compute, where there are such."""
    is_op = not isinstance(at, HostCalls)
    lines = at.line.sums(at.dur_ns) if is_op else {}
    computes = is_op or bool(parts)
    skewed = at.dur_ns.max() > limits.skew * np.median(at.dur_ns)
    return Hits(
        at=at,
        by=key,
        lost=lost,
        fix=DropSpans(at.start_ns, at.end_ns),
        message="{by} "
        + ("computes on the CPU" if computes else "runs on the CPU")
        + (", with {ops}," if parts else "")
        + " {times_a_step}, "
        + ("{typical} in the median and {longest} at most, " if skewed else "")
        + "{host} in all"
        + (", at {lines}" if lines else "")
        + ", and launches nothing: the GPU is idle for {per_step} of each step",
        advice="Do it on the device: create the tensor there, or move it there before this op."
        if is_op
        else "Do it on the device: create its tensors there, or move them there before, or take it out of the loop."
        if parts
        else "Take it out of the loop, do it on the device, or let another thread or process do it ahead.",
        confidence=Confidence.HIGH if computes else Confidence.MEDIUM,
        evidence={
            "host_ns": at.total_ns,
            "typical_ns": int(np.median(at.dur_ns)),
            "longest_ns": int(at.dur_ns.max()),
            "lines": lines,
        }
        | ({"ops": parts} if parts else {}),
    )


def _subject(found: HostCalls, limits: Limits) -> Texts:
    """The op that takes most of each stretch, else the user's function, as where it has several such ops."""
    ops, stretch = found.ops()
    line = found.line
    pair, first = grouped([stretch, ops.name.code])
    spent = sums_of(pair, ops.dur_ns, len(first))
    order = np.argsort(spent, kind="stable")
    main = np.full(len(found), -1, np.int64)
    main[stretch[first[order]]] = order  # what is assigned last, the longest, stays
    most = np.append(spent, 0)[main] >= limits.most * found.dur_ns
    most &= ~_has_several(line.code, ops, stretch, limits)
    code = np.append(ops.name.code[first], -1)[np.where(most, main, -1)]
    return Texts(code, ops.name.names).or_else(line)


def _has_several(function: Rows, ops: Calls, stretch: Rows, limits: Limits) -> Mask:
    """Which stretches are of a function in which no op alone takes most of what its ops take."""
    of_op = function[stretch]
    pair, first = grouped([of_op, ops.name.code])
    longest, total = (np.zeros(int(function.max(initial=-1)) + 2, np.int64) for _ in range(2))
    np.maximum.at(longest, of_op[first], sums_of(pair, ops.dur_ns, len(first)))
    np.add.at(total, of_op, ops.dur_ns)
    return np.asarray((function >= 0) & (longest < limits.alone * total)[function])
