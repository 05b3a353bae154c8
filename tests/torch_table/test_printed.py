"""By which column the table is sorted, what stands below it, and what its device is called."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.torch_table.key_averages import device_name, key_averages
from traceanalyzer.torch_table.printed import printed_table, sorted_rows

COLUMNS = {
    "cpu_time_total": "cpu_us",
    "self_cpu_time_total": "self_cpu_us",
    "cuda_time_total": "device_us",
    "self_xpu_time_total": "self_device_us",
    "cpu_memory_usage": "cpu_bytes",
    "self_cpu_memory_usage": "self_cpu_bytes",
    "privateuse1_memory_usage": "device_bytes",
    "self_cuda_memory_usage": "self_device_bytes",
}


def rows(**largest: int) -> pd.DataFrame:
    """Rows of 1 everywhere but for these: column -> which row has 2 there."""
    columns = {name: [1, 1, 1] for name in (*COLUMNS.values(), "calls")}
    for name, at in largest.items():
        columns[name][at] = 2
    return pd.DataFrame({"name": ["a", "b", "c"], **columns})


@pytest.mark.parametrize("sort_by", COLUMNS)
def test_requested_order_has_the_largest_first(sort_by: str) -> None:
    others = dict.fromkeys(COLUMNS.values(), 0) | {COLUMNS[sort_by]: 1, "calls": 1}
    assert sorted_rows(rows(**others), sort_by)["name"].tolist() == ["b", "a", "c"]
    assert sorted_rows(rows(**others), None)["name"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(("sort_by", "column"), [("cpu_time", "cpu_us"), ("cuda_time", "device_us")])
def test_times_without_total_are_of_one_call(sort_by: str, column: str) -> None:
    assert sorted_rows(rows(**{column: 1}), sort_by)["name"].tolist() == ["b", "a", "c"]
    assert sorted_rows(rows(**{column: 1}, calls=1), sort_by)["name"].tolist() == ["a", "b", "c"]
    assert sorted_rows(rows(calls=2), sort_by)["name"].tolist() == ["a", "b", "c"]


def test_unannotated_device_work_stands_below_the_table() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 100)
    trace.op("aten::mm", 10, 40)
    trace.launch("cudaLaunchKernel", 20, 10, 1, external_id=2)
    trace.kernel(200, 30, 1, external_id=2)
    trace.memset(300, 5, 2)
    trace.gpu_annotation("forward", 200, 105, external_id=1)
    table = printed_table(key_averages(trace.load()))
    assert (round(table.self_cpu_us * 1_000), round(table.self_device_us * 1_000)) == (100, 35)
    assert (table.has_device_time, table.has_memory, table.device) == (True, False, "CUDA")


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cuda_runtime", "CUDA"),
        ("xpu_runtime", "XPU"),
        ("mtia_runtime", "MTIA"),
        ("hpu_op", "HPU"),
        ("privateuse1_runtime", "PRIVATEUSE1"),
        ("user_annotation", None),
        ("overhead", None),
    ],
)
def test_the_device_is_called_by_what_was_recorded_of_it(category: str, name: str | None) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.op("other", 200, 100, category=category)
    loaded = trace.load()
    assert device_name(loaded) == name
    assert key_averages(loaded).device == name


@pytest.mark.parametrize(
    ("device_type", "cpu", "device"), [(0, 64, 0), (2, 64, 0), (1, 0, 64), (6, 0, 64), (20, 0, 64), (3, 0, 0)]
)
def test_memory_is_the_cpus_or_the_devices(device_type: int, cpu: int, device: int) -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 100)
    trace.op("aten::inner", 40, 20)
    trace.memory(50, 64, device_type=device_type)
    table = key_averages(trace.load()).rows.set_index("name")
    assert table.loc["aten::inner", ["cpu_bytes", "device_bytes"]].tolist() == [cpu, device]
    assert table.loc["aten::empty", ["cpu_bytes", "device_bytes"]].tolist() == [cpu, device]
    assert table.loc["aten::empty", ["self_cpu_bytes", "self_device_bytes"]].tolist() == [0, 0]
