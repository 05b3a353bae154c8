"""Checks of what a rule declares and returns: shapes, bounds and units. Each failure is one sentence for the author."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.analysis import Analysis, Need, Window
from traceanalyzer.model.arrays import Mask, distinct
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.rule.advice import unknown_marks
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.limits import LEAST_NS, has_unit, source_of
from traceanalyzer.rule.messages import FINDING_FIELDS, field_names
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.selection import Events, bounds_of, lanes_of

if TYPE_CHECKING:
    from traceanalyzer.replay.edits import Edit
    from traceanalyzer.rule.registry import Rule

LeaveOut = Callable[[Hits, ValueError], None]
# The name of the limit that every rule has: the share of the step from which on a finding is reported.
MIN_SHARE = "min_share"

# Shares are quotients of sums, so they may exceed 1 by this much.
_ROUNDING = 1e-9
# Numbers this close to the ends of int64 stand for missing values in integer columns; no two times are as far apart.
_MISSING = 0.9999 * 2.0**63
# A fix may add this much CPU or GPU time even to a shorter trace. It is ten times what any rule adds.
_MAX_ADDED_NS = 10_000_000
# Group numbers index an array, so they must be small or dense.
_MAX_GROUPS = 1_000_000
_NOT_NEGATIVE = ("ns", "bytes", "times", "speedup")
_EVENTS = {"events": Need(Events, optional=True)}
# Fields of edits with numbers, and how many dimensions they may have.
_EDIT_NUMBERS = {
    "leaving_ns": 0,
    "cpu_ns": 0,
    "most_ns": 0,
    "work_factor": 0,
    "dur_ns": 1,
    "factor": 1,
    "work_ns": 2,
}


def check_declaration(rule: Rule) -> None:
    """Checks the arguments of `@rule(...)`, the limits and the parameters of the function.

    Raises:
        ValueError, TypeError: one of them is out of bounds, or has no unit, source or index.
    """
    if rule.function.__name__ not in rule.function.__module__.split(".")[-2:]:
        raise ValueError(f"rule {rule.slug} is in a file of another name")
    if not re.fullmatch(r"\d+(\.\d+)*", rule.since):
        raise ValueError(f"since={rule.since!r} is not a version: @rule(since='0.1')")
    for cause in rule.causes:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cause):
            raise ValueError(f"cause {cause!r} is not kebab-case")
    if unknown := set(rule.choices).difference({*rule.causes, ""}):
        raise ValueError(f"choices has {', '.join(sorted(unknown))}, which causes lacks")
    check_limit(MIN_SHARE, rule.min_share)
    for field in fields(rule.limits) if rule.limits is not None else ():
        _check_limit_field(field)
    code = rule.function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if ("limits" in parameters) != (rule.limits is not None):
        raise TypeError("a rule has limits as @rule(limits=Limits) and as a parameter, or as neither")
    for name in parameters:
        if name == "limits":
            continue
        kind = rule.needs[name].kind if name in rule.needs else None
        if kind not in (Trace, Window) and not callable(getattr(kind, "build", None)):
            raise TypeError(f"parameter {name} has no index as its type")


def _check_limit_field(field: Field[Any]) -> None:
    if field.name == MIN_SHARE:
        raise ValueError("every rule has a limit min_share: @rule(min_share=...), or another name")
    if not source_of(field):
        raise ValueError(f"limit {field.name} has no source: {field.name}: int = limit(default, source)")
    if not has_unit(field.name):
        raise ValueError(
            f"limit {field.name} has no unit in its name: end it in _ns, _bytes, _share, _times or _speedup, "
            "or in what it counts, in the plural"
        )
    kinds = {"int": int, "float": int | float}.get(getattr(field.type, "__name__", str(field.type)))
    if kinds is None or not isinstance(field.default, kinds):
        raise TypeError(f"limit {field.name}={field.default!r} is not of its type, int or float")
    check_limit(field.name, field.default)


def check_limit(name: str, value: Any) -> None:
    """Checks the value of a limit, as declared or as users set it.

    Raises:
        ValueError: it is negative or not finite, a share above 1, or a time that cannot be in ns.
        TypeError: it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"limit {name}={value!r}: a number")
    if not 0 <= value < math.inf or ("share" in name.split("_") and value > 1):
        raise ValueError(f"limit {name}={value}: finite and not negative, and a share at most 1")
    if name.endswith("_ns") and 0 < value < LEAST_NS:
        raise ValueError(f"limit {name}={value}: less than any kernel or call takes, give ns")


def validated(
    returned: Any,
    rule: Rule,
    analysis: Analysis,
    required: Collection[str] = (),
    left_out: LeaveOut | None = None,
) -> Iterator[Hits]:
    """The hits that a rule's function yields, each checked first.

    Args:
        analysis: whose views the rule was given.
        required: names of shares that the evidence of each hit must have.
        left_out: called with each hit that is out of bounds, instead of raising ValueError.

    Raises:
        ValueError, TypeError: as of `check_hits`, also inside the rule's generator, so that the traceback has its line.
    """
    if not isinstance(returned, Iterable):
        raise TypeError(f"a rule yields Hits, and this one returns {type(returned).__name__}")
    for hits in returned:
        try:
            if not isinstance(hits, Hits):
                raise TypeError(f"a rule yields Hits, not {type(hits).__name__}")
            if hits.cause and hits.cause not in rule.causes:
                raise ValueError(
                    f"{rule.slug} does not declare the cause {hits.cause!r}: add it to causes=(...)"
                )
            for name in required:
                if not isinstance(hits.evidence.get(name), int | float | np.number):
                    raise ValueError(f"evidence of a question has {name}, a number from 0 to 1")
            check_hits(hits, analysis.resolve(_EVENTS)["events"])
        except Exception as error:
            if left_out is not None and isinstance(error, ValueError):
                left_out(hits, error)
                continue
            if isinstance(returned, Generator):
                with suppress(Exception, GeneratorExit, SystemExit):
                    returned.throw(error)
                    returned.close()
            raise
        yield hits


def check_hits(hits: Hits, events: Events | None = None) -> None:
    """Checks texts, evidence, occurrences, lost time and edits of one `Hits`.

    Args:
        events: of the trace that the rule was given; by default those of the occurrences.

    Raises:
        ValueError, TypeError: a shape, bound or unit is wrong.
    """
    events = events or hits.occurrences.events
    _check_texts(hits)
    _check_evidence(hits, events)
    for name in ("recurring_share", "normal_share"):
        _check_number(name, getattr(hits, name), "share")
    for name, view in (("occurrences", hits.occurrences), *(("related", view) for view in hits.related)):
        if not isinstance(view, Calls | Work | IdleTime):
            raise TypeError(f"{name} has a {type(view).__name__}: Calls, Work or IdleTime")
        if view.events is not events:
            raise ValueError(f"{name} are of another trace or window than the views that the rule is given")
        if len(view) != len(hits.occurrences):
            raise ValueError(f"{name} has {len(view):,} rows for {len(hits.occurrences):,} occurrences")
    if len(hits.occurrences):
        _check_rows(hits)
        _check_lost(hits, events)
        for edit in hits.edits():
            check_edit(edit, events)


def _check_texts(hits: Hits) -> None:
    for name in ("message", "advice"):
        text = getattr(hits, name)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name} is a text that is not empty, not {text!r}")
    if marks := unknown_marks(hits.advice):
        raise ValueError(
            f"advice has {', '.join(marks)}: add it to FEATURES of rule/advice.py, or leave out the braces"
        )


def _check_evidence(hits: Hits, events: Events) -> None:
    if missing := set(hits.of_window).difference(hits.evidence):
        raise ValueError(f"of_window names {', '.join(sorted(missing))}, which evidence lacks")
    first, last = bounds_of(events)
    most_ns = (last - first) * lanes_of(events)
    sources: dict[str, str] = {}
    for name, value in hits.evidence.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"evidence has the name {name!r}: letters, digits and _")
        unit = name.rpartition("_")[2]
        for field in field_names(name, value):
            if field in FINDING_FIELDS:
                raise ValueError(f"evidence {name} gives {{{field}}}, which every finding has: rename it")
            if (source := sources.setdefault(field, name)) != name and f"{{{field}" in hits.message:
                raise ValueError(f"evidence {source} and {name} both give {{{field}}}: rename one of them")
        if isinstance(value, Texts):
            if len(value) != len(hits.occurrences):
                raise ValueError(
                    f"evidence {name} has {len(value):,} rows for {len(hits.occurrences):,} occurrences"
                )
            continue
        _check_value(name, value, unit)
        parts = value.values() if isinstance(value, Mapping) else (value,)
        longest = max((float(part) for part in parts if part is not None), default=0) if unit == "ns" else 0
        if longest > most_ns and longest > _total_ns(events):
            raise ValueError(
                f"evidence {name} is {longest:.3g}: all threads and streams have {most_ns:.3g} together, times are ns"
            )


def _total_ns(events: Events) -> int:
    """Durations of all rows and work: more than the window has where a damaged trace repeats or overlaps them."""
    work, nesting = events.work, events.nesting
    on_gpu = 0 if work is None else int((work.end_ns - work.start_ns).sum())
    return on_gpu + int((nesting.end_ns - nesting.start_ns).sum())


def _check_value(name: str, value: Any, unit: str) -> None:
    """Checks that a report can print the value: numbers, texts, None, and lists or mappings of them."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise ValueError(f"evidence {name} has the key {key!r}: keys are texts")
            _check_value(name, part, unit)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_value(name, part, "")
    elif isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, np.timedelta64):
        _check_number(f"evidence {name}", value, unit)
    elif value is not None and not isinstance(value, str):
        raise ValueError(
            f"evidence {name} has a {type(value).__name__}: numbers, texts, lists or mappings of these"
        )
    elif isinstance(value, str) and unit in ("ns", "bytes", "share"):
        raise ValueError(f"evidence {name} is a text: a number of {unit}")


def _check_number(name: str, value: Any, unit: str) -> None:
    if not math.isfinite(value) or abs(value) >= _MISSING:
        raise ValueError(f"{name} is {value:.3g}: give None where it is not known")
    if unit == "share" and not -_ROUNDING <= value <= 1 + _ROUNDING:
        raise ValueError(f"{name} is {value:.9g}: a share is 0 to 1, and _times may be more")
    if unit in _NOT_NEGATIVE and value < 0:
        raise ValueError(f"{name} is {value:.3g}: not below 0")


def _check_rows(hits: Hits) -> None:
    occurrences = hits.occurrences
    if isinstance(occurrences, Calls):
        raise_if_any(
            ~occurrences.there, "occurrences are missing rows: choose [view.there] first, or .distinct()"
        )
    if not hits.repeated_rows and (repeated := occurrences.repeated()):
        raise ValueError(
            f"{repeated:,} of {len(occurrences):,} occurrences are repeated: .distinct() of calls, or a mask "
            "(repeated_rows=True where several stretches are of one row)"
        )


def _check_lost(hits: Hits, events: Events) -> None:
    lost: LostTime = hits.losses()
    count = len(hits.occurrences)
    if lost.spans not in (None, count):
        raise ValueError(f"lost is of {lost.spans:,} spans or rows, and there are {count:,} occurrences")
    if not len(lost.owner):
        return
    raise_if_any(lost.owner >= count, f"owners of lost time are not positions in the {count:,} occurrences")
    if events.work is not None:
        raise_if_any(
            ~np.isin(lost.device, distinct(events.work.device)),
            "lost stretches are of a device without work: give the device of each stretch",
        )
    first, last = bounds_of(events)
    raise_if_any(
        (lost.start_ns < first) | (lost.end_ns > last),
        "lost stretches are outside of the trace: times are ns",
    )


def check_edit(edit: Edit, events: Events) -> None:
    """Checks the fields of one edit, each by its name.

    Raises:
        ValueError: rows or entries do not exist, spans are not parallel or outside of the trace, or a time, factor or
            group is out of bounds.
        TypeError: it is not an edit.
    """
    if not hasattr(type(edit), "apply"):
        raise TypeError(f"fix is an edit or a tuple of edits, not {type(edit).__name__}")
    name = type(edit).__name__
    entries = 0 if events.work is None else len(events.work.row)
    sizes = {"rows": len(events.nesting.parent), "work": entries, "pointwise": entries}
    edited = 0
    for column in ("rows", "work", "pointwise", "starts_ns", "ends_ns", "group"):
        if not hasattr(edit, column):
            continue
        values = _integers(f"{column} of {name}", getattr(edit, column))
        if column in sizes:
            what = (
                "entries of DeviceWork: work.entries" if column != "rows" else "rows of trace.cpu: calls.rows"
            )
            raise_if_any((values < 0) | (values >= sizes[column]), f"{column} of {name} are not {what}")
        if column in ("ends_ns", "group") and len(values) != edited:
            raise ValueError(f"{name} has {len(values):,} {column} for {edited:,} rows or spans")
        if column == "group":
            raise_if_any(
                (values < 0) | (values >= max(_MAX_GROUPS, edited)),
                f"groups of {name} are out of bounds: number them from 0, as grouped([...])[0] does",
            )
        edited = len(values)
    _check_spans(edit, events)
    _check_times(edit, events, edited)


def _integers(name: str, values: Any) -> NDArray[np.int64]:
    array = np.asarray(values if hasattr(values, "dtype") else list(values))
    if array.ndim != 1 or (len(array) and array.dtype != np.int64):
        raise ValueError(f"{name} are int64 of one dimension, not {array.dtype}, {array.ndim}-dimensional")
    return array.astype(np.int64, copy=False)


def _check_spans(edit: Edit, events: Events) -> None:
    if not hasattr(edit, "starts_ns"):
        return
    starts, ends = np.asarray(edit.starts_ns, np.int64), np.asarray(edit.ends_ns, np.int64)  # type: ignore[attr-defined]
    first, last = bounds_of(events)
    name = type(edit).__name__
    raise_if_any(ends < starts, f"spans of {name} end before they start: ends_ns are times, not durations")
    raise_if_any((starts < first) | (ends > last), f"spans of {name} are outside of the trace: times are ns")


def _check_times(edit: Edit, events: Events, edited: int) -> None:
    """Checks durations and factors: one number for all, or one for each row, group or span."""
    first, last = bounds_of(events)
    groups = getattr(edit, "group", None)
    needed = edited if groups is None else int(np.max(groups, initial=-1)) + 1
    for column, dimensions in _EDIT_NUMBERS.items():
        value = getattr(edit, column, None)
        if value is None:
            continue
        name = f"{column} of {type(edit).__name__}"
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.ndim > dimensions:
            raise ValueError(
                f"{name} has numbers of {dimensions} dimensions, not {array.dtype} of {array.ndim}"
            )
        each = array.ndim == 1 and column in ("dur_ns", "factor")
        if each and (len(array) < needed or (groups is None and len(array) > needed)):
            raise ValueError(f"{name} has {len(array):,} numbers for {needed:,} rows or groups")
        if array.ndim == 2 and len(array) != edited:
            raise ValueError(f"{name} has {len(array):,} lists of numbers for {edited:,} spans")
        raise_if_any(~(np.isfinite(array) & (array >= 0)), f"numbers of {name} are negative or not finite")
        if column == "factor":
            raise_if_any(array > 1, f"numbers of {name} are above 1: what a fix leaves is a part")
        elif column.endswith("_ns"):
            longest = max(last - first, _MAX_ADDED_NS)
            raise_if_any(array > longest, f"numbers of {name} are longer than the trace: times are ns")
            if column in ("work_ns", "cpu_ns") and 0 < array.max(initial=0) < LEAST_NS:
                raise ValueError(f"{name} is {array.max():.3g}: times are ns")


def raise_if_any(wrong: Mask | np.bool_, what: str) -> None:
    """Raises ValueError with the number of wrong rows, if there are any."""
    if count := int(np.sum(wrong)):
        raise ValueError(f"{count:,} of {np.size(wrong):,} {what}")
