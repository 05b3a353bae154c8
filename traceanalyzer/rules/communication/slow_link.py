"""A link moves data more slowly than its peers."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.job.links import RankLinks
from traceanalyzer.job.loads import RankLoads
from traceanalyzer.model.arrays import distinct
from traceanalyzer.replay.edits import Resize
from traceanalyzer.replay.peer_comparison import LATE_SHARE, late_share
from traceanalyzer.rule import Claims, Hits, LostTime, Unavailable, Work, rule
from traceanalyzer.timeline.collective_waits import CollectiveWaits, collectives_of, without_waiting
from traceanalyzer.timeline.device_work import find


@rule(since="0.2", claims=Claims.EVENT, causes=("pair", "group"))
def slow_link(
    work: Work, links: RankLinks | None, waits: CollectiveWaits | None, loads: RankLoads | None
) -> Iterator[Hits]:
    """One link between GPUs moves data more slowly than the other links.

    What it looks for: two ranks that leave all-to-alls later than the other ranks. The delay grows with the amount of
    data. The rule also finds process groups with far less bandwidth than other groups of the same size.
    Why it costs: the next collective waits for the ranks that are late.
    Bad: a link with lost lanes, or a pair of devices without peer access. Good: equally fast links.
    How sure: times are measured on aligned clocks.
    When it is wrong: some ranks receive more data than the others in every all-to-all. Or the slower groups
    connect different hosts, and the faster groups do not.
    Source: tested on jobs of 4 V100 and 8 H200 with equally fast links, without a false alarm.
    """
    collectives_of(work)
    if links is None:
        raise Unavailable(
            "no links to compare: the rule needs four ranks in one long all-to-all, or three groups with equal "
            "collectives of equal size"
        )
    step_ns = 0.0 if loads is None else loads.of[loads.rank].step_ns
    # over equally fast links, the ranks' ends of one collective differ by at most 3 % of its transfer time
    for link in links.slow:
        collectives = work[np.isin(work.entries, link.entry)]
        if not len(collectives):
            continue
        more_ns = link.more_ns[find(link.entry, collectives.entries)]
        more = float(more_ns.sum()) / max(len(distinct(collectives.step)), 1)
        names = " and ".join(map(str, link.ranks))
        pair = link.group is None
        yield Hits(
            occurrences=collectives,
            named_by=f"ranks {names}" if pair else link.group,
            cause="pair" if pair else "group",
            lost=LostTime.excess(collectives, more_ns),
            of_job=True,
            fix=Resize(collectives.entries, (without_waiting(collectives, waits) - more_ns).astype(np.float64)),
            message="{where}: {what} {count} times, {part} longer than over the other links, {more} a step",
            advice="Check what connects these ranks: nvidia-smi nvlink --status, nvidia-smi topo -m, errors and speed "
            "of the network cards (ibstat, ethtool), and nccl-tests between the two hosts or devices. NCCL_DEBUG=INFO "
            "says which transport NCCL took: without peer access data goes through the host.",
            evidence={
                "where": f"link between ranks {names}" if pair else f"group {link.group}",
                "what": link.collective or "exchanges",
                "part": f"{link.part:.0%}".replace("%", " %"),
                "more_ns": round(more),
                "longer_times": 1 + link.part,
                LATE_SHARE: late_share(more, more, step_ns) if step_ns else 0.0,
            },
        )
