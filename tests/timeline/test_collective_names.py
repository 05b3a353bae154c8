"""Names of collectives, from kernels and ops."""

from __future__ import annotations

import pytest

from traceanalyzer.timeline.communication import collective_of


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
