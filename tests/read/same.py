"""Whether two readings of one trace are the same, bit for bit."""

from dataclasses import fields

import pandas as pd
from pandas.testing import assert_frame_equal

from traceanalyzer.model.trace import Meta, Trace


def assert_same(a: Trace, b: Trace, *, but: tuple[str, ...] = ("source",)) -> None:
    """All four frames and all metadata, except for the named fields of it."""
    for name in Trace.FRAMES:
        one, other = getattr(a, name), getattr(b, name)
        if not same(one, other):  # a quick look first: the thorough one takes twice as long as reading
            assert_frame_equal(one, other, check_exact=True)
            raise AssertionError(f"{name} differs in its types")
    for field in fields(Meta):
        if field.name not in but:
            assert getattr(a.meta, field.name) == getattr(b.meta, field.name), field.name


def same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether columns, rows, values and types are equal, those of categories in their order as well."""
    if not (one.equals(other) and type(one.index) is type(other.index)):
        return False
    pairs = zip(one.dtypes, other.dtypes, strict=True)
    return all(mine == theirs and _categories(mine) == _categories(theirs) for mine, theirs in pairs)


def _categories(dtype: object) -> list[object]:
    if not isinstance(dtype, pd.CategoricalDtype):
        return []
    return [dtype.categories.dtype, dtype.ordered, *dtype.categories]
