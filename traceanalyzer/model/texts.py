"""A column of texts with few distinct values: asked once per distinct text, compared by number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, overload

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, numbered, places_of
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.text_queries import cached_predicate, compiled, rows_with_codes
from traceanalyzer.model.trace import codes_at, texts_of

# A name is shown only if it has at least this share of the sum; chosen.
STANDS_OUT = 0.25
# Rows that numpy passes over in the time of one call of a predicate.
_ROWS_PER_QUESTION = 64


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts of some rows; both arrays are read-only, since others see the same.

    Attributes:
        code: int64 (rows,), position in `names`, -1 where there is no text.
        names: the distinct texts; some may not occur.
    """

    code: Rows
    names: NDArray[np.object_]

    def __post_init__(self) -> None:
        for name in ("code", "names"):
            if (array := getattr(self, name)).flags.writeable:  # whoever gave it may go on writing to it
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.code)

    def __eq__(self, other: object) -> bool:
        raise TypeError("texts are no array: one_of(...) or matches(...) gives the rows that have a text")

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, chosen: int) -> str | None: ...
    @overload
    def __getitem__(self, chosen: Rows | Mask) -> Self: ...
    def __getitem__(self, chosen: int | Rows | Mask) -> str | Self | None:
        if isinstance(chosen, int | np.integer):
            code = int(self.code[chosen])
            return str(self.names[code]) if code >= 0 else None
        if isinstance(chosen, np.ndarray) and chosen.dtype.kind == "i" and chosen.min(initial=0) < 0:
            raise IndexError("texts at positions below 0: -1 stands for none, leave it out")
        return type(self)(self.code[chosen], self.names)

    @property
    def there(self) -> Mask:
        """Which rows have a text; bool (rows,)."""
        return self.code >= 0

    def meets(self, wanted: Callable[[str], object]) -> Mask:
        """Which rows satisfy a predicate, asked once per distinct text; bool (rows,), False without text."""
        asked = np.zeros(len(self.names), bool)
        few = len(self.names) * _ROWS_PER_QUESTION <= len(self.code)
        codes = np.arange(len(self.names)) if few else np.array(self.occurring(), np.int64)
        asked[codes] = list(map(bool, map(cached_predicate(wanted), map(str, self.names[codes].tolist()))))
        return rows_with_codes(asked, self.code)

    def occurring(self) -> list[int]:
        """The codes that occur, sorted; by a table, since there are few of them and many rows."""
        there = np.zeros(len(self.names) + 1, bool)
        there[self.code] = True
        occurring: list[int] = np.flatnonzero(there[:-1]).tolist()
        return occurring

    def matches(self, pattern: str | re.Pattern[str]) -> Mask:
        """Which rows have the pattern anywhere in their text; bool (rows,)."""
        return self.meets((compiled(pattern) if isinstance(pattern, str) else pattern).search)

    def one_of(self, *texts: str) -> Mask:
        """Which rows have one of these texts; bool (rows,)."""
        return self.meets(texts.__contains__)

    def or_else(self, other: Texts) -> Texts:
        """These texts, and the other's where there is none; both of the same shape."""
        names = np.concatenate((self.names, other.names))
        others = np.where(other.there, other.code + len(self.names), -1)
        return Texts(np.where(self.there, self.code, others), names)

    def values(self) -> NDArray[np.object_]:
        """A text for each row, with its repetitions: str, or None where there is no text; object (rows,)."""
        return np.append(self.names, np.array([None], object))[self.code]

    def numbers(self, number_of: Callable[[str], int]) -> Rows:
        """A number of each row's text, asked once per distinct text; int64 (rows,), 0 without text."""
        table = np.zeros(len(self.names) + 1, np.int64)
        for code in self.occurring():
            table[code] = number_of(str(self.names[code]))
        return np.asarray(table[self.code])

    def distinct(self) -> list[str]:
        """The texts that occur, sorted."""
        return sorted(str(self.names[code]) for code in self.occurring())

    def ranks(self) -> Rows:
        """Numbers that sort like the texts, whatever the order of the file; -1 without text; int64 (rows,)."""
        return places_of(np.argsort(self.names, kind="stable"), len(self.names))[self.code]

    def sums(self, weights: Rows) -> dict[str, int]:
        """Text -> sum of the weights of its rows, largest first; rows without text are left out."""
        number, used = numbered(self.code[self.there])
        total = np.bincount(number, weights[self.there], len(used)).astype(np.int64)
        named: Counter[str] = Counter()  # `or_else` may have given a text two codes
        for code, ns in zip(used, total.tolist(), strict=True):
            named[str(self.names[code])] += ns
        return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))

    @classmethod
    def column(cls, frame: Columns | pd.DataFrame, name: str, rows: Rows) -> Self:
        """A text column of a frame, at some rows; -1 stands for no row."""
        return cls(codes_at(frame, name, rows), texts_of(frame, name))

    @classmethod
    def none(cls, rows: int) -> Self:
        """Texts of rows that have none."""
        return cls(np.full(rows, -1, np.int64), np.empty(0, object))


class ClosedTexts(Texts):
    """Texts of which all names are known, so that one that there cannot be is a mistake.

    Raises ValueError: `one_of` is asked for a name that there is not.
    """

    __slots__ = ()

    def one_of(self, *texts: str) -> Mask:
        chosen = super().one_of(*texts)
        if unknown := sorted({str(text) for text in texts} - set(self.names.tolist())):
            raise ValueError(f"none is called {', '.join(unknown)}; there are {', '.join(self.names)}")
        return chosen
