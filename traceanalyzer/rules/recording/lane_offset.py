"""The offset between the GPU lane and the CPU lane, and its cause."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import median
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.model.units import format_ns
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, rule
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import DeviceWork


class Limits:
    min_offset_ns: int = 100_000
    """smaller offsets are ignored; usual offsets on an idle device are 2 to 26 µs, measured on devices from
    V100 to MI300"""
    min_excess_times: float = 5.0
    """reported only if an offset is at least this many times the median offset of this trace on an idle device"""
    max_early_share: float = 0.01
    """clocks disagree if more than this share of the work starts before its launch; in 37 traces no work
    started before its launch"""


@rule(since="0.1", claims=Claims.RECORDING, min_share=0.0, limits=Limits, causes=("clock-error", "first-use"))
def lane_offset(work: Work, launches: DeviceWork, activity: Activity, limits: Limits) -> Iterator[Hits]:
    """The first kernel of an op begins long after the op has launched it.

    What it looks for: ops whose first kernel starts late although the device is idle: CUDA first has to load the
    kernel. This delay is the offset. The rule also reports clocks that disagree: work seems to start before its launch.
    Why it costs: the first use of a kernel costs time once per process (see cold-start). Wrong clocks cost
    nothing, but short delays between CPU and GPU cannot be trusted. Both findings are always info.
    Bad: recording without warm-up. Good: schedule(wait=1, warmup=3).
    How sure: CUDA 12.4 and later record the loading of kernels.
    When it is wrong: with earlier CUDA, the rule misses the first use of a kernel.
    Source: kineto issues 1020 and 1380; measured on an H200 with torch 2.11.
    """
    yield from _clock_error(work, limits)
    yield from _first_use(work, launches, activity, limits)


def _clock_error(work: Work, limits: Limits) -> Iterator[Hits]:
    """Work that starts before its launch: the two lanes' clocks disagree."""
    linked = work[work.delay_ns != NULL_INT]
    early = linked[linked.delay_ns < 0]
    if len(early) > limits.max_early_share * len(linked):
        worst_ns = int(-early.delay_ns.min())
        yield Hits(
            occurrences=early,
            cause="clock-error",
            lost=LostTime.none(),
            message="{count} of {linked} kernels and copies start before their launch, by up to {worst}: the clocks of "
            "CPU and GPU disagree, so delays between CPU and GPU are wrong by up to this time",
            advice=f"The clocks of CPU and GPU disagree by up to {format_ns(worst_ns)}: do not trust shorter delays. "
            "torch 2.4 and later align the clocks better.",
            evidence={"linked": len(linked), "worst_ns": worst_ns},
            info=True,
        )


def _first_use(work: Work, launches: DeviceWork, activity: Activity, limits: Limits) -> Iterator[Hits]:
    """From each outermost op to its first work, where something was loaded in between."""
    top = work.outer_op
    _, first = np.unique(top.rows, return_index=True)
    fresh = first[top.there[first] & (launches.outstanding[work.entries[first]] == 0)]
    starts, ends = top.start_ns[fresh], work.start_ns[fresh]
    loaded = intervals.covered(activity.sets["module_loading"], starts, ends) > 0
    usual = int(median((ends - starts)[~loaded])) if (~loaded).any() else 0
    far = loaded & (ends - starts >= max(limits.min_offset_ns, int(limits.min_excess_times * usual)))
    rows, offset = work[fresh[far]], (ends - starts)[far]
    if len(rows):
        yield Hits(
            occurrences=rows,
            cause="first-use",
            lost=LostTime.none(),
            message="kernels start up to {offset} after their op (usually {usual}), because they were "
            "loaded for the first time: {ops}",
            advice="Warm up before measuring. If the start-up time itself matters, CUDA_MODULE_LOADING=EAGER "
            "loads all kernels at the start.",
            confidence=Confidence.MEDIUM,
            evidence={
                "offset_ns": int(offset.max()),
                "usual_ns": usual,
                "ops": rows.outer_op.name.sums(offset),
            },
            related=(rows.outer_op,),
            info=True,
        )
