"""The bubble of a pipeline, by stages and micro-batches."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.job.runs import PAIR, CollectiveRuns
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, median, pick
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.rule import Claims, Hits, Kind, LostTime, Unavailable, Work, rule
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.steps import Steps

_EDGE = regex(r"(\d+) to (\d+)")
# Two H200, two stages, one micro-batch: the GPUs run no compute for 55 % and 58 % of the step. With eight, the step
# is 9 % longer, because launching limits so small a model.
# Factor of micro-batches in the advice.
_MORE = 4


class Limits:
    min_bubble_share: float = 0.2
    """reported only if the bubble is at least this share of the step; with the usual four micro-batches per
    stage a bubble is always smaller; chosen"""
    tolerance_share: float = 0.05
    """reported only if the measured time without compute is at least the bubble minus this share of the step; chosen"""


@rule(since="0.2", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, kind=Kind.FACT)
def pipeline_bubble(work: Work, runs: CollectiveRuns, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """A pipeline has too few micro-batches for its stages, and each stage waits for the others.

    What it looks for: sends and receives between neighbouring ranks. With p stages (ranks) and m
    micro-batches a step, each stage is idle for (p-1)/(m+p-1) of the step. This time is the bubble. The rule
    reports the bubble if the GPU runs no compute for about this time or longer.
    Why it matters: each stage is idle for this time, whatever it computes. The schedule causes the bubble,
    not a single op. So the finding is a fact, not a fault, and always info.
    Bad: one micro-batch. Good: four times as many micro-batches as stages, or an interleaved schedule.
    How sure: sends and receives are recorded. The rule takes the number of sends in one direction as m. If
    each micro-batch sends several tensors, this m is too large, and the true bubble is larger than reported.
    When it is wrong: the micro-batches of two steps overlap, as in schedules without a flush. More
    micro-batches do not help if launching limits the step, or if kernels become too small.
    Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, 2021, section
    2.2; measured on two H200 with two stages.
    """
    place = np.flatnonzero((runs.what == PAIR) & (runs.step >= 0))
    if len(place) == 0:
        raise Unavailable("no sends and receives with both ends recorded")
    sends = work[find(work.entries, runs.entry[place])]
    stages = _stages(work, sends, runs.group[place].tolist())
    micro = largest_part(runs.group[place], runs.step[place])
    bubble, rest = ((stages - 1) / (times * micro + stages - 1) for times in (1, _MORE))
    for device, members in sends.by_device():
        idle = 1.0 - _compute_share(work, steps, int(device))
        if bubble >= limits.min_bubble_share and idle >= bubble - limits.tolerance_share:
            yield Hits(
                occurrences=members,
                lost=LostTime.none(),
                message=f"{{stages}} stages and {{micro_batches}} micro-batch{'es' * (micro != 1)} a step: at "
                f"least {{bubble}} of the step is the pipeline's bubble; this GPU is without compute for {{idle}}",
                advice=f"With {_MORE} times as many micro-batches as now, the bubble is {100 * rest:.0f} %, if each "
                "still fills the GPU and launching does not limit the step. Or use an interleaved schedule.",
                evidence={
                    "stages": stages,
                    "micro_batches": micro,
                    "bubble_share": bubble,
                    "idle_share": idle,
                    "left_share": rest,
                },
                info=True,
            )


def _stages(work: Work, sends: Work, edges: list[str]) -> int:
    """Number of the pipeline's ranks. Raises Unavailable: the group may be of other ranks, too."""
    members = sends.text("group_ranks").or_else(sends.op.text("group_ranks")).values()
    ranks = [int(item) for item in re.findall(r"\d+", str(members[0]))]
    every = work.of_kind("communication")
    inside, of_op = every.number("group_size"), ints(work.events.trace.lanes.cpu, "group_size")
    sizes = np.where((inside == NULL_INT) & every.op.there, pick(of_op, every.op.rows), inside)
    if len(set(members)) > 1 or len(ranks) < 2 or "..." in str(members[0]):
        raise Unavailable("sends and receives are in several groups, or their ranks are not recorded")
    if ((sizes > 1) & (sizes < len(ranks))).any():
        raise Unavailable(
            "other groups are smaller than the group of the sends: it may hold several pipelines"
        )
    for item, other in (map(int, stages.groups()) for edge in edges if (stages := _EDGE.fullmatch(edge))):
        if not {item, other} <= set(ranks) or (ranks.index(item) - ranks.index(other)) % len(ranks) not in (
            1,
            len(ranks) - 1,
        ):
            raise Unavailable("ranks send to others than their neighbours: the group is no pipeline")
    return len(ranks)


def largest_part(edge: NDArray[np.object_], step: Rows) -> int:
    """The size of the largest direction in the median step."""
    counts = [np.unique(step[edge == name], return_counts=True)[1] for name in dict.fromkeys(edge.tolist())]
    return max(int(median(name)) for name in counts)


def _compute_share(work: Work, steps: Steps, device: int) -> float:
    """Share of a device's step time in which it computes."""
    members = work[(work.device == device) & work.kind.one_of("compute") & (work.step >= 0)]
    busy = intervals.union(members.start_ns, members.end_ns)
    edges = steps.bounds_ns[device]
    start, end = int(edges[0]), int(edges[-1])
    return intervals.length(intervals.clip(busy, start, end)) / max(end - start, 1)
