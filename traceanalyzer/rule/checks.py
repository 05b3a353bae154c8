"""What a rule yields is looked at once, before it counts: what cannot be is a sentence, instead of a number."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis, Need
from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay import edits, peer_comparison, rewrites
from traceanalyzer.rule.fix_checks import check_fix, complain
from traceanalyzer.rule.hit_fields import longest_ns
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.selection import Events, bounds_of, lanes_of

_EVENTS = {"events": Need(Events, optional=True)}


def checked(
    found: Any, slug: str, causes: tuple[str, ...], asked: Collection[str], analysis: Analysis
) -> Iterator[Hits]:
    """The hits that a rule's function yields, each looked at; what is wrong is raised where the rule yields it.

    Args:
        asked: names of numbers that the evidence of each has.
        analysis: whose views it was given.

    Raises:
        ValueError: a cause is none of `causes`, or occurrences, lost time and edits do not belong together.
        TypeError: something else than `Hits` is yielded.
    """
    if not isinstance(found, Iterable):
        raise TypeError(f"a rule yields Hits, and this one returns {type(found).__name__}")
    for hits in found:
        try:
            _check_declared(hits, slug, causes, asked)
            check(hits, analysis.resolve(_EVENTS)["events"])
        except Exception as error:
            if isinstance(found, Generator):
                _throw(found, error)
            raise
        yield hits


def _throw(rule: Generator[Any, Any, Any], error: Exception) -> None:
    """Raise it where the rule yields, so that the line of its file is known; whatever the rule does then."""
    with suppress(Exception, GeneratorExit, SystemExit):
        rule.throw(error)
        rule.close()


def _check_declared(hits: Any, slug: str, causes: tuple[str, ...], asked: Collection[str]) -> None:
    if not isinstance(hits, Hits):
        raise TypeError(f"a rule yields Hits, not {type(hits).__name__}")
    if hits.cause and hits.cause not in causes:
        raise ValueError(f"{slug} does not declare the cause {hits.cause!r}: add it to causes=(...)")
    for name in asked:
        if not isinstance(hits.evidence.get(name), int | float | np.number):
            raise ValueError(f"evidence of a question has {name}, a number from 0 to 1")


def told(error: BaseException) -> str:
    """`ValueError: the message`, whatever the error is; what numpy says of read-only arrays in our words."""
    try:
        text = str(error)
    except Exception:  # an error of a rule's own
        text = "its text cannot be made"
    if isinstance(error, ValueError) and "read-only" in text:
        text = f"what views, indexes and a yielded finding have is shared, so copy it first ({text})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException, function: Callable[..., Any]) -> str:
    """`host/my_rule.py, line 31`: where in the rule's file an error was raised; where it came later, its first line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return str(getattr(function, "__name__", type(function).__name__))
    name = "/".join(Path(code.co_filename).parts[-2:])
    lines = [
        number
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == code.co_filename
    ]
    return f"{name}, line {lines[-1] if lines else code.co_firstlineno}"


def check(hits: Hits, events: Events | None = None) -> None:
    """Raises ValueError or TypeError for fields of another kind, and what cannot be of the occurrences.

    Args:
        events: what all views are of; by default what the occurrences are.
    """
    _check_kinds(hits)
    _check_views(hits, events or hits.occurrences.events)
    if len(hits.occurrences) == 0:
        return
    _check_rows(hits)
    _check_times(hits)
    without = hits.lost is LostTime.none() or (isinstance(hits.occurrences, Calls) and hits.lost is None)
    if without and not (hits.edits() or hits.info or hits.of_job):
        raise ValueError(
            "occurrences without lost time, a fix or info=True are never said: they cost and save nothing"
        )
    lost = hits.losses()
    if lost.spans not in (None, len(hits.occurrences)):
        raise ValueError(
            f"lost is of {lost.spans:,} spans or rows, and there are {len(hits.occurrences):,} occurrences: they are "
            "parallel to them (give owner, or owned_by(...), where it is meant so)"
        )
    if hits.lost is not None and len(lost.owner):
        _check_lost(hits, lost)
    if hits.repeated_rows and (hits.lost is None or hits.lost is LostTime.none()):
        raise ValueError(
            "repeated_rows is for stretches of lost time that one row names, and nothing is lost"
        )
    check_fix(hits, lost)


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
    "fixed_elsewhere": bool,
    "repeated_rows": bool,
    "related": (list, tuple),
}
_EDITS = tuple(
    one
    for module in (edits, rewrites, peer_comparison)
    for one in vars(module).values()
    if isinstance(one, type)
    and hasattr(one, "apply")
    and one.__module__ == module.__name__
    and one is not edits.Edit
)


def _check_kinds(hits: Hits) -> None:
    for name, kind in _KINDS.items():
        if not isinstance(value := getattr(hits, name), kind):
            wanted = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
            raise TypeError(f"{name} is {wanted.replace('NoneType', 'None')}, not {type(value).__name__}")
    for edit in hits.edits():
        if not isinstance(edit, _EDITS):
            raise TypeError(f"fix is an edit or a tuple of edits, not {type(edit).__name__}")
    for place, view in enumerate(hits.related):
        if not isinstance(view, _VIEWS):
            raise TypeError(f"related[{place}] is a view, not {type(view).__name__}")
    count = len(hits.occurrences)
    columns: dict[str, Sized] = {
        f"evidence {name}": value for name, value in hits.evidence.items() if isinstance(value, Texts)
    }
    columns |= {f"related[{place}]": view for place, view in enumerate(hits.related)}
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"{name} has {len(column):,} rows: it is parallel to the {count:,} occurrences")


def _check_views(hits: Hits, events: Events) -> None:
    for name, view in (("occurrences", hits.occurrences), *(("related", one) for one in hits.related)):
        if view.events is not events:
            raise ValueError(
                f"{name} are of another trace, or of another window: views are those that a rule is given"
            )


def _check_rows(hits: Hits) -> None:
    at = hits.occurrences
    if isinstance(at, Calls):
        complain(~at.there, "occurrences are not there: choose [view.there] first, or take .distinct()")
    if hits.repeated_rows and isinstance(at, Work):
        raise ValueError("repeated_rows is of calls and idle time: a piece of work is there once")
    if not hits.repeated_rows and (repeated := at.repeated()):
        raise ValueError(
            f"{repeated:,} of {len(at):,} occurrences are repeated: .distinct() of calls, or a mask "
            "(repeated_rows=True where it is meant so)"
        )


def _check_times(hits: Hits) -> None:
    """What all threads and streams have together is no less than any time that is told of them."""
    events = hits.occurrences.events
    first, last = bounds_of(events)
    most = (last - first) * lanes_of(events)
    for name, value in hits.evidence.items():
        if (longest := longest_ns(name, value)) > most:
            raise ValueError(
                f"evidence {name} is {longest:.3g}: all threads and streams have {most:.3g} together, times are ns"
            )


def _check_lost(hits: Hits, lost: LostTime) -> None:
    at, events = hits.occurrences, hits.occurrences.events
    if (most := int(lost.owner.max())) >= len(at):
        raise ValueError(
            f"lost has an owner of {most:,} with {len(at):,} occurrences: owners are positions in occurrences"
        )
    if events.work is not None:
        complain(
            ~np.isin(lost.device, distinct(events.work.device)),
            "lost stretches are of a device without work: give the device of each stretch",
        )
    first, last = bounds_of(events)
    complain(
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
        complain(
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
