"""Events of the allocator as files may have them: out of order, without addresses or totals, freed at the peak."""

from __future__ import annotations

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import NO_OP, DeviceMemory, MemoryView
from traceanalyzer.model.analysis import Analysis


def only(trace: TraceBuilder) -> DeviceMemory:
    """The memory of its one device."""
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    return device


def test_block_freed_by_the_peak_event_is_not_alive_at_it() -> None:
    """1000 bytes were allocated in between, of which the file has no event."""
    trace = TraceBuilder(profile_memory=1)
    trace.memory(1_000, 100, address=1, allocated=100, reserved=2_000)
    trace.memory(2_000, 20, address=2, allocated=120, reserved=2_000)
    trace.memory(3_000, -100, address=1, allocated=1_020, reserved=2_000)
    device = only(trace)
    assert (device.peak_bytes, device.peak_ns) == (1_020, 3_000)
    assert device.alive["bytes"].tolist() == [20]
    assert device.before_bytes == 1_000


def test_events_count_in_time_order_not_file_order() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(3_000, -64, address=1, allocated=32, reserved=128)
    trace.memory(2_000, 32, address=2, allocated=96, reserved=128)
    trace.memory(1_000, 64, address=1, allocated=64, reserved=128)
    device = only(trace)
    assert (device.start_bytes, device.peak_bytes, device.end_bytes) == (0, 96, 32)
    assert device.curve["allocated_bytes"].tolist() == [64, 96, 32]
    assert device.kept["bytes"].tolist() == [32]


def test_without_addresses_no_event_frees_the_block_of_another() -> None:
    """And without totals no curve says what was reserved."""
    trace = TraceBuilder(profile_memory=1)
    for at, size in ((10, 40), (20, -30)):
        event = trace.memory(at, size)
        for key in ("Total Allocated", "Total Reserved", "Addr"):
            del trace.events[event]["args"][key]
    device = only(trace)
    assert device.kept["bytes"].tolist() == [40]
    assert device.curve["allocated_bytes"].tolist() == [40, 10]
    assert device.curve["reserved_bytes"].isna().all()


def test_blocks_of_one_op_are_split_by_calling_line() -> None:
    trace = TraceBuilder(profile_memory=1, with_stack=1)
    for number, (line, size) in enumerate((("a.py(3): f", 10), ("b.py(9): g", 70), ("a.py(3): f", 20))):
        at = 1_000 * number
        trace.python(line, at, 800, python_id=number + 1)
        trace.op("aten::mm", at + 100, 500)
        trace.memory(at + 200, size, address=number + 1, allocated=100, reserved=200)
    trace.memory(5_000, 5, address=9, allocated=105, reserved=200)
    assert only(trace).kept.to_numpy().tolist() == [
        ["aten::mm", "b.py(9): g", 1, 70],
        ["aten::mm", "a.py(3): f", 2, 30],
        [NO_OP, "(no python frame)", 1, 5],
    ]


def test_calls_with_only_the_drivers_name_allocate_nothing() -> None:
    """A plugin's call that wraps it is another call."""
    trace = TraceBuilder(profile_memory=1)
    trace.memory(0, 64)
    for number, name in enumerate(("cudaMalloc", "wrapped_cudaMalloc", "cuMemcpyAsync", "cuMemAlloc_v2")):
        trace.launch(name, 1_000 * (number + 1), 10 * (number + 1), number + 1)
    calls = Analysis(trace.load()).index(MemoryView).calls
    assert calls.to_numpy().tolist() == [["cuMemAlloc_v2", 1, 40], ["cudaMalloc", 1, 10]]
