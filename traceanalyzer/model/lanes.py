"""Rows of a lane as numpy columns, which analyses read, and as the pandas frame that users see.

Either is made of the other when it is first asked for: pandas takes longer to import than a trace of 30 MB to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from threading import RLock
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.schema import FRAMES, Column, Storage

NULL_INT = np.iinfo(np.int64).min  # stands for null inside numpy arrays; never printed, never in a frame
NULL_INT32 = np.iinfo(np.int32).min  # the same, in a column that is stored in 32 bits

Codes = NDArray[np.signedinteger[Any]]
Values: TypeAlias = "NDArray[np.int64] | Floats"


class Coded(NamedTuple):
    """A column of texts: `codes` are the place of each in `texts`, -1 for null; (rows,), as narrow as they fit.

    The texts are distinct, str in an object array; some may not occur.
    """

    codes: Codes
    texts: NDArray[np.object_]


class Table(NamedTuple):
    """A column of numbers that recur: `codes` are the place of each in `values`; (rows,), as narrow as they fit.

    The values are int64 or float64, the last of them the null.
    """

    codes: Codes
    values: Values

    def wide(self) -> Values:
        codes = self.codes.astype(np.intp)  # narrow codes are looked up three times slower
        return self.values[codes]


class Narrow(NamedTuple):
    """A column of whole numbers that fit 32 bits: int32 with null as NULL_INT32, or uint32 without null; (rows,)."""

    values: NDArray[np.int32] | NDArray[np.uint32]

    def wide(self) -> NDArray[np.int64]:
        wide = self.values.astype(np.int64)
        if self.values.dtype == np.int32:
            np.putmask(wide, self.values == NULL_INT32, NULL_INT)
        return wide


Stored = TypeVar("Stored", bound="Values | Coded | Table | Narrow")


class Columns:
    """Rows of one lane as read-only columns: int64 with null as NULL_INT, float64, or `Coded`; (rows,) each."""

    def __init__(self, rows: int, fetch: Callable[[str], Values | Coded | Table | Narrow]) -> None:
        """`fetch` gives the column of a name, and is asked for it once."""
        self._rows, self._fetch = rows, fetch
        self._known: dict[str, Values | Coded | Table | Narrow] = {}

    @classmethod
    def of(cls, columns: Mapping[str, Values | Coded | Table | Narrow], rows: int) -> Columns:
        return cls(rows, {name: _frozen(column) for name, column in columns.items()}.__getitem__)

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> Columns:
        """From a pandas frame, in its memory where it holds no null."""
        return cls(len(frame), partial(_from_pandas, frame))

    def __len__(self) -> int:
        return self._rows

    def column(self, name: str) -> Values | Coded:
        stored = self._kept(name)
        # It is made anew each time: it is asked for twice.
        return stored.wide() if isinstance(stored, Table | Narrow) else stored

    def at(self, name: str, rows: NDArray[np.int64]) -> Values:
        """A column of numbers at some rows, -1 where the row is -1."""
        stored = self._kept(name)
        assert not isinstance(stored, Coded)
        if isinstance(stored, Table):
            numbers = stored.values.take(stored.codes.take(rows))
        elif isinstance(stored, Narrow):
            numbers = Narrow(stored.values.take(rows)).wide()
        else:
            numbers = stored.take(rows)
        np.putmask(numbers, rows < 0, -1)
        return numbers

    def _kept(self, name: str) -> Values | Coded | Table | Narrow:
        if name not in self._known:
            self._known[name] = self._fetch(name)
        return self._known[name]

    def but(self, name: str, column: Values) -> Columns:
        """The same with another column of that name."""
        return Columns(self._rows, lambda wanted: _frozen(column) if wanted == name else self.column(wanted))

    def frame(self, name: str) -> pd.DataFrame:
        """As the pandas frame of that name, whose columns `schema` declares; in the same memory where it can be."""
        columns = FRAMES[name].columns
        return pd.DataFrame({one.name: _to_pandas(one, self.column(one.name)) for one in columns}, copy=False)


def _frozen(column: Stored) -> Stored:
    for part in column if isinstance(column, tuple) else (column,):
        part.flags.writeable = False
    return column


def _from_pandas(frame: pd.DataFrame, name: str) -> Values | Coded:
    series = frame[name]
    if hasattr(series, "cat"):
        values = series.array
        texts = np.array([str(text) for text in values.categories.to_numpy(object)], object)
        return Coded(values.codes, texts)
    if isinstance(series.dtype, np.dtype):  # it holds no null, for which pandas would look all the same
        floats = series.dtype.kind == "f"
        return series.to_numpy(np.float64) if floats else series.to_numpy(np.int64)
    return series.to_numpy(np.int64, na_value=NULL_INT)


def _to_pandas(column: Column, values: Values | Coded) -> Any:
    if isinstance(values, Coded):
        texts = pd.Index(values.texts, dtype=text_dtype())
        return pd.Categorical.from_codes(values.codes, categories=texts)
    if column.storage is not Storage.INT:
        return values
    numbers: Any = values
    # What is made of one value repeated is repeated, too.
    sample = numbers if any(numbers.strides) else numbers[:1]
    missing = sample == NULL_INT
    if not missing.any():
        return pd.arrays.IntegerArray(numbers, np.broadcast_to(np.array(False), numbers.shape))
    filled = np.broadcast_to(np.where(missing, 0, sample), numbers.shape)
    return pd.arrays.IntegerArray(filled, np.broadcast_to(missing, numbers.shape))


@cache
def text_dtype() -> Any:
    """Of categories: as pandas itself has."""
    from pandas import __version__

    return "str" if int(__version__.split(".")[0]) >= 3 else object


class Lane:
    """Rows of one lane in either form; whoever holds this sees the same ones. Several threads may use it.

    Where there is a frame, someone may have written to it: columns that are made afresh are made of it.
    """

    def __init__(self, name: str, make: Callable[[], Columns] | None = None, frame: pd.DataFrame | None = None) -> None:
        """Of the frame of that name in `schema.FRAMES`: `make` is called once at most, unless the frame is given."""
        self._name, self._make, self._frame = name, make, frame
        self._columns: Columns | None = None
        self._lock = RLock()

    def columns(self) -> Columns:
        with self._lock:
            if self._columns is None:
                if self._frame is not None:
                    self._columns = Columns.of_frame(self._frame)
                else:
                    assert self._make is not None
                    self._columns, self._make = self._make(), None
            return self._columns

    def frame(self) -> pd.DataFrame:
        with self._lock:
            if self._frame is None:
                self._frame, self._columns = self.columns().frame(self._name), None
            return self._frame

    def refresh_from_frames(self) -> None:
        """Rebuild the columns from the frame, if there is one, since it may have been modified."""
        with self._lock:
            if self._frame is not None:
                self._columns = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._frame is not None:
            return Lane, (self._name, None, self._frame)
        columns = self.columns()
        names = [column.name for column in FRAMES[self._name].columns]
        known = {name: columns.column(name) for name in names}
        return Lane, (self._name, partial(Columns.of, known, len(columns)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Lane:
        return Lane(self._name, frame=self.frame().copy())


class Lanes(dict[str, Lane]):
    """The lanes of one trace by name, columns as `schema` declares them for that frame, in order of event_id."""

    @property
    def cpu(self) -> Columns:
        return self["cpu"].columns()

    @property
    def gpu(self) -> Columns:
        return self["gpu"].columns()

    @property
    def python(self) -> Columns:
        return self["python"].columns()

    @property
    def memory(self) -> Columns:
        return self["memory"].columns()

    @property
    def counters(self) -> Columns:
        return self["counters"].columns()

    def frame(self, name: str) -> pd.DataFrame:
        return self[name].frame()

    def but(self, frames: Mapping[str, pd.DataFrame]) -> Lanes:
        """The same with other frames in place of some."""
        return Lanes(self | {name: Lane(name, frame=frame) for name, frame in frames.items()})

    def refresh_from_frames(self) -> None:
        """Rebuild columns from frames that may have been modified."""
        for lane in self.values():
            lane.refresh_from_frames()
