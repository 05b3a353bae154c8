"""Values at the ends of what a column holds, and what pids and labels say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.read.raw_events import kernel, of, op
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.schema import Storage
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.columns import packing
from traceanalyzer.read.columns.declared import Declared
from traceanalyzer.read.columns.quirks import coerced, destination, lane_number

GIB = 1 << 30


@pytest.mark.parametrize("large", [2 * GIB - 1, 2 * GIB, 5 * GIB, -2 * GIB, -2 * GIB - 1])
def test_a_number_of_more_than_32_bits_is_kept_beside_small_ones(large: int) -> None:
    """Bytes of copies and of memsets, and of the allocator: rows with other args, which make one column."""
    trace = TraceBuilder()
    trace.memcpy(0, 100, 1, size=abs(large))
    trace.memset(200, 10, 2, size=4)
    trace.kernel(300, 10, 3)
    trace.op("aten::empty", 0, 100)
    trace.memory(10, 512)
    trace.memory(20, large)
    loaded = trace.load()
    assert loaded.gpu["bytes"].fillna(-1).tolist() == [abs(large), 4, -1]
    assert loaded.memory["bytes"].tolist() == [512, large]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        (7.0, 7),
        (7.5, NULL_INT),
        (-3, -3),
        ("25738", 25738),
        ("-3", -3),
        ("stream 7", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, NULL_INT),
        ("Spans", NULL_INT),
        (2**63 - 1, 2**63 - 1),
        (2**63, NULL_INT),
        (True, NULL_INT),
        (None, NULL_INT),
    ],
)
def test_a_lane_is_the_number_that_it_is_called(value: Any, number: int) -> None:
    assert lane_number(value) == number


@pytest.mark.parametrize(
    ("storage", "value", "kept"),
    [
        (Storage.INT, 3, 3),
        (Storage.INT, 3.0, 3),
        (Storage.INT, 3.5, None),
        (Storage.INT, "3", 3),
        (Storage.INT, "0xff", 255),
        (Storage.INT, "-", None),
        (Storage.INT, 2**63 - 1, 2**63 - 1),
        (Storage.INT, 2**63, None),
        (Storage.INT, -(2**63), None),  # it stands for null
        (Storage.INT, float("inf"), None),
        (Storage.FLOAT, "1.5", 1.5),
        (Storage.FLOAT, 2, 2.0),
        (Storage.FLOAT, "0x10", 16.0),
        (Storage.TEXT, "a", "a"),
        (Storage.TEXT, [1], "[1]"),
        (Storage.JSON, "a", '"a"'),
        (Storage.JSON, None, None),
    ],
)
def test_a_value_is_kept_as_its_column_holds_it_or_is_null(storage: Storage, value: Any, kept: Any) -> None:
    assert coerced(storage, value) == kept


@pytest.mark.parametrize(
    ("said", "pid", "device"),
    [
        ({}, 0, 0),
        ({}, 3, 3),
        ({}, "GPU 12", 12),
        ({"process_labels": "GPU 1023"}, 4321, 1023),
        ({}, 63, 63),
        ({}, 64, None),  # a process
        ({}, -1, None),
        ({}, "GPU 5", 5),
        ({}, "trace of GPU 5", None),
        ({"process_labels": "GPU 2"}, 4321, 2),
        ({"process_name": "GPU 2"}, 4321, 2),
        ({"process_labels": "GPU 1", "process_name": "GPU 2"}, 3, 1),
        ({"process_labels": "CPU"}, 3, None),
        ({"process_labels": "CPU", "process_name": "python"}, 3, None),
        ({"process_name": "CPU"}, 3, 3),
    ],
)
def test_device_of_a_row_is_its_process_or_ordinal(
    said: dict[str, str], pid: Any, device: int | None
) -> None:
    assert Declared(processes={str(pid): said}).device_of(pid) == device


def test_last_declaration_and_first_span_count() -> None:
    first, later = Declared(), Declared()
    span = {"cat": "Trace", "name": "PyTorch Profiler (0)", "dur": 5}
    for declared, name, start in ((first, "main", 1_000), (later, "worker", 9_000)):
        declared.add({"name": "thread_name", "pid": 1, "tid": 2, "args": {"name": f" {name} "}}, 0)
        declared.add({"name": "process_name", "pid": 1, "args": {"name": name}}, 0)
        declared.add({**span, "name": "Iteration Start"}, 1)
        declared.add({**span, "dur": -5}, 2)
        declared.add(span, start)
    first.add({"name": "process_labels", "pid": 1, "args": {"labels": "GPU 0"}}, 0)
    first.add({"name": "process_name", "pid": 7, "args": {"name": "named", "labels": "labelled"}}, 0)
    first.update(later)
    assert first.processes.pop("7") == {"process_name": "named"}
    assert first.threads == {"1/2": "worker"}
    assert first.processes == {"1": {"process_name": "worker", "process_labels": "GPU 0"}}
    assert first.window_ns == (1_000, 6_000)


@pytest.mark.parametrize(
    ("category", "event", "place"),
    [
        ("new", {"ph": "X", "args": {"device": 0, "stream": 7}}, ("gpu", "new")),
        ("new", {"ph": "X", "args": {"device": 0}}, ("cpu", "new")),
        ("new", {"ph": "X"}, ("cpu", "new")),
        (None, {"ph": "X", "args": {"Task Type": "AI_CORE"}}, ("gpu", "ascend_task")),
        ("new", {"ph": "X", "args": {"Task Type": "AI_CORE"}}, ("cpu", "new")),
        (None, {"ph": "X", "pid": "CPU functions"}, ("cpu", "cpu_op")),
        ("new", {"ph": "X", "pid": "CPU functions"}, ("cpu", "new")),
        (None, {"ph": "i", "name": "[memory]"}, ("memory", "cpu_instant_event")),
        (None, {"ph": "i", "name": "Record Window End"}, ("counted", "window mark")),
        ("new", {"ph": "i"}, ("counted", "phase i")),
        ("Trace", {"ph": "X"}, ("counted", "window mark")),
        ("ac2g", {"ph": "t"}, ("counted", "flow:ac2g")),
        ("clock", {"ph": "C"}, ("counters", "clock")),
        ("new", {"ph": "M"}, ("counted", "metadata")),
        ("new", {}, ("counted", "no phase")),
        ("new", {"ph": "XX"}, ("counted", "no phase that is known")),
        (None, 7, ("counted", "unreadable")),
    ],
)
def test_where_events_of_unknown_categories_belong(category: Any, event: Any, place: tuple[str, str]) -> None:
    assert destination(category, event) == place


def test_impossible_durations_are_counted_in_any_batching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "_ROWS_AT_ONCE", 2)
    trace = of(*[op(dur=dur) for dur in (-1, 2, -3, 4, -5)])
    assert trace.cpu["dur_ns"].tolist() == [0, 2_000, 0, 4_000, 0]
    assert trace.cpu["start_ns"].nunique() == 1
    assert trace.meta.anomalies == {"impossible duration of cpu_op, taken as 0": 3}


@pytest.mark.parametrize("ordinal", [0, 1023, 1024])
def test_the_largest_number_of_a_device(ordinal: int) -> None:
    trace = of(op(), kernel(args={"device": ordinal, "stream": 7}))
    assert trace.gpu["device"].isna().tolist() == [ordinal == 1024]
    assert trace.meta.anomalies == ({"unreadable device": 1} if ordinal == 1024 else {})


def test_unreadable_recurring_value_counts_in_every_row() -> None:
    rows = [op(args={"Fwd thread id": value}) for value in ("x", "x", "", None, 0)]
    assert of(*rows).meta.anomalies == {"unreadable Fwd thread id": 2}


def test_a_column_of_two_spellings_has_the_value_of_either() -> None:
    """torch has written an External id with a small letter, too, and Input Dims with a small d."""
    trace = of(
        op(args={"External id": None, "external id": 7, "Input Dims": None, "Input dims": [[1]]}),
        op(args={"External id": 8, "external id": None, "Input Dims": [[2]], "Input dims": None}),
        op(args={"external id": 9, "Input dims": [[3]]}),
    )
    assert trace.cpu["external_id"].tolist() == [7, 8, 9]
    assert trace.cpu["input_dims"].tolist() == ["[[1]]", "[[2]]", "[[3]]"]


def test_numbers_beyond_32_bits_are_kept_on_either_side() -> None:
    for stream in (2**31 - 1, 2**31, -(2**31) + 1, -(2**31), -(2**31) - 1, 2**62):
        trace = of(
            op(tid=stream), kernel(args={"device": 0, "stream": stream}), kernel(args={"device": 0}, tid=3)
        )
        assert trace.gpu["stream"].tolist() == [stream, 3]
        assert trace.cpu["tid"].tolist() == [stream]
