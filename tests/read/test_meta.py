"""What a trace says of itself: its exporter, devices, ranks and capabilities; and links of old exporters."""

from typing import Any

import pytest

from tests.read.raw_events import LATE_US, kernel, of, op

BASE = {"baseTimeNanoseconds": 0}
NEW = {"host_name": "a", "trace_id": "b"}
WHOLE = {"ts": 1_600_000_000_000_000, "dur": 3}


def flow(category: str) -> dict[str, Any]:
    at = 1_600_000_000_000_000
    return {"ph": "s", "id": 3, "cat": category, "name": "launch", "pid": 1, "tid": 2, "ts": at}


def wait(name: str) -> dict[str, Any]:
    return kernel(cat="cuda_sync", name=name)


@pytest.mark.parametrize(
    ("events", "header", "dialect"),
    [
        ([op(), flow("async")], BASE, "torch 1.8 to 1.11"),
        ([op(), flow("async_cpu_to_gpu")], {}, "torch 1.12 to 2.0"),
        ([op(), flow("async_gpu")], BASE, "torch 1.12 to 2.0"),
        ([op(**WHOLE), flow("ac2g")], {}, "torch 2.1 to 2.3"),
        ([op(), flow("ac2g")], {}, "unknown"),
        ([op(**WHOLE)], {}, "unknown"),
        ([op(ts=1_712_195_495_406_752.5)], {}, "torch 2.4 previews of spring 2024"),
        ([op()], {**BASE, "traceName": "a"}, "torch 2.8 to 2.11"),
        ([op()], {"traceName": "a", **BASE}, "torch 2.4 to 2.7"),
        ([op()], BASE, "torch 2.8 to 2.11"),
        ([op()], {**BASE, "host_name": "a"}, "torch 2.8 to 2.11"),
        ([op()], {**BASE, "trace_id": "a"}, "torch 2.8 to 2.11"),
        ([op()], {**BASE, **NEW, "traceName": "a"}, "torch 2.12 or later"),
        ([op()], {"traceName": "a", **BASE, **NEW}, "torch 2.4 to 2.7"),
        ([op()], NEW, "unknown"),
        ([op(), wait("Stream Wait (sync)")], BASE, "torch 2.13 or later"),
        ([op(), wait("(sync) Stream")], BASE, "torch 2.8 to 2.11"),
        ([op(), kernel(name="Stream Wait (sync)")], BASE, "torch 2.8 to 2.11"),
        ([op()], {**BASE, "roctracer_version": 4}, "torch 2.8 to 2.11 on ROCm"),
        ([op()], {**BASE, "rocprofiler_version": 4}, "torch 2.8 to 2.11 on ROCm"),
        ([op()], {**BASE, "hip_runtime_version": 4}, "torch 2.8 to 2.11 on ROCm"),
        ([op(), op(cat="cuda_runtime", name="hipLaunchKernel")], BASE, "torch 2.8 to 2.11 on ROCm"),
        ([op(name="hipLaunchKernel")], BASE, "torch 2.8 to 2.11"),
        ([op(), op(cat="xpu_runtime", name="zeCommandList")], BASE, "torch 2.8 to 2.11 on XPU"),
    ],
)
def test_the_exporter_is_told_by_its_features(events: list[Any], header: dict[str, Any], dialect: str) -> None:
    assert of(*events, **header).meta.dialect == dialect


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        ("3", 3),
        (0, 0),
        *((value, None) for value in (True, None, "x", [1], 2**63, -(2**63))),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_numbers_of_the_header_may_be_quoted(value: Any, number: int | None) -> None:
    meta = of(op(), distributedInfo={"rank": value, "world_size": value}, baseTimeNanoseconds=value).meta
    assert (meta.rank, meta.world_size, meta.base_time_ns) == (number, number, number or 0)


def test_devices_are_known_by_quoted_numbers_too() -> None:
    listed = [{"id": str(ordinal), "name": f"GPU of {ordinal}", "totalGlobalMem": "80"} for ordinal in (0, 1)]
    found = of(op(), kernel(args={"device": 1, "stream": 7}), deviceProperties=listed).meta.devices
    assert [(one.ordinal, one.name, one.memory_bytes) for one in found] == [(1, "GPU of 1", 80)]


def test_work_of_no_device_counts_to_the_first_beside_other_work() -> None:
    """Marks and annotations of no device need none."""
    nobody = kernel(pid="worker", args={"stream": 7})
    assert [one.ordinal for one in of(op(), nobody, kernel(args={"device": 2, "stream": 7})).meta.devices] == [0, 2]
    mark = kernel(cat="gpu_user_annotation", pid="worker", args={})
    assert [one.ordinal for one in of(op(), mark, kernel(args={"device": 2, "stream": 7})).meta.devices] == [2]


MEMORY = op(cat="cpu_instant_event", ph="i", name="[memory]", args={"Bytes": 64, "Addr": 1, "Device Type": 1})


@pytest.mark.parametrize(
    ("event", "header", "capability"),
    [
        (op(args={"Input Dims": [[1]]}), {}, "shapes"),
        (op(args={"Call stack": "a"}), {}, "stacks"),
        (op(cat="python_function", args={"Python id": 1}), {}, "stacks"),
        (MEMORY, {}, "memory"),
        (op(args={"Module Hierarchy": "a"}), {}, "modules"),
        (op(), {"record_shapes": 1}, "shapes"),
        (op(), {"with_stack": 1}, "stacks"),
        (op(), {"with_flops": 1}, "flops"),
        (op(), {"with_modules": 1}, "modules"),
        (op(), {"profile_memory": 1}, "memory"),
    ],
)
def test_what_was_recorded_is_declared_or_seen(event: dict[str, Any], header: dict[str, Any], capability: str) -> None:
    flags = dict.fromkeys(("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory"), 0)
    found = of(op(), event, **{**flags, **header}).meta.capabilities
    assert {name for name, there in found.items() if there} == {capability, "nanoseconds"}


def test_the_first_row_of_either_lane_is_where_a_trace_begins() -> None:
    early = {"args": {"device": 0, "stream": 7}}
    assert of(op(ts=5.0), kernel(ts=3.5, **early)).meta.origin_ns == 3_500
    assert of(op(ts=2.0), kernel(ts=3.5, **early)).meta.origin_ns == 2_000
    assert of(kernel(ts=3.5, **early)).meta.origin_ns == 3_500


OLD = [
    ({"traceName": "a", **BASE}, op()),
    ({}, flow("async_gpu")),
    ({"deviceProperties": []}, flow("async_cpu_to_gpu")),
]


@pytest.mark.parametrize(("header", "mark"), OLD)
@pytest.mark.parametrize(
    ("named", "begins", "believed"),
    [
        ({}, 0, True),
        ({"cat": "user_annotation"}, 0, True),
        ({"cat": "python_function"}, 0, False),
        ({}, -1, False),  # the op begins later
        ({}, 5, True),
        ({}, 6, False),
        ({"args": {"External id": 4}}, 0, False),
        ({"args": {"External id": 2}}, 0, False),
        ({"tid": 5}, 0, False),
    ],
)
def test_correlation_as_external_id_needs_a_running_op(
    named: dict[str, Any], begins: int, believed: bool, header: dict[str, Any], mark: dict[str, Any]
) -> None:
    """Of torch 1.12 to 2.7; the kernel believes what its call does."""
    both = {"External id": 3, "correlation": 3}
    call = op(cat="cuda_runtime", name="cudaLaunchKernel", ts=LATE_US + begins, dur=1.0, args=both)
    ran = op(**{"dur": 6.0, "args": {"External id": 3}, **named})
    trace = of(ran, call, kernel(ts=LATE_US + 9, args={"device": 0, "stream": 7, **both}), mark, **header)
    row = 0 if named.get("cat") == "python_function" else 1
    assert trace.cpu["external_id"].notna().tolist()[row] is believed
    assert trace.gpu["external_id"].notna().tolist() == [believed]


def test_ids_that_are_no_correlations_stay_as_they_are() -> None:
    ids = {"External id": 3, "correlation": 4}
    call = op(cat="cuda_runtime", name="cudaLaunchKernel", ts=LATE_US + 99, args=ids)
    work = kernel(ts=LATE_US + 99, args={"device": 0, "stream": 7, **ids})
    trace = of(op(args={"External id": 3}), call, work, traceName="a", baseTimeNanoseconds=0)
    assert trace.cpu["external_id"].tolist() == [3, 3]
    assert trace.gpu["external_id"].tolist() == [3]


@pytest.mark.parametrize(
    ("args", "capability"),
    [({"Input Dims": [[1]]}, "shapes"), ({"Call stack": "a"}, "stacks"), ({"Module Hierarchy": "a"}, "modules")],
)
def test_what_only_rows_had_that_were_left_out_was_not_recorded(args: dict[str, Any], capability: str) -> None:
    late = op(ts=2 * LATE_US, args={**args, "mystery": 1})
    trace = of(*[op()] * 30, late)
    assert trace.meta.counted == {"outside the recording": 1}
    assert not trace.meta.capabilities[capability]
    assert trace.meta.other_args == {}
    assert of(*[op(args=args)] * 30, late).meta.capabilities[capability]


def test_rows_of_a_category_are_counted_whatever_their_args_are() -> None:
    """And an arg without a column in all of them."""
    rows = [op(), *[op(args={"a": 1})] * 2, op(args={"a": 1, "b": 2}), kernel(), kernel(args={"a": 1})]
    meta = of(*rows).meta
    assert meta.rows == {"cpu": {"cpu_op": 4}, "gpu": {"kernel": 2}}
    assert meta.other_args == {"cpu_op.a": 3, "cpu_op.b": 1, "kernel.a": 1}
