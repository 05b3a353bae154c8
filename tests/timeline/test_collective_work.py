"""Which work communicates, what it is called, and how long it moves data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import traced
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.collective_work import Arrivals, collective_names, collectives_of, without_waiting

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
SEND = "ncclDevKernel_SendRecv(args)"
US = 1_000


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
    work = communicating(
        *[(REDUCE, at, dur, "allreduce", "") for at, dur in ((110, 30), (150, 40), (210, 50))]
    )
    every = work[work.kind.one_of("communication")]
    entry = every.entries[:2]
    waits = CollectiveWaits(
        entry, np.array([10, 40]) * US, np.array([0, 3]), np.arange(2), np.ones(2, np.bool_)
    )
    found = Arrivals.of(every, waits)
    assert (found.transfer_ns // US).tolist() == [20, 0, 30]
    assert found.measured.tolist() == [True, True, False]
    assert found.last.tolist() == [0, 3, -1]
    assert (without_waiting(every, waits) // US).tolist() == [20, 0, 50]
    alone = Arrivals.of(every, None)
    assert ((alone.transfer_ns // US).tolist(), alone.measured.any()) == ([30, 30, 30], False)
    one: Any = found[np.array([2])]
    assert (one.transfer_ns.tolist(), one.last.tolist()) == ([30 * US], [-1])
