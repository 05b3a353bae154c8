"""Jobs of several ranks: how each changed, who the others wait for, and who is missing on one side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.comparison.merging import Captures
from traceanalyzer.comparison.result import RankChange, Word
from traceanalyzer.comparison.step_axis import step_axis
from traceanalyzer.model.units import format_ns

Ranks = Mapping[int | None, Captures]

_LATE_SHARE = (
    0.2  # of the step, that others must wait for a rank to be late: under the profiler all wait; chosen
)
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
    """All ranks of both jobs, and how their steps changed."""
    found = []
    for rank in sorted({*base, *new}, key=lambda rank: -1 if rank is None else rank):
        sides = base.get(rank), new.get(rank)
        step = None if sides[0] is None or sides[1] is None else step_axis(sides[0], sides[1], None, True)
        ns = [None if one is None or one.together.step is None else one.together.step.ns for one in sides]
        waits = [None if one is None else one.together.waiting_ns for one in sides]
        word = step.word if step else Word.UNKNOWN
        found.append(RankChange(rank, ns[0], ns[1], waits[0], waits[1], word))
    return tuple(found)


def job_notes(base: Ranks, new: Ranks, ranks: Sequence[RankChange]) -> list[str]:
    """Ranks of one side only, and who became late, or is late no more."""
    notes = []
    for name, own, other in (("BASE", base, new), ("NEW", new, base)):
        only = sorted(rank for rank in own if rank not in other and rank is not None)
        if only and len(own) + len(other) > 2:
            notes.append(f"ranks in {name} only: {', '.join(map(str, only))}")
    before = _late([(one.rank, one.base_waiting_ns, one.base_ns) for one in ranks])
    after = _late([(one.rank, one.new_waiting_ns, one.new_ns) for one in ranks])
    if before == after or (before and after and before[0] == after[0]):
        return notes
    if after:
        notes.append(
            f"rank {after[0]} became late: others wait up to {format_ns(after[1])} a step more than it"
        )
    if before:
        notes.append(
            f"rank {before[0]} is late no more: others waited up to {format_ns(before[1])} a step for it"
        )
    return notes


def _late(ranks: Sequence[tuple[int | None, int | None, int | None]]) -> tuple[int | None, int] | None:
    """(the rank that waits least, how much longer another waits); None where none is late, or waiting is unknown."""
    known = [(waits, rank) for rank, waits, _ in ranks if waits is not None]
    if len(known) < 2 or len(known) < len(ranks):
        return None
    least, most = min(known, key=lambda one: one[0]), max(known, key=lambda one: one[0])
    steps = {rank: ns or 0 for rank, _, ns in ranks}
    longest = max(steps.values())
    late = most[0] - least[0] > _LATE_SHARE * longest and steps[least[1]] >= (1 - _ALIKE) * longest
    return (least[1], most[0] - least[0]) if late else None
