"""What torch infers about events: links, time, memory and kernels."""

import numpy as np
import pytest

from tests.support.trace_builder import PID, TraceBuilder
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.torch_table.function_events import all_events, annotation_margin_ns
from traceanalyzer.torch_table.key_averages import key_averages
from traceanalyzer.torch_table.printed import printed_table


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


def test_asynchronous_op_has_no_kernels_or_children() -> None:
    """Its kernel, linked to it by its id, counts for none; the op inside it counts for the one around both."""
    trace = TraceBuilder()
    trace.op("c10d::allreduce_", 0, 100)
    trace.annotation("nccl:all_reduce", 10, 80)
    trace.op("aten::inner", 20, 30)
    trace.op("nccl:plain", 60, 10)
    trace.kernel(200, 40, 1, external_id=2)
    trace.kernel(300, 7, 2, external_id=3)
    rows = rows_of(trace)
    asynchronous = rows["nccl:all_reduce"]
    assert [asynchronous[name] for name in ("self_cpu_ns", "device_ns", "self_device_ns")] == [0, 0, 0]
    assert asynchronous["is_async"]
    assert not rows["nccl:plain"]["is_async"]
    assert rows["c10d::allreduce_"]["self_cpu_ns"] == 100 - 30 - 10
    assert rows["c10d::allreduce_"]["device_ns"] == 7
    assert rows["nccl:plain"]["self_cpu_ns"] == 10


@pytest.mark.parametrize(("at", "inside"), [(9, False), (10, True), (50, True), (51, False)])
def test_memory_counts_in_the_whole_span_of_an_op(at: int, inside: bool) -> None:
    """A kernel that runs meanwhile takes none of it, and does not contain it."""
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 10, 40)
    trace.kernel(0, 100, 1)
    trace.memory(at, 64)
    rows = rows_of(trace)
    assert rows["aten::empty"]["device_bytes"] == 64 * inside
    assert rows["void kernel(float*)"]["device_bytes"] == 0
    assert ("[memory]" in rows) is not inside


def test_events_of_memory_stand_in_order_of_time() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::later", 100, 40)
    trace.memory(50, 64)
    trace.op("aten::long", 300, 40)
    trace.op("aten::short", 300, 10)
    assert list(rows_of(trace)) == ["[memory]", "aten::later", "aten::long", "aten::short"]


@pytest.mark.parametrize(("frame", "counted"), [((60, 100, 1000), False), ((60, 0, 1000), True), ((60, 100, 77), True)])
def test_frame_on_its_thread_separates_overhead_from_op(frame: tuple[int, int, int], counted: bool) -> None:
    """(begin, duration, thread) of a python function that runs when the overhead begins, within the op."""
    trace = TraceBuilder(with_stack=1)
    trace.op("aten::mm", 0, 500)
    begin, dur, tid = frame
    trace.python("f", begin, dur, python_id=1, tid=tid)
    trace.overhead("Activity Buffer Request", 70, 20)
    trace.kernel(2_000, 30, 9, external_id=1)
    assert rows_of(trace)["Activity Buffer Request"]["device_ns"] == 30 * counted


OUTER = (0, 500)


@pytest.mark.parametrize(
    ("ops", "call_of", "overhead", "kernels"),
    [
        ([OUTER], None, (150, 0), 0),  # takes no time
        ([OUTER], None, (150, 1), 30),
        ([OUTER, (50, 0)], None, (50, 20), 30),  # above an op that takes no time
        ([OUTER, (100, 100)], None, (200, 20), 7),  # in the last nanosecond of the inner op
        ([OUTER, (100, 100)], None, (201, 20), 30),
        ([OUTER], 1, (150, 50), 30),  # a call that names its op is not on the stack
        ([OUTER, (50, 400)], 2, (150, 50), 7),
    ],
)
def test_overhead_counts_kernels_of_the_op_that_it_is_in(
    ops: list[tuple[int, int]], call_of: int | None, overhead: tuple[int, int], kernels: int
) -> None:
    """The outer op's kernel takes 30 ns, that of the op in it 7; a call from 100 to 300 ns may name either."""
    trace = TraceBuilder()
    for number, (place, took) in enumerate(zip(ops, (30, 7), strict=False), 1):
        trace.op(f"aten::op{number}", *place)
        trace.kernel(2_000 + 100 * number, took, 99 + number, external_id=number)
    if call_of:
        trace.launch("cudaLaunchKernel", 100, 200, 9, external_id=call_of)
    trace.overhead("Buffer Flush", *overhead)
    assert rows_of(trace)["Buffer Flush"]["self_device_ns"] == kernels


@pytest.mark.parametrize(
    ("work", "linked", "counted"),
    [
        pytest.param("kernel", 1, True, id="launched by a call of an op"),
        pytest.param("kernel", None, False, id="launched by a call of no op"),
        pytest.param("annotation", 1, False, id="an annotation whose id is the call's number"),
    ],
)
def test_only_work_below_an_op_call_is_off_the_stack(work: str, linked: int | None, counted: bool) -> None:
    """It runs from 100 to 300 ns, and overhead begins meanwhile; the op's own kernel takes 30 ns."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 500)
    trace.launch("cudaLaunchKernel", 20, 10, 9, external_id=linked)
    if work == "kernel":
        trace.kernel(100, 200, 9)
    else:
        trace.gpu_annotation("forward", 100, 200, external_id=9)
    trace.overhead("Buffer Flush", 150, 20)
    trace.kernel(2_000, 30, 99, external_id=1)
    assert rows_of(trace)["Buffer Flush"]["self_device_ns"] == 30 * counted


@pytest.mark.parametrize(
    "name", ["[memory]", "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_exit",
             "profiler::_record_function_enter_new", "aten::is_leaf", "aten::output_nr", "aten::_version"]
)  # fmt: skip
def test_the_profilers_own_rows_are_not_counted(name: str) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.op(name, 10, 30)
    rows = rows_of(trace)
    assert list(rows) == ["aten::mm"]
    assert rows["aten::mm"]["self_cpu_ns"] == 100


@pytest.mark.parametrize("category", ["hpu_op", "glow_runtime", "cpu_op"])
def test_ops_of_every_kind_have_the_kernels_of_their_id(category: str) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, category=category)
    trace.kernel(200, 40, 1, external_id=1)
    assert rows_of(trace)["aten::mm"]["device_ns"] == 40


def test_work_of_no_op_counts_for_none() -> None:
    """An id of 0 is none, and so is that of an annotation on the device."""
    trace = TraceBuilder()
    trace.annotation("forward", 0, 100)
    trace.kernel(200, 40, 1, external_id=0)
    trace.gpu_annotation("forward", 200, 40, external_id=1)
    averages = key_averages(trace.load())
    rows = {(row["name"], row["device_type"]): row for row in averages.rows.to_dict("records")}
    assert rows["forward", "CPU"]["device_ns"] == 0
    assert rows["forward", "CUDA"]["device_ns"] == 40
    assert round(1_000 * printed_table(averages).self_device_us) == averages.self_device_total_ns == 40


@pytest.mark.parametrize(("owner", "own_ns"), [("nccl:all_reduce", 100 - 20), ("forward", 100)])
def test_call_goes_to_its_linked_thread_unless_asynchronous(owner: str, own_ns: int) -> None:
    """A call on the op's thread, with the id of an annotation on another."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.annotation(owner, 0, 90, external_id=5, tid=77)
    trace.launch("cudaLaunchKernel", 10, 20, 1, external_id=5)
    assert rows_of(trace)["aten::mm"]["self_cpu_ns"] == own_ns


@pytest.mark.parametrize(("first", "second"), [((1, 20), (2, 1)), ((5, 6), (5, 7)), ((5, 6), (6, 6))])
def test_ops_of_other_threads_lie_in_none(first: tuple[int, int], second: tuple[int, int]) -> None:
    trace = TraceBuilder()
    for name, start, dur, (pid, tid) in (("aten::mm", 0, 100, first), ("aten::add", 10, 30, second)):
        trace.op(name, start, dur, pid=pid, tid=tid)
    rows = rows_of(trace)
    assert [rows[name]["self_cpu_ns"] for name in ("aten::mm", "aten::add")] == [100, 30]


def test_calls_without_process_number_show_no_first_thread() -> None:
    """A call of no op lies in what runs on the thread of the last op, 6."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, pid=5, tid=6)
    trace.launch("cudaFree", 10, 30, 1, pid=-1, tid=-1)
    assert rows_of(trace)["aten::mm"]["self_cpu_ns"] == 70


def test_annotations_without_device_work_stay_as_written() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 100)
    trace.kernel(5_000, 300, 1)
    trace.gpu_annotation("forward", 4_700, 5_000, external_id=1)
    rows = key_averages(trace.load()).rows
    assert rows[rows["name"] == "forward"]["self_device_ns"].tolist() == [0, 5_000]


def test_only_marks_of_steps_share_a_row() -> None:
    trace = TraceBuilder()
    trace.step(1, 0, 100)
    trace.step(2, 100, 100)
    trace.annotation("ProfilerStepper", 300, 10)
    assert {name: row["calls"] for name, row in rows_of(trace).items()} == {"ProfilerStep*": 2, "ProfilerStepper": 1}


def test_op_and_annotation_of_one_name_have_two_rows() -> None:
    trace = TraceBuilder()
    trace.op("forward", 0, 100)
    trace.annotation("forward", 200, 30)
    rows = key_averages(trace.load()).rows
    assert rows["is_user_annotation"].tolist() == [False, True]
    assert rows["self_cpu_ns"].tolist() == [100, 30]


def test_op_called_as_a_step_does_not_mark_the_first_thread() -> None:
    """A call of no op lies in what runs on the thread that marks steps, 6."""
    trace = TraceBuilder()
    trace.step(1, 0, 10, pid=5, tid=6)
    trace.op("aten::mm", 100, 100, pid=5, tid=6)
    trace.op("ProfilerStep#2", 300, 10, pid=5, tid=7)
    trace.op("aten::add", 100, 100, pid=5, tid=7)
    trace.launch("cudaFree", 110, 30, 1, pid=5, tid=8)
    own = key_averages(trace.load()).rows.set_index("name")["self_cpu_ns"]
    assert own[["aten::mm", "aten::add"]].tolist() == [70, 100]
