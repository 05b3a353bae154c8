"""One event that is not as the exporter writes it, among many that are."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read.raw_events import of, op
from tests.support.hypothesis_profiles import examples
from traceanalyzer.read.columns import collector
from traceanalyzer.read.columns.quirks import mended


@examples(50)
@given(st.lists(st.sampled_from([3, 3, 3, 3, 3, 3, "5", None, 2**70]), min_size=1, max_size=60))
def test_unusual_values_among_usual_ones_leave_those_alone(values: list[Any]) -> None:
    trace = of(*(op(name=f"op{i}", args={"External id": value}) for i, value in enumerate(values)))
    expected = [None if value == 2**70 or value is None else int(value) for value in values]
    assert [None if found is pd.NA else found for found in trace.cpu["external_id"]] == expected
    assert trace.cpu["name"].tolist() == [f"op{i}" for i in range(len(values))]
    assert trace.meta.anomalies == (
        {"unreadable External id": values.count(2**70)} if 2**70 in values else {}
    )


def test_only_neighbours_of_an_unusual_value_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mending one takes as long as packing a hundred; a root's parent is null once for every thread and recording."""
    seen = []
    monkeypatch.setattr(collector, "mended", lambda event, *_: seen.append(event) or mended(event, *_))
    many = [op(args={"External id": 5 if i != 700 else None}) for i in range(1_000)]
    assert of(*many).cpu["external_id"].isna().sum() == 1
    assert len(seen) <= 8
    assert many[700] in seen


def test_events_after_one_that_is_no_row_keep_their_ids() -> None:
    """The second has no time, and the last a number that is a text."""
    args = [{"External id": value} for value in (3, 4, 5, "6")]
    trace = of(*(op(name=f"op{i}", args=one, ts=None if i == 1 else 5.0 + i) for i, one in enumerate(args)))
    assert trace.cpu["name"].tolist() == ["op0", "op2", "op3"]
    assert trace.cpu["event_id"].tolist() == [0, 2, 3]
    assert trace.cpu["external_id"].tolist() == [3, 5, 6]
