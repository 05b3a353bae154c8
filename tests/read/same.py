"""Whether two readings of one trace are the same, bit for bit."""

from __future__ import annotations

from dataclasses import fields

from pandas.testing import assert_frame_equal

from traceanalyzer.model.trace import Meta, Trace


def assert_same(a: Trace, b: Trace, *, but: tuple[str, ...] = ("source",)) -> None:
    """All four frames and all metadata, except for the named fields of it."""
    for name in Trace.FRAMES:
        assert_frame_equal(getattr(a, name), getattr(b, name), check_exact=True)
    for field in fields(Meta):
        if field.name not in but:
            assert getattr(a.meta, field.name) == getattr(b.meta, field.name), field.name
