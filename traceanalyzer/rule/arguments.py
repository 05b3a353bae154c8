"""What rules give to views and to `LostTime`: what has another type, length or trace is a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traceanalyzer.timeline.selection import Selection, bounds_of, check_same_trace


def check_view(name: str, given: Any, *kinds: type[Selection]) -> None:
    """Raises TypeError for what is no view of these classes."""
    if not isinstance(given, kinds):
        hint = ": work that calls launch is calls.launched()" if isinstance(given, Selection) else ""
        raise TypeError(
            f"{name} is {' or '.join(kind.__name__ for kind in kinds)}, not {type(given).__name__}{hint}"
        )


def check_views(given: Mapping[str, Any], *kinds: type[Selection]) -> None:
    """The same of several, which are of one trace."""
    for name, view in given.items():
        check_view(name, view, *kinds)
    first, *others = given.values()
    for other in others:
        check_same_trace(first, other)


def check_ints(name: str, given: Any) -> None:
    """Raises TypeError for what is no int64 array of one dimension: narrower ones overflow in sums."""
    dtype = getattr(given, "dtype", None)
    if dtype != np.int64 or given.ndim != 1:
        what = type(given).__name__ if dtype is None else f"{dtype}, {given.ndim}-dimensional"
        raise TypeError(f"{name} is an int64 array of one dimension, not {what}")


def check_spans(starts_ns: Any, ends_ns: Any, view: Selection) -> None:
    """Raises for spans that are not parallel, of which some end before they start, or outside of the view's trace."""
    check_ints("starts_ns", starts_ns)
    check_ints("ends_ns", ends_ns)
    if len(starts_ns) != len(ends_ns):
        raise ValueError(f"{len(starts_ns):,} starts_ns and {len(ends_ns):,} ends_ns: each span has both")
    if backwards := int((ends_ns < starts_ns).sum()):
        what = f"{backwards:,} of {len(starts_ns):,} spans end before they start"
        raise ValueError(f"{what}: starts_ns come first, and ends_ns are times, no durations")
    first, last = bounds_of(view.events)
    if outside := int(((starts_ns < first) | (ends_ns > last)).sum()):
        raise ValueError(f"{outside:,} of {len(starts_ns):,} spans lie outside of the trace: times are ns")
