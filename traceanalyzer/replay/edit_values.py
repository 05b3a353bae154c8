"""Rows, spans and numbers that edits are made of: what cannot be is a sentence, instead of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = Sequence[int] | NDArray[np.int64]
Floats = Sequence[float] | NDArray[np.float64]

_MOST_GROUPS = 1_000_000  # a table of so many is made at once


def as_ints(values: Ints) -> NDArray[np.int64]:
    """Whatever a rule has, as an array."""
    return np.asarray(values, np.int64)


def check_rows(rows: Ints) -> None:
    """Raises ValueError for what are no rows of `trace.cpu` or entries of `DeviceWork`."""
    given = _array("rows of an edit", rows)
    if given.dtype == np.bool_:
        raise ValueError("an edit takes numbers of rows, not a mask: np.flatnonzero(mask)")
    if given.ndim != 1 or (len(given) and given.dtype != np.int64):
        raise ValueError(
            f"rows of an edit are a list of whole numbers, not {given.dtype}, {given.ndim}-dimensional: int64"
        )
    if len(given) and given.min() < 0:
        raise ValueError(
            f"{int((given < 0).sum()):,} of {len(given):,} rows of an edit are negative: leave out -1"
        )


def check_spans(starts_ns: Ints, ends_ns: Ints) -> None:
    """Raises ValueError for what are no spans of time."""
    starts, ends = _array("starts_ns", starts_ns), _array("ends_ns", ends_ns)
    for times in (starts, ends):
        if times.ndim != 1 or (len(times) and times.dtype != np.int64):
            raise ValueError(f"starts_ns and ends_ns are lists of whole ns, not {times.dtype}: int64")
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts):,} starts_ns and {len(ends):,} ends_ns: each span has both")
    if backwards := int((ends < starts).sum()):
        what = f"{backwards:,} of {len(starts):,} spans end before they start"
        raise ValueError(f"{what}: starts_ns come first, and ends_ns are times, no durations")


def check_times(
    name: str, values: Floats | float, rows: Ints | None = None, most_dimensions: int = 1
) -> None:
    """Raises ValueError for what are no times or factors: one for all, or one for each of the rows."""
    given = np.asarray(values) if isinstance(values, int | float | np.number) else _array(name, values)
    if given.ndim > most_dimensions or (given.size and given.dtype.kind not in "iuf"):
        raise ValueError(
            f"{name} is a number or a list of numbers, not {given.dtype}, {given.ndim}-dimensional"
        )
    if rows is not None and given.ndim and len(given) != len(rows):
        raise ValueError(
            f"{len(given):,} numbers of {name} for {len(rows):,} rows: one for all, or one for each"
        )
    if not (np.isfinite(given) & (given >= 0)).all():
        raise ValueError(f"{name} is negative or no number: leave such rows out")


def check_number(name: str, value: Any) -> None:
    """Raises ValueError for what is no single time."""
    if not isinstance(value, int | float | np.number):
        raise ValueError(
            f"{name} is one number for all, not {type(value).__name__}: make an edit for each other one"
        )
    check_times(name, float(value))


def check_kernels(work_ns: Any, spans: Ints) -> None:
    """Raises ValueError for what is neither a tuple of durations, for all spans, nor an array (spans, kernels)."""
    if np.ndim(work_ns) == 0:
        raise ValueError(
            f"work_ns is a list with a number for each, not {type(work_ns).__name__}: ({work_ns},)"
        )
    if isinstance(work_ns, np.ndarray) and work_ns.ndim == 1:
        raise ValueError(
            "work_ns is a tuple with the kernels of every span, or an array (spans, kernels): of one for each, "
            "work_ns[:, None]"
        )
    check_times("work_ns", work_ns, most_dimensions=2)
    if np.ndim(work_ns) == 2 and len(work_ns) != len(spans):
        raise ValueError(f"{len(work_ns):,} lists of work_ns for {len(spans):,} spans")


def check_part(name: str, values: Floats | float, rows: Ints | None = None) -> None:
    """As `check_times`, of a part that is left: more than 1 would make it longer."""
    check_times(name, values, rows)
    if (np.asarray(values) > 1).any():
        raise ValueError(f"{name} is more than 1: what a fix leaves is a part")


def check_group(group: Ints, rows: Ints) -> None:
    """Raises ValueError for what numbers no groups of the rows."""
    check_rows(group)
    if len(group) != len(rows):
        raise ValueError(f"{len(group):,} numbers of group for {len(rows):,} rows: one for each")
    if len(group) and (most := int(np.max(group))) >= max(_MOST_GROUPS, len(group)):
        raise ValueError(
            f"group has the number {most:,}: number the groups from 0, as grouped([...])[0] does"
        )


def _array(name: str, values: Any) -> NDArray[Any]:
    """As an array, which its owner writes to no more; of a view not its rows, one by one."""
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
        return values
    if isinstance(values, str) or not isinstance(values, Sequence | np.number | int | float):
        columns = (column for column in ("entries", "rows") if hasattr(values, column))
        hint = "".join(f": give .{column}" for column in columns)
        raise ValueError(f"{name} is a list or an array of numbers, not {type(values).__name__}{hint}")
    return np.asarray(values)
