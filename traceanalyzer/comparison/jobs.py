"""Comparison of jobs: how each rank changed, which rank delays the others, and which exists on one side only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.result import RankChange, Word
from traceanalyzer.comparison.snapshot import rows_of
from traceanalyzer.comparison.step_axis import step_axis
from traceanalyzer.model.units import format_ns

Ranks = Mapping[int | None, Captures]
Shares = Mapping[str, float]

_SAME_KIND = 0.8  # of the GPU time, in the same ops, for ranks to have one role; chosen


def roles_of(base: Ranks, new: Ranks) -> tuple[Mapping[int | None, int], Mapping[int | None, int]]:
    """Of each side rank -> number of its role, from 0; the same number where both sides have the role.

    Roles of the two sides are the same where they do the same work, else where they have most ranks in common: another
    compiler or kernel gives no other role.
    """
    groups = _groups(base), _groups(new)
    scores = [
        (-role_score(group, other), i, j)
        for i, group in enumerate(groups[0])
        for j, other in enumerate(groups[1])
    ]
    number: dict[int, int] = {}
    for score, i, j in sorted(scores):
        if score < 0 and j not in number and i not in number.values():
            number[j] = i
    for j in range(len(groups[1])):
        number.setdefault(j, max(len(groups[0]) - 1, *number.values(), 0) + 1)
    of_base = {rank: i for i, (ranks, _) in enumerate(groups[0]) for rank in ranks}
    return of_base, {rank: number[j] for j, (ranks, _) in enumerate(groups[1]) for rank in ranks}


Group = tuple[list[int | None], Shares]


def _groups(side: Ranks) -> list[Group]:
    groups: list[Group] = []
    for rank in sorted(side, key=lambda rank: -1 if rank is None else rank):
        shares = _shares(side[rank])
        own = next((ranks for ranks, other in groups if common_share(shares, other) >= _SAME_KIND), None)
        if own is None:
            groups.append(([rank], shares))
        else:
            own.append(rank)
    return groups


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


def role_score(one: Group, other: Group) -> float:
    ranks = len(set(one[0]) & set(other[0])) / len({*one[0], *other[0]})
    return 2 * common_share(one[1], other[1]) + ranks


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
    found, roles = [], roles_of(base, new)
    for rank in sorted({*base, *new}, key=lambda rank: -1 if rank is None else rank):
        sides, own = (base.get(rank), new.get(rank)), (roles[0].get(rank), roles[1].get(rank))
        step = None
        if sides[0] is not None and sides[1] is not None and own[0] == own[1]:
            step = step_axis(sides[0], sides[1], None, True)
        ns = [None if side is None or side.together.step is None else side.together.step.ns for side in sides]
        waits = [None if side is None else side.together.waiting_ns for side in sides]
        word = step.word if step else Word.UNKNOWN
        found.append(RankChange(rank, own, ns[0], ns[1], waits[0], waits[1], word))
    return tuple(found)


def job_notes(base: Ranks, new: Ranks, ranks: Sequence[RankChange]) -> list[str]:
    """Ranks of one side only, ranks of other work, and who became late, or is late no more."""
    notes = []
    for name, own, other in (("BASE", base, new), ("NEW", new, base)):
        only = sorted(rank for rank in own if rank not in other and rank is not None)
        if only and len(own) + len(other) > 2:
            notes.append(f"ranks in {name} only: {', '.join(map(str, only))}")
    notes += _other_work(ranks, (slowest(base), slowest(new)))
    before, after = _late(base), _late(new)
    notes += [f"rank {rank} became late{_waited(ranks, rank, 1)}" for rank in after if rank not in before]
    notes += [f"rank {rank} is late no more{_waited(ranks, rank, 0)}" for rank in before if rank not in after]
    return notes + [_still(ranks, rank) for rank in before if rank in after]


def _late(side: Ranks) -> list[int | None]:
    return [rank for rank, captures in side.items() if any(one.culprit for one in captures.each)]


def _still(ranks: Sequence[RankChange], rank: int | None) -> str:
    times = [_more_ns(ranks, rank, at) for at in (0, 1)]
    waits = (
        ""
        if None in times
        else f": others wait {format_ns(times[0] or 0)} and {format_ns(times[1] or 0)} a step for it"
    )
    return f"rank {rank} is late in both{waits}"


def _waited(ranks: Sequence[RankChange], rank: int | None, at: int) -> str:
    ns = _more_ns(ranks, rank, at)
    return (
        "" if ns is None else f": others {('waited', 'wait')[at]} up to {format_ns(ns)} a step more than it"
    )


def _more_ns(ranks: Sequence[RankChange], rank: int | None, at: int) -> int | None:
    """How much longer than the rank another one waits in a recorded step, in BASE (0) or NEW (1); None if unknown."""
    waits = {one.rank: (one.base_waiting_ns, one.new_waiting_ns)[at] for one in ranks}
    known = [ns for ns in waits.values() if ns is not None]
    own = waits.get(rank)
    return max(known) - own if own is not None else None


def _other_work(ranks: Sequence[RankChange], compared: tuple[int | None, int | None]) -> list[str]:
    """Ranks that changed their role, and whether those that set the pace are of two roles."""
    moved = [rank.rank for rank in ranks if None not in rank.roles and rank.roles[0] != rank.roles[1]]
    notes = [f"ranks that do other work in NEW: {', '.join(map(str, moved))}"] if moved else []
    roles = {rank.rank: rank.roles for rank in ranks}
    if compared[0] != compared[1] and roles[compared[0]][0] != roles[compared[1]][1]:
        who = f"rank {compared[0]} in BASE and rank {compared[1]} in NEW"
        notes.append(f"{who} set the pace and do other work: the comparison is not of the same work")
    return notes
