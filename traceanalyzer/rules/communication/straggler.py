"""One rank comes late to the collectives, because of what its host does."""

from __future__ import annotations

from collections.abc import Iterator

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.behind import Behind, gap_of, names_of
from traceanalyzer.rule import Calls, Claims, Hits, Lost, rule

_NAMED = 3  # ops in a message
_LOADS = "enumerate(DataLoader)"


@rule(since="0.2", claims=Claims.NET, causes=("host-pause", "host-work", "late-input"))
def straggler(calls: Calls, behind: Behind | None) -> Iterator[Hits]:
    """One rank comes late to the collectives, because of what its host does.

    What it looks for: CPU time of a rank in ops, or in Python before an op, that its peers do not have or that takes
    them a third of it. It needs the traces of several ranks of one program.
    Why it costs: a collective ends when the last rank has come, so that all ranks take as long as the latest.
    Bad: rank 0 computes metrics on the host while the others wait. Good: every hundred steps, or on a thread.
    How sure: what it does is measured. The saving is the replay of all ranks, this one with its peers' time.
    When it is wrong: one host that is slower in everything is not told; stages of a pipeline run other programs.
    Source: measured on two H200 with torch 2.11: late input, a pause in every third step, metrics on rank 0.
    """
    if behind is None:
        raise Unavailable("one rank's trace alone, or no rank stands out: what the others do shows in theirs")
    if not behind.cpu_ns:
        return
    names = list(behind.cpu_ns)
    first = names[0]
    more, usual = sum(behind.cpu_ns.values()), sum(behind.peers_ns.get(name, 0.0) for name in names)
    cause = "late-input" if first.startswith(_LOADS) else "host-pause" if gap_of(first) else "host-work"
    where = f"in Python before {gap_of(first)}" if gap_of(first) else f"in {names_of(names, _NAMED)}"
    held = f", and the others wait {format_ns(round(behind.waits_ns))} a step for it" if behind.waits_ns else ""
    yield Hits(
        at=Calls(calls.events, behind.rows),
        by=gap_of(first) or first,
        cause=cause,
        lost=Lost.none(),
        fix=behind.edit,
        message=f"rank {behind.rank} spends {format_ns(round(more + usual))} a step {where}, "
        f"its peers {format_ns(round(usual))}{held}",
        advice="Take that work off this rank's loop: do it rarely, on a thread or another process, or share it out "
        "among the ranks.",
        evidence={
            "more_ns": round(more),
            "peers_ns": round(usual),
            "ops": {name: round(ns) for name, ns in behind.cpu_ns.items()},
            "waits_ns": round(behind.waits_ns),
        },
    )
