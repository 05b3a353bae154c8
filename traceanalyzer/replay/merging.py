"""Edits of many hits become few, so that a finding of a thousand hits is as quick to replay as one of a single hit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from traceanalyzer.replay.edits import Edit

_JOINED = frozenset(
    {"rows", "work", "pointwise", "starts_ns", "ends_ns", "group"}
)  # one value per thing that is edited
_SHARED_OR_EACH = frozenset(
    {"dur_ns", "work_ns", "factor"}
)  # a number or a row for all, or an array with one for each


_EACH = "each"


def merged(edits: Iterable[Edit]) -> list[Edit]:
    """The same edits, those of one kind and the same scalars as one, in the order in which they first come."""
    groups: dict[tuple[Any, ...], list[Edit]] = {}
    for edit in edits:
        groups.setdefault(_key(edit), []).append(edit)
    return [members[0] if len(members) == 1 else _joined(members) for members in groups.values()]


def _key(edit: Edit) -> tuple[Any, ...]:
    values = ((one.name, getattr(edit, one.name)) for one in fields(edit))  # type: ignore[arg-type]
    return (type(edit), *(_part(name, value) for name, value in values if name not in _JOINED))


def _part(name: str, value: Any) -> Any:
    """What two edits must have in common; of arrays with a value for each the shape of a value."""
    if name not in _SHARED_OR_EACH or value is None:
        return value
    shape = np.shape(value)
    if name == "work_ns":
        return (_EACH, shape[1]) if len(shape) == 2 else tuple(np.asarray(value).tolist())
    return (_EACH,) if shape else value


def _joined(members: Sequence[Edit]) -> Edit:
    joined: dict[str, Any] = {}
    for one in fields(members[0]):  # type: ignore[arg-type]
        values = [getattr(edit, one.name) for edit in members]
        if one.name == "group":
            values = _renumbered(values)
        part = _part(one.name, values[0])
        each = one.name in _JOINED or (isinstance(part, tuple) and part[:1] == (_EACH,))
        joined[one.name] = np.concatenate([np.asarray(v) for v in values]) if each else values[0]
    return type(members[0])(**joined)


def _renumbered(groups: Sequence[Any]) -> list[Any]:
    """Groups of different edits stay different."""
    found, first = [], 0
    for group in groups:
        numbers = np.asarray(group, np.int64)
        found.append(numbers + first)
        first += int(numbers.max(initial=-1)) + 1
    return found
