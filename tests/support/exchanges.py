"""Steps with exchanges of experts."""

from collections.abc import Sequence
from typing import Any

from tests.rules.programs import US
from tests.support.trace_builder import TraceBuilder

SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
STEPS, STEP = 4, 1_000 * US


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
