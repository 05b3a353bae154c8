"""Work of two recordings that is the same: by where it is, else by its op, its kernel, its region, its family.

Each rung of the ladder takes what the rungs before it left. What a rung matches one to one leaves a remainder where
counts differ, for the rungs after it; what stays then belongs to the pair that has the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from traceanalyzer.comparison.canonical_names import family_of
from traceanalyzer.comparison.snapshot import rows_of
from traceanalyzer.model.interpreter import pd

Rung = Literal["path", "op", "kernel", "region", "family", "none"]
RUNGS: tuple[Rung, ...] = ("path", "op", "kernel", "region", "family", "none")

Key = Callable[[Any], Hashable | None]
Parts = dict[int, float]  # row of a work table -> share of it (0 to 1)

_LINK = ("copy_h2d", "copy_d2h", "copy_p2p")  # copies that no kernel takes the place of
_LEAST = 1e-9  # of a row: less is a rounding error


@dataclass(slots=True)
class Pair:
    """Work of the two sides that counts as the same; one side is empty for what is new or gone."""

    rung: Rung
    base: Parts = field(default_factory=dict)
    new: Parts = field(default_factory=dict)


def matched(base: pd.DataFrame, new: pd.DataFrame) -> list[Pair]:
    """All work of both tables, each row in pairs that together hold it whole."""
    sides = [_Side(table) for table in (base, new)]
    pairs: list[Pair] = []
    for rung, key, whole in _LADDER:
        if whole and rung == "region":
            # Remainders go to the pair that has the rest of their row: it occurs more often on one side.
            for index, side in enumerate(sides):
                for row in [row for row in side.holder if side.left[row] > _LEAST]:
                    side.take([row], 1.0, side.holder[row], index)
        pairs += _by_key(rung, key, whole, sides)
    return pairs + [pair for index, side in enumerate(sides) for pair in side.alone(index)]


class _Side:
    """A work table, and how much of each row is not matched yet."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.rows = rows_of(table)
        self.count = table["count"].to_numpy(np.float64)
        self.left = np.ones(len(table))
        self.holder: dict[int, Pair] = {}  # the first pair that has a part of the row

    def groups(self, key: Key) -> dict[Hashable, list[int]]:
        """Key -> rows that are not matched whole."""
        result: dict[Hashable, list[int]] = {}
        for row in np.flatnonzero(self.left > _LEAST).tolist():
            made = key(self.rows[row])
            if made is not None:
                result.setdefault(made, []).append(row)
        return result

    def take(self, rows: Sequence[int], share: float, pair: Pair, at: int) -> None:
        """Put this share of what is left of the rows into the pair."""
        parts = (pair.base, pair.new)[at]
        for row in rows:
            part = share * float(self.left[row])
            parts[row] = parts.get(row, 0.0) + part
            self.left[row] = 0.0 if share >= 1 - _LEAST else self.left[row] - part
            self.holder.setdefault(row, pair)

    def alone(self, at: int) -> list[Pair]:
        """What nothing matches, op by op."""
        pairs = []
        for rows in self.groups(_same_op).values():
            pair = Pair("none")
            self.take(rows, 1.0, pair, at)
            pairs.append(pair)
        return pairs


def _by_key(rung: Rung, key: Key, whole: bool, sides: Sequence[_Side]) -> list[Pair]:
    """Pairs of what has the same key; if `whole`, all of it, else as many executions as both sides have."""
    groups = [side.groups(key) for side in sides]
    pairs = []
    for made, rows in groups[0].items():
        others = groups[1].get(made)
        if others is None:
            continue
        both = list(zip(sides, (rows, others), strict=True))
        counts = [float((side.count[own] * side.left[own]).sum()) for side, own in both]
        pair = Pair(rung)
        for index, (side, own) in enumerate(both):
            share = 1.0 if whole or counts[index] <= 0 else min(counts) / counts[index]
            side.take(own, share, pair, index)
        pairs.append(pair)
    return pairs


def _same_op(row: Any) -> Hashable:
    return row.annotation, row.outer, row.op, row.kind, "" if row.op else row.kernel


def _same_family(row: Any) -> Hashable | None:
    family = family_of(row.kernel, row.kind)
    return None if family == "other" else (family, row.kind if row.kind in _LINK else "")


def _same(columns: str, needed: str = "") -> Key:
    """The values of these columns; None where one that is needed has no text."""
    values, texts = attrgetter(*columns.split()), needed.split()
    return lambda row: values(row) if all(getattr(row, name) for name in texts) else None


_LADDER: tuple[tuple[Rung, Key, bool], ...] = (
    ("path", _same("annotation outer op dims types kernel kind blocks"), False),
    ("path", _same("annotation outer op dims types kind", needed="op"), False),
    ("op", _same("op dims kernel kind", needed="op"), False),
    ("op", _same("op dims kind", needed="op dims"), False),
    ("kernel", lambda row: (row.kernel, row.kind, int(row.blocks).bit_length()), False),
    ("kernel", _same("kernel kind"), False),
    ("region", _same_op, True),
    ("region", _same("op kind", needed="op"), True),
    ("region", _same("outer kind", needed="outer"), True),
    ("region", _same("annotation kind", needed="annotation"), True),
    ("family", _same_family, True),
)
