"""Comparison of jobs: how each rank changed, which rank delays the others, and which exists on one side only."""

from collections.abc import Mapping, Sequence

from traceanalyzer.comparison.result import RankChange, Word
from traceanalyzer.comparison.snapshot import Captures, rows_of
from traceanalyzer.comparison.step_axis import step_axis
from traceanalyzer.model.units import format_ns

Ranks = Mapping[int | None, Captures]
Shares = Mapping[str, float]

_SAME_KIND = 0.8  # of the GPU time, in the same ops, for ranks to have one role; chosen


def other_work(rank: int | None, base: Mapping[int | None, Shares], new: Mapping[int | None, Shares]) -> bool:
    """True if the rank does in NEW what another rank, and not this one, did in BASE."""
    if rank not in base or rank not in new or common_share(base[rank], new[rank]) >= _SAME_KIND:
        return False
    return any(common_share(shares, new[rank]) >= _SAME_KIND for shares in base.values())


def _shares(captures: Captures) -> Shares:
    """Op, or kernel without one -> its share of the time of computing."""
    result: dict[str, float] = {}
    for row in rows_of(captures.together.tables["work"]):
        if row.kind == "compute":
            name = str(row.outer or row.kernel)
            result[name] = result.get(name, 0.0) + float(row.ns)
    total = sum(result.values())
    return {name: ns / total for name, ns in result.items()} if total else {}


def common_share(one: Shares, other: Shares) -> float:
    """Share of the time that both have in the same ops; 1 where neither computes."""
    if not one and not other:
        return 1.0
    return sum(min(share, other.get(name, 0.0)) for name, share in one.items())


_ALIKE = 0.05  # of the step: ranks so near are alike, as in report/slowest.py


def slowest(side: Ranks) -> int | None:
    """The rank that sets the job's pace: of those that take about as long as the longest the one that waits least."""
    longest = max(_step_ns(one) for one in side.values())
    near = [rank for rank, one in side.items() if _step_ns(one) >= (1 - _ALIKE) * longest]
    waits = {rank: side[rank].together.waiting_ns for rank in near}
    if any(ns is None for ns in waits.values()):
        return max(near, key=lambda rank: _step_ns(side[rank]))
    return min(near, key=lambda rank: waits[rank] or 0)


def _step_ns(side: Captures) -> int:
    return side.together.step.ns if side.together.step else 0


def rank_changes(base: Ranks, new: Ranks) -> tuple[RankChange, ...]:
    """All ranks of both jobs, and how their steps changed; nothing is said of a rank that does other work in NEW."""
    found = []
    shares = [{rank: _shares(captures) for rank, captures in side.items()} for side in (base, new)]
    for rank in sorted({*base, *new}, key=lambda rank: -1 if rank is None else rank):
        sides, other = (base.get(rank), new.get(rank)), other_work(rank, shares[0], shares[1])
        step = None
        if sides[0] is not None and sides[1] is not None and not other:
            step = step_axis(sides[0], sides[1], None, True)
        ns = [None if side is None or side.together.step is None else side.together.step.ns for side in sides]
        waits = [None if side is None else side.together.waiting_ns for side in sides]
        word = step.word if step else Word.UNKNOWN
        found.append(RankChange(rank, other, ns[0], ns[1], waits[0], waits[1], word))
    return tuple(found)


def job_notes(base: Ranks, new: Ranks, ranks: Sequence[RankChange]) -> list[str]:
    """Ranks of one side only, ranks of other work, and who became late, or is late no more."""
    notes = []
    for name, own, other in (("BASE", base, new), ("NEW", new, base)):
        only = sorted(rank for rank in own if rank not in other and rank is not None)
        if only and len(own) + len(other) > 2:
            notes.append(f"ranks in {name} only: {', '.join(map(str, only))}")
    if moved := [one.rank for one in ranks if one.other_work]:
        notes.append(f"ranks that do other work in NEW: {', '.join(map(str, moved))}")
    pace = slowest(base), slowest(new)
    if _differ(base, *pace) or _differ(new, *pace):
        who = f"rank {pace[0]} in BASE and rank {pace[1]} in NEW"
        notes.append(f"{who} set the pace and do other work: the comparison is not of the same work")
    before, after = _late(base), _late(new)
    notes += [f"rank {rank} became late{_waited(ranks, rank, 1)}" for rank in after if rank not in before]
    notes += [f"rank {rank} is late no more{_waited(ranks, rank, 0)}" for rank in before if rank not in after]
    for rank in before:
        if rank in after:
            base_ns, new_ns = (_more_ns(ranks, rank, at) for at in (0, 1))
            waits = ""
            if base_ns is not None and new_ns is not None:
                waits = f": others wait {format_ns(base_ns)} and {format_ns(new_ns)} a step for it"
            notes.append(f"rank {rank} is late in both{waits}")
    return notes


def _late(side: Ranks) -> list[int | None]:
    return [rank for rank, captures in side.items() if any(one.culprit for one in captures.each)]


def _waited(ranks: Sequence[RankChange], rank: int | None, at: int) -> str:
    if (ns := _more_ns(ranks, rank, at)) is None:
        return ""
    return f": others {('waited', 'wait')[at]} up to {format_ns(ns)} a step more than it"


def _more_ns(ranks: Sequence[RankChange], rank: int | None, at: int) -> int | None:
    """How much longer than the rank another one waits in a recorded step, in BASE (0) or NEW (1); None if unknown."""
    waits = {one.rank: (one.base_waiting_ns, one.new_waiting_ns)[at] for one in ranks}
    known = [ns for ns in waits.values() if ns is not None]
    own = waits.get(rank)
    return max(known) - own if own is not None else None


def _differ(side: Ranks, rank: int | None, other: int | None) -> bool:
    """Whether two ranks of one side do other work; False if the side lacks one of them."""
    both = [_shares(side[one]) for one in (rank, other) if one in side]
    return len(both) > 1 and common_share(*both) < _SAME_KIND
