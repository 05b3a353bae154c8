"""One rank computes more than the others, which wait for it."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.job.loads import Load, RankLoads
from traceanalyzer.model.arrays import median
from traceanalyzer.replay.edits import SplitAcrossRanks
from traceanalyzer.replay.peer_comparison import LATE_SHARE, ExcessOverPeers, late_share
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Unavailable, Work, rule
from traceanalyzer.timeline.collective_waits import collectives_of


class Limits:
    min_more_share: float = 0.1
    """reported if a rank computes longer than the others by at least this share; for equal work, the times of
    two H200 differ by up to 6 %"""
    min_step_share: float = 0.042
    """if the other ranks wait for most of the difference, it needs to be only this share of the step, even if
    min_more_share does not hold; two H200 of a healthy job differ by up to 4.03 %"""
    min_errors: float = 3.0
    """reported only if the difference between ranks is at least this many times its standard error, because
    steps vary by chance; the usual three-sigma rule"""


# Share of the rank's additional compute; chosen.
_MOST = 0.5
_SLOWER = "slower-kernels"
_LOOK = "This rank's GPU is slower: look at its clocks, power and temperature (nvidia-smi -q), and for other "
_LOOK += "processes on it. If its inputs are larger, balance the work."


@rule(since="0.1", claims=Claims.GENERAL, min_share=0.01, limits=Limits, causes=("slower-kernels",))
def load_imbalance(work: Work, loads: RankLoads | None, lag: ExcessOverPeers | None, limits: Limits) -> Iterator[Hits]:
    """One rank computes more than the others, which wait for it.

    What it looks for: a rank whose kernels compute longer per step than the median of the other ranks. The
    rule needs the traces of several ranks.
    Why it costs: a collective ends only after the last rank has arrived. So the slowest rank sets the length
    of the step.
    Bad: all ranks get the same number of samples, but those of one rank are longer; a few experts get most
    tokens. Good: equal numbers of tokens on all ranks.
    How sure: the times are measured. The rank may have more work or a slower GPU, so confidence is medium.
    The saving is simulated with a balanced load.
    When it is wrong: in pipeline parallelism the stages may have different layers on purpose.
    Source: measured on two H200 with torch 2.11.
    """
    collectives_of(work)  # a trace without any is of no job, and that is the reason that helps
    if loads is None:
        raise Unavailable("only one rank's trace, or no marked steps; pass the traces of all ranks to compare them")
    members, remainder = loads.of[loads.rank], loads.others
    mean = float(np.mean([other.compute_ns for other in remainder]))
    if not stands_out(members, remainder, limits):
        return
    collectives = work.of_kind("compute")
    if len(collectives) == 0:
        raise Unavailable("no compute kernels in the trace")
    slower = lag is not None and lag.same_kernels and lag.computes_more
    late = late_share(members.compute_ns - mean, members.held_ns, members.step_ns)
    names = [str(rank) for rank in loads.of if rank != loads.rank]
    peers = f"rank {names[0]}" if len(names) == 1 else f"the other {len(names)} on average"
    rest = (mean if slower else loads.mean_compute_ns) / members.compute_ns
    yield Hits(
        occurrences=collectives,
        lost=LostTime.excess(collectives, (collectives.dur_ns * (1 - rest)).astype(np.int64)),
        of_job=late >= limits.min_step_share,
        fix=SplitAcrossRanks(collectives.entries, rest),
        cause=_SLOWER if slower else "",
        confidence=Confidence.MEDIUM,
        message=f"rank {loads.rank} computes {{own}} a step, {peers} {{others}}: "
        + ("the same number of kernels takes longer" if slower else "balanced, each would take {mean}"),
        advice=_LOOK
        if slower
        else "Balance the work: samples by length, experts by tokens (an auxiliary loss, a capacity), stages of "
        "equal time. If this rank runs the same kernels on the same shapes, its GPU is slower: look at its "
        "clocks, and for other processes on it.",
        evidence={
            "own_ns": round(members.compute_ns),
            "others_ns": round(mean),
            "mean_ns": round(loads.mean_compute_ns),
            "ranks": {f"rank {rank}": round(load.compute_ns) for rank, load in loads.of.items()},
            "waiting_ns": {f"rank {rank}": round(load.waiting_ns) for rank, load in loads.of.items()},
            LATE_SHARE: late,
        },
    )


def stands_out(load: Load, peers: Sequence[Load], limits: Limits) -> bool:
    """True if the rank computes well more than most others, and does not wait for them.

    A waiting collective slows down compute. A rank that waits longer than its additional compute is not late.
    """
    usual, waiting_ns = (median([getattr(peer, name) for peer in peers]) for name in ("compute_ns", "waiting_ns"))
    more_ns = load.compute_ns - usual
    error_ns = math.hypot(load.error_ns, *(peer.error_ns / len(peers) for peer in peers))
    held_up = more_ns >= limits.min_step_share * load.step_ns and load.held_ns >= _MOST * more_ns
    return (
        (more_ns >= limits.min_more_share * usual or held_up)
        and more_ns >= limits.min_errors * error_ns
        and load.waiting_ns - waiting_ns <= more_ns
    )
