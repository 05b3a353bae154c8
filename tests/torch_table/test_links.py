"""What torch infers about events, one small trace for each inference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import PID, TraceBuilder
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.torch_table.function_events import all_events, annotation_margin_ns
from traceanalyzer.torch_table.key_averages import key_averages


def rows_of(builder: TraceBuilder, **options: bool) -> dict[str, dict[str, int]]:
    """Rows of a table without two of one name, by name."""
    rows = key_averages(builder.load(), **options).rows.to_dict("records")
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row for row in rows}


def test_a_kernel_counts_for_its_op_and_all_around_it() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 1000)
    trace.op("aten::mm", 100, 500)
    trace.launch("cudaLaunchKernel", 200, 100, correlation=9, external_id=2)
    trace.kernel(2000, 700, correlation=9, external_id=2)
    rows = rows_of(trace)
    assert rows["forward"]["device_ns"] == 700
    assert rows["forward"]["self_device_ns"] == 0
    assert rows["aten::mm"]["self_device_ns"] == 700
    assert rows["aten::mm"]["self_cpu_ns"] == 400
    assert rows["cudaLaunchKernel"]["device_ns"] == 0
    assert rows["void kernel(float*)"]["device_type"] == "CUDA"


def test_overhead_counts_the_ops_time_and_kernels_again() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 1000)
    trace.op("aten::mm", 100, 500)
    trace.overhead("Activity Buffer Request", 150, 50)
    trace.kernel(2000, 700, correlation=9, external_id=2)
    rows = rows_of(trace)
    assert rows["Activity Buffer Request"]["self_device_ns"] == 700
    assert rows["aten::mm"]["device_ns"] == 1400
    assert rows["aten::mm"]["self_cpu_ns"] == 450


def test_nested_overhead_takes_the_op_id_but_not_after_it() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1000)
    trace.op("aten::mm", 100, 500)
    trace.overhead("Runtime Triggered Module Loading", 150, 100)
    trace.overhead("Lazy Function Loading", 160, 20)
    trace.overhead("Buffer Flush", 700, 20)
    trace.kernel(2000, 30, correlation=9, external_id=2)
    rows = rows_of(trace)
    assert rows["Lazy Function Loading"]["self_device_ns"] == 30
    assert rows["Runtime Triggered Module Loading"]["device_ns"] == 60
    assert rows["Buffer Flush"]["device_ns"] == 0


def test_overhead_below_an_unlinked_call_belongs_to_no_op() -> None:
    trace = TraceBuilder()
    trace.op("aten::lerp_", 0, 1000)
    trace.launch("cudaLaunchKernel", 100, 300, correlation=81)
    trace.overhead("Activity Buffer Request", 200, 100)
    trace.kernel(2000, 30, correlation=9, external_id=1)
    rows = rows_of(trace)
    assert rows["Activity Buffer Request"]["device_ns"] == 0
    assert rows["aten::lerp_"]["device_ns"] == 30


def test_unlinked_call_counts_kernels_of_its_op_id() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, external_id=84)
    trace.kernel(50, 40, correlation=9, external_id=84)
    trace.launch("cudaDeviceSynchronize", 500, 100, correlation=84)
    assert rows_of(trace)["cudaDeviceSynchronize"]["device_ns"] == 40


def test_a_call_runs_on_the_thread_of_its_op() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, tid=77)
    trace.launch("cudaLaunchKernel", 10, 20, correlation=5, external_id=1, tid=PID)
    assert rows_of(trace)["aten::mm"]["self_cpu_ns"] == 80


def test_only_child_of_same_name_is_dropped_kernels_lifted() -> None:
    trace = TraceBuilder()
    trace.op("aten::to", 0, 100)
    trace.op("aten::to", 10, 80)
    trace.op("aten::to", 20, 60)
    trace.op("aten::copy_", 30, 10)
    trace.kernel(50, 1, correlation=1, external_id=1)
    trace.kernel(60, 2, correlation=2, external_id=2)
    trace.kernel(70, 4, correlation=3, external_id=3)
    row = rows_of(trace)["aten::to"]
    assert (row["calls"], row["self_cpu_ns"], row["device_ns"]) == (1, 90, 4)


@pytest.mark.parametrize(
    ("ops", "cpu_ns", "self_cpu_ns", "device_ns"),
    [
        ([("to", 0, 100), ("to", 10, 50), ("copy_", 60, 70)], 140, 90, (1 + 2 + 4) + 2),
        ([("to", 0, 100), ("to", 10, 90), ("to", 20, 60), ("copy_", 70, 80)], 140, 90, (2 + 4 + 8) + 4),
        ([("to", 0, 100), ("to", 10, 60), ("to", 20, 50), ("copy_", 70, 80)], 150, 90, (1 + 4 + 8) + 4),
        ([("to", 0, 100), ("copy_", 10, 90), ("to", 20, 60)], 140, 60, (1 + 2 + 4) + 4),
    ],
    ids=["beside another", "within an only child", "with an only child", "within another"],
)
def test_other_children_of_the_same_name_are_calls(
    ops: list[tuple[str, int, int]], cpu_ns: int, self_cpu_ns: int, device_ns: int
) -> None:
    """Kernels of 1, 2, 4 and 8 ns, one of each op."""
    trace = TraceBuilder()
    for number, (name, start, end) in enumerate(ops):
        trace.op(f"aten::{name}", start, end - start)
        trace.kernel(200 + 10 * number, 1 << number, correlation=number + 1, external_id=number + 1)
    row = rows_of(trace)["aten::to"]
    assert (row["calls"], row["cpu_ns"], row["self_cpu_ns"]) == (2, cpu_ns, self_cpu_ns)
    assert row["device_ns"] == device_ns


def test_memory_in_a_span_counts_and_rest_has_rows() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 100)
    trace.memory(100, 512, tid=4242)
    trace.memory(50, 7, device_type=0, device=-1)
    trace.memory(500, -512)
    trace.memory(60, 0, name="[OutOfMemory]")
    rows = rows_of(trace)
    assert rows["aten::empty"]["device_bytes"] == 512
    assert rows["aten::empty"]["cpu_bytes"] == 7
    assert rows["[memory]"]["self_device_bytes"] == -512
    assert rows["[OutOfMemory]"]["calls"] == 1


def test_steps_share_a_row_and_annotations_have_one_per_lane() -> None:
    trace = TraceBuilder()
    trace.step(4, 0, 100)
    trace.step(5, 100, 100)
    trace.gpu_annotation("ProfilerStep#5", 149, 52, external_id=2)
    trace.kernel(150, 50, correlation=1, external_id=2)
    rows = key_averages(trace.load()).rows
    steps = rows[rows["name"] == "ProfilerStep*"].set_index("device_type")
    assert steps.loc["CPU", "calls"] == 2
    assert steps.loc["CUDA", "device_ns"] == 50


@pytest.mark.parametrize("margin", [(0, 0), (1, 2), (1_000, 1_500), (1_000, 1_000)])
def test_gpu_annotation_margin_follows_its_work(margin: tuple[int, int]) -> None:
    shift, growth = margin
    start = np.array([5_000, 9_000, 5_000 - shift])
    end = np.array([6_000, 9_500, 9_500 - shift + growth])
    assert annotation_margin_ns(start, end, np.array([False, False, True])) == margin


def test_calls_and_work_with_the_id_zero_are_of_no_op() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, **{"External id": 5})
    trace.launch("cudaLaunchKernel", 200, 10, correlation=1, **{"External id": 0})
    trace.kernel(300, 50, 1, **{"External id": 0})
    trace.launch("cudaLaunchKernel", 20, 10, correlation=2, **{"External id": 5})
    trace.kernel(400, 50, 2, **{"External id": 5})
    events = all_events(trace.load(), python=False)
    assert sorted(events.linked_id.tolist()) == [NULL_INT, NULL_INT, NULL_INT, 5, 5]
