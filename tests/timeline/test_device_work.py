"""Device work, chains of launches, records without their other half, and clocks."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.idle.generated import has_work, traces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.rules.kernels.throttling import ClockSamples
from traceanalyzer.timeline.device_work import Busy, DeviceWork, LostRecords, find
from traceanalyzer.timeline.kernel_chains import PAUSE_NS, KernelChains, after_pauses, launched_apart
from traceanalyzer.timeline.nesting import Nesting


def test_find_gives_the_first_position_and_matches_no_null() -> None:
    keys = np.array([5, NULL_INT, 3, 5])
    assert find(keys, np.array([5, 3, 4, NULL_INT])).tolist() == [0, 2, -1, -1]
    assert find(np.empty(0, np.int64), np.array([1])).tolist() == [-1]


def test_work_is_joined_to_its_call_and_op() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 50)
    call = trace.launch("cudaLaunchKernel", 10, 5, 1)
    trace.kernel(12, 30, 1)
    work = Analysis(trace.load()).index(DeviceWork)
    assert (work.call[0], work.op[0]) == (call, op)
    assert (work.call_start_ns[0], work.call_end_ns[0], work.delay_ns[0]) == (10, 15, 2)
    assert not work.shared[0]


def test_a_graph_launch_is_shared_and_a_lost_one_is_null() -> None:
    trace = TraceBuilder()
    call = trace.launch("cudaGraphLaunch", 0, 5, 1)
    trace.kernel(10, 5, 1)
    trace.kernel(20, 5, 1)
    trace.kernel(30, 5, 2)
    work = Analysis(trace.load()).index(DeviceWork)
    assert work.call.tolist() == [call, call, -1]
    assert work.shared.tolist() == [True, True, False]
    assert work.delay_ns.tolist() == [10, 20, NULL_INT]


def test_unlinked_work_belongs_to_the_op_of_its_external_id() -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 50, external_id=77)
    trace.kernel(12, 30, 1, external_id=77)
    assert Analysis(trace.load()).index(DeviceWork).op.tolist() == [op]


def test_work_of_no_device_counts_as_the_first_ones() -> None:
    """Neither its args nor its process say which; the work is not lost, and no second device appears."""
    trace = TraceBuilder()
    trace.kernel(0, 50, 1)
    trace.span("kernel", "nowhere", 60, 30, "somewhere", 7, {"correlation": 2})
    work = Analysis(trace.load()).index(DeviceWork)
    assert work.device.tolist() == [0, 0]


@examples(80)
@given(traces())
def test_outstanding_work_is_launched_and_not_finished(trace: TraceBuilder) -> None:
    assume(has_work(trace))
    work = Analysis(trace.load()).index(DeviceWork)
    for i in range(len(work.row)):
        if work.call[i] < 0:
            assert work.outstanding[i] == -1
            continue
        own = work.device == work.device[i]
        mine = own & (work.call >= 0)
        earlier = own & (work.call < 0) & (work.start_ns < work.start_ns[mine].min())
        before = sum(mine & (work.call_start_ns < work.call_start_ns[i])) + sum(earlier)
        finished = sum((mine | earlier) & (work.end_ns <= work.call_start_ns[i]))
        assert work.outstanding[i] == max(before - finished, 0)


@pytest.mark.parametrize(("launched", "outstanding"), [(99, 1), (100, 0)])
def test_work_that_ends_as_the_next_is_launched_is_finished(launched: int, outstanding: int) -> None:
    trace = TraceBuilder()
    trace.launched((0, 5), (10, 90), 1)
    trace.launched((launched, 5), (200, 10), 2)
    assert Analysis(trace.load()).index(DeviceWork).outstanding.tolist() == [0, outstanding]


def test_prerecorded_launches_are_outstanding_until_they_end() -> None:
    """It fills the launch queue, though the trace has no launch of it."""
    trace = TraceBuilder()
    trace.kernel(0, 90, 1)
    trace.kernel(90, 100, 2)
    trace.launched((100, 5), (200, 10), 3)
    trace.kernel(210, 10, 4)  # its launch was lost: nobody knows when it was
    trace.launched((205, 5), (220, 10), 5)
    assert Analysis(trace.load()).index(DeviceWork).outstanding.tolist() == [-1, -1, 1, -1, 1]


def test_a_trace_without_work_says_so() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50)
    with pytest.raises(Unavailable, match="no kernels"):
        Analysis(trace.load()).index(DeviceWork)


def test_idle_time_is_the_devices_and_not_the_sum_of_its_streams() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 100, 1, stream=7)
    trace.kernel(50, 100, 2, stream=13)
    trace.gpu_annotation("ProfilerStep#1", 0, 1_000, external_id=5)
    busy = Analysis(trace.load()).index(Busy)
    assert [edge.tolist() for edge in busy.devices[0]] == [[0], [150]]


def test_ties_are_broken_by_what_the_work_is() -> None:
    """Same instant, device and stream: by launch, duration and name, in whatever order the file has them."""
    trace = TraceBuilder()
    for name, dur, correlation in (("b", 0, 1), ("a", 0, 2), ("a", 10, 3)):
        trace.kernel(100, dur, correlation, name=name)
    for seed in range(6):
        loaded = trace.shuffled(seed).load()
        work = Analysis(loaded).index(DeviceWork)
        names = loaded.gpu["name"].astype(str).to_numpy()[work.row]
        assert list(zip(names, (work.end_ns - work.start_ns).tolist(), strict=True)) == [("a", 0), ("b", 0), ("a", 10)]


def test_pause_exceeds_its_limit_between_linked_calls() -> None:
    start = np.array([0, 10 + PAUSE_NS, 31 + 2 * PAUSE_NS, 90 * PAUSE_NS])
    work: Any = SimpleNamespace(call_start_ns=start, call_end_ns=start + 10, call=np.array([5, 0, 2, -1]))
    assert after_pauses(work, np.arange(4)).tolist() == [False, False, True, False]


def test_launches_in_an_optimizer_are_not_fused() -> None:
    trace = TraceBuilder()
    trace.op("Optimizer.step#Adam.step", 0, 50_000)
    trace.launch("cudaLaunchKernel", 10_000, 5_000, 1)
    trace.launch("cudaLaunchKernel", 60_000, 5_000, 2)
    analysis = Analysis(trace.load())
    assert launched_apart(analysis.trace, analysis.index(Nesting), np.array([1, 2])).tolist() == [True, False]


def test_chain_counts_kernels_over_its_whole_size() -> None:
    """The first has two of them and a reduction, the second three."""
    chain, whole = np.array([0, 0, 0, 1, 1, 1]), np.array([True, True, False, True, True, True])
    long = KernelChains(np.arange(6), chain, whole, True).longer_than(2)
    assert (long.entry.tolist(), long.chain.tolist()) == ([3, 4, 5], [0, 0, 0])


US = 1_000
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, x>"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, x>>>"
GEMM = "sm90_xmma_gemm_f32f32_tf32f32"


def chains(
    *kernels: tuple[str, int], gap_us: int = 5, streams: tuple[int, ...] = (), shapes: bool = True
) -> list[list[str]]:
    """The kernels of each chain, by number, those that are not whole in brackets; each of an op of 20 us.

    Without shapes a size is blocks of 128 threads that take 4 elements each.
    """
    trace = TraceBuilder()
    for number, (name, size) in enumerate(kernels):
        at = number * (20 + gap_us) * US
        dims = {"Input Dims": [[size]]} if shapes else {}
        trace.op("aten::add", at, 20 * US, **dims)
        trace.launch("cudaLaunchKernel", at + 10 * US, 5 * US, number + 1)
        stream = streams[number] if streams else 7
        grid = (1 if shapes else size, 1, 1)
        trace.kernel(at + 16 * US, 8 * US, number + 1, name=name, stream=stream, grid=grid)
    analysis = Analysis(trace.load())
    found, starts = analysis.index(KernelChains), analysis.index(DeviceWork).start_ns
    begun = np.argsort(np.argsort(starts, kind="stable"))
    result: list[list[str]] = [[] for _ in range(int(found.chain.max(initial=-1)) + 1)]
    for entry, chain, whole in zip(found.entry, found.chain, found.whole, strict=True):
        result[chain].append(str(begun[entry]) if whole else f"({begun[entry]})")
    assert found.sized == shapes
    return result


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([(ADD, 4096)] * 3, [["0", "1", "2"]]),
        ([(ADD, 4096), (ADD, 4096), (ADD, 4097), (ADD, 4097)], [["0", "1"], ["2", "3"]]),
        ([(ADD, 4096), (GEMM, 4096), (ADD, 4096)], [["0"], ["2"]]),
        ([(ADD, 4096), (FILL, 4096), (ADD, 4096)], [["0"], ["2"]]),
        ([(ADD, 4096), (SUM, 4096), (ADD, 4096)], [["0", "(1)", "2"]]),
        ([(ADD, 4096), (ADD, 256), (ADD, 4096)], [["0", "(1)", "2"]]),  # over rows of 16
        ([(ADD, 4096), (ADD, 257), (ADD, 4096)], [["0"], ["1"], ["2"]]),
        ([(ADD, 4096), (SUM, 1 << 20), (ADD, 4096)], [["0", "(1)", "2"]]),  # whatever it reads
        ([(SUM, 4096), (ADD, 256), (ADD, 4096), (ADD, 4096)], [["2", "3"]]),  # another's end
    ],
)
def test_chains_are_pointwise_over_one_size(kernels: list[tuple[str, int]], found: list[list[str]]) -> None:
    assert chains(*kernels) == found


@pytest.mark.parametrize(("gap_us", "found"), [(20, [["0", "1"]]), (40, [["0", "1"]]), (41, [])])
def test_longer_code_between_ops_breaks_a_chain(gap_us: int, found: list[list[str]]) -> None:
    assert chains((ADD, 4096), (ADD, 4096), gap_us=gap_us) == found


def test_chains_are_of_one_stream() -> None:
    assert chains(*[(ADD, 4096)] * 4, streams=(7, 8, 7, 8)) == [["0", "2"], ["1", "3"]]


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([(ADD, 100), (ADD, 400)], [["0", "1"]]),  # elements of a thread differ by type and alignment
        ([(ADD, 400), (ADD, 100)], [["0", "1"]]),
        ([(ADD, 100), (ADD, 401)], [["0"], ["1"]]),
        ([(ADD, 401), (ADD, 100)], [["0"], ["1"]]),
        ([(ADD.replace("<4", "<8"), 100), (ADD, 200)], [["0", "1"]]),
        ([("GeluCUDAKernelImpl", 100), (ADD, 400)], [["0", "1"]]),  # four, where the name does not say
        ([(ADD.replace("<4", "<8"), 100), (ADD.replace("<4", "<2"), 100)], [["0", "1"]]),
        ([(ADD.replace("<4", "<8"), 100), (ADD.replace("<4", "<1"), 100)], [["0"], ["1"]]),
    ],
)
def test_unshaped_sizes_differ_up_to_fourfold(kernels: list[tuple[str, int]], found: list[list[str]]) -> None:
    assert chains(*kernels, shapes=False) == found


@pytest.mark.parametrize(("pause_ns", "found"), [(200_000, [0, 0]), (200_001, [0, 1])])
def test_a_chain_ends_with_a_pause_however_long_its_ops_are(pause_ns: int, found: list[int]) -> None:
    trace = TraceBuilder()
    for number, call in enumerate((990 * US, 995 * US + pause_ns)):
        trace.op("aten::add", number * 1_100 * US, 1_000 * US, **{"Input Dims": [[4096]]})
        trace.launched((call, 5 * US), (call + 10 * US, 8 * US), number + 1, name=ADD)
    assert Analysis(trace.load()).index(KernelChains).chain.tolist() == found


def test_a_chain_ends_with_its_step() -> None:
    trace = TraceBuilder()
    for number, call in enumerate((80 * US, 110 * US)):
        trace.step(number, number * 100 * US, 100 * US)
        trace.op("aten::add", call - 5 * US, 20 * US, **{"Input Dims": [[4096]]})
        trace.launched((call, 5 * US), (call + 10 * US, 8 * US), number + 1, name=ADD)
    assert Analysis(trace.load()).index(KernelChains).chain.tolist() == [0, 1]


def lost(trace: TraceBuilder) -> LostRecords:
    return Analysis(trace.load()).index(LostRecords)


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("cudaLaunchKernel", 1),
        ("cudaLaunchKernelExC", 1),
        ("cudaLaunchCooperativeKernel", 1),
        ("cuLaunchKernelEx", 1),
        ("hipModuleLaunchKernel", 1),
        ("hipExtModuleLaunchKernel", 1),
        ("cudaLaunchHostFunc", 0),
        ("cudaGraphLaunch", 0),  # one starts many
        ("cudaMemcpyAsync", 0),
    ],
)
def test_kernel_launches_are_counted_even_without_a_record(name: str, launches: int) -> None:
    trace = TraceBuilder()
    first = trace.launch(name, 0, 10, 1)
    trace.launch(name, 20, 10, 2)
    trace.kernel(40, 10, 2)
    found = lost(trace)
    assert (found.launches, found.launch.tolist()) == (2 * launches, [first] * launches)


def test_what_a_capture_launches_starts_nothing() -> None:
    """From a begin to the next end; what has no end is no capture."""
    trace = TraceBuilder()
    names = ("Launch", "BeginCapture", "Launch", "EndCapture", "Launch", "BeginCapture", "Launch")
    for number, name in enumerate(names):
        call = "cudaLaunchKernel" if name == "Launch" else f"cudaStream{name}"
        trace.launch(call, 100 * number, 10, number + 1)
    found = lost(trace)
    assert (found.launches, found.launch.tolist(), found.tail_ns) == (3, [0, 4, 6], 0)


@pytest.mark.parametrize(("work_ends", "tail_ns"), [(50, 60), (109, 1), (110, 0), (500, 0)])
def test_tail_is_from_last_work_to_last_launch(work_ends: int, tail_ns: int) -> None:
    trace = TraceBuilder()
    trace.launched((0, 10), (15, 5), 1)
    trace.kernel(20, work_ends - 20, 1)
    trace.launch("cudaLaunchKernel", 100, 10, 2)
    trace.launch("cudaDeviceSynchronize", 800, 10, 3)
    assert lost(trace).tail_ns == tail_ns


def test_work_without_launch_is_lost_behind_work_that_has_one() -> None:
    """What runs before that on its stream was queued before the recording; of a stream that has none, before that on
    all streams that have one."""
    trace = TraceBuilder()
    trace.launch("cudaLaunchKernel", 0, 5, 1)
    trace.launch("cudaLaunchKernel", 10, 5, 2)
    for start, correlation, stream in (
        (20, 91, 7),
        (30, 1, 7),
        (40, 92, 7),  # lost
        (50, 93, 20),
        (60, 2, 20),
        (70, 94, 20),  # lost
        (55, 95, 30),
        (80, 96, 30),  # lost
    ):
        trace.kernel(start, 1, correlation, stream=stream)
    analysis = Analysis(trace.load())
    found = analysis.index(LostRecords)
    rows = sorted(found.entry.tolist())  # by start
    starts = sorted([20, 30, 40, 50, 60, 70, 55, 80])
    assert [starts[row] for row in rows] == [40, 70, 80]


TIMES = st.integers(0, 6)  # few, so that samples and questions fall on one instant


@examples(100)
@given(st.dictionaries(st.tuples(st.integers(0, 1), TIMES), st.integers(1, 9), min_size=1), st.lists(TIMES))
def test_a_sample_holds_until_the_next(clocks: dict[tuple[int, int], int], asked: list[int]) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    for (device, at), mhz in clocks.items():
        trace.event(ph="C", name="SM Clock (MHz)", ts=float(at), pid=f"GPU {device} Counters", args={"": float(mhz)})
    samples = Analysis(trace.load()).index(ClockSamples)
    for device in (0, 1):
        own = sorted((at, mhz) for (ordinal, at), mhz in clocks.items() if ordinal == device)
        found = samples.at("clock", device, np.array(asked, np.int64) * 1_000).tolist()
        for at, mhz in zip(asked, found, strict=True):
            earlier = [value for when, value in own if when <= at]
            first = own[0][1] if own else math.nan
            assert mhz == (earlier[-1] if earlier else first) or (math.isnan(mhz) and not own)


def test_samples_without_device_belong_to_device_0() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    names = ("SM Clock (MHz)", "Power (W)", "GPU Temperature (C)", "Memory Clock (MHz)", "Fan (RPM)")
    for value, name in enumerate(names):
        trace.event(ph="C", name=name, ts=1.0, pid="Counters", args={"": float(value)})
    samples = Analysis(trace.load()).index(ClockSamples).of
    assert {kind: value.tolist() for kind, (_, _, value) in samples.items()} == {
        "clock": [0],
        "power": [1],
        "temperature": [2],
    }
    assert [device.tolist() for device, _, _ in samples.values()] == [[0]] * 3


def test_power_without_a_clock_says_which_torch_records_clocks() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    trace.event(ph="C", name="Power (W)", ts=1.0, pid="GPU 0 Counters", args={"": 400.0})
    with pytest.raises(Unavailable, match=r"torch 2\.14"):
        Analysis(trace.load()).index(ClockSamples)


def test_samples_are_ordered_by_device_and_time() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    for device, at, mhz in ((1, 1, 5), (0, 4, 3), (1, 3, 6), (0, 2, 2)):
        pid = f"GPU {device} Counters"
        trace.event(ph="C", name="SM Clock (MHz)", ts=float(at), pid=pid, args={"": float(mhz)})
    device, at_ns, value = Analysis(trace.load()).index(ClockSamples).of["clock"]
    assert device.tolist() == [0, 0, 1, 1]
    assert at_ns.tolist() == [2_000, 4_000, 1_000, 3_000]
    assert value.tolist() == [2, 3, 5, 6]
