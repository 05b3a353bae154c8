"""Calls that were stalled, and what happens once at the head of a program."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.idle.one_gap import US, judged
from tests.support.hypothesis_profiles import examples
from tests.support.region_programs import cached_gradients
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.idle.stalled_calls import KINDS, LONG_NS, FirstUse, StalledCalls
from traceanalyzer.model.analysis import Analysis

_TENTH = LONG_NS // 10  # so that edges tie, touch and are just far enough from one another


_OTHERS = 100 * LONG_NS  # after all that is drawn


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=8)


@examples(200)
@given(spans)
def test_long_stretches_lie_between_neighbouring_edges(rows: list[tuple[int, int]]) -> None:
    trace = TraceBuilder()
    trace.launched((_OTHERS - 1_000, 1_000), (_OTHERS, 1_000), 1)
    calls = [(start * _TENTH, (start + dur) * _TENTH) for start, dur in rows]
    for number, (start, end) in enumerate(calls):
        trace.launch("cudaFuncGetAttributes", start, end - start, 2 + number)
    for number in range(2 * len(rows)):  # so quick it usually is: every long stretch within one stands out
        trace.launch("cudaFuncGetAttributes", _OTHERS + 2_000 * number, 1_000, 100 + number)
    still = Analysis(trace.load()).index(StalledCalls)
    edges = sorted({edge for call in calls for edge in call})
    long = [(left, right) for left, right in pairwise(edges) if right - left >= LONG_NS]
    expected = [stretch for stretch in long if any(start <= stretch[0] and stretch[1] <= end for start, end in calls)]
    assert list(zip(still.start_ns.tolist(), still.end_ns.tolist(), strict=True)) == expected


CALL, OP = "cudaFuncGetAttributes", "aten::compute"


def found(*rows: tuple[str, int]) -> tuple[list[tuple[str, int]], list[str]]:
    """(stretches as call or op and us, ops that work on the CPU) of rows one after the other, and a launch last.

    A name that begins with a dot lies in the row before it, from its start on.
    """
    trace, at, begun = TraceBuilder(), 0, 0
    for number, (name, dur_us) in enumerate(rows):
        inner = name.startswith(".")
        begun, at = (begun, at) if inner else (at, at + dur_us * US + 10 * US)
        if "cuda" in name:
            trace.launch(name.removeprefix("."), begun, dur_us * US, 100 + number)
        else:
            trace.op(name.removeprefix("."), begun, dur_us * US)
    trace.launched((at, 5 * US), (at + 10 * US, 5 * US), 1)
    analysis = Analysis(trace.load())
    still, names = analysis.index(StalledCalls), analysis.trace.cpu["name"]
    stretches = zip(names.iloc[still.row], (still.end_ns - still.start_ns) // US, strict=True)
    return [(str(name), int(us)) for name, us in stretches], [str(one) for one in names.iloc[still.host_work]]


@pytest.mark.parametrize(
    ("rows", "stands"),
    [
        ([(CALL, 50)] * 4 + [(CALL, 499), (CALL, 500)], [(CALL, 500)]),  # ten times the usual
        ([(CALL, 2)] * 4 + [(CALL, 99), (CALL, 100)], [(CALL, 100)]),  # a tenth of a millisecond at least
        ([(CALL, 50), (CALL, 600)], [(CALL, 600)]),  # of two the shorter is the usual
        ([(CALL, 999)], []),  # alone of its name
        ([(CALL, 1_000)], [(CALL, 1_000)]),
        ([("cudaDeviceSynchronize", 9_000)], []),  # waits for the device
        ([("cudaGraphLaunch", 9_000)], []),  # takes as long as the graph is large
        ([("cudaMalloc", 9_000)], []),
    ],
)
def test_calls_stall_at_ten_times_usual(rows: list[tuple[str, int]], stands: list[tuple[str, int]]) -> None:
    assert found(*rows)[0] == stands


@pytest.mark.parametrize(
    ("rows", "stands", "works"),
    [
        ([(OP, 5_000)], [], [OP]),  # the only one
        ([(OP, 20)] * 4 + [(OP, 5_000)], [], [OP]),  # usually takes its time
        ([(OP, 19)] * 4 + [(OP, 5_000)], [(OP, 5_000)], [OP]),
        ([(OP, 200), (".aten::view", 99)], [], [OP]),
        ([(OP, 200), (".aten::view", 100)], [], []),  # views for half of it
        ([(OP, 200), (f".{CALL}", 5)], [], [OP]),  # which only asks
        ([(OP, 200), (".cudaMalloc", 5)], [], []),
        ([(OP, 190), ("aten::view", 99)], [], [OP]),  # which is another op
        ([("aten::empty", 5_000)], [("aten::empty", 5_000)], []),  # allocates: no data make it take so long
        ([("Torch-Compiled Region: 0/0", 5_000)], [], []),
        ([("mine_compile_fx_compile.x", 5_000)], [], []),
    ],
)
def test_an_op_without_a_call_works_on_the_cpu(
    rows: list[tuple[str, int]], stands: list[tuple[str, int]], works: list[str]
) -> None:
    assert found(*rows) == (stands, works)


def test_op_of_a_thread_without_launches_is_not_host_work() -> None:
    trace = TraceBuilder()
    trace.op(OP, 0, 150 * US)
    trace.op("aten::sort", 0, 900 * US, tid=TID + 1)
    trace.op("aten::view", 10 * US, 90 * US, tid=TID + 1)
    trace.launched((200 * US, 5 * US), (210 * US, 5 * US), 1)
    analysis = Analysis(trace.load())
    rows = analysis.index(StalledCalls).host_work
    assert analysis.trace.cpu["name"].iloc[rows].tolist() == [OP]


@pytest.mark.parametrize(("idle", "cause"), [(100, "synchronisation"), (3_000, "dispatching")])
def test_a_call_that_did_not_wait(idle: int, cause: str) -> None:
    """The device runs dry at 100 us; the call comes in the middle of the gap, the rest is dispatch."""
    start, end = 100 * US, (100 + idle) * US
    trace = TraceBuilder()
    trace.step(0, 0, 10_000 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launched((20 * US, 5 * US), (28 * US, start - 28 * US), 1)
    for at in range(1, idle // 2 - 1, 50):  # a long op without a launch would be the CPU's own work
        trace.op("aten::flatten", start + at * US, min(50, idle // 2 - 1 - at) * US)
    trace.launch("cudaEventSynchronize", start + idle * US // 2, 2 * US, 9)
    for at in range(3, idle // 2, 50):
        trace.op("aten::add", start + (idle // 2 + at) * US, min(50, idle // 2 - at) * US)
    trace.launched((end - 8 * US, 5 * US), (end, 50 * US), 2)
    assert judged(trace)[0] == cause


STEPS = 12  # the leading third is 4


def once(trace: TraceBuilder) -> list[tuple[str, int]]:
    """(kind, step) of each row that is found."""
    loaded = trace.load()
    found = Analysis(loaded).index(FirstUse)
    starts = loaded.cpu["start_ns"].to_numpy()[found.row] - loaded.cpu["start_ns"].min()
    return [(KINDS[kind], int(start) // (1_000 * US)) for kind, start in zip(found.kind, starts, strict=True)]


def steps(
    *, allocating: Sequence[int] = (), slow: Sequence[int] = (), usual_us: int = 5, slow_us: int = 500
) -> TraceBuilder:
    """Steps of 1 ms with three launches; some have a cudaMalloc, in some the last launch stands still."""
    trace = TraceBuilder()
    for number in range(STEPS):
        start = number * 1_000 * US
        trace.step(number, start, 1_000 * US)
        if number in allocating:
            trace.launch("cudaMalloc", start + 10 * US, 50 * US, 900 + number)
        for i in range(3):
            at, dur = (start + (100 + 50 * i) * US, slow_us if number in slow and i == 2 else usual_us)
            trace.launched((at, dur * US), (at + dur * US, 5 * US), 10 * number + i + 1)
    return trace


@pytest.mark.parametrize(
    ("allocating", "is_once"),
    [
        ([0, 1, 2, 3], True),  # the head
        ([0, 4, 5, 6], True),  # three of the eight steps after it
        ([4, 5, 6, 7], False),  # half of them, though none of the last
        ([8, 9, 10, 11], False),
    ],
)
def test_calls_in_half_of_later_steps_are_not_first_use(allocating: list[int], is_once: bool) -> None:
    expected = [("allocating", step) for step in allocating] if is_once else []
    assert once(steps(allocating=allocating)) == expected


def test_stalled_call_is_first_use_only_in_the_leading_third() -> None:
    assert once(steps(slow=[0, 3, 4, 5])) == [("first use of a library", 0), ("first use of a library", 3)]


def test_allocations_in_every_step_are_no_first_use() -> None:
    trace = steps(allocating=range(1, STEPS))
    trace.launch("cudaMalloc", 400 * US, 550 * US, 900)  # eleven times the usual
    assert once(trace) == []


def test_a_slow_allocation_at_the_head_is_told_once() -> None:
    trace = steps(allocating=[1, 2])
    trace.launch("cudaMalloc", 400 * US, 550 * US, 900)
    assert once(trace) == [("allocating", step) for step in (1, 2, 0)]


@pytest.mark.parametrize(
    ("name", "dur_us", "kind"),
    [
        ("cudaMalloc", 100_000, "first use of a library"),
        ("cudaMalloc", 99_999, "allocating"),
        ("cudaHostAlloc", 100_000, "allocating"),  # takes as long as the memory is large
    ],
)
def test_allocation_of_100_ms_prepares_the_device(name: str, dur_us: int, kind: str) -> None:
    trace = TraceBuilder()
    for number in range(STEPS):
        trace.step(number, number * 1_000_000 * US, 900_000 * US)
        trace.launch("cudaLaunchKernel", (number * 1_000_000 + 800_000) * US, 5 * US, number + 1)
        trace.kernel((number * 1_000_000 + 800_010) * US, 5 * US, number + 1)
    trace.launch(name, 10 * US, dur_us * US, 900)
    assert once(trace) == [(kind, 0)]


@pytest.mark.parametrize(("calls", "is_once"), [(7, True), (8, False)])
def test_few_calls_per_part_without_steps_are_no_storm(calls: int, is_once: bool) -> None:
    """Two steps are too few to compare: the first use of a library makes a dozen calls, a storm hundreds a step."""
    trace = TraceBuilder()
    for number in range(2):
        trace.step(number, number * 4_000 * US, 4_000 * US)
    for part in range(8):
        start = part * 1_000 * US
        for i in range(calls):
            trace.launch("cudaMalloc", start + (10 + 60 * i) * US, 50 * US, 900 + 10 * part + i)
        trace.launched((start + 900 * US, 5 * US), (start + 950 * US, 50 * US), part + 1)
    assert len(once(trace)) == (8 * calls if is_once else 0)


def test_op_that_waits_for_events_is_tuning() -> None:
    """The outermost op: the user's call. Waiting for an event in no op is none."""
    trace = steps()
    trace.op("aten::conv2d", 400 * US, 300 * US)
    trace.op("aten::cudnn_convolution", 410 * US, 280 * US)
    for i in range(3):
        trace.launch("cudaEventSynchronize", (420 + 60 * i) * US, 50 * US, 900 + i)
    trace.launch("cudaEventSynchronize", 800 * US, 20 * US, 910)
    loaded = trace.load()
    found = Analysis(loaded).index(FirstUse)
    assert loaded.cpu["name"].iloc[found.row].tolist() == ["aten::conv2d"]
    assert [KINDS[kind] for kind in found.kind] == ["tuning"]


@pytest.mark.parametrize(("slow_us", "found"), [(199, 0), (200, 1)])
@pytest.mark.parametrize("others_us", [(30, 10, 20), (30, 10, 20, 12)])
def test_usual_call_time_is_the_lower_median(others_us: tuple[int, ...], slow_us: int, found: int) -> None:
    trace = steps()
    for number, dur_us in enumerate((*others_us, slow_us)):
        trace.launch("cudaFuncGetAttributes", (300 + 210 * number) * US - 200 * US, dur_us * US, 900 + number)
    assert len(once(trace)) == found


@pytest.mark.parametrize(("kernel_us", "found"), [(400, 1), (2_100, 0)])
def test_call_that_waits_for_its_own_kernel_is_no_first_use(kernel_us: int, found: int) -> None:
    """As with HIP_LAUNCH_BLOCKING=1: the op of 2.4 ms ends after its kernel."""
    trace = TraceBuilder()
    trace.op("aten::convolution", 0, 2_400 * US)
    trace.launch("hipLaunchKernel", 10 * US, 20 * US, 1)
    trace.kernel(50 * US, kernel_us * US, 1)
    assert len(once(trace)) == found


@pytest.mark.parametrize(("stalled_us", "found"), [(400, 1), (401, 0)])
def test_what_the_profiler_did_in_a_call_is_not_the_librarys(stalled_us: int, found: int) -> None:
    """The call takes 500 us, and so long of it the profiler asks for a buffer."""
    trace = steps(slow=[0])
    trace.overhead("Activity Buffer Request", 210 * US, stalled_us * US)
    assert len(once(trace)) == found


@pytest.mark.parametrize(("calls", "found"), [(False, []), (True, [("first use of a library", 0)])])
def test_stalled_op_is_first_use_only_if_it_makes_calls(calls: bool, found: list[tuple[str, int]]) -> None:
    """What computes on the CPU alone may be meant to take that long."""
    trace = steps()
    for number in range(3):
        trace.op("aten::sort", (number * 1_000 + 1_500) * US, 5 * US)
    trace.op("aten::sort", 400 * US, 400 * US)
    if calls:
        trace.launch("cudaFuncGetAttributes", 410 * US, 5 * US, 900)
    assert once(trace) == found


@pytest.mark.parametrize(("earlier", "found"), [(False, [("first use of a library", 6)]), (True, [])])
def test_first_call_of_a_name_is_first_use_in_any_step(earlier: bool, found: list[tuple[str, int]]) -> None:
    trace = steps()
    for number in (*([2] if earlier else []), 7, 8, 9):
        trace.launch("cudaFuncGetAttributes", (number * 1_000 + 500) * US, 5 * US, 900 + number)
    trace.launch("cudaFuncGetAttributes", 6_400 * US, 400 * US, 950)
    assert once(trace) == found


def test_later_tiny_allocations_keep_the_first_slow_one() -> None:
    """Shorter than 10 us in every later step."""
    trace = steps(allocating=[0])
    for number in range(1, STEPS):
        trace.launch("cudaMalloc", (number * 1_000 + 500) * US, 9_999, 900 + number)
    assert ("allocating", 0) in once(trace)
    for number in range(1, STEPS):
        trace.launch("cudaMalloc", (number * 1_000 + 600) * US, 10 * US, 950 + number)
    assert once(trace) == []


@pytest.mark.parametrize(("dur_us", "found"), [(999, []), (1_000, [("first use of a library", 0)])])
def test_single_call_of_a_name_stalls_for_a_millisecond(dur_us: int, found: list[tuple[str, int]]) -> None:
    trace = TraceBuilder()
    for number in range(STEPS):
        trace.step(number, number * 2_000 * US, 2_000 * US)
        trace.launch("cudaLaunchKernel", (number * 2_000 + 1_500) * US, 5 * US, number + 1)
        trace.kernel((number * 2_000 + 1_510) * US, 5 * US, number + 1)
    trace.launch("cublasCreate", 100 * US, dur_us * US, 900, category="cuda_driver")
    assert once(trace) == found


def test_waiting_for_the_device_is_no_first_use() -> None:
    trace = steps()
    for number in range(3):
        trace.launch("cudaDeviceSynchronize", (number * 1_000 + 1_500) * US, 5 * US, 900 + number)
    trace.launch("cudaDeviceSynchronize", 400 * US, 400 * US, 910)
    assert once(trace) == []


def test_a_hook_of_backward_is_no_op_that_stands_still() -> None:
    """For 5 ms it runs Python; other nodes of its name launch a kernel in 12 us."""
    program = cached_gradients(pause=5_000 * US)
    for number in range(20):
        program.node("torch::autograd::AccumulateGrad", 1_000 + number)
    assert Analysis(program.trace.load()).index(StalledCalls).row.tolist() == []
