"""What names mean: copies, collectives, launches and captures of every vendor."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline import names
from traceanalyzer.timeline.communication import collective_of


@pytest.mark.parametrize(
    ("name", "starts_work"),
    [
        ("cudaLaunchKernel", True),
        ("cudaLaunchKernelExC_v11060", True),
        ("cuLaunchKernelEx", True),
        ("hipLaunchKernel", True),
        ("hipExtModuleLaunchKernel", True),
        ("hipModuleLaunchKernel", True),
        ("cudaGraphLaunch", True),
        ("hipGraphLaunch", True),
        ("cudaLaunchCooperativeKernel", True),
        ("hipLaunchCooperativeKernel", True),
        ("urEnqueueKernelLaunch", True),
        ("piextEnqueueCooperativeKernelLaunch", True),
        ("zeCommandListAppendLaunchKernel", True),
        ("urEnqueueUSMMemcpy", False),
        ("cudaMemcpyAsync", False),
        ("cudaLaunchHostFunc", False),
        ("cudaFuncGetAttributes", False),
    ],
)
def test_launches(name: str, starts_work: bool) -> None:
    assert bool(names.LAUNCH.search(name)) == starts_work


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("CopyHostToDevice", "h2d"),
        ("Memcpy HtoA (Host -> Array)", "other"),
        ("Memcpy (Host -> Device)", "h2d"),
        ("Memcpy (Device -> Host)", "d2h"),
        ("Memcpy (Device -> Device)", "d2d"),
        ("Memcpy PeerToPeer", "p2p"),
        ("Memcpy M2D (MEMORY -> DEVICE)", "h2d"),
        ("Memcpy D2M (DEVICE -> MEMORY)", "d2h"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "d2d"),
        ("Memcpy S2D (SHARED -> DEVICE)", "other"),
    ],
)
def test_copies(name: str, kind: str) -> None:
    assert names.copy_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "compiles"),
    [
        ("entire_frame_compile (dynamo_timed)", True),
        ("CachingAutotuner.benchmark", True),
        ("CUDAGraphNode.record (dynamo_timed)", False),  # captures
        ("Torch-Compiled Region: 0/0", False),  # runs what was compiled
        ("## Call CompiledFxGraph fx_compile.x ##", False),
        ("aten::mm", False),
    ],
)
def test_compiling_is_not_running_compiled_code_or_capturing(name: str, compiles: bool) -> None:
    assert names.is_compilation(name) is compiles


US = 1_000


def copied(name: str, **args: str) -> Work:
    trace = TraceBuilder()
    trace.launch("cudaMemcpyAsync", 0, 5 * US, 1)
    trace.memcpy(10 * US, 5 * US, 1, name=name, **args)
    return Analysis(trace.load()).index(Work)


@pytest.mark.parametrize(
    ("name", "args", "kind", "pageable"),
    [
        ("Memcpy HtoD (Pageable -> Device)", {}, "copy_h2d", True),
        ("Memcpy DtoH (Device -> Pinned)", {}, "copy_d2h", False),
        ("Memcpy", {"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"}, "copy_h2d", True),
        ("Memcpy", {"copy kind": "DtoH", "src kind": "device", "dst kind": "pageable"}, "copy_d2h", True),
        ("Memcpy", {"copy kind": "DtoH", "src kind": "device", "dst kind": "pinned"}, "copy_d2h", False),
        ("Memcpy", {"copy kind": "DtoD", "src kind": "device", "dst kind": "device"}, "copy_d2d", False),
        ("Memcpy", {}, "copy_other", False),
    ],
)
def test_way_and_memory_of_a_copy(name: str, args: dict[str, str], kind: str, pageable: bool) -> None:
    work = copied(name, **args)
    assert (work.kind[0], bool(work.pageable[0])) == (kind, pageable)


@pytest.mark.parametrize(
    ("kernel", "op", "name"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None, "allreduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", "alltoall"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "c10d::_allgather_base_", "allgather"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*)", "aten::add", "reducescatter"),
        ("void my::exchange_kernel<ns::half>(ns::args)", None, "exchange_kernel"),
        ("void vllm::cross_device_reduce_1stage<half>(x)", None, "cross_device_reduce_1stage"),
    ],
)
def test_collective_names(kernel: str, op: str | None, name: str) -> None:
    assert collective_of(kernel, op) == name[:40]
