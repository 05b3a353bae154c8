"""What numpy has no fast word for: looking up with gaps, and numbering what recurs."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Ns = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Small = NDArray[np.int32]  # rows or threads that are kept for every row of a lane: half the memory
Value = TypeVar("Value", bound=np.generic)
Made = TypeVar("Made")

_TABLE_PER_VALUE = 4  # entries: a table of 9 bytes each is cheaper to pass over than the values to hash


@overload
def pick(values: Rows | Small, rows: Rows | Small, missing: int = -1) -> Rows: ...
@overload
def pick(values: NDArray[Value], rows: Rows | Small, missing: int = -1) -> NDArray[Value]: ...
def pick(values: NDArray[Any], rows: Rows | Small, missing: int = -1) -> NDArray[Any]:
    """values[rows], and `missing` where the row is -1; also where there are no values at all. `Small` becomes int64."""
    wide = np.dtype(np.int64) if values.dtype == np.int32 else values.dtype
    if len(values) == 0:
        return np.full(len(rows), missing, wide)
    picked = values.take(rows).astype(wide, copy=False)  # a third faster than by brackets
    np.putmask(picked, rows < 0, missing)  # five times faster than an assignment by mask
    return picked


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Of a dataclass; none of other classes."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def frozen(value_object: Made) -> Made:
    """The same object, its arrays read-only, also those in tuples, lists and mappings that it has: all see the same."""
    for name in _field_names(cast(type, type(value_object))):
        value = getattr(value_object, name)
        parts = value.values() if isinstance(value, Mapping) else value
        for part in parts if isinstance(value, Mapping | tuple | list) else (value,):
            if not isinstance(part, np.ndarray):  # nor are those after it
                break
            part.flags.writeable = False
    return value_object


def no_rows() -> Rows:
    return np.empty(0, np.int64)


def distinct(values: NDArray[Value]) -> NDArray[Value]:
    """The values sorted, each once; `np.unique` hashes them, ten times slower for many, and imports `numpy.ma`."""
    ordered = np.sort(values)
    return np.asarray(ordered[starts_of_runs(ordered)])


def distinct_pairs(first: Rows, second: Rows) -> tuple[Rows, Rows]:
    """The pairs that occur, each once and sorted, as two int64 arrays; by numbers, as numpy sorts rows as texts."""
    _, row = grouped([first, second])
    order = row[np.lexsort((second[row], first[row]))]
    return first[order], second[order]


def numbered(values: Rows) -> tuple[Rows, Rows]:
    """(int64 position of each value among the distinct ones, those sorted): `np.unique` with its inverse.

    Ids lie close together, so that a table of all that lie between does it without sorting, three times faster; what
    is spread, such as threads, comes in runs: the first of each is sorted, and its number repeated.
    """
    if len(values) == 0:
        return np.empty(0, np.int64), values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(len(values), np.int64), values[:1]
    if high - low < _TABLE_PER_VALUE * len(values):
        place = values if low == 0 else values - low
        there = np.zeros(high - low + 1, np.bool_)
        there[place] = True
        return (np.cumsum(there) - 1)[place], np.flatnonzero(there) + low
    first = np.flatnonzero(starts_of_runs(values))
    unique, code = np.unique(values[first], return_inverse=True)
    return np.repeat(code, np.diff(first, append=len(values))), unique


def grouped(keys: Sequence[Rows]) -> tuple[Rows, Rows]:
    """(number of each row's combination of int64 keys, first row of each combination), in order of first sight."""
    number, size = keys[0], 0  # of the numbers from 0, once they are so; 0 of a key as it came
    for key in keys[1:]:
        (number, size), (code, values) = _close(number, size), _close(key, 0)
        number, size = number * values + code, size * values
    number, unique = numbered(number)
    count = len(unique)
    first = np.empty(count, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # what is assigned last stays
    order = np.argsort(first)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    return rank[number], first[order]


def _close(values: Rows, size: int) -> tuple[Rows, int]:
    """The values as numbers below a size that is not much larger than there are values, and that size."""
    if len(values) == 0:
        return values, 1
    low, high = (0, size - 1) if size else (int(values.min()), int(values.max()))
    if high - low < _TABLE_PER_VALUE * len(values):
        return (values if low == 0 else values - low).astype(np.int64, copy=False), high - low + 1
    code, unique = numbered(values)
    return code, len(unique)


def narrowed(numbers: Rows) -> NDArray[Any]:
    """The same in as few bytes as they fit, in which they are compared and sorted several times faster."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    return numbers.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(high)), copy=False)


def among(values: Rows, members: Rows) -> NDArray[np.bool_]:
    """Whether each value is one of `members`, which are sorted; bool of the values' shape."""
    if len(members) == 0:
        return np.zeros(len(values), np.bool_)
    position = np.minimum(np.searchsorted(members, values), len(members) - 1)
    return np.asarray(members[position] == values)


def starts_of_runs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value differs from the one before it; the first one does."""
    changed = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def rank_within(groups: Rows) -> Rows:
    """Position of each within its group; the groups come in runs or not."""
    order = np.argsort(groups, kind="stable")
    begins = np.maximum.accumulate(np.where(starts_of_runs(groups[order]), np.arange(len(groups)), 0))
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - begins
    return rank


def previous_equal(keys: Rows) -> Rows:
    """Position of the nearest one before with the same key, -1 for none."""
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    previous = np.full(len(keys), -1, np.int64)
    previous[order[again + 1]] = order[again]
    return previous


def places_of(rows: Rows, size: int) -> Rows:
    """Position among the rows of each number below `size`, -1 of others and of -1; int64 (size + 1,)."""
    place = np.full(size + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    return place


def ranges(first: Rows, count: Rows) -> tuple[Rows, Rows]:
    """(number of the range, position) for all positions of ranges, each of so many from its first on."""
    number = np.repeat(np.arange(len(first)), count)
    return number, np.arange(len(number)) + np.repeat(first - (np.cumsum(count) - count), count)


def medians(values: Any) -> Floats:
    """Median of each row of numbers, NaN where one is or none is there; `np.median` imports `numpy.ma`."""
    ordered = np.sort(np.asarray(values, np.float64))
    count = ordered.shape[-1]
    if count == 0:
        return np.full(ordered.shape[:-1], np.nan)
    middle = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return np.where(np.isnan(ordered[..., -1]), np.nan, middle)


def median(values: Any) -> float:
    """Median of all numbers, NaN where one is or none is there."""
    return float(medians(np.ravel(values)))


def quantile(values: Rows, share: float) -> float:
    """What this share of some numbers is below, between the two nearest in proportion."""
    return float(np.interp(share * (len(values) - 1), np.arange(len(values)), np.sort(values)))


def quantile_within(number: Rows, values: NDArray[Value], share: float) -> NDArray[Value]:
    """For each row, what this share of the values of its number is below: the lower of the two nearest."""
    group, _ = numbered(number)
    count = np.bincount(group)
    place = np.cumsum(count) - count + (share * (count - 1)).astype(np.int64)
    return np.asarray(values[np.lexsort((values, group))][place][group])


def median_of(number: Rows, values: NDArray[Any]) -> NDArray[np.float64]:
    """Median of the values of each number from 0 to the largest, all of which occur; float64."""
    count = np.bincount(number)
    ordered, first = values[np.lexsort((values, number))], np.cumsum(count) - count
    return np.asarray((ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2)


def medians_of_kinds(kind: Rows, values: NDArray[Any], among: Mask, kinds: int, least: int) -> Floats:
    """Median of the chosen values of each kind, NaN where there are fewer than `least`; float64 (kinds,)."""
    enough = np.bincount(kind[among], minlength=kinds) >= least
    chosen = among & enough[kind]
    middle = np.full(kinds, np.nan)
    middle[enough] = median_of((np.cumsum(enough) - 1)[kind[chosen]], values[chosen])
    return middle


def sums_of(number: Rows, values: Rows, size: int) -> Rows:
    """Sum of the values of each number; int64 of shape (size,), exact."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, number, values)
    return sums
