"""Which blocks the allocator's events are of: what was there before the recording, and what has no address."""

from __future__ import annotations

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import DeviceMemory, MemoryView
from traceanalyzer.model.analysis import Analysis


def device_of(trace: TraceBuilder) -> DeviceMemory:
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    return device


def test_what_was_freed_before_the_peak_is_no_part_of_it() -> None:
    """1,000 bytes from before the recording, of which 400 go before 500 are added."""
    trace = TraceBuilder(profile_memory=1)
    trace.memory(100, -400, address=1, allocated=600)
    trace.memory(200, 500, address=2, allocated=1_100)
    device = device_of(trace)
    assert (device.start_bytes, device.peak_bytes, device.before_bytes) == (1_000, 1_100, 600)
    assert device.alive["bytes"].tolist() == device.kept["bytes"].tolist() == [500]


def test_events_without_an_address_free_no_other_block() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(100, 500, allocated=500)
    trace.memory(200, -500, allocated=0)
    for event in trace.events:
        del event["args"]["Addr"]
    assert device_of(trace).kept["blocks"].tolist() == [1]


def test_events_are_ordered_by_time_not_by_file_position() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(300, -500, address=1, allocated=0)
    trace.memory(100, 500, address=1, allocated=500)
    device = device_of(trace)
    assert (device.start_bytes, device.end_bytes, len(device.kept)) == (0, 0, 0)
    assert device.curve["time_ns"].tolist() == [100, 300]


def test_host_and_device_of_one_number_have_separate_events() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(100, 500, address=1, allocated=500)
    trace.memory(200, 30, address=2, allocated=30, device_type=0)
    view = Analysis(trace.load()).index(MemoryView)
    assert [(device.device, device.peak_bytes) for device in view.devices] == [("CUDA:0", 500), ("CPU", 30)]


def test_totals_are_sums_where_an_event_has_none() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(100, 500, address=1, allocated=5_500)
    trace.memory(200, 30, address=2)
    del trace.events[1]["args"]["Total Allocated"]
    device = device_of(trace)
    assert not device.exact
    assert (device.start_bytes, device.peak_bytes, device.end_bytes) == (0, 530, 530)
