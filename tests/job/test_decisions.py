"""Ranks side by side: clocks by the median, and the first step left out where enough are left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.job.loads import Load
from traceanalyzer.job.pairing import _apart_ns
from traceanalyzer.job.rates import _Collective, _rate, bus_factor
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import KINDS

SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def test_one_collective_far_off_does_not_move_the_clock() -> None:
    """By the mean of the ends none would overlap."""
    starts = np.array([0, 10_000_000, 20_000_000, 30_000_000])
    mine: Any = SimpleNamespace(start_ns=starts, end_ns=starts + 1_000_000)
    theirs: Any = SimpleNamespace(
        start_ns=starts + np.array([0, 0, 0, 10**9]), end_ns=starts + np.array([10**6, 10**6, 10**6, 10**9])
    )
    every = np.arange(4)
    assert (_apart_ns(mine, every, theirs, every) < 0).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("steps", "compute_ns", "waiting_ns"), [(2, 505.0, 50.5), (3, 10.0, 1.0), (4, 10.0, 1.0)]
)
def test_the_first_step_is_left_out_of_three_or_more(
    steps: int, compute_ns: float, waiting_ns: float
) -> None:
    class Steps(SimpleNamespace):
        bounds_ns: dict[int, int] = {}  # noqa: RUF012

        def durations_ns(self, device: int | None) -> np.ndarray:
            return np.full(steps, 1_000)

        def __len__(self) -> int:
            return steps

    took, waited = np.array([1_000, *[10] * (steps - 1)]), np.array([100, *[1] * (steps - 1)])
    number = np.arange(steps)
    work: Any = SimpleNamespace(kind=np.full(steps, KINDS.index("compute")), start_ns=number * 0, end_ns=took)
    waits: Any = SimpleNamespace(entry=number, waiting_ns=waited)
    load = Load.of(work, Steps(marked=True, of_work=number), waits, np.zeros(steps))  # type: ignore[arg-type]
    assert (load.compute_ns, load.waiting_ns) == (compute_ns, waiting_ns)


def test_a_rate_is_of_the_median_size() -> None:
    """One collective of another size does not move it; ranks that are seen count where the group tells no size."""
    every = []
    for size in (10, 12, 100):
        every.append(_Collective("all_reduce", ""))
        for rank in (0, 1):
            every[-1].add(rank, 0, 100, size, 0, None)
    rate = _rate(every, None)
    assert (rate.bytes, rate.size, rate.count) == (12, 2, 3)


def test_send_belongs_to_the_two_ranks_that_its_span_names() -> None:
    """Before it, at its begin, in it, at its end and after it; one whose call is not recorded is of nobody."""
    trace = TraceBuilder()
    trace.annotation("nccl:send 0->1", 100_000, 100_000)
    for number, at in enumerate((50_000, 100_000, 150_000, 200_000, 250_000), 1):
        trace.launch("cudaLaunchKernel", at, 1_000, number)
        trace.kernel(at + 500_000, 10_000, number, name=SEND, **{"Collective name": "send"})
    trace.kernel(900_000, 10_000, 99, name=SEND, **{"Collective name": "send"})
    analysis = Analysis(trace.load())
    runs, origin = analysis.index(CollectiveRuns), int(analysis.trace.cpu["start_ns"].min()) - 50_000
    assert (runs.start_ns - origin).tolist() == [600_000, 650_000, 700_000]
    assert set(runs.group) == {"0 to 1"}


@pytest.mark.parametrize("ranks", [2, 3, 8, 512])
def test_what_crosses_a_link_is_what_nccl_tests_say(ranks: int) -> None:
    """Counted on a ring: a rank keeps its own n-th part of what all exchange, and an all-reduce goes around twice."""
    kept = 1 / ranks
    crosses = {
        **dict.fromkeys(("allgather", "reducescatter", "alltoall"), 1 - kept),
        **dict.fromkeys(("broadcast", "reduce", "send", "recv"), 1.0),
        "allreduce": 2 * (1 - kept),
    }
    assert {name: bus_factor(name, ranks) for name in crosses} == pytest.approx(crosses)
    assert {bus_factor(name, 1) for name in crosses} == {0.0}
