"""What fixes change is looked at once: rows of the trace, and some of the occurrences or of what they lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, distinct_pairs
from traceanalyzer.replay.edit_values import as_ints
from traceanalyzer.replay.edits import Drop, DropSpans, Edit, Resize, Scale, ShrinkGaps
from traceanalyzer.replay.rewrites import Fuse
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.limits import LEAST_NS
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.selection import bounds_of

_SHORT_NS = (
    10_000_000  # a fix may leave this much in a trace that is shorter: ten times what any rule adds; chosen
)
_ROUNDING_NS = 1.0  # of durations that are quotients
_NEVER_SHORT = ("work_ns", "cpu_ns")  # a kernel takes 1 us or more, an op on the CPU, too
_DURATIONS = ("dur_ns", "work_ns", "cpu_ns", "leaving_ns")  # that an edit gives to each of its rows or spans

_Place = tuple[Rows, Rows, Rows, Rows]
"""(rows of `trace.cpu`, entries of `DeviceWork`, starts and ends of spans in ns) that an edit names."""


def check_fix(hits: Hits, lost: LostTime) -> None:
    """Rows of edits are rows of the trace, and some of them are of the occurrences or of what they lost.

    Raises:
        ValueError: what they change is not there, is no fix, or cannot be of these occurrences.
    """
    edits = hits.edits()
    if edits and all(map(_changes_nothing, edits)):
        raise ValueError(
            "fix changes no row, no span, or none of their times: leave it out, or look at the mask that chose them"
        )
    places = [_place_of(edit, hits) for edit in edits]
    for edit, place in zip(edits, places, strict=True):
        _check_spans(edit, place, hits)
        _check_steps(edit, place, hits)
        _check_durations(edit, hits)
        _check_runs(edit, hits)
        _check_once(edit)
    _check_shorter(edits, hits)
    changing = [place for place in places if any(map(len, place))]
    if not changing or hits.fixed_elsewhere:
        return
    near = _Near.of(hits, lost)
    if not any(near.met(*place).any() for place in changing):
        raise ValueError(
            "nothing that fix changes is of the occurrences or of what they lost: are these rows of another hit? "
            "(fixed_elsewhere=True where it is meant so)"
        )


def _check_spans(edit: Edit, place: _Place, hits: Hits) -> None:
    """Raises for spans outside of the trace, and for those of the occurrences that are no time of the edit's kind."""
    (_, _, starts, ends), at, name = place, hits.occurrences, type(edit).__name__
    first, last = bounds_of(at.events)
    complain((starts < first) | (ends > last), f"spans of {name} lie outside of the trace: times are ns")
    if not len(starts):
        return
    if not isinstance(at, Calls) and _are(starts, ends, at.start_ns, at.end_ns):
        raise ValueError(f"spans of {name} are those of the device: take the times of calls on the CPU")
    nesting = at.events.nesting
    rows = at.rows if isinstance(edit, ShrinkGaps) and isinstance(at, Calls) else as_ints(())
    if _are(starts, ends, nesting.start_ns[rows], nesting.end_ns[rows]):
        raise ValueError(f"spans of {name} are those of calls: gaps hold no event, as those of CpuGaps")


def _are(starts: Rows, ends: Rows, others_start: Rows, others_end: Rows) -> bool:
    """Whether all of these spans are among the others."""
    others = set(zip(others_start.tolist(), others_end.tolist(), strict=True))
    return others.issuperset(zip(starts.tolist(), ends.tolist(), strict=True))


def _check_steps(edit: Edit, place: _Place, hits: Hits) -> None:
    """Raises where an edit drops all of every step."""
    rows, _, starts, ends = place
    steps, nesting = hits.occurrences.events.steps, hits.occurrences.events.nesting
    if not steps.marked or not isinstance(edit, Drop | DropSpans):
        return
    starts, ends = np.append(nesting.start_ns[rows], starts), np.append(nesting.end_ns[rows], ends)
    gone_ns = intervals.covered(intervals.union(starts, ends), steps.cpu_start_ns, steps.cpu_end_ns)
    if gone_ns.any() and (gone_ns == steps.cpu_end_ns - steps.cpu_start_ns).all():
        name = type(edit).__name__
        raise ValueError(
            f"{name} leaves nothing of any step: take the calls that the fix removes, not the step around them"
        )


def _check_runs(edit: Edit, hits: Hits) -> None:
    """Raises where most groups are of several devices, or of more steps than the two that a run may touch."""
    if not isinstance(edit, Fuse):
        return
    work, group = Work(hits.occurrences.events, as_ints(edit.work)), as_ints(edit.group)
    for name, most in (("device", 1), ("step", 2)):
        several = _several(group, getattr(work, name), most)
        complain(
            several & (2 * several.sum() > len(several)),
            f"groups of Fuse have work of several {name}s: number each run by itself",
        )


def _check_once(edit: Edit) -> None:
    """Raises where work that is named several times takes several times; of several edits the last counts."""
    if not isinstance(edit, Resize | Scale):
        return
    given = np.asarray(edit.factor if isinstance(edit, Scale) else edit.dur_ns)
    if given.ndim:
        several = _several(as_ints(edit.work), np.unique(given, return_inverse=True)[1], 1)
        complain(
            several, f"pieces of work of {type(edit).__name__} are named again with another value: each once"
        )


def _several(key: Rows, value: Rows, most: int) -> Mask:
    """Which of the distinct keys have more values than that."""
    found = distinct_pairs(key, value)[0]
    each = np.unique(found, return_counts=True)[1]
    return np.asarray(each > most)


def _check_durations(edit: Edit, hits: Hits) -> None:
    first, last = bounds_of(hits.occurrences.events)
    for name in _DURATIONS:
        value = getattr(edit, name, None)
        if value is None or isinstance(value, Mapping):
            continue
        given = np.asarray(value, np.float64).ravel()
        complain(
            given > max(last - first, _SHORT_NS),
            f"{name} of {type(edit).__name__} are longer than the trace: times are ns",
        )
        if name in _NEVER_SHORT and 0 < given.max(initial=0.0) < LEAST_NS:
            raise ValueError(f"{name} of {type(edit).__name__} is {given.max():.3g}: times are ns")


def _check_shorter(edits: Sequence[Edit], hits: Hits) -> None:
    """Raises where edits that do nothing else make work longer; one of several may: what takes others' place."""
    more_ns = 0.0
    for edit in edits:
        if not isinstance(edit, Resize):
            return
        more_ns += float(
            (np.asarray(edit.dur_ns) - Work(hits.occurrences.events, as_ints(edit.work)).dur_ns).sum()
        )
    if more_ns > _ROUNDING_NS:
        raise ValueError("fix makes its work longer in all: dur_ns of Resize is what each takes then")


def _changes_nothing(edit: Edit) -> bool:
    """Whether an edit names rows, work or spans, and none of each, or leaves all of their time."""
    named = [as_ints(getattr(edit, name)) for name in ("rows", "work", "starts_ns") if hasattr(edit, name)]
    if named and not any(map(len, named)):
        return True
    if hasattr(edit, "starts_ns"):
        starts, ends = (as_ints(getattr(edit, name)) for name in ("starts_ns", "ends_ns"))
        if not (ends > starts).any():
            return True
    return bool((np.asarray(getattr(edit, "factor", 0.0)) == 1).all())


def _place_of(edit: Edit, hits: Hits) -> _Place:
    """What an edit names, whose rows and entries are there."""
    events = hits.occurrences.events
    rows, work, starts, ends = (
        as_ints(getattr(edit, name, ())) for name in ("rows", "work", "starts_ns", "ends_ns")
    )
    entries = 0 if events.work is None else len(events.work.row)
    complain(
        rows >= len(events.nesting.parent),
        f"rows of {type(edit).__name__} are no rows of trace.cpu: calls.rows",
    )
    for given in (work, as_ints(getattr(edit, "pointwise", ()))):
        complain(
            given >= entries, f"entries of {type(edit).__name__} are no entries of DeviceWork: work.entries"
        )
    return rows, work, starts, ends


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    """CPU rows that the occurrences are, are launched by or belong to, and spans that they or their losses take."""

    around: Mask
    base: Calls
    entries: Rows
    starts_ns: Rows
    ends_ns: Rows

    @classmethod
    def of(cls, hits: Hits, lost: LostTime) -> Self:
        events = hits.occurrences.events
        cpu, entries = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for view in (hits.occurrences, *hits.related):
            if isinstance(view, Calls):
                cpu.append(view.rows)
            elif isinstance(view, Work):
                cpu += [view.launch.rows, view.op.rows]
                entries.append(view.entries)
            else:
                cpu += [view.call.rows, view.op.rows, view.launch.rows]
                entries += [view.next_entries, view.before_entries]
        base = distinct(np.concatenate(cpu))
        base = base[base >= 0]
        around = np.zeros(len(events.nesting.parent), bool)
        going = base
        while len(going := going[~around[going]]):
            around[going] = True
            going = events.nesting.parent[going].astype(np.int64)
            going = going[going >= 0]
        nesting, at = events.nesting, hits.occurrences
        starts = np.sort(np.concatenate((nesting.start_ns[base], at.start_ns, lost.start_ns)))
        ends = np.sort(np.concatenate((nesting.end_ns[base], at.end_ns, lost.end_ns)))
        return cls(around, Calls(events, base), distinct(np.concatenate(entries)), starts, ends)

    def met(self, rows: Rows, work: Rows, starts: Rows, ends: Rows) -> Mask:
        """Which of them are of these; bool (rows + work + spans,)."""
        events, found = self.base.events, []
        if len(rows):
            calls, own = Calls(events, rows), self.around[rows]
            if not own.all():
                own = own | calls.inside(self.base) | self._while(calls.start_ns, calls.end_ns)
            found.append(own)
        if len(work):
            pieces = Work(events, work)
            own = np.isin(work, self.entries) | pieces.launch.inside(self.base)
            found.append(own | self._while(pieces.start_ns, pieces.end_ns))
        return np.concatenate((*found, self._while(starts, ends)))

    def _while(self, starts: Rows, ends: Rows) -> Mask:
        """Which spans share an instant with them or with what they lost."""
        before = np.searchsorted(self.starts_ns, ends, side="right")
        return np.asarray(before > np.searchsorted(self.ends_ns, starts, side="left"))


def complain(wrong: Mask, what: str) -> None:
    """Raises ValueError where something is wrong, with how much of it is."""
    if count := int(wrong.sum()):
        raise ValueError(f"{count:,} of {len(wrong):,} {what}")
