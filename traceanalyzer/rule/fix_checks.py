"""What fixes change is looked at once: rows of the trace, and some of the occurrences or of what they lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.replay.edit_values import as_ints
from traceanalyzer.replay.edits import Edit
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rule.views.events import bounds_of

_SHORT_NS = (
    10_000_000  # a fix may leave this much in a trace that is shorter: ten times what any rule adds; chosen
)
_DURATIONS = ("dur_ns", "work_ns", "cpu_ns", "leaving_ns")  # that an edit gives to each of its rows or spans


def check_fix(hits: Hits, lost: LostTime) -> None:
    """Rows of edits are rows of the trace, and some of them are of the occurrences or of what they lost."""
    linked, near = None, None
    if hits.edits() and all(map(_changes_nothing, hits.edits())):
        raise ValueError("fix changes no row and no span: leave it out, or look at the mask that chose them")
    for edit in hits.edits():
        rows, work = _rows_in(edit, hits)
        starts, ends = (as_ints(getattr(edit, name, ())) for name in ("starts_ns", "ends_ns"))
        first, last = bounds_of(hits.occurrences.events)
        complain(
            (starts < first) | (ends > last),
            f"spans of {type(edit).__name__} lie outside of the trace: times are ns",
        )
        for name in _DURATIONS:
            value = getattr(edit, name, None)
            given = np.asarray(
                0.0 if value is None or isinstance(value, Mapping) else value, np.float64
            ).ravel()
            complain(
                given > max(last - first, _SHORT_NS),
                f"{name} of {type(edit).__name__} are longer than the trace: times are ns",
            )
        if not linked and len(rows) + len(work) + len(starts) and not hits.fixed_elsewhere:
            near = near or _Near.of(hits, lost)
            linked = bool(near.met(rows, work, starts, ends).any())
    if linked is False:
        raise ValueError(
            "nothing that fix changes is of the occurrences or of what they lost: are these rows of another hit? "
            "(fixed_elsewhere=True where it is meant so)"
        )


def _changes_nothing(edit: Edit) -> bool:
    """Whether an edit names rows, work or spans, and none of each."""
    named = [getattr(edit, name) for name in ("rows", "work", "starts_ns") if hasattr(edit, name)]
    return bool(named) and not any(len(as_ints(one)) for one in named)


def _rows_in(edit: Edit, hits: Hits) -> tuple[Rows, Rows]:
    """(rows of `trace.cpu`, entries of `DeviceWork`) that an edit names, which are there."""
    events = hits.occurrences.events
    rows, work = (as_ints(getattr(edit, name, ())) for name in ("rows", "work"))
    entries = 0 if events.work is None else len(events.work.row)
    complain(rows >= len(events.nesting.parent), f"rows of {type(edit).__name__} are no rows of trace.cpu")
    for given in (work, as_ints(getattr(edit, "pointwise", ()))):
        complain(given >= entries, f"entries of {type(edit).__name__} are no entries of DeviceWork")
    return rows, work


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
