"""Which work communicates, what it is called, and how long it moves data and waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import traced
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.collective_waits import CollectiveWaits, at_most
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
