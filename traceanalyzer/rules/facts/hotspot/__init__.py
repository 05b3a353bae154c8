"""The op that takes most of the step, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, distinct
from traceanalyzer.replay.sample import JobStep
from traceanalyzer.replay.saving import MIN_OPEN_SHARE, Forecast
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.rule import Claims, Hits, Kind, LostTime, Work, limit, rule
from traceanalyzer.rule.collective_arrivals import without_waiting
from traceanalyzer.rule.evidence import (
    MORE_WORK,
    counted_shapes,
    kernel_times,
    largest_shapes,
    of_steps,
    told_names,
    uncovered_ns,
)
from traceanalyzer.rules.facts.hotspot.what_limits import (
    COMMUNICATION,
    LIMITS,
    TRANSFER,
    UNKNOWN,
    Bound,
    what_limits,
)
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.steps import Steps

_APART = 0.05  # of its time a step: so far from the mean of all steps it is said which count; chosen
# What torch marks: the parts of compiled code, the optimizer, a collective and its process group.
_COMPILED = r"^Torch-Compiled Region|CompiledFunction|^## Call CompiledFxGraph"
_NO_USERS = (
    r"^## |CompiledF|^Torch-Compiled|^TorchDynamo|^\[|^(nccl|gloo|mpi):|^Optimizer\.|^(DistributedD|FSDP::)"
)


@dataclass(frozen=True, slots=True)
class Limits:
    min_part_share: float = limit(
        0.05,
        "reported only if the op takes at least this share of the step; a smaller op is not worth looking "
        "at first",
    )
    min_near_share: float = limit(
        0.5,
        "a peak (of arithmetic, memory or link) limits an op if the op reaches at least this share of the "
        "peak",
    )
    max_latency_ns: int = limit(
        5_000,
        "if the kernels of an op take at most this time on average, the start of each kernel limits the op;"
        " measured on H200 and MI300X",
    )


@rule(since="0.1", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, causes=LIMITS, kind=Kind.FACT)
def hotspot(
    work: Work,
    steps: Steps,
    rates: OpWork,
    forecast: Forecast | None,
    job: JobStep | None,
    waits: CollectiveWaits | None,
    limits: Limits,
) -> Iterator[Hits]:
    """The op that takes the largest share of the step, and what limits it.

    What it looks for: the op or collective that takes the most GPU time. An op here is what the user calls,
    or its backward node. Of collectives and copies, only the time counts in which nothing computes.
    Why it matters: this op is the first to look at. The finding is a fact, not a fault, so it is always info.
    Bad: tuning a kernel that takes 2 % of the step. Good: starting with the kernel that takes 60 %.
    How sure: the time is measured. What limits the op is computed from its shapes and the device's peak
    rates. Without recorded shapes, the limit is usually unknown.
    When it is wrong: an op that runs at the same time as work of another stream costs less than its share.
    Source: roofline model (Williams, Waterman, Patterson 2009).
    """
    within = work.step >= 0 if (work.step >= 0).any() else np.ones(len(work), bool)
    usual = forecast.program.sample.steps if forecast else np.flatnonzero(steps.steady)
    for device in distinct(work.device[within]).tolist():
        here = work.device == device
        own, alone_ns = work[here & within], uncovered_ns(work[here])[within[here]]
        names = told_names(own)
        counts = _counts(own, usual)
        own_ns = without_waiting(own, waits)
        took_ns = np.where(counts, own_ns, 0)
        # What compute runs beside is no hot spot, nor is what was queued before the recording.
        launched = of_steps(own)
        alone_ns = np.where(launched | ~launched.any(), np.minimum(took_ns, alone_ns), 0)
        op = next(iter(names.sums(alone_ns)), None)
        if op is None:
            continue
        chosen = names.one_of(op)
        found, every = own[chosen & counts], own[chosen]
        gpu_ns = int(took_ns[chosen].sum()) // max(len(usual), 1)
        predicted = job or (forecast and forecast.step)
        whole_ns = predicted.unprofiled_ns if predicted else steps.window_ns / max(len(steps), 1)
        judged_step = f"the {'predicted' if predicted else 'recorded'} step"
        # Of work that streams do at once a step has no room for all; ranks then wait less for one another.
        work_ns = int(alone_ns[~own.kind.one_of("communication")].sum()) / max(len(usual), 1)
        if work_ns > (1 + MORE_WORK) * whole_ns:
            whole_ns, judged_step = work_ns, "all GPU work"
        share = gpu_ns / max(whole_ns, 1.0)
        if share >= limits.min_part_share:
            pace = every.total_ns / len(every) / max(found.total_ns / len(found), 1.0)
            bound = what_limits(found, rates, pace, limits.min_near_share, limits.max_latency_ns)
            bound = TRANSFER if waits is not None and bound.kind == TRANSFER.kind else bound
            if not bound.kind and found.outer_op.name.matches(_COMPILED).any():
                bound = _compiled(found, forecast)
            mean_ns = int(own_ns[chosen].sum()) // max(len(steps), 1)
            apart = 0 < len(usual) < len(steps) and abs(mean_ns - gpu_ns) > _APART * gpu_ns
            whole: dict[str, int] = {}
            of_which = f"on average over {len(usual)} of {len(steps)} steps, " if apart else ""
            if bound is COMMUNICATION:  # as `exposed-communication` tells it, so that the numbers agree
                whole, of_which = {"mean_ns": mean_ns}, ""
            yield _hits(op, every, found, bound, gpu_ns, share, judged_step, of_which, whole)


def _counts(work: Work, usual: NDArray[np.int64]) -> Mask:
    """What the usual steps ran, since one that tunes kernels says little of the others; all where they ran none."""
    counts = np.isin(work.step, usual)
    return counts if counts.any() else np.ones(len(work), bool)


def _compiled(found: Work, forecast: Forecast | None) -> Bound:
    """Of a compiled region: the kernels that it is made of, and how they are launched."""
    words = "its kernels are {kernels}"
    eager = found[~found.in_graph]
    waits = eager.kind.one_of("copy_d2h").any()
    if len(eager) < len(found) or waits or forecast is None or forecast.idle_share < MIN_OPEN_SHARE:
        return Bound(
            "",
            words,
            "Look at the longest kernels of this region. A name such as triton_poi_fused_add_mul lists the ops fused "
            "in the kernel; other kernels are those of libraries.",
        )
    each = round(len(eager) / max(len(eager.outer_op.distinct()), 1))
    return Bound(
        "",
        f"{words}; it launches {each} of them one by one, without waiting",
        "Compile this region with mode='reduce-overhead': it becomes one CUDA graph. Then look at its kernels.",
    )


def _hits(
    op: str,
    every: Work,
    found: Work,
    bound: Bound,
    gpu_ns: int,
    share: float,
    judged_step: str,
    of_which: str,
    whole: Mapping[str, int],
) -> Hits:
    """Points at `every` piece; what is said is of those `found` in the usual steps, or the mean of the `whole`."""
    lines = found.line.sums(found.dur_ns)
    users = found[~found.launch.annotation.matches(_NO_USERS)]
    annotations = {} if lines else users.launch.annotation.sums(users.dur_ns)
    # The predicted step has less waiting for other ranks than the recorded ones.
    shown = share <= 1 and bound is not COMMUNICATION
    part = (
        f", {{part}} of {judged_step}"
        if shown
        else ", the sum of its kernels, some of which run at the same time" * (share > 1)
    )
    same = list(kernel_times(found)) == [op.removesuffix("...")] and bound.words == UNKNOWN
    words = "" if same else f"; {bound.words}"
    where = ", at {lines}" if lines else ", under the annotation {annotations}" if annotations else ""
    dims = found.dims.sums(found.dur_ns)
    if inputs := largest_shapes(found):
        where += f", {'mostly ' if len(dims) > 1 else ''}for inputs of {counted_shapes(inputs)}"
    return Hits(
        occurrences=every,
        named_by=op,
        cause=bound.kind,
        lost=LostTime.none(),
        message=f"{of_which}{{by}} takes {'{mean}' if whole else '{gpu}'} of GPU time a step{part}{where}{words}",
        advice=bound.advice,
        evidence={
            "gpu_ns": gpu_ns,
            "part_share": min(share, 1.0),
            "kernels": kernel_times(found),
            "shapes": next(iter(dims), None),
            "lines": lines,
            "annotations": annotations,
            **whole,
        },
        info=True,
    )
