"""Kernels take far longer while a collective runs."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct, grouped, medians_of_kinds
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.rule import Claims, Confidence, Hits, Severity, Unavailable, Work, reduce_to, rule
from traceanalyzer.timeline.collective_waits import collective_names, collectives_of


class Limits:
    min_times: float = 2.0
    """reported only if a kernel takes at least this many times as long during a collective; beside NCCL,
    kernels take 1.2 to 1.9 times as long (measured with DDP on 2 H200, NVLink)"""
    usual_times: float = 1.35
    """used for the predicted saving: with less interference, a kernel still takes this many times as long
    during a collective; the mean of the same measurement"""
    min_executions: int = 3
    """reported only if a kernel runs at least this often alone and this often during collectives; chosen"""
    during_share: float = 0.9
    """an execution is during a collective if the collective covers at least this share of it; chosen"""
    alone_share: float = 0.02
    """an execution is alone if collectives cover at most this share of it; chosen"""


@rule(since="0.4", claims=Claims.WORK, min_share=0.01, limits=Limits)
def slowed_by_communication(work: Work, limits: Limits) -> Iterator[Hits]:
    """The same kernel takes far longer while a collective runs than alone.

    What it looks for: kernels of one name, grid and block that run both alone and during collectives. The
    rule compares the medians of both.
    Why it costs: collectives occupy SMs and memory bandwidth that the kernels need. The overlap then hides
    less than it seems to.
    Bad: 32 NCCL channels beside a GEMM that needs all SMs. Good: few channels, so that the collective ends
    when the compute does.
    How sure: both times are measured. With less interference the collective may take longer, so the saving is not sure.
    When it is wrong: the kernel's inputs differ during collectives. Shapes show this.
    Source: rebuilt from nccl issue 689; the usual interference was measured on two H200.
    """
    collectives = collectives_of(work)
    compute = work.of_kind("compute")
    if len(compute) == 0:
        raise Unavailable("no compute beside its collectives")
    kind, first = grouped([compute.name.code, compute.text("grid").code, compute.text("block").code])
    share = np.zeros(len(compute))
    for device, others in collectives.by_device():
        own, spans = compute.device == device, intervals.union(others.start_ns, others.end_ns)
        covered_ns = intervals.covered(spans, compute.start_ns[own], compute.end_ns[own])
        share[own] = covered_ns / np.maximum(compute.dur_ns[own], 1)
    beside = share >= limits.during_share
    alone, during = (
        medians_of_kinds(kind, compute.dur_ns, chosen, len(first), limits.min_executions)
        for chosen in (share <= limits.alone_share, beside)
    )
    slow = (during >= limits.min_times * alone)[kind] & beside
    for number in distinct(kind[slow]).tolist():
        pieces = compute[slow & (kind == number)]
        usual_ns = np.minimum(pieces.dur_ns, round(limits.usual_times * alone[number]))
        names = collective_names(collectives).sums(collectives.dur_ns)
        yield Hits(
            **reduce_to(pieces, usual_ns),
            named_by=pieces.name[0],
            message="{kernel} takes {during} during {collective}, and {alone} alone: {times_a_step}",
            advice="Give the collectives fewer SMs (NCCL_MAX_CTAS or fewer channels), or start them beside kernels "
            "that need few SMs and little bandwidth.",
            confidence=Confidence.MEDIUM,
            max_severity=Severity.MEDIUM,
            evidence={
                "kernel": short_kernel(pieces.name[0] or ""),
                "collective": next(iter(names)),
                "during_ns": round(float(during[number])),
                "alone_ns": round(float(alone[number])),
            },
        )
