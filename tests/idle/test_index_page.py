"""docs/indexes.md: complete, and true to the code."""

from __future__ import annotations

import pytest

from tools.index_page import all_indexes, columns, index_page
from traceanalyzer.idle.causes import Idle
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps


def test_every_index_has_its_columns() -> None:
    page = index_page()
    for kind in all_indexes():
        assert f"\n## {kind.__name__}\n" in page
        assert columns(kind)


@pytest.mark.parametrize(
    ("kind", "name", "dtype", "shape", "unit"),
    [
        (Idle, "cause", "int64", "(pieces,)", ""),
        (Idle, "start_ns", "int64", "(pieces,)", "ns"),
        (Steps, "steady", "bool", "(steps,)", ""),
        (Nesting, "annotation", "bool", "(rows,)", ""),
    ],
)
def test_a_column_has_dtype_shape_and_unit(kind: type, name: str, dtype: str, shape: str, unit: str) -> None:
    (column,) = [column for column in columns(kind) if column.name == name]
    assert (column.dtype, column.shape, column.unit) == (dtype, shape, unit)
    assert column.meaning or name == "start_ns"


def test_needs_and_the_window_are_told() -> None:
    page = index_page()
    assert "of the part of the trace that was asked for; needs StepMarks, Window." in page
    assert "needs Trace, Nesting, SyncCalls, DeviceWork or none." in page
