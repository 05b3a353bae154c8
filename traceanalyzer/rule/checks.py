"""What a rule yields is looked at once, before it counts: what cannot be is a sentence, instead of a number."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import as_ints
from traceanalyzer.rule.hits import ROUNDING, Hits, LostTime
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.rule.views.events import Events


def checked(found: Any, slug: str, causes: tuple[str, ...]) -> Iterator[Hits]:
    """The hits that a rule's function yields, each looked at; what is wrong is raised where the rule yields it.

    Raises:
        ValueError: a cause is none of `causes`, or occurrences, lost time and edits do not belong together.
        TypeError: something else than `Hits` is yielded.
    """
    if not isinstance(found, Iterable):
        raise TypeError(f"a rule yields Hits, and this one returns {type(found).__name__}")
    for hits in found:
        try:
            if not isinstance(hits, Hits):
                raise TypeError(f"a rule yields Hits, not {type(hits).__name__}")
            if hits.cause and hits.cause not in causes:
                raise ValueError(f"{slug} does not declare the cause {hits.cause!r}: add it to causes=(...)")
            check(hits)
        except (ValueError, TypeError) as error:
            if isinstance(found, Generator):
                found.throw(error)  # so that the line of the rule's file is known
            raise
        yield hits


def place_of(error: BaseException, function: Callable[..., Any]) -> str:
    """`host/my_rule.py, line 31`: where in the rule's file an error was raised; without line where it came later."""
    file = function.__code__.co_filename
    name = "/".join(Path(file).parts[-2:])
    lines = [
        number for frame, number in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file
    ]
    return f"{name}, line {lines[-1]}" if lines else name


def check(hits: Hits) -> None:
    """Raises ValueError or TypeError for fields of another kind, and what cannot be of the occurrences."""
    _check_kinds(hits)
    if len(hits.occurrences) == 0:
        return
    lost = hits.losses()
    if hits.lost is not None and len(lost.owner):
        _check_lost(hits, lost)
    _check_fix(hits, lost)


_EARLY = 500  # times longer is a trace than where all its times lie that were given as µs
_VIEWS = (Calls, Work, IdleTime)
_KINDS: dict[str, Any] = {
    "occurrences": _VIEWS,
    "lost": (LostTime, NoneType),
    "evidence": Mapping,
    "confidence": Confidence,
    "max_severity": Severity,
    "info": bool,
    "of_job": bool,
    "recurring_share": (int, float),
    "normal_share": (int, float),
}


def _check_kinds(hits: Hits) -> None:
    for name, kind in _KINDS.items():
        if not isinstance(value := getattr(hits, name), kind):
            wanted = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
            raise TypeError(f"{name} is {wanted.replace('NoneType', 'None')}, not {type(value).__name__}")
    if not 0 <= hits.recurring_share <= 1 + ROUNDING:
        raise ValueError(f"recurring_share is {hits.recurring_share:.3g}: a share is 0 to 1")
    for edit in hits.edits():
        if not callable(getattr(edit, "apply", None)) or isinstance(edit, type):
            raise TypeError(f"fix is an edit or a tuple of edits, not {type(edit).__name__}")
    count = len(hits.occurrences)
    columns: dict[str, Sized] = {
        f"evidence {name}": value for name, value in hits.evidence.items() if isinstance(value, Texts)
    }
    columns |= {f"related[{place}]": view for place, view in enumerate(hits.related)}
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"{name} has {len(column):,} rows: it is parallel to the {count:,} occurrences")


def _check_lost(hits: Hits, lost: LostTime) -> None:
    at, events = hits.occurrences, hits.occurrences.events
    if (most := int(lost.owner.max())) >= len(at):
        raise ValueError(
            f"lost has an owner of {most:,} with {len(at):,} occurrences: owners are positions in occurrences"
        )
    if events.work is not None:
        _complain(
            ~np.isin(lost.device, distinct(events.work.device)), "lost stretches are of a device without work"
        )
    first, last = _bounds(events)
    _complain(
        (lost.start_ns < first) | (lost.end_ns > last),
        "lost stretches lie outside of the trace: times are ns",
    )
    start, end = at.start_ns[lost.owner], at.end_ns[lost.owner]
    if lost.end_ns.max() < min(start.min(), first + (last - first) // _EARLY):
        raise ValueError("lost stretches lie before their occurrences, when the trace began: times are ns")
    if isinstance(at, Calls):  # what a call costs may come before it, as where it waits
        return
    beside = (lost.end_ns < start) | (lost.start_ns > end) | (lost.device != at.device[lost.owner])
    if isinstance(at, IdleTime):
        _complain(
            beside,
            "lost stretches are not of the idle time that owns them: owners are positions in occurrences",
        )
    elif beside.all() and not any(isinstance(view, Work) for view in hits.related):
        _check_idle(lost, Work.build(events))


def _check_idle(lost: LostTime, work: Work) -> None:
    """Raises where nothing of it is idle time: then work lost only that of other work."""
    for device, own in work.by(work.device):
        mine = lost[lost.device == device]
        busy = intervals.union(own.start_ns, own.end_ns)
        if (intervals.covered(busy, mine.start_ns, mine.end_ns) < mine.end_ns - mine.start_ns).any():
            return
    raise ValueError("all that work lost is the time of other work: owners are positions in occurrences")


def _check_fix(hits: Hits, lost: LostTime) -> None:
    """Rows of edits are rows of the trace, and one of them is of the occurrences or of what they lost."""
    events, linked, any_rows = hits.occurrences.events, False, False
    near: _Near | None = None
    for edit in hits.edits():
        rows, work = (as_ints(getattr(edit, name, ())) for name in ("rows", "work"))
        starts, ends = (as_ints(getattr(edit, name, ())) for name in ("starts_ns", "ends_ns"))
        entries = 0 if events.work is None else len(events.work.row)
        _complain(
            rows >= len(events.nesting.parent), f"rows of {type(edit).__name__} are no rows of trace.cpu"
        )
        _complain(work >= entries, f"entries of {type(edit).__name__} are no entries of DeviceWork")
        if not linked and len(rows) + len(work) + len(starts):
            any_rows = True
            near = near or _Near.of(hits, lost)
            linked = near.meets(rows, work, starts, ends)
    if any_rows and not linked and not hits.fixed_elsewhere:
        raise ValueError(
            "nothing that fix changes is of the occurrences or of what they lost: are these rows of another hit? "
            "(fixed_elsewhere=True where it is meant so)"
        )


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

    def meets(self, rows: Rows, work: Rows, starts: Rows, ends: Rows) -> bool:
        """Whether one of them is of these."""
        if len(rows) and (self.around[rows].any() or Calls(self.base.events, rows).inside(self.base).any()):
            return True
        if len(work):
            pieces = Work(self.base.events, work)
            if np.isin(work, self.entries).any() or pieces.launch.inside(self.base).any():
                return True
            starts, ends = pieces.start_ns, pieces.end_ns
        before = np.searchsorted(self.starts_ns, ends, side="right")
        return bool((before > np.searchsorted(self.ends_ns, starts, side="left")).any())


def _complain(wrong: Mask, what: str) -> None:
    if count := int(wrong.sum()):
        raise ValueError(f"{count:,} of {len(wrong):,} {what}")


def _bounds(events: Events) -> tuple[int, int]:
    """When the first event of a trace begins and the last ends."""

    def made() -> tuple[int, int]:
        starts, ends = [events.nesting.start_ns], [events.nesting.end_ns]
        if events.work is not None:
            starts.append(events.work.start_ns)
            ends.append(events.work.end_ns)
        return int(np.concatenate(starts).min(initial=2**62)), int(np.concatenate(ends).max(initial=0))

    return events.once(_bounds, made)
