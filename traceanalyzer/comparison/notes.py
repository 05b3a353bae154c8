"""What makes two recordings hard to compare, such as other inputs, another GPU, or another host."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.comparison.result import WorkSide
from traceanalyzer.comparison.rows import ComparedRow
from traceanalyzer.comparison.snapshot import Snapshot
from traceanalyzer.rule.evidence import shapes_in_words

_OTHER_INPUTS = 0.3  # of the GPU time of both sides in ops that got other sizes as often as before; chosen
_AS_OFTEN = 0.02  # of all pieces of work, by which their number may differ; chosen
_PACE = 0.05  # of another pace of the host that is worth a note; chosen


def other_inputs(rows: Sequence[ComparedRow], sides: tuple[Snapshot, Snapshot]) -> str:
    """In what the two had other inputs: a sentence, empty where they had not."""
    base, new = sides
    if base.phase != new.phase or base.batch != new.batch:
        return f"the steps are of {_step(base)} and of {_step(new)}"
    total = sum(one.part.base.ns + one.part.new.ns for one in rows)
    other = [one for one in rows if one.other_inputs]
    own = sum(one.part.base.ns + one.part.new.ns for one in other)
    if not other or own < _OTHER_INPUTS * total or not _as_often(rows):
        return ""
    lead = max(other, key=lambda one: (one.part.base.ns + one.part.new.ns, one.row.op)).row
    assert lead.base is not None
    assert lead.new is not None
    shapes = [_inputs(side) for side in (lead.base, lead.new)]
    return f"other shapes: {lead.op} got {shapes[0]} and gets {shapes[1]}"


def other_grids(rows: Sequence[ComparedRow]) -> list[str]:
    """What kernels say of other inputs where the shapes were not recorded: a note, as other code may do the same."""
    work = [(one.part.base.ns + one.part.new.ns, one) for one in rows]
    own = sum(ns for ns, one in work if one.other_grids and one.row.base and not _inputs(one.row.base))
    share = own / max(sum(ns for ns, _ in work), 1.0)
    if share < _OTHER_INPUTS:
        return []
    told = f"for {share:.0%} of GPU time the same kernels ran on other grids".replace("%", " %")
    return [f"{told}: perhaps other inputs; record_shapes=True shows it"]


def _inputs(side: WorkSide) -> str:
    """The shapes of the op that took most."""
    return shapes_in_words(side.shapes.partition(" | ")[0])


def _step(side: Snapshot) -> str:
    return f"{side.phase or 'no phase'}" + f" with {side.batch} requests" * (side.batch is not None)


def _as_often(rows: Sequence[ComparedRow]) -> bool:
    """Whether both do as many pieces of work, so that only sizes differ."""
    counts = [sum(getattr(one.part, side).count for one in rows) for side in ("base", "new")]
    return bool(abs(counts[0] - counts[1]) <= _AS_OFTEN * max(counts))


def notes_of(base: Snapshot, new: Snapshot, pace: float) -> list[str]:
    """GPU, versions, what was recorded, what marks steps, and the host's pace, where they differ."""
    notes = []
    if base.gpus != new.gpus:
        notes.append(f"other GPU: {', '.join(base.gpus) or 'unknown'} and {', '.join(new.gpus) or 'unknown'}")
    for name in sorted(base.versions.keys() | new.versions.keys()):
        versions = base.versions.get(name), new.versions.get(name)
        if versions[0] != versions[1] and all(versions):
            notes.append(f"other {name}: {versions[0]} and {versions[1]}")
    if base.step_kind != new.step_kind:
        notes.append(f"steps are marked by {base.step_kind} and by {new.step_kind}")
    elif not base.marked:
        notes.append("nothing marks steps: each recording counts as one step")
    only = set(base.recorded) ^ set(new.recorded)
    if only:
        notes.append(f"recorded on one side only: {', '.join(sorted(only))}")
    if abs(pace - 1) > _PACE:
        what = f"{pace:.2f} times as long in NEW"
        notes.append(f"host: what both do took {what}; both steps are predicted for a host between the two")
    return notes
