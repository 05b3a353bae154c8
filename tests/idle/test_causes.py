"""Each cause by a small trace that has it, its order, words and confidence."""

import pytest

from tests.idle.one_gap import FIRST, LATE, LOADER, US, gap, judged, pieces, views
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.causes import CAUSES, GROUPS, NOT_THE_CODE, SAYS_WHY, TABLE, TEXTS
from traceanalyzer.model.finding import Confidence
from traceanalyzer.report.words import in_words


def test_host_code_or_python_where_no_op_is_open() -> None:
    trace = gap()
    assert judged(trace) == ("host-code", "cudaLaunchKernel", None)
    trace.python("train.py(1): main", 0, 2_000 * US, python_id=1)
    assert judged(trace) == ("python", "cudaLaunchKernel", None)


def test_dispatching_names_the_op_that_took_the_time() -> None:
    trace = gap()
    trace.op("aten::empty", FIRST + 10 * US, 800 * US)
    assert judged(trace) == ("dispatching", "aten::empty", "aten::empty")


def test_dispatching_names_the_op_that_launched_if_longest() -> None:
    trace = gap()
    trace.op("aten::linear", FIRST + 10 * US, 895 * US)  # the launch lies in it
    assert judged(trace) == ("dispatching", "cudaLaunchKernel", "aten::add")


def test_work_of_other_threads_is_not_waited_for() -> None:
    trace = gap()
    trace.op("aten::empty", FIRST, 890 * US, tid=2)
    assert judged(trace)[0] == "host-code"


def test_work_of_threads_that_launch_is() -> None:
    trace = gap()
    trace.op("autograd::engine::evaluate_function: MmBackward0", FIRST, 890 * US, tid=2)
    trace.launched((1_100 * US, 5 * US), (1_200 * US, 5 * US), 3, tid=2)
    assert judged(trace)[0] == "dispatching"


@pytest.mark.parametrize(
    "name", [LOADER, "## data_load ##", "## wait_for_training_batch ##", "dataloader", "next_batch"]
)
def test_data_loading(name: str) -> None:
    trace = gap()
    trace.annotation(name, FIRST + 10 * US, 800 * US)
    trace.op("aten::stack", FIRST + 20 * US, 700 * US)
    assert judged(trace) == ("data-loading", name, name)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("dynamo", "compilation"),
        ("async_compile.wait (dynamo_timed)", "compilation"),
        ("Torch-Compiled Region: 0/0", "dispatching"),
        ("TorchDynamo Cache Lookup", "dispatching"),
    ],
)
def test_compiling_but_not_running_what_was_compiled(name: str, cause: str) -> None:
    trace = gap()
    trace.op(name, FIRST + 10 * US, 800 * US)
    assert judged(trace) == (cause, name, name)


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "hipMalloc", "cuMemCreate", "cudaHostAlloc"])
@pytest.mark.parametrize(("steps", "cause"), [(1, "first-use"), (4, "allocator")])
def test_allocator_calls_that_recur_and_that_do_not(name: str, steps: int, cause: str) -> None:
    trace = TraceBuilder()
    for number in range(4):
        start = number * 2_000 * US
        trace.step(number, start, 2_000 * US)
        trace.op("aten::empty", start + 100 * US, 800 * US)
        if number < steps:
            trace.launch(name, start + 120 * US, 700 * US, 90 + number)
        trace.launched((start + 950 * US, 5 * US), (start + 960 * US, 900 * US), number + 1)
    assert judged(trace, work=0) == (cause, name, "aten::empty")


def test_loading_by_a_call_of_its_own() -> None:
    trace = gap()
    trace.launch("cuModuleLoadData", FIRST + 20 * US, 700 * US, 9)
    assert judged(trace)[:2] == ("module-loading", "cuModuleLoadData")


def test_loading_reaches_back_over_what_the_library_prepared() -> None:
    """The row is 25 us of 0.9 ms; before it the op stands still, but for a query."""
    trace = gap(launched=LATE - 40 * US, dur=35 * US)
    trace.op("aten::mm", FIRST + 20 * US, 900 * US)
    trace.launch("cudaDeviceGetAttribute", LATE - 100 * US, 1 * US, 9)
    trace.launch("cudaFuncSetAttribute", LATE - 90 * US, 30 * US, 10)
    trace.overhead("Lazy Function Loading", LATE - 80 * US, 25 * US)
    assert judged(trace) == ("first-use", None, "aten::add")
    assert pieces(trace)["module-loading"] == 25 * US  # what the row covers, and no more


def test_loading_reaches_back_to_other_events_only() -> None:
    trace = gap(launched=LATE - 40 * US, dur=35 * US)
    trace.op("aten::mm", FIRST + 20 * US, 900 * US)
    trace.op("aten::view", LATE - 200 * US, 50 * US)
    trace.launch("cudaFuncSetAttribute", LATE - 90 * US, 30 * US, 10)
    trace.overhead("Lazy Function Loading", LATE - 80 * US, 19 * US)
    assert pieces(trace)["first-use"] == 70 * US  # since aten::view


def test_profiler_overhead_before_what_it_swells() -> None:
    trace = gap(launched=FIRST + 10 * US, dur=LATE - FIRST - 5 * US)
    trace.overhead("Activity Buffer Request", FIRST + 20 * US, 800 * US)
    assert judged(trace)[:2] == ("profiler-overhead", "Activity Buffer Request")


@pytest.mark.parametrize(
    "name", ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize"]
)
def test_a_synchronising_call_holds_up_the_next_launch(name: str) -> None:
    trace = gap()
    trace.launch(name, 50 * US, FIRST - 40 * US, 9)
    views(trace)
    assert judged(trace) == ("synchronisation", name, name)


def test_a_pause_after_a_wait_is_a_pause() -> None:
    """The CPU waited 50 us, then did something else for 0.87 ms."""
    trace = gap()
    trace.launch("cudaStreamSynchronize", FIRST - 50 * US, 55 * US, 9)
    assert judged(trace) == ("host-code", "cudaLaunchKernel", None)


@pytest.mark.parametrize("waited", [4_000, 800])
@pytest.mark.parametrize("ops", [0, 9])
def test_host_code_after_a_wait_is_no_part_of_the_round_trip(waited: int, ops: int) -> None:
    """The CPU waits for a long kernel, then works for 0.88 ms, mostly between ops."""
    trace = TraceBuilder()
    trace.launched((0, 5 * US), (8 * US, 4_992 * US), 1)
    trace.launch("cudaStreamSynchronize", (5_000 - waited) * US, (waited + 5) * US, 9)
    for i in range(ops):
        trace.op("aten::slice", (5_010 + i * 90) * US, 4 * US)
    trace.launched((5_890 * US, 5 * US), (5_900 * US, 10 * US), 2)
    assert judged(trace)[0] == "host-code"


def test_work_launched_right_behind_a_round_trip_belongs_to_it() -> None:
    trace = gap()
    trace.launch("cudaStreamSynchronize", 50 * US, FIRST - 40 * US, 9)
    views(trace)
    trace.launched((LATE + 5 * US, 4 * US), (LATE + 60 * US, 50 * US), 3)
    assert judged(trace, work=2)[0] == "synchronisation"


def test_copy_that_a_call_waits_for_belongs_to_the_round_trip() -> None:
    trace = TraceBuilder()
    trace.op("aten::_local_scalar_dense", 60 * US, 100 * US)
    trace.launched((0, 5 * US), (8 * US, 70 * US), 1)
    trace.copied((70 * US, 5 * US), (81 * US, 2 * US), 2, name="Memcpy DtoH (Device -> Pinned)")
    trace.launch("cudaStreamSynchronize", 76 * US, 20 * US, 3)
    assert judged(trace) == ("synchronisation", "cudaStreamSynchronize", "aten::_local_scalar_dense")


def test_late_blocking_copy_is_charged_if_most_of_the_gap() -> None:
    trace = gap(launched=FIRST + 100 * US, dur=LATE - FIRST, name="cudaMemcpyAsync")
    trace.events[-1] |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    assert judged(trace) == ("blocking-upload", "cudaMemcpyAsync", "aten::add")


def test_blocking_copy_is_not_charged_before_its_call() -> None:
    trace = gap(launched=LATE - 100 * US, dur=160 * US, name="cudaMemcpyAsync")
    trace.events[-1] |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    assert judged(trace)[0] == "host-code"


def test_a_wait_at_the_head_drained_nothing_that_is_known() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launch("cudaDeviceSynchronize", 50 * US, 5 * US, 9)
    trace.op("aten::mm", 100 * US, 900 * US)
    trace.launched((900 * US, 5 * US), (910 * US, 10 * US), 1)
    assert judged(trace, work=0) == ("dispatching", "cudaLaunchKernel", "aten::mm")


def test_in_time_is_latency_unless_it_took_longer_than_usual() -> None:
    trace = gap()
    trace.launch("cudaLaunchKernel", LATE + 10 * US, 5 * US, 3)
    trace.kernel(LATE + 55 * US, 10 * US, 3)  # 5 us after the one before
    trace.launch("cudaLaunchKernel", LATE + 20 * US, 5 * US, 4)
    trace.kernel(LATE + 165 * US, 10 * US, 4)  # 100 us after, though launched long ago
    assert judged(trace, work=2)[0] == "launch-latency"
    assert judged(trace, work=3)[0] == "unknown"
    trace.launch("cudaStreamWaitEvent", LATE + 16 * US, 1 * US, 9)
    assert judged(trace, work=3)[0] == "waiting"


@pytest.mark.parametrize("began", [-10, 10])
def test_long_call_that_launches_the_next_work_is_the_cause(began: int) -> None:
    """Whether it began before the device ran dry or after."""
    trace = gap(launched=FIRST + began * US, dur=LATE - FIRST - 5 * US)
    assert judged(trace)[:2] == ("long-call", "cudaLaunchKernel")
    trace.events[-1] |= {"name": "void another(float*)"}
    assert judged(trace)[:2] == ("first-use", "cudaLaunchKernel")


def test_a_launch_call_that_takes_a_little_long_is_latency() -> None:
    trace = gap(launched=LATE - 990 * US, dur=985 * US)
    for event in trace.events[3:4]:  # the device is busy until shortly before
        event["dur"] = 905.0
    trace.launched((LATE + 20 * US, 970 * US), (LATE + 995 * US, 5 * US), 3)
    assert judged(trace)[0] == "launch-latency"


def test_in_a_graph_no_launch_is_late() -> None:
    trace = TraceBuilder()
    trace.launch("cudaGraphLaunch", 0, 20 * US, 1)
    for i in range(3):
        trace.kernel((10 + 10 * i) * US, 5 * US, 1)
    trace.launch("cudaGraphLaunch", 100 * US, 20 * US, 2)
    for i in range(3):
        trace.kernel((110 + 10 * i) * US, 5 * US, 2)
    causes = [judged(trace, work)[0] for work in range(6)]
    assert causes[1:3] == causes[4:] == ["in-graph", "in-graph"]
    assert causes[3] == "host-code"
    assert judged(trace, 1)[1:] == ("cudaGraphLaunch", "cudaGraphLaunch")


def test_the_tail_and_unlinked_work() -> None:
    trace = gap()
    trace.kernel(1_500 * US, 10 * US, 77)
    assert judged(trace, work=2) == ("unlinked", None, None)
    assert judged(trace, work=-1) == ("tail", None, None)


def test_every_cause_has_its_place_once_or_with_a_reason() -> None:
    assert len({(row.cause, row.holds) for row in TABLE}) == len(TABLE)
    assert all(row.holds and row.why and row.group for row in TABLE)
    assert set(CAUSES) == {row.cause for row in TABLE} == set(GROUPS)
    assert all(cause == cause.lower() and "_" not in cause for cause in CAUSES)


def test_a_mark_that_an_old_exporter_wrote_as_an_op_is_no_call() -> None:
    trace = gap()
    trace.events[0] |= {"cat": "cpu_op"}
    assert judged(trace) == ("host-code", "cudaLaunchKernel", None)


def test_the_usual_delay_is_what_nine_of_ten_stay_below() -> None:
    """Eight of ten launches onto an idle device start after 10 us, two after 40: 30 us is usual there."""
    trace = TraceBuilder()
    trace.kernel(0, 1 * US, 1)
    for i in range(10):
        start = (100 + i * 100) * US
        trace.launched((start, 5 * US), (start + (40 if i >= 8 else 10) * US, 20 * US), i + 2)
    end = 1_060 * US
    trace.launch("cudaLaunchKernel", end - 30 * US, 5 * US, 50)  # in time: while the last one ran
    trace.kernel(end + 30 * US, 10 * US, 50)
    assert judged(trace, work=11)[0] == "launch-latency"


def test_first_use_precedes_allocator_calls_of_other_threads() -> None:
    trace = TraceBuilder()
    for number in range(4):
        start = number * 2_000 * US
        trace.step(number, start, 2_000 * US)
        trace.launch("cudaMalloc", start + 120 * US, 600 * US, 80 + number, tid=77)
        trace.launched((start + 950 * US, 5 * US), (start + 960 * US, 900 * US), number + 1)
    trace.launch("cudaLaunchKernel", 7_940 * US, 5 * US, 70, tid=77)  # it launches work, too
    trace.kernel(7_950 * US, 10 * US, 70)
    trace.launch("cudaFuncSetAttribute", 4_100 * US, 700 * US, 90)
    for i in range(3):
        trace.launch("cudaFuncSetAttribute", (6_750 + 10 * i) * US, 5 * US, 91 + i)
    found = pieces(trace, work=2)
    assert found["first-use"] == 700 * US
    assert "allocator" not in found


def test_every_cause_has_words_of_its_own() -> None:
    assert set(CAUSES) <= set(TEXTS)
    names = [text.name for text in TEXTS.values()]
    assert len(names) == len(set(names))
    assert in_words("idle:dispatching") == TEXTS["dispatching"].name == "waiting for launches"
    assert in_words("copy_h2d") == "copy to the device"
    assert all(all(text) for text in TEXTS.values())


def named(sure: Confidence) -> set[str]:
    """Causes of which some row of the table is so sure."""
    return {row.cause for row in TABLE if row.sure is sure}


def test_unexplained_time_is_least_sure_then_suggested() -> None:
    assert named(Confidence.LOW) == {"unknown", "waiting"}
    assert named(Confidence.MEDIUM) == {
        *("not-recorded", "first-use", "long-call"),  # guessed from what else is recorded
        *("autotuning", "engine", "host-code"),  # nothing is recorded between two ops
    }
    assert named(Confidence.LOW).isdisjoint(named(Confidence.HIGH))
    assert named(Confidence.MEDIUM).isdisjoint(named(Confidence.HIGH))


def test_causes_are_grouped_by_who_could_launch_earlier() -> None:
    late = {cause for cause, group in GROUPS.items() if group == "launched late"}
    assert {"allocator", "long-call", "host-collective", "host-work", "data-loading", "dispatching"} <= late
    assert {"engine", "python", "host-code"} <= late
    device = {cause for cause, group in GROUPS.items() if group == "the device"}
    assert device == {"in-graph", "launch-latency", "waiting"}
    waited = {cause for cause, group in GROUPS.items() if group == "the CPU waited for the device"}
    assert waited == {"synchronisation", "blocking-upload"}
    once = {cause for cause, group in GROUPS.items() if group == "getting started"}
    assert once == {"graph-capture", "compilation", "module-loading", "first-use", "autotuning"}


def test_hidden_causes_explain_why_they_are_hidden() -> None:
    assert {"not-recorded", "unlinked", "tail", "waiting", "unknown"} <= set(SAYS_WHY)
    assert {"graph-capture", "profiler-overhead", "in-graph"} <= set(SAYS_WHY)
    assert {"python", "host-code", "dispatching", "synchronisation"}.isdisjoint(SAYS_WHY)


def test_recording_and_device_causes_need_no_code_change() -> None:
    recording = {cause for cause, group in GROUPS.items() if group == "the recording"}
    assert recording <= set(NOT_THE_CODE)
    assert {"graph-capture", "launch-latency", "in-graph", "start"} <= set(NOT_THE_CODE)
    assert {"host-code", "python", "dispatching", "waiting", "unknown"}.isdisjoint(NOT_THE_CODE)


def test_a_call_that_takes_many_times_its_usual_is_named() -> None:
    trace = gap()
    for number in range(5):
        trace.op("aten::empty", 1_100 * US + 20 * US * number, 10 * US)
    trace.op("aten::empty", 5 * US, 1 * US)  # not the first of its name, else it were first use
    trace.op("aten::empty", FIRST + 10 * US, 800 * US)
    assert judged(trace) == ("long-call", "aten::empty", "aten::empty")


def test_calls_that_always_take_so_long_are_not_unusual() -> None:
    trace = gap()
    trace.op("aten::empty", 1_100 * US, 800 * US)
    trace.op("aten::empty", FIRST + 10 * US, 800 * US)
    assert judged(trace)[0] == "dispatching"


def test_a_synchronising_call_is_no_long_call() -> None:
    trace = gap()
    for number in range(5):
        trace.launch("cudaStreamSynchronize", 1_100 * US + 20 * US * number, 2 * US, 50 + number)
    trace.launch("cudaStreamSynchronize", FIRST - 20 * US, 820 * US, 9)
    assert judged(trace)[0] == "synchronisation"


def test_python_is_not_blamed_for_the_autograd_engines_thread() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.python("run_backward", 10 * US, 1_900 * US, python_id=1)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launched((20 * US, 5 * US), (28 * US, FIRST - 28 * US), 1)
    trace.op("autograd::engine::evaluate_function: MmBackward0", LATE - 10 * US, 20 * US, tid=77)
    trace.launched((LATE - 8 * US, 5 * US), (LATE, 50 * US), 2, tid=77)
    assert judged(trace)[0] == "engine"


def test_what_the_profilers_own_step_takes_is_the_profilers() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, FIRST)
    trace.step(1, LATE - 50 * US, 200 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launched((20 * US, 5 * US), (28 * US, FIRST - 28 * US), 1)
    trace.op("aten::add", LATE - 10 * US, 20 * US)
    trace.launched((LATE - 8 * US, 5 * US), (LATE, 50 * US), 2)
    assert judged(trace)[0] == "profiler-overhead"


@pytest.mark.parametrize(("took", "cause"), [(900, "dispatching"), (1_100, "first-use")])
def test_single_call_is_unusual_from_one_millisecond(took: int, cause: str) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launched((20 * US, 5 * US), (28 * US, FIRST - 28 * US), 1)
    trace.launch("cudaFuncSetAttribute", FIRST + 10 * US, took * US, 9)
    end = FIRST + (took + 30) * US
    trace.launched((end - 8 * US, 5 * US), (end, 50 * US), 2)
    assert judged(trace)[0] == cause


def test_the_thread_of_the_users_annotations_is_no_engines() -> None:
    """Where no thread of its own runs the backward pass, python may run between its ops."""
    trace = gap()
    trace.op("autograd::engine::evaluate_function: MmBackward0", 40 * US, 5 * US)
    assert judged(trace)[0] == "host-code"
