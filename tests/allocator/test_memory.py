"""The memory view and its blocks, against totals, torch's Mem columns, and odd events."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.cached_reports import analysed, loaded
from tests.support.trace_builder import TraceBuilder
from tests.torch_table.truth import torch_rows
from traceanalyzer.allocator.memory_view import NO_LINE, NO_OP, DeviceMemory, MemoryView, ops_by_memory
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace, ints
from traceanalyzer.render.text.views import render_memory, sparkline

TRACES = ("real/cnn_lab.eager", "real/gpt2_train.eager", "real/gpt2_train.compile")
SIZES = {
    "self_device_bytes": "self_device_memory_usage",
    "device_bytes": "device_memory_usage",
    "self_cpu_bytes": "self_cpu_memory_usage",
    "cpu_bytes": "cpu_memory_usage",
}


@pytest.mark.parametrize("name", TRACES)
def test_totals_are_the_allocators_own(shared: Callable[[str], Path], name: str) -> None:
    trace = loaded(shared(name))
    frame = trace.memory.sort_values(["start_ns", "event_id"])
    view = Analysis(trace).index(MemoryView)
    assert {device.device for device in view.devices} == {"CUDA:0", "CPU"}
    for device, kind in zip(view.devices, (1, 0), strict=True):
        mine = frame[frame["device_type"] == kind]
        size, total = ints(mine, "bytes"), ints(mine, "total_allocated")
        assert device.exact
        assert device.peak_bytes == total.max()
        assert (device.start_bytes, device.end_bytes) == (total[0] - size[0], total[-1])
        assert device.end_bytes - device.start_bytes == size.sum()
        assert device.allocations + device.frees == len(mine) == len(device.curve)
        assert device.curve["allocated_bytes"].tolist() == total.tolist()


@pytest.mark.parametrize("name", TRACES)
def test_what_is_alive_at_the_peak_adds_up_to_it(shared: Callable[[str], Path], name: str) -> None:
    device = analysed(shared(name)).index(MemoryView).devices[0]
    assert device.alive["bytes"].sum() + device.before_bytes == device.peak_bytes
    assert 0 <= device.before_bytes <= device.start_bytes
    assert device.kept["bytes"].sum() >= device.end_bytes - device.start_bytes


@pytest.mark.parametrize("name", TRACES)
def test_reserved_less_allocated_is_the_traces_own(shared: Callable[[str], Path], name: str) -> None:
    trace = loaded(shared(name))
    mine = trace.memory[trace.memory["device_type"] == 1]
    spare = ints(mine, "total_reserved") - ints(mine, "total_allocated")
    device = Analysis(trace).index(MemoryView).devices[0]
    assert device.fragmentation_most_bytes == spare.max()
    assert device.peak_reserved_bytes == ints(mine, "total_reserved").max()


@pytest.mark.parametrize("name", TRACES)
def test_ops_agree_with_torchs_mem_columns(shared: Callable[[str], Path], name: str) -> None:
    ops = ops_by_memory(loaded(shared(name))).to_dict("records")
    wanted = [row for row in torch_rows(name) if any(row[column] for column in SIZES.values())]
    ours = {(row["name"], *(row[column] for column in SIZES)) for row in ops}
    assert len(ops) == len(wanted) > 0
    assert ours == {(row["key"], *(row[column] for column in SIZES.values())) for row in wanted}


def built() -> Trace:
    """Three blocks: one freed, one whose address is used again, one kept; and one from before."""
    trace = TraceBuilder(profile_memory=1)
    trace.python("train.py(7): step", 0, 10_000, python_id=1)
    trace.python("<built-in method mm>", 50, 800, python_id=2, parent=1)
    trace.op("aten::mm", 100, 500)
    trace.memory(200, 100, address=1, allocated=1100, reserved=4000)
    trace.memory(300, 50, address=2, allocated=1150, reserved=4000)
    trace.memory(1000, -50, address=2, allocated=1100, reserved=4000)
    trace.memory(2000, 70, address=2, allocated=1170, reserved=5000)
    trace.memory(3000, -100, address=1, allocated=1070, reserved=5000)
    trace.memory(4000, -1000, address=3, allocated=70, reserved=5000)
    trace.launch("cudaMalloc", 1990, 5, correlation=3)
    trace.memory(9000, 0, name="[OutOfMemory]")
    return trace.load()


def test_blocks_alive_and_kept_by_op_and_line() -> None:
    view = Analysis(built()).index(MemoryView)
    (device,) = view.devices
    assert (device.peak_bytes, device.peak_ns, device.before_bytes) == (1170, 2000, 1000)
    assert device.alive.to_dict("records") == [
        {"op": "aten::mm", "python": "train.py(7): step", "blocks": 1, "bytes": 100},
        {"op": NO_OP, "python": "train.py(7): step", "blocks": 1, "bytes": 70},
    ]
    assert device.kept["bytes"].tolist() == [70]
    assert (device.fragmentation_at_peak_bytes, device.fragmentation_most_bytes) == (3830, 4930)
    assert view.calls.to_dict("records") == [{"name": "cudaMalloc", "calls": 1, "total_ns": 5}]
    assert view.out_of_memory == 1


def test_blocks_at_the_peak_are_summed_by_use() -> None:
    """Forward keeps 300 for backward, which leaves a gradient of 200; the optimizer keeps 50 for itself."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.memory(10, 300, address=1, allocated=300)
    trace.memory(20, 7, address=2, allocated=307)
    trace.op("autograd::engine::evaluate_function: MmBackward0", 200, 100)
    trace.memory(210, 200, address=3, allocated=507)
    trace.memory(250, -300, address=1, allocated=207)
    trace.annotation("Optimizer.step#Adam.step", 400, 100)
    trace.memory(410, 50, address=4, allocated=257)
    trace.memory(420, 400, address=5, allocated=657)
    trace.memory(430, -400, address=5, allocated=257)
    trace.memory(600, -200, address=3, allocated=57)
    at_peak = {"temporary": 400, "gradients": 200, "optimizer state": 50, "not freed": 7}
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    assert dict(zip(device.uses["use"], device.uses["bytes"], strict=True)) == at_peak
    trace.memory(150, 500, address=6, allocated=807)
    trace.memory(220, -500, address=6, allocated=7)
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    assert device.uses.to_dict("records")[0] == {"use": "activations", "blocks": 2, "bytes": 800}


def test_gradients_at_the_peak_are_as_large_as_the_model(shared: Callable[[str], Path]) -> None:
    """ResNet-18 has 11.7 million parameters of four bytes: 44.6 MiB, all but those of the first layers by then."""
    device = analysed(shared("slowdown/cnn.memory")).index(MemoryView).devices[0]
    uses = dict(zip(device.uses["use"], device.uses["bytes"], strict=True))
    assert uses["gradients"] / 2**20 == pytest.approx(43.5, abs=0.1)
    assert device.uses["bytes"].sum() == device.alive["bytes"].sum()


def test_the_text_names_all_of_it() -> None:
    trace = built()
    view = Analysis(trace).index(MemoryView)
    ops = ops_by_memory(trace)
    text = render_memory(view, ops, origin_ns=0, limit=1)
    for part in ("CUDA:0: peak 1.14 KiB at 0.002 ms", "aten::mm, train.py(7): step", "other places (1)"):
        assert part in text
    for part in ("allocated before the recording", "cudaMalloc", "Out of memory: 1 time.", "4.81 KiB at most"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80
    long = ops.assign(name="void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast>")
    assert max(map(len, render_memory(view, long, origin_ns=0).splitlines())) <= 80
    assert "█" not in render_memory(view, ops, origin_ns=0, ascii_only=True)


def test_a_trace_without_memory_says_how_to_get_it() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 10)
    with pytest.raises(Unavailable, match="profile_memory=True"):
        Analysis(trace.load()).index(MemoryView)


def test_without_running_totals_amounts_count_from_zero() -> None:
    trace = TraceBuilder()
    for at, size in ((10, 40), (20, -30)):
        event = trace.memory(at, size)
        for key in ("Total Allocated", "Total Reserved", "Addr"):
            del trace.events[event]["args"][key]
    trace.op("aten::mm", 0, 10)
    loaded = trace.load()
    view = Analysis(loaded).index(MemoryView)
    (device,) = view.devices
    assert (device.exact, device.peak_bytes, device.end_bytes) == (False, 40, 10)
    assert device.peak_reserved_bytes is None
    text = render_memory(view, ops_by_memory(loaded), origin_ns=0)
    assert "no running totals" in text
    assert "none; all blocks came from the cache" in text


def test_curves_of_all_devices_are_in_one_frame() -> None:
    frame = Analysis(built()).index(MemoryView).curve
    assert list(frame.columns) == ["device", "time_ns", "allocated_bytes", "reserved_bytes"]
    assert frame["allocated_bytes"].tolist() == [1100, 1150, 1100, 1170, 1070, 70]
    assert frame["device"].unique().tolist() == ["CUDA:0"]


def test_sparkline_has_the_maximum_of_each_part() -> None:
    values, at = np.array([0, 70, 10, 35]), np.array([0, 10, 11, 100])
    line = sparkline(values, at, bars="01234567", width=10)
    assert line == "0711111113"
    assert sparkline(np.array([-5]), np.array([3]), bars="01", width=4) == "0000"


def test_of_two_equal_peaks_the_first_is_told() -> None:
    trace = TraceBuilder(profile_memory=1)
    for at, change, total in ((1_000, 64, 64), (2_000, -64, 0), (3_000, 64, 64)):
        trace.memory(at, change, allocated=total, reserved=128)
    device = Analysis(trace.load()).index(MemoryView).devices[0]
    assert (device.peak_bytes, device.peak_ns) == (64, 1_000)


def test_peak_reserved_may_come_after_peak_allocated() -> None:
    trace = TraceBuilder(profile_memory=1)
    for at, change, total, reserved in ((1_000, 64, 64, 128), (2_000, -64, 0, 128), (3_000, 32, 32, 256)):
        trace.memory(at, change, allocated=total, reserved=reserved)
    device = Analysis(trace.load()).index(MemoryView).devices[0]
    assert (device.peak_bytes, device.peak_ns, device.peak_reserved_bytes) == (64, 1_000, 256)
    assert (device.fragmentation_at_peak_bytes, device.fragmentation_most_bytes) == (64, 224)


def test_the_largest_amount_of_the_devices_memory_comes_first() -> None:
    trace = TraceBuilder(profile_memory=1)
    for number, (on_device, on_host) in enumerate(((10, 900), (-70, 3), (10, 4_000), (50, 0))):
        at = 1_000 * number
        trace.op(f"aten::op{number}", at, 500)
        trace.memory(at + 100, on_device, address=number + 1)
        if on_host:
            trace.memory(at + 200, on_host, address=number + 1, device_type=0, device=-1)
    assert ops_by_memory(trace.load())["name"].tolist() == [f"aten::op{number}" for number in (1, 3, 2, 0)]


def test_amounts_before_after_allocated_and_freed() -> None:
    (device,) = Analysis(built()).index(MemoryView).devices
    assert (device.allocations, device.frees) == (3, 3)
    assert (device.start_bytes, device.end_bytes) == (1_000, 70)


def test_gpus_come_first_by_number_and_are_named_by_kind() -> None:
    trace = TraceBuilder(profile_memory=1)
    kinds = ((0, -1), (6, 1), (1, 10), (1, 9), (99, 0), (20, -1))
    for number, (kind, device) in enumerate(kinds):
        trace.memory(1_000 * number, 64, allocated=64, reserved=128, device=device, device_type=kind)
    view = Analysis(trace.load()).index(MemoryView)
    assert [(one.device, one.peak_reserved_bytes) for one in view.devices] == [
        ("CUDA:9", 128),
        ("CUDA:10", 128),
        ("HIP:1", 128),
        ("PrivateUse1", 128),
        ("device type 99:0", 128),
        ("CPU", None),  # reserves nothing
    ]


def test_a_block_is_freed_by_the_next_event_of_its_address_alone() -> None:
    """The second takes the place of the first, whose free is not in the file."""
    trace = TraceBuilder(profile_memory=1)
    for number, (change, address) in enumerate(((100, 1), (30, 1), (-30, 1), (7, 2), (-7, 2), (-5, 3))):
        trace.memory(1_000 * number, change, address=address, allocated=500 + number, reserved=600)
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    assert device.kept["bytes"].tolist() == [100]


def test_allocation_names_innermost_op_and_line_of_its_thread() -> None:
    trace = TraceBuilder(profile_memory=1, with_stack=1)
    trace.annotation("forward", 0, 1_000)
    trace.op("aten::mm", 100, 300)
    trace.op("aten::elsewhere", 50, 2_000, tid=2)
    trace.python("model.py(3): forward", 0, 900, python_id=1)
    trace.python("model.py(9): layer", 50, 400, python_id=2, parent=1)
    trace.python("<built-in method linear>", 90, 320, python_id=3, parent=2)
    for number, at in enumerate((200, 600, 1_500)):
        trace.memory(at, 64 >> number, address=number, allocated=64, reserved=64)
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    assert device.kept[["op", "python", "bytes"]].to_numpy().tolist() == [
        ["aten::mm", "model.py(9): layer", 64],
        ["forward", "model.py(3): forward", 32],
        [NO_OP, NO_LINE, 16],
    ]


def test_calls_of_the_driver_that_allocate_come_by_their_time() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(0, 64)
    names = ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cuMemMap", "cudaMemcpyAsync", "cuMemcpyAsync", "cudaMalloc")
    for number, name in enumerate(names):
        trace.launch(name, 1_000 * number, 10 * (number + 1), number + 1)
    trace.op("cudaMalloc", 9_000, 500)  # of the user's, called so
    assert Analysis(trace.load()).index(MemoryView).calls.to_numpy().tolist() == [
        ["cudaMalloc", 2, 80],
        ["cuMemMap", 1, 40],
        ["cudaHostAlloc", 1, 30],
        ["cudaFree", 1, 20],
    ]


def test_ops_that_only_free_are_listed_ops_without_memory_not() -> None:
    trace = TraceBuilder(profile_memory=1)
    for number, (on_device, on_host) in enumerate(((-30, 0), (0, -50), (0, 20), (0, 0), (10, 0))):
        at = 1_000 * number
        trace.op(f"aten::op{number}", at, 500)
        for kind, change in ((1, on_device), (0, on_host)):
            if change:
                trace.memory(at + 100, change, address=number + 1, device_type=kind, device=kind - 1)
    found = ops_by_memory(trace.load())
    assert found["name"].tolist() == [f"aten::op{number}" for number in (0, 4, 1, 2)]
    assert found["self_device_bytes"].tolist() == [-30, 10, 0, 0]
    assert found["self_cpu_bytes"].tolist() == [0, 0, -50, 20]


def test_each_gpu_has_its_own_peak_and_blocks() -> None:
    trace = TraceBuilder(profile_memory=1)
    events = ((0, 64, 1, 64), (1, 500, 1, 500), (0, 32, 2, 96), (1, -500, 1, 0), (0, -64, 1, 32))
    for number, (device, change, address, total) in enumerate(events):
        trace.memory(1_000 * number, change, address=address, allocated=total, reserved=1_000, device=device)
    first, second = Analysis(trace.load()).index(MemoryView).devices
    assert (first.peak_bytes, first.peak_ns, first.allocations, first.frees) == (96, 2_000, 2, 1)
    assert (second.peak_bytes, second.peak_ns, second.allocations, second.frees) == (500, 1_000, 1, 1)
    assert (first.kept["bytes"].tolist(), second.kept["bytes"].tolist()) == ([32], [])


def test_totals_that_one_event_lacks_are_counted_from_zero() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.memory(1_000, 64, address=1, allocated=564, reserved=1_000)
    lacking = trace.memory(2_000, 32, address=2)
    del trace.events[lacking]["args"]["Total Allocated"]
    (device,) = Analysis(trace.load()).index(MemoryView).devices
    assert (device.exact, device.start_bytes, device.peak_bytes) == (False, 0, 96)


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
