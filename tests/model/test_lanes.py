"""Rows of a lane as columns and as a frame: nulls, copies, and what was written to."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.lanes import NULL_INT, NULL_INT32, Coded, Columns, Narrow, Table
from traceanalyzer.model.trace import Trace, floats, ints, ints_at

CODED = Coded(np.array([0, -1, 1], np.int8), np.array(["a", "b", "never"], object))


def columns() -> Columns:
    """Numbers that recur, that fit 32 bits with and without null, and others; and texts."""
    made: dict[str, Any] = {
        "table": Table(np.array([1, 0, 2], np.uint8), np.array([7, 3, NULL_INT])),
        "spare": Table(np.array([1, 1, 3], np.uint8), np.array([7, 3, 5, NULL_INT])),
        "narrow": Narrow(np.array([5, NULL_INT32, -5], np.int32)),
        "wide": Narrow(np.array([5, 2**32 - 1, 2**31], np.uint32)),
        "plain": np.array([4, NULL_INT, 6]),
        "text": CODED,
    }
    return Columns.of(made, 3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("table", [3, 7, NULL_INT]),
        ("spare", [3, 3, NULL_INT]),
        ("narrow", [5, NULL_INT, -5]),
        ("wide", [5, 2**32 - 1, 2**31]),
        ("plain", [4, NULL_INT, 6]),
    ],
)
def test_a_column_is_the_same_however_it_is_kept(name: str, values: list[int]) -> None:
    """As a whole, at some rows, and numbered."""
    kept = columns()
    assert np.asarray(kept.column(name)).tolist() == values
    assert kept.at(name, np.array([2, -1, 0])).tolist() == [values[2], -1, values[0]]
    number, found = kept.numbered(name)
    assert found.tolist() == sorted(set(values))
    assert found[number].tolist() == values
    assert len(kept) == 3


def test_another_column_takes_the_place_of_one_alone() -> None:
    other = columns().but("plain", np.array([1, 2, 3]))
    assert np.asarray(other.column("plain")).tolist() == [1, 2, 3]
    assert np.asarray(other.column("narrow")).tolist() == [5, NULL_INT, -5]
    assert len(other) == 3
    for column in (other.column("plain"), columns().column("plain")):
        assert isinstance(column, np.ndarray)
        assert not column.flags.writeable


def test_a_frame_has_nulls_texts_and_floats_as_columns() -> None:
    frame = pd.DataFrame(
        {
            "number": pd.array([1, None, 3], "Int64"),
            "plain": np.array([1, 2, 3], np.int32),
            "share": np.array([0.5, np.nan, 1], np.float32),
            "text": pd.Categorical(["b", None, "a"]),
        }
    )
    assert ints(frame, "number").tolist() == [1, NULL_INT, 3]
    assert ints(frame, "plain").tolist() == [1, 2, 3]
    assert ints_at(frame, "number", np.array([2, -1])).tolist() == [3, -1]
    assert ints_at(frame[:0], "number", np.array([-1, -1])).tolist() == [-1, -1]
    assert floats(frame, "share").tolist()[::2] == [0.5, 1.0]
    text: Any = Columns.of_frame(frame).column("text")
    assert (text.codes.tolist(), text.texts.tolist()) == ([1, -1, 0], ["a", "b"])


@pytest.fixture
def trace() -> Trace:
    """An op with a number of its own, one without, and a kernel."""
    made = TraceBuilder()
    made.op("aten::mm", 0, 1_000, **{"Sequence number": 7})
    made.op("aten::add", 2_000, 1_000)
    made.kernel(500, 1_000, 1)
    return made.load()


def test_a_lane_and_its_frame_say_the_same(trace: Trace) -> None:
    before = {name: np.asarray(trace.lanes.cpu.column(name)).tolist() for name in ("start_ns", "sequence")}
    assert before["sequence"] == [7, NULL_INT]
    assert trace.cpu["sequence"].isna().tolist() == [False, True]
    assert trace.cpu["sequence"][0] == 7
    after = {name: np.asarray(trace.lanes.cpu.column(name)).tolist() for name in before}
    assert after == before
    assert trace.cpu is trace.cpu


def test_what_was_written_to_a_frame_goes_along_with_the_trace(trace: Trace) -> None:
    """To another process, to a copy, and to the next analysis; not from a copy back."""
    changed = trace.with_frames(cpu=trace.cpu.assign(dur_ns=np.array([5, 6])))
    assert ints(changed.lanes.cpu, "dur_ns").tolist() == [5, 6]
    assert ints(trace.lanes.cpu, "dur_ns").tolist() == [1_000, 1_000]
    assert len(changed.lanes.gpu) == 1
    assert ints(changed.lanes.gpu, "dur_ns").tolist() == [1_000]
    changed.cpu["dur_ns"] = np.array([8, 9])
    for same in (pickle.loads(pickle.dumps(changed)), copy.deepcopy(changed)):
        assert ints(same.lanes.cpu, "dur_ns").tolist() == [8, 9]
        same.cpu["dur_ns"] = np.array([0, 0])
    Analysis(changed)
    assert ints(changed.lanes.cpu, "dur_ns").tolist() == [8, 9]


def test_a_trace_is_the_same_after_its_way_to_another_process(trace: Trace) -> None:
    again = pickle.loads(pickle.dumps(trace))
    assert (len(again.lanes.cpu), len(again.lanes.gpu), len(again.lanes.memory)) == (2, 1, 0)
    for lane in Trace.FRAMES:
        pd.testing.assert_frame_equal(getattr(again, lane), getattr(trace, lane))
