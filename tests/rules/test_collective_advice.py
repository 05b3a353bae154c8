"""What to do about a collective that the GPU computes nothing beside, of one rank's trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding
from traceanalyzer.rules.communication.exposed_communication import late_ranks_text, waited_by_rank

NODE = "autograd::engine::evaluate_function: MmBackward0"
DDP = "DistributedDataParallel.forward"


def talking(
    kind: str,
    *,
    count: int = 2,
    around: str = "",
    marked: str = "",
    ddp: bool = False,
    trains: bool = False,
    beside_us: int = 0,
) -> Finding:
    """Four steps of a kernel and so many collectives of 100 us, alike.

    Args:
        around: an op around each collective.
        marked: an annotation around each collective.
        ddp: the model is one of DistributedDataParallel.
        trains: the kernel is of a backward pass.
        beside_us: how long another stream computes beside each collective.
    """
    trace, number, at = TraceBuilder(distributedInfo={"rank": 0, "world_size": 8}), 0, 0
    args: dict[str, Any] = {"Collective name": kind, "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20}
    for step in range(4):
        begin = at
        for place in range(count + 1):
            number += 2
            outer = (DDP if ddp else NODE if trains else "aten::linear") if place == 0 else around
            if outer:
                trace.op(outer, at, 60 * US)
            if marked and place:
                trace.annotation(marked, at, 60 * US)
            trace.op("c10d::op_" if place else "aten::mm", at + US, 50 * US)
            if place:
                trace.op("record_param_comms", at + 2 * US, 48 * US, **args)
            trace.launch("cudaLaunchKernel", at + 6 * US, 5 * US, number)
            trace.kernel(at + 20 * US, 100 * US, number, name=f"ncclDevKernel_{kind}" if place else "gemm")
            if place and beside_us:
                trace.launch("cudaLaunchKernel", at + 12 * US, 5 * US, number + 1)
                trace.kernel(at + 20 * US, beside_us * US, number + 1, name="gemm", stream=13)
            at += 125 * US
        trace.step(step, begin, at - begin - US)
    (one,) = of_rule(trace, "exposed-communication")
    return one


@pytest.mark.parametrize(
    ("kind", "how", "advice"),
    [
        ("allgather", {}, "If possible, let the next op work only on this rank's part of the tensor."),
        ("allgather", {"around": "FullyShardedDataParallel.fsdp"}, "Prefetch the next layer's parameters"),
        ("allgather", {"marked": "FSDP::all_gather"}, "Prefetch the next layer's parameters"),
        ("reducescatter", {}, "Overlap it with the next layer's backward pass"),
        ("alltoall", {}, "Split the batch in two"),
        ("alltoall", {"beside_us": 50}, "Split the batch in two"),
        ("alltoall", {"beside_us": 51}, "Most of it already overlaps with compute"),
        ("broadcast", {}, "Start it earlier, with async_op=True"),
        ("broadcast", {"beside_us": 51}, "Start it earlier, with async_op=True"),
        ("barrier", {}, "Remove the barrier from the loop"),
        ("allreduce", {}, "If the result is needed at once"),
        ("allreduce", {"count": 64}, "Merge collectives whose inputs are ready"),
        ("allreduce", {"count": 63}, "If the result is needed at once"),
        ("allreduce", {"trains": True}, "Reduce gradients during the backward pass, not after it"),
        ("allreduce", {"trains": True, "count": 64}, "Merge many collectives into one"),
        ("allreduce", {"around": NODE}, "Overlap it with the backward pass"),
        ("allreduce", {"around": NODE, "ddp": True}, "Try another size of DistributedDataParallel's buckets"),
        ("allreduce", {"around": NODE, "ddp": True, "count": 64}, "Merge many collectives into one"),
        ("allreduce", {"ddp": True}, "If the result is needed at once"),
    ],
)
def test_what_to_do_is_that_of_its_kind_and_place(kind: str, how: dict[str, Any], advice: str) -> None:
    one = talking(kind, **how)
    assert one.by == kind
    assert one.advice.startswith(advice)


@pytest.mark.parametrize(("beside_us", "exposed_us"), [(0, 100), (30, 70), (60, 40)])
def test_what_computes_beside_a_collective_is_no_exposed_time(beside_us: int, exposed_us: int) -> None:
    one = talking("broadcast", beside_us=beside_us)
    assert one.cost_ns == 4 * 2 * exposed_us * US
    assert ("the GPU computes nothing meanwhile" in one.message) is (beside_us == 0)
    assert one.evidence["all_ns"] == 4 * 2 * 100 * US


@pytest.mark.parametrize(
    ("kind", "waited_ns", "advice"),
    [
        ("allreduce", [10, 50, 40], "Rank 3 comes last"),
        ("allreduce", [0, 60, 40], "Rank 3 comes last"),
        ("allreduce", [0, 59, 41], "The last rank changes from call to call"),
        ("allreduce", [50, 10, 40], "Rank 3 comes last"),
        ("barrier", [0, 100, 0], "Remove the barrier"),
    ],
)
def test_a_rank_is_late_that_most_of_the_waiting_is_for(kind: str, waited_ns: list[int], advice: str) -> None:
    """Rank 3 comes last in two calls, rank 1 in the third."""
    last = np.array([3, 3, 1])
    assert late_ranks_text(kind, last, np.array(waited_ns)).startswith(advice)
    total = waited_by_rank(last, np.array(waited_ns))
    assert total == {"rank 3": sum(waited_ns[:2]), "rank 1": waited_ns[2]}
    assert list(total.values()) == sorted(total.values(), reverse=True)
