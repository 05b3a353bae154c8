"""One rank does other work than its peers, which wait for it."""

import re
from collections.abc import Iterator

import numpy as np

from traceanalyzer.job.loads import RankLoads
from traceanalyzer.model.arrays import Rows, median
from traceanalyzer.model.short_names import block_words
from traceanalyzer.model.units import format_bytes, format_ns
from traceanalyzer.regions.regions import Regions
from traceanalyzer.replay.peer_comparison import LATE_SHARE, ExcessOverPeers, gap_of
from traceanalyzer.rule import Calls, Claims, Hits, Unavailable, Work, rule

# Places in a message.
_NAMED = 3
_WIDTH = 36  # letters of a repeated block
_LOADS = "enumerate(DataLoader)"
_BY_WORKERS = "Load in other processes, DataLoader(num_workers=4 or more). Or: "
# Bytes to the host in a step, before its host ops. Fewer are single values; chosen.
_COPIED_BYTES = 4_096
_RARELY = "do it rarely, or in another process (a thread of the same process still competes for the GIL)"
_ON_DEVICE = f"Compute it on the device, and read back only the result. Or {_RARELY}."
_ELSEWHERE = f"Share that work among the ranks, or move it out of this rank's loop: {_RARELY}."


@rule(since="0.2", claims=Claims.CATCH_ALL, causes=("host-pause", "host-work", "late-input", "more-work"))
def straggler(
    calls: Calls, work: Work, lag: ExcessOverPeers | None, loads: RankLoads | None, regions: Regions | None
) -> Iterator[Hits]:
    """One rank does work that the other ranks do not do, and they wait for it.

    What it looks for: ops, Python code or pauses of the CPU that take much more time on one rank. The rule
    needs the traces of several ranks of one program.
    Why it costs: a collective ends only after the last rank has arrived. So all ranks take as long as the slowest rank.
    Bad: rank 0 computes metrics on the host while the others wait. Good: compute metrics every hundred steps,
    or in another process.
    How sure: the rank's time is measured. For the saving, all ranks are simulated, with this rank as fast as
    the others.
    When it is wrong: the ranks do different work on purpose, such as stages of a pipeline.
    Source: measured on two H200 with torch 2.11, in jobs with late input, with pauses of one rank, and with
    metrics on rank 0.
    """
    if lag is None and loads is not None:
        raise Unavailable("no rank does more than its peers, as far as they can be compared")
    if lag is None:
        raise Unavailable("only one rank's trace: pass the traces of all ranks to compare them")
    if not lag.cpu_ns:
        return
    names = list(lag.cpu_ns)
    more, usual = sum(lag.cpu_ns.values()), sum(lag.peers_ns.get(name, 0.0) for name in names)
    extra_calls = Calls(calls.events, lag.rows)
    loading = calls[calls.name.matches(f"^{re.escape(_LOADS)}")]
    loads_data = len(extra_calls) > 0 and bool(extra_calls.inside(loading).all())
    copied = _copied_bytes(extra_calls, work) if gap_of(names[0]) is None else 0
    copied = copied if copied >= _COPIED_BYTES else 0
    region = region_around(regions, extra_calls.start_ns - bool(gap_of(names[0])))
    inside = ", inside the DataLoader's __next__" if loads_data else f" within {region}" * bool(region)
    yield Hits(
        occurrences=extra_calls,
        named_by=gap_of(names[0]) or names[0],
        cause=straggler_cause(lag, names[0]),
        of_job=True,
        fix=lag.edit,
        message=straggler_message(lag, names, more, usual, copied, inside),
        advice=_BY_WORKERS * loads_data + (_ON_DEVICE if copied else _ELSEWHERE),
        evidence={
            "more_ns": round(more),
            "peers_ns": round(usual),
            "ops": {name: round(ns) for name, ns in lag.cpu_ns.items()},
            "waits_ns": round(lag.waits_ns),
            LATE_SHARE: lag.late_share,
            **({"copied_bytes": copied} if copied else {}),
            **({"region": region} if region else {}),
        },
    )


def region_around(regions: Regions | None, instants: Rows) -> str:
    """The region of the code, no op, in which the CPU is at most of these instants; empty outside of all."""
    if regions is None or len(instants) == 0:
        return ""
    tree, around = regions.tree, [0]
    for node in range(1, len(tree.parent)):
        inner = tree.kind[node] in ("op", "backward", "wrapper")
        around.append(around[tree.parent[node]] if inner else node)
    node = int(np.bincount(np.array(around)[tree.pieces.node[tree.pieces.at(instants)]]).argmax())
    if tree.kind[node] == "block":
        return block_words(tree.calls[node] / regions.steps, tree.name[node], _WIDTH)
    return tree.name[node] if node else ""


def _copied_bytes(extra_calls: Calls, work: Work) -> int:
    """Bytes copied to the host in the median step before ops that launch nothing; 0 if ops launch work."""
    if len(extra_calls) == 0 or len(extra_calls.launched()[0]):
        return 0
    last = {step: int(end) for step, end in zip(extra_calls.step.tolist(), extra_calls.end_ns.tolist(), strict=True)}
    copies = work.of_kind("copy_d2h")
    begun = np.array([last.get(step, -1) for step in copies.step.tolist()], np.int64)
    before = copies[(copies.launch.start_ns < begun) & (copies.launch.thread == extra_calls.thread[0])]
    return int(median([before.bytes[before.step == step].sum() for step in last]))


def straggler_cause(lag: ExcessOverPeers, first: str) -> str:
    if lag.computes_more and lag.compute_ns - lag.peers_compute_ns >= sum(lag.cpu_ns.values()):
        return "more-work"
    if first.startswith(_LOADS):
        return "late-input"
    return "host-pause" if gap_of(first) else "host-work"


def straggler_message(
    lag: ExcessOverPeers, names: list[str], more: float, usual: float, copied: int, inside: str
) -> str:
    where = _place_text(names[0])
    if len(names) > 1:
        spent = [(lag.cpu_ns[name] + lag.peers_ns.get(name, 0.0), name) for name in names]
        parts = ", ".join(f"{_ms_text(ns)} {_place_text(name)}" for ns, name in spent[:_NAMED])
        where = f"at {len(names)} places ({parts}{', ...' if len(names) > _NAMED else ''})"
    where += " on the CPU" if copied else ""
    rest = _ms_text(usual) if round(usual) else "none"
    text = f"rank {lag.rank} spends {_ms_text(more + usual)} a step {where}{inside}, the other ranks {rest}"
    text += f"; it copies {format_bytes(copied)} to the host for that" if copied else ""
    if lag.computes_more:
        text += f"; its GPU computes {_ms_text(lag.compute_ns)}, the other GPUs {_ms_text(lag.peers_compute_ns)}"
    return text + (f"; the other ranks wait {_ms_text(lag.waits_ns)} a step for it" if lag.waits_ns else "")


def _place_text(name: str) -> str:
    """`in aten::copy_`, `in Python before aten::mm`."""
    return f"in Python before {gap_of(name)}" if gap_of(name) else f"in {name}"


def _ms_text(ns: float) -> str:
    return format_ns(round(ns))
