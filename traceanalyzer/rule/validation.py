"""Bounds of what a rule yields, which a damaged trace may break, and of limits that users set."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Mask, distinct
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import Edit
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.views import Calls
from traceanalyzer.timeline.selection import Events, bounds_of, lanes_of

MIN_SHARE = "min_share"  # the limit that every rule has: the share of the step from which on a finding is reported
LEAST_NS = 100  # of a limit: what is shorter was meant as µs or ms; the shortest that a rule has is 800 ns
_ROUNDING = 1e-9  # shares are quotients of sums, so they may exceed 1 by this much
# Numbers this close to the ends of int64 stand for missing values in integer columns; no two times are as far apart.
_MISSING = 0.9999 * 2.0**63
# A fix may add this much CPU or GPU time even to a shorter trace. It is ten times what any rule adds.
_MAX_ADDED_NS = 10_000_000
_MAX_GROUPS = 1_000_000  # group numbers index an array, so they must be small or dense
_NOT_NEGATIVE = ("ns", "bytes", "times", "speedup")
_EDIT_NUMBERS = ("leaving_ns", "cpu_ns", "most_ns", "dur_ns", "factor", "work_ns")  # fields of edits with numbers


def check_limit(name: str, value: float) -> None:
    """Checks the value of a limit, as declared or as users set it.

    Raises ValueError: it is negative or not finite, a share above 1, or a time that cannot be in ns.
    """
    if not 0 <= value < math.inf or ("share" in name.split("_") and value > 1):
        raise ValueError(f"limit {name}={value}: finite and not negative, and a share at most 1")
    if name.endswith("_ns") and 0 < value < LEAST_NS:
        raise ValueError(f"limit {name}={value}: less than any kernel or call takes, give ns")


def check_hits(hits: Hits, events: Events | None = None) -> None:
    """Checks evidence, occurrences, lost time and edits of one `Hits`; by default within the trace of its occurrences.

    Raises ValueError: a bound is broken.
    """
    events = events or hits.occurrences.events
    _check_evidence(hits, events)
    for name in ("recurring_share", "normal_share"):
        _check_numbers(name, getattr(hits, name), "share")
    if len(hits.occurrences):
        if isinstance(hits.occurrences, Calls):
            missing = ~hits.occurrences.there
            raise_if_any(missing, "occurrences are missing rows: choose [view.there] first, or .distinct()")
        if not hits.repeated_rows and (repeated := hits.occurrences.repeated()):
            raise ValueError(
                f"{repeated:,} of {len(hits.occurrences):,} occurrences are repeated: .distinct() of calls, or a mask "
                "(repeated_rows=True where several stretches are of one row)"
            )
        _check_lost(hits, events)
        for edit in hits.edits():
            check_edit(edit, events)


def _check_evidence(hits: Hits, events: Events) -> None:
    first, last = bounds_of(events)
    most_ns = (last - first) * lanes_of(events)
    for name, value in hits.evidence.items():
        if isinstance(value, Texts):
            continue
        unit = name.rpartition("_")[2]
        longest = max(_check_numbers(f"evidence {name}", value, unit), default=0)
        if unit == "ns" and longest > most_ns and longest > _total_ns(events):
            raise ValueError(
                f"evidence {name} is {longest:.3g}: all threads and streams have {most_ns:.3g} together, times are ns"
            )


def _total_ns(events: Events) -> int:
    """Durations of all rows and work: more than the window has where a damaged trace repeats or overlaps them."""
    return sum(int((each.end_ns - each.start_ns).sum()) for each in (events.device_work, events.nesting))


def _check_numbers(name: str, value: Any, unit: str) -> list[float]:
    """The numbers of a value of the evidence, also those in lists and mappings."""
    if isinstance(value, Mapping):
        return [number for part in value.values() for number in _check_numbers(name, part, unit)]
    if isinstance(value, list | tuple):
        return [number for part in value for number in _check_numbers(name, part, "")]
    if value is None or isinstance(value, str):
        return []
    if not math.isfinite(value) or abs(value) >= _MISSING:
        raise ValueError(f"{name} is {value:.3g}: give None where it is not known")
    if unit == "share" and not -_ROUNDING <= value <= 1 + _ROUNDING:
        raise ValueError(f"{name} is {value:.9g}: a share is 0 to 1, and _times may be more")
    if unit in _NOT_NEGATIVE and value < 0:
        raise ValueError(f"{name} is {value:.3g}: not below 0")
    return [float(value)]


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
        (lost.start_ns < first) | (lost.end_ns > last), "lost stretches are outside of the trace: times are ns"
    )


def check_edit(edit: Edit, events: Events) -> None:
    """Checks the fields of one edit, each by its name.

    Raises ValueError: rows or entries do not exist, spans are not parallel or outside of the trace, or a time, factor
    or group is out of bounds.
    """
    name = type(edit).__name__
    entries = len(events.entries)
    sizes = {"rows": len(events.nesting.parent), "work": entries, "pointwise": entries}
    edited = 0
    for column in ("rows", "work", "pointwise", "starts_ns", "ends_ns", "group"):
        if not hasattr(edit, column):
            continue
        values = np.asarray(getattr(edit, column), np.int64)
        if column in sizes:
            what = "entries of DeviceWork: work.entries" if column != "rows" else "rows of trace.cpu: calls.rows"
            raise_if_any((values < 0) | (values >= sizes[column]), f"{column} of {name} are not {what}")
        if column in ("ends_ns", "group") and len(values) != edited:
            raise ValueError(f"{name} has {len(values):,} {column} for {edited:,} rows or spans")
        if column == "group":
            raise_if_any(
                (values < 0) | (values >= max(_MAX_GROUPS, edited)),
                f"groups of {name} are out of bounds: number them from 0, as grouped([...])[0] does",
            )
        edited = len(values)
    first, last = bounds_of(events)
    if hasattr(edit, "starts_ns"):
        starts, ends = np.asarray(edit.starts_ns, np.int64), np.asarray(edit.ends_ns, np.int64)  # type: ignore[attr-defined]
        raise_if_any(ends < starts, f"spans of {name} end before they start: ends_ns are times, not durations")
        raise_if_any((starts < first) | (ends > last), f"spans of {name} are outside of the trace: times are ns")
    for column in _EDIT_NUMBERS:
        if getattr(edit, column, None) is not None:
            _check_edit_numbers(edit, column, max(last - first, _MAX_ADDED_NS))


def _check_edit_numbers(edit: Edit, column: str, longest_ns: int) -> None:
    """Checks durations or factors: one number for all, or one for each row, group or span."""
    name = f"{column} of {type(edit).__name__}"
    numbers = np.asarray(getattr(edit, column))
    raise_if_any(~(np.isfinite(numbers) & (numbers >= 0)), f"numbers of {name} are negative or not finite")
    if column == "factor":
        raise_if_any(numbers > 1, f"numbers of {name} are above 1: what a fix leaves is a part")
    elif column.endswith("_ns"):
        raise_if_any(numbers > longest_ns, f"numbers of {name} are longer than the trace: times are ns")
        if column in ("work_ns", "cpu_ns") and 0 < numbers.max(initial=0) < LEAST_NS:
            raise ValueError(f"{name} is {numbers.max():.3g}: times are ns")


def raise_if_any(wrong: Mask | np.bool_, what: str) -> None:
    """Raises ValueError with the number of wrong rows, if there are any."""
    if count := int(np.sum(wrong)):
        raise ValueError(f"{count:,} of {np.size(wrong):,} {what}")
