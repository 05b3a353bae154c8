"""Which work communicates, what it is called, and how long it moves data and waits."""

from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import traced
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.collective_waits import (
    Arrivals,
    CollectiveWaits,
    at_most,
    collective_names,
    collectives_of,
    transfer_ns,
    without_waiting,
)
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.kernel_families import computes
from traceanalyzer.timeline.names import COMMUNICATION

US = 1_000
NAMED = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "rcclGenericKernel",
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*, bool*)",
    "void dpsk::ep::internode::cached_notify<false>(int, int, int)",
    "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*)",
    "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
    "_mxfp8_all_to_all_expert_major_kernel",
    "_combine_all_to_all_kernel",
    "void at::native::multimem_all_reduce_kernel<c10::BFloat16>(char*)",
    "one_shot_all_reduce_kernel<float, 4, 8>",
    "two_shot_all_reduce_kernel_inplace",
    "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)",
    "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 4>",
    "allreduce_fusion_kernel_oneshot_lamport<float>",
    "nvshmemi_transfer_rma_nbi",
    "barrier_on_stream_kernel_threadgroup",
    "mscclpp_allreduce",
    "quick_all_reduce_kernel",
    "ncclSymkDevKernel_AllGather_LL",
    "void c10d::symmetric_memory::multimem_one_shot_all_reduce_kernel<float>",
    "hcomAllReduce_",
    "oneccl_allreduce_small",
    "mscclKernel_Sum_float",
    "pplx::dispatch_kernel",
    "nvshmemi_barrier",
    "void at::native::all_reduce_one_shot<float>",
)
COMPUTING = (
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
    "grouped_topk_kernel",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
    "triton_red_fused_add_all_0",
    "void cub::DeviceReduceKernel<...>",
    "vectorized_gather_kernel",
    "void step::combine(float*)",
)


@pytest.mark.parametrize("name", NAMED)
def test_kernels_of_every_library_are_known_by_name(name: str) -> None:
    assert COMMUNICATION.search(name)


@pytest.mark.parametrize("name", COMPUTING)
def test_names_that_sound_alike_compute(name: str) -> None:
    assert not COMMUNICATION.search(name)


def test_no_library_name_both_computes_and_communicates() -> None:
    assert computes("void at::native::vectorized_elementwise_kernel<4>(int)")
    assert not computes("a7c0ffee")


def kinds(trace: TraceBuilder) -> list[str]:
    """The kind of each piece of work, in order of start."""
    return [KINDS[kind] for kind in Analysis(trace.load()).index(DeviceWork).kind]


def launched_by(op: str, kernel: str = "a7c0ffee", blocks: int = 16) -> list[str]:
    """The kinds of a kernel that this op launches, and of one of the same name without a launch."""
    trace = TraceBuilder()
    trace.op(op, start=0, dur=20 * US)
    trace.launch("cuLaunchKernelEx", start=5 * US, dur=5 * US, correlation=1)
    trace.kernel(20 * US, 30 * US, correlation=1, name=kernel, grid=(blocks, 1, 1))
    trace.kernel(60 * US, 30 * US, correlation=77, name=kernel, grid=(blocks, 1, 1))
    return kinds(trace)


def test_kernels_named_like_launched_collectives_communicate() -> None:
    assert launched_by("record_param_comms") == ["communication"] * 2


def test_extension_op_communicates_only_on_few_blocks() -> None:
    assert launched_by("SynclessAllToAll")[0] == "communication"
    assert launched_by("SynclessAllToAll", blocks=4096)[0] == "compute"


def test_torchs_own_ops_never_communicate() -> None:
    assert launched_by("aten::cumsum") == ["compute", "compute"]
    assert launched_by("record_param_comms", "void at::native::fill<float>()") == ["compute", "compute"]


def two_streams(*, blocks: int, dur_us: int, beside: bool = True) -> list[str]:
    """The kinds of kernels without a name, four on stream 27, while stream 7 computes."""
    trace = TraceBuilder()
    for number in range(4):
        start = number * 1_000 * US
        trace.kernel(start, dur_us * US, number + 1, name="a7c0ffee", stream=27, grid=(blocks, 1, 1))
        if beside:
            trace.kernel(start + 1, 990 * US, number + 11, name="sm90_gemm", stream=7, grid=(132, 1, 1))
    found = kinds(trace)
    return found[::2] if beside else found


def test_long_few_block_kernels_on_own_stream_communicate() -> None:
    assert two_streams(blocks=20, dur_us=900) == ["communication"] * 4


@pytest.mark.parametrize(("blocks", "kind"), [(88, "communication"), (89, "compute")])
def test_two_thirds_of_the_multiprocessors_are_few_blocks(blocks: int, kind: str) -> None:
    """Of 132; a grid that is not recorded is of no size."""
    assert launched_by("SynclessAllToAll", blocks=blocks)[0] == kind
    assert two_streams(blocks=blocks, dur_us=900) == [kind] * 4
    assert launched_by("SynclessAllToAll", blocks=0)[0] == "compute"


def test_wide_short_or_single_stream_kernels_compute() -> None:
    assert two_streams(blocks=132, dur_us=900) == ["compute"] * 4
    assert two_streams(blocks=20, dur_us=10) == ["compute"] * 4
    assert two_streams(blocks=20, dur_us=900, beside=False) == ["compute"] * 4


def changing(durations_us: tuple[int, ...], blocks: int) -> set[str]:
    """The kinds of kernels of one name and launch shape, on the only stream."""
    trace, start = TraceBuilder(), 0
    for number, dur_us in enumerate(durations_us):
        trace.kernel(start, dur_us * US, number + 1, name="a7c0ffee", grid=(blocks, 1, 1))
        start += (dur_us + 5) * US
    return set(kinds(trace))


def test_varying_duration_of_one_launch_shape_is_waiting() -> None:
    waits = (10, 40, 90, 20, 15, 70, 300, 12, 33, 60)
    assert changing(waits, blocks=86) == {"communication"}
    assert changing(waits, blocks=528) == {"compute"}
    assert changing((40,) * 10, blocks=86) == {"compute"}
    assert changing((*(40,) * 9, 900), blocks=86) == {"compute"}  # one of ten is no change


def test_collective_moves_the_larger_of_sent_and_received() -> None:
    """A gather, an exchange of little that waited, and a scatter: 1,000 elements take a millisecond."""
    trace = TraceBuilder()
    moved = [(10, 1_000, 1_000), (10, 10, 1_000), (1_000, 10, 3_000), (None, None, 700)]
    for number, (sent, received, dur_us) in enumerate(moved):
        start = number * 5_000 * US
        if sent is not None:
            trace.op("record_param_comms", start, 20 * US, **{"In msg nelems": sent, "Out msg nelems": received})
        trace.launched((start + US, 5 * US), (start + 30 * US, dur_us * US), number + 1, name=NAMED[0])
    loaded = trace.load()
    work = Analysis(loaded).index(DeviceWork)
    found = transfer_ns(loaded, work, np.arange(len(moved)))
    assert (found // US).tolist() == [1_000, 110, 1_000, 700]


@pytest.mark.parametrize(
    ("durations_us", "waits"),
    [
        ([40] * 4 + [120] * 4, True),  # three times as long
        ([40] * 4 + [119] * 4, False),
        ([40] * 3 + [120] * 4, False),  # too few to tell
        ([5] * 4 + [15] * 4, True),
        ([4] * 4 + [15] * 4, False),  # short, as kernels of few blocks that compute are
    ],
)
def test_how_much_a_duration_changes_that_waits(durations_us: list[int], waits: bool) -> None:
    assert changing(tuple(durations_us), blocks=20) == {"communication" if waits else "compute"}


@pytest.mark.parametrize(("named_us", "kind"), [(201, "communication"), (200, "compute"), (100, "compute")])
def test_dedicated_stream_spends_over_half_on_transfers(named_us: int, kind: str) -> None:
    """Kernels that nobody knows for 200 us beside a GEMM for 400, and one of NCCL; another stream computes longer."""
    trace = TraceBuilder()
    trace.kernel(0, 2_000 * US, 1, name="sm90_gemm", stream=7)
    for number in range(2):
        trace.kernel(200 * number * US, 100 * US, 2 + number, name="a7c0ffee", stream=27, grid=(16, 1, 1))
    trace.kernel(600 * US, 400 * US, 5, name="sm90_gemm", stream=27)
    trace.kernel(1_100 * US, named_us * US, 6, name=NAMED[0], stream=27, grid=(16, 1, 1))
    analysis = Analysis(trace.load())
    work = analysis.index(DeviceWork)
    unnamed = (work.stream == 27) & (work.end_ns - work.start_ns == 100 * US) & (work.start_ns < 500 * US)
    assert [KINDS[one] for one in work.kind[unnamed]] == [kind] * 2


@pytest.mark.parametrize(("dur_us", "kind"), [(50, "communication"), (49, "compute")])
def test_a_kernel_of_few_blocks_that_communicates_takes_50_us(dur_us: int, kind: str) -> None:
    assert two_streams(blocks=20, dur_us=dur_us) == [kind] * 4


def test_few_blocks_are_relative_to_the_devices_sms() -> None:
    """60 blocks: of 132, of 60, and of a device that the file does not tell, which counts as one of 80."""
    trace = TraceBuilder(devices=(H200, H200 | {"id": 1, "numSms": 60}))
    for device in range(3):
        number, start = device + 1, device * 100 * US
        trace.op("SynclessAllToAll", start, 20 * US)
        trace.launch("cuLaunchKernelEx", start + 5 * US, 5 * US, number)
        trace.kernel(start + 20 * US, 30 * US, number, name="a7c0ffee", device=device, grid=(60, 1, 1))
    assert kinds(trace) == ["communication", "compute", "compute"]


@pytest.mark.parametrize(("grids", "kind"), [((20, 20), "communication"), ((20, 30), "compute")])
def test_same_kernel_on_more_blocks_does_not_wait(grids: tuple[int, int], kind: str) -> None:
    trace = TraceBuilder()
    for number in range(16):
        long = number % 2
        blocks, dur = (grids[long], 1, 1), (40 + 160 * long) * US
        trace.kernel(number * 300 * US, dur, number + 1, name="a7c0ffee", grid=blocks)
    assert set(kinds(trace)) == {kind}


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"


SEND = "ncclDevKernel_SendRecv(args)"


def communicating(*places: tuple[str, int, int, str | None, str], steps: int = 2) -> Work:
    """Collectives by kernel, time of the launch and duration in us, collective and group; steps of 100 us from 100."""
    trace = TraceBuilder()
    for number in range(steps):
        trace.step(number, 100 * US * (number + 1), 100 * US)
    for number, (kernel, at, dur, collective, group) in enumerate(places, start=1):
        known = {"Collective name": collective, "Process Group Description": group}
        if collective is not None:
            trace.op("record_param_comms", at * US, 5 * US, **known)
            trace.launch("cudaLaunchKernel", at * US + 100, US, number)
        trace.kernel(at * US + 2 * US, dur * US, number, name=kernel)
    trace.kernel(400 * US, US, 99)
    return Analysis(trace.load()).index(Work)


def test_collectives_in_steps_win_over_those_outside() -> None:
    """One before the first step, one in each."""
    places = [(REDUCE, at, 5, "allreduce", "") for at in (10, 110, 210)]
    every = communicating(*places)
    assert (collectives_of(every).start_ns // US).tolist() == [112, 212]
    assert (collectives_of(communicating(*places, steps=0)).start_ns // US).tolist() == [12, 112, 212]
    with pytest.raises(Unavailable, match="no collectives in the trace"):
        collectives_of(traced((1_000, 5_000)).index(Work))


def test_collective_is_named_by_op_or_kernel_and_group() -> None:
    every = communicating(
        (REDUCE, 110, 5, "allreduce", "default_pg"),
        (SEND, 120, 5, "all_to_allv", "experts"),
        (SEND, 130, 5, None, ""),
        (REDUCE, 140, 5, "reduce_scatter", "tensor"),
        ("ncclDevKernel_AllGather_RING_LL(args)", 150, 5, None, ""),
    )
    names = collective_names(every[every.kind.one_of("communication")])
    assert names.values().tolist() == [
        "allreduce",
        "alltoall of experts",
        "alltoall",
        "reducescatter of tensor",
        "allgather",
    ]


def test_collectives_with_known_peers_move_data_outside_waits() -> None:
    """Rank 0 is a rank; of the third nothing is known, so that the quickest of its kind tells."""
    work = communicating(*[(REDUCE, at, dur, "allreduce", "") for at, dur in ((110, 30), (150, 40), (210, 50))])
    every = work[work.kind.one_of("communication")]
    entry = every.entries[:2]
    waits = CollectiveWaits(entry, np.array([10, 40]) * US, np.array([0, 3]), np.arange(2), np.ones(2, np.bool_))
    found = Arrivals.of(every, waits)
    assert (found.transfer_ns // US).tolist() == [20, 0, 30]
    assert found.measured.tolist() == [True, True, False]
    assert found.last.tolist() == [0, 3, -1]
    assert (without_waiting(every, waits) // US).tolist() == [20, 0, 50]
    alone = Arrivals.of(every, None)
    assert ((alone.transfer_ns // US).tolist(), alone.measured.any()) == ([30, 30, 30], False)
    one: Any = found[np.array([2])]
    assert (one.transfer_ns.tolist(), one.last.tolist()) == ([30 * US], [-1])


NEVER = np.empty(0, np.int64)


def measured() -> CollectiveWaits:
    """Of entries 2, 5 and 9, the second of which no rank has to be in at once."""
    return CollectiveWaits(
        np.array([2, 5, 9]),
        np.array([10, 20, 30]),
        np.array([3, 1, 0]),
        np.array([7, 8, 11]),
        np.array([True, False, True]),
    )


def test_what_was_measured_is_told_of_its_entry_alone() -> None:
    asked = np.array([9, 1, 2, 3, 5, 10])
    waiting, last = measured().of(asked)
    assert waiting.tolist() == [30, -1, 10, -1, 20, -1]
    assert last.tolist() == [0, -1, 3, -1, 1, -1]
    assert measured().numbers(asked).tolist() == [11, -1, 7, -1, 8, -1]


def test_nothing_is_told_where_nothing_was_measured() -> None:
    none = CollectiveWaits(NEVER, NEVER, NEVER, NEVER, np.empty(0, bool))
    assert [column.tolist() for column in none.of(np.array([0, 3]))] == [[-1, -1], [-1, -1]]
    assert none.numbers(np.array([0, 3])).tolist() == [-1, -1]


def test_those_in_which_the_ranks_are_at_once() -> None:
    met = measured().met()
    assert (met.entry.tolist(), met.waiting_ns.tolist(), met.number.tolist()) == ([2, 9], [10, 30], [7, 11])


@pytest.mark.parametrize(
    ("name", "grid", "device", "elements", "took", "most"),
    [
        ([0, 0], [0, 0], [0, 0], [1_000, 1_000], [300, 200], [200, 200]),  # the quickest of its size
        ([0, 0], [0, 0], [0, 0], [-1, -1], [300, 200], [200, 200]),  # also of those of which nobody tells it
        ([0, 0], [0, 1], [0, 0], [-1, -1], [300, 200], [300, 200]),
        ([0, 1], [0, 0], [0, 0], [1_000, 1_000], [300, 200], [300, 200]),
        ([0, 0], [0, 0], [0, 1], [1_000, 1_000], [300, 200], [300, 200]),
        # A million take a millisecond: a thousand take a microsecond and 0.1 ms of latency.
        ([0, 0], [0, 0], [0, 0], [1_000_000, 1_000], [1_000_000, 900_000], [1_000_000, 101_000]),
        ([0, 0], [0, 1], [0, 0], [1_000_000, 1_000], [1_000_000, 900_000], [1_000_000, 101_000]),
        ([0, 1], [0, 0], [0, 0], [1_000_000, 1_000], [1_000_000, 900_000], [1_000_000, 900_000]),
        ([0, 0], [0, 0], [0, 1], [1_000_000, 1_000], [1_000_000, 900_000], [1_000_000, 900_000]),
        ([0, 0], [0, 0], [0, 0], [1_000_000, -1], [1_000_000, 900_000], [1_000_000, 900_000]),
        ([0, 0], [0, 0], [0, 0], [1_000_000, 0], [1_000_000, 900_000], [1_000_000, 900_000]),
    ],
)
def test_transfer_is_bounded_by_the_quickest_of_its_kind(
    name: list[int], grid: list[int], device: list[int], elements: list[int], took: list[int], most: list[int]
) -> None:
    assert at_most(*(np.array(column) for column in (name, grid, device, elements, took))).tolist() == most
