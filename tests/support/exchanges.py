"""Steps with exchanges of experts and of pipeline stages."""

from collections.abc import Sequence
from typing import Any

from tests.job.ranks import REDUCES
from tests.rules.programs import US
from tests.support.trace_builder import TraceBuilder

SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
STEPS, STEP = 4, 1_000 * US


def pipeline(
    sends: Sequence[str],
    *,
    ranks: str = "[0, 1, 2, 3]",
    compute: int = 300 * US,
    beside: Sequence[int | None] = (),
) -> TraceBuilder:
    """Steps of 1 ms in which a rank computes, and sends and receives.

    Args:
        beside: sizes of the groups in which it reduces then, None where it is not recorded.
    """
    trace, number = TraceBuilder(distributedInfo={"rank": 1, "world_size": 4}), 0
    for step in range(STEPS):
        at = step * STEP
        trace.step(step, at, STEP)
        names = ["aten::mm", *(f"nccl:{name}" for name in sends), *(["c10d::allreduce_"] * len(beside))]
        sizes = [len(ranks.split(","))] * (1 + len(sends)) + list(beside)
        for place, name in enumerate(names):
            number += 1
            begin = at + 10 * US + 20 * US * place
            group: dict[str, Any] = {
                "Collective name": "allreduce" if name == "c10d::allreduce_" else name[5:9],
                "In msg nelems": 1 << 20,
                "Out msg nelems": 1 << 20,
                "Group size": sizes[place],
                "Process Group Name": "7",
                "Process Group Ranks": ranks,
            }
            if sizes[place] is None:
                del group["Group size"]
            trace.op(name, begin, 15 * US)
            if place:
                trace.op("record_param_comms", begin + US, 12 * US, **group)
            trace.launch("cudaLaunchKernel", begin + 2 * US, 5 * US, number)
            dur = 20 * US if place else compute
            start = at + 100 * US + (compute + 20 * US * place if place else 0)
            trace.kernel(
                start, dur, number, name=REDUCES if name[:3] == "c10" else SENDRECV if place else "gemm"
            )
    return trace


FORWARD, BACK = "send 1->2", "recv 1<-2"


def exchange(trace: TraceBuilder, number: int, at: int, sent: int, received: int, *, backward: bool) -> None:
    if backward:
        trace.op("autograd::engine::evaluate_function: AllToAllBackward", at, 18 * US)
    trace.op("c10d::alltoall_base_", at + US, 16 * US)
    args: dict[str, Any] = {
        "Collective name": "all_to_allv",
        "In msg nelems": sent,
        "Out msg nelems": received,
        "Group size": 4,
    }
    trace.op("record_param_comms", at + 2 * US, 12 * US, **args)
    trace.launched((at + 3 * US, 5 * US), (at + 30 * US, 10 * US), number, name=SENDRECV)


def experts(sizes: Sequence[tuple[int, int]], *, backward: bool = False) -> TraceBuilder:
    """Steps of exchanges, each (sent, received)."""
    trace, number = TraceBuilder(), 0
    for step in range(STEPS):
        trace.step(step, step * STEP, STEP)
        for place, (sent, received) in enumerate(sizes):
            number += 1
            exchange(trace, number, step * STEP + 40 * US * (place + 1), sent, received, backward=backward)
    return trace


T = 1 << 20
