"""One rank does what its peers do not, and they wait for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceanalyzer.job.loads import RankLoads
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.units import format_bytes, format_ns
from traceanalyzer.replay.peer_comparison import LATE_SHARE, ExcessOverPeers
from traceanalyzer.replay.step_breakdown import gap_of
from traceanalyzer.rule import Calls, Claims, Hits, LostTime, Work, rule

_NAMED = 3  # places in a message
_LOADS = "enumerate(DataLoader)"
_BY_WORKERS = "Load in other processes, DataLoader(num_workers=4 or more). Or: "
_COPIED_BYTES = 4_096  # to the host in a step, before its ops there: fewer are single values; chosen
_RARELY = (
    "do it rarely, or in another process (Python on another thread would still hold up the launching thread)"
)
_ON_DEVICE = f"Compute it on the device, and read back only the result. Or {_RARELY}."
_ELSEWHERE = f"Share that work among the ranks, or move it out of this rank's loop: {_RARELY}."


@rule(
    since="0.2",
    claims=Claims.CATCH_ALL,
    causes=("host-pause", "host-work", "late-input", "more-work"),
)
def straggler(
    calls: Calls, work: Work, behind: ExcessOverPeers | None, loads: RankLoads | None
) -> Iterator[Hits]:
    """One rank does work that the other ranks do not do, and they wait for it.

    What it looks for: ops, Python code or pauses of the CPU that take much more time on one rank. The rule
    needs the traces of several ranks of one program.
    Why it costs: a collective ends only after the last rank has arrived. So all ranks take as long as the
    slowest rank.
    Bad: rank 0 computes metrics on the host while the others wait. Good: compute metrics every hundred steps,
    or in another process.
    How sure: the rank's time is measured. For the saving, all ranks are simulated, with this rank as fast as
    the others.
    When it is wrong: the ranks do different work on purpose, such as stages of a pipeline.
    Source: measured on two H200 with torch 2.11, in jobs with late input, with pauses of one rank, and with
    metrics on rank 0.
    """
    if behind is None and loads is not None:
        raise Unavailable("no rank does more than its peers, as far as they can be compared")
    if behind is None:
        raise Unavailable("only one rank's trace: pass the traces of all ranks to compare them")
    if not behind.cpu_ns:
        return
    names = list(behind.cpu_ns)
    more, usual = sum(behind.cpu_ns.values()), sum(behind.peers_ns.get(name, 0.0) for name in names)
    found = Calls(calls.events, behind.rows)
    loading = calls[calls.name.matches(f"^{re.escape(_LOADS)}")]
    loads_data = len(found) > 0 and bool(found.inside(loading).all())
    copied = _copied_bytes(found, work)
    copies = copied >= _COPIED_BYTES and gap_of(names[0]) is None
    yield Hits(
        occurrences=found,
        named_by=gap_of(names[0]) or names[0],
        cause=_cause(behind, names[0]),
        lost=LostTime.none(),
        of_job=True,
        fix=behind.edit,
        message=_message(
            behind,
            names,
            more,
            usual,
            copied if copies else 0,
            ", inside the DataLoader's __next__" * loads_data,
        ),
        advice=_BY_WORKERS * loads_data + (_ON_DEVICE if copies else _ELSEWHERE),
        evidence={
            "more_ns": round(more),
            "peers_ns": round(usual),
            "ops": {name: round(ns) for name, ns in behind.cpu_ns.items()},
            "waits_ns": round(behind.waits_ns),
            LATE_SHARE: behind.late_share,
            **({"copied_bytes": copied} if copies else {}),
        },
    )


def _copied_bytes(found: Calls, work: Work) -> int:
    """Bytes copied to the host in the median step before ops that launch nothing; 0 where they launch."""
    if len(found) == 0 or len(found.launched()[0]):
        return 0
    last = {step: int(end) for step, end in zip(found.step.tolist(), found.end_ns.tolist(), strict=True)}
    copies = work.of_kind("copy_d2h")
    begun = np.array([last.get(step, -1) for step in copies.step.tolist()], np.int64)
    before = copies[(copies.launch.start_ns < begun) & (copies.launch.thread == found.thread[0])]
    return int(np.median([before.bytes[before.step == step].sum() for step in last]))


def _cause(behind: ExcessOverPeers, first: str) -> str:
    if behind.computes_more and behind.compute_ns - behind.peers_compute_ns >= sum(behind.cpu_ns.values()):
        return "more-work"
    if first.startswith(_LOADS):
        return "late-input"
    return "host-pause" if gap_of(first) else "host-work"


def _message(
    behind: ExcessOverPeers, names: list[str], more: float, usual: float, copied: int, inside: str
) -> str:
    where = _place(names[0])
    if len(names) > 1:
        spent = [(behind.cpu_ns[name] + behind.peers_ns.get(name, 0.0), name) for name in names]
        parts = ", ".join(f"{_ms(ns)} {_place(name)}" for ns, name in spent[:_NAMED])
        where = f"at {len(names)} places ({parts}{', ...' if len(names) > _NAMED else ''})"
    where += " on the CPU" if copied else ""
    others = _ms(usual) if round(usual) else "none"
    said = f"rank {behind.rank} spends {_ms(more + usual)} a step {where}{inside}, the other ranks {others}"
    said += f"; it copies {format_bytes(copied)} to the host for that" if copied else ""
    if behind.computes_more:
        said += f"; its GPU computes {_ms(behind.compute_ns)}, the other GPUs {_ms(behind.peers_compute_ns)}"
    return said + (f"; the other ranks wait {_ms(behind.waits_ns)} a step for it" if behind.waits_ns else "")


def _place(name: str) -> str:
    """`in aten::copy_`, `in Python before aten::mm`."""
    return f"in Python before {gap_of(name)}" if gap_of(name) else f"in {name}"


def _ms(ns: float) -> str:
    return format_ns(round(ns))
