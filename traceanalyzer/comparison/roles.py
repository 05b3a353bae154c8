"""Ranks that do the same work: stages of a pipeline, or a rank with work of its own."""

from __future__ import annotations

from collections.abc import Mapping

from traceanalyzer.comparison.merging import Captures
from traceanalyzer.comparison.snapshot import rows_of

Ranks = Mapping[int | None, Captures]
Shares = Mapping[str, float]

_ALIKE = 0.8  # of the GPU time, in the same ops, for ranks to have one role; chosen


def roles_of(base: Ranks, new: Ranks) -> tuple[Mapping[int | None, int], Mapping[int | None, int]]:
    """Of each side rank -> number of its role, from 0; the same number where both sides have the role.

    Roles of the two sides are the same where they do the same work, else where they have most ranks in common: another
    compiler or kernel gives no other role.
    """
    groups = _groups(base), _groups(new)
    scores = [
        (-_score(one, other), i, j) for i, one in enumerate(groups[0]) for j, other in enumerate(groups[1])
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
    """Ranks of one role with the work of the first of them, by rank."""
    groups: list[Group] = []
    for rank in sorted(side, key=lambda rank: -1 if rank is None else rank):
        shares = _shares(side[rank])
        own = next((ranks for ranks, other in groups if _common(shares, other) >= _ALIKE), None)
        if own is None:
            groups.append(([rank], shares))
        else:
            own.append(rank)
    return groups


def _shares(captures: Captures) -> Shares:
    """Op, or kernel without one -> its share of the time of computing."""
    found: dict[str, float] = {}
    for row in rows_of(captures.together.tables["work"]):
        if row.kind == "compute":
            name = str(row.outer or row.kernel)
            found[name] = found.get(name, 0.0) + float(row.ns)
    total = sum(found.values())
    return {name: ns / total for name, ns in found.items()} if total else {}


def _common(one: Shares, other: Shares) -> float:
    """Share of the time that both have in the same ops; 1 where neither computes."""
    if not one and not other:
        return 1.0
    return sum(min(share, other.get(name, 0.0)) for name, share in one.items())


def _score(one: Group, other: Group) -> float:
    ranks = len(set(one[0]) & set(other[0])) / len({*one[0], *other[0]})
    return 2 * _common(one[1], other[1]) + ranks
