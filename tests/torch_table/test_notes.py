"""What of a table is not exact is said in a sentence, and nothing of a table that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.key_averages import key_averages
from traceanalyzer.torch_table.printed import printed_table, table_notes

US = 1_000


def built(**header: Any) -> TraceBuilder:
    """An op and a kernel, with the profiler's own mark of when it began."""
    trace = TraceBuilder(**header)
    trace.event(
        ph="X",
        cat="Trace",
        ts=0.0,
        dur=500.0,
        pid="Spans",
        tid="PyTorch Profiler",
        name="PyTorch Profiler (0)",
    )
    trace.op("aten::mm", 10_001, 50 * US)
    trace.launched((20_001, 5 * US), (80_001, 50 * US), 1)
    return trace


def notes(trace: TraceBuilder, *, python_functions: bool = False) -> list[str]:
    loaded = trace.load()
    averages = key_averages(loaded, python_functions=python_functions)
    return [*table_notes(loaded, averages, python_functions=python_functions)]


def test_of_an_exact_table_nothing_is_said() -> None:
    assert notes(built()) == []
    assert notes(built(with_flops=1, record_shapes=1)) == []


@pytest.mark.parametrize(
    ("header", "said"),
    [({"with_flops": 1}, ["FLOPs need shapes, which were not recorded"]), ({"record_shapes": 1}, [])],
)
def test_flops_without_shapes_are_missed(header: dict[str, Any], said: list[str]) -> None:
    assert notes(built(**header)) == said


def test_missing_recording_start_may_change_the_last_digit() -> None:
    trace = built()
    del trace.events[0]
    (note,) = notes(trace)
    assert note.startswith("the file does not say when the recording began")


def test_python_functions_are_counted_where_they_are_left_out() -> None:
    trace = built(with_stack=1)
    for number in range(1_200):
        trace.python(f"a.py({number}): f", 200 * US + number * 10, 5, python_id=number + 1)
    (note,) = notes(trace)
    assert note.startswith("1,200 python_function rows are left out")
    assert notes(trace, python_functions=True) == []


@pytest.mark.parametrize("category", ["cuda_sync", "xpu_sync"])
def test_synchronisation_records_are_told_to_count(category: str) -> None:
    trace = built()
    trace.work(category, "Stream Sync", 140 * US, 10 * US, 0, 7, {"correlation": 9})
    (note,) = notes(trace)
    assert note.startswith("synchronisation records count as time on the device")


def test_each_row_of_communication_is_counted() -> None:
    """Also those of one name, which two callers part."""
    trace = built(with_stack=1)
    for number, caller in enumerate("ab"):
        trace.python(f"{caller}.py(1): f", (200 + 100 * number) * US, 90 * US, python_id=number + 1)
        trace.annotation("nccl:all_reduce", (210 + 100 * number) * US, 10 * US)
    loaded = trace.load()
    for frames, rows in ((0, 1), (1, 2)):
        said = table_notes(loaded, key_averages(loaded, by_stack=frames), python_functions=True)
        (note,) = [one for one in said if "communication" in one]
        assert note.startswith(f"rows of communication ({rows}) are taken to be asynchronous")


@pytest.mark.parametrize("by", ["cpu_time_total", "cuda_time_total", None])
def test_totals_do_not_depend_on_the_order_of_the_rows(by: str | None) -> None:
    table = printed_table(key_averages(built().load()), by)
    assert (round(table.self_cpu_us, 3), round(table.self_device_us, 3)) == (50.0, 50.0)


@pytest.mark.parametrize(
    ("known", "said"), [({}, 0), ({"nanoseconds": True}, 0), ({"nanoseconds": False}, 1)]
)
def test_whole_microseconds_are_told_where_the_file_has_them(known: dict[str, bool], said: int) -> None:
    loaded = built().load()
    loaded = replace(loaded, meta=replace(loaded.meta, capabilities=known))
    notes_of = table_notes(loaded, key_averages(loaded))
    assert sum("whole microseconds" in note for note in notes_of) == said
