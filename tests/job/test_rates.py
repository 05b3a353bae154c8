"""Rates of collectives beside those of groups that do the same, what groups are for, and what a late rank costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.job.ranks import EARLY, ENDS, LATE, rank, reduced
from traceanalyzer.job.cross_rank_indexes import waiting_together
from traceanalyzer.job.loads import Load, RankLoads, comparable
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.rates import Moved, Rate, _Collective, _compared, _rate, data_bytes, roles
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting


def rated(busbw: float, *, size: int = 8, data: int = 1 << 20, what: str = "allreduce") -> Rate:
    return Rate(what, "g", (0, 1), None, size, data, 1, 1, 0, None, 0, busbw, busbw)


@pytest.mark.parametrize(
    ("found", "beside", "slow"),
    [
        ([rated(100), rated(100), rated(60)], [100, 100, 100], [False, False, False]),
        ([rated(100), rated(59), rated(100)], [100, 100, 100], [False, True, False]),
        ([rated(100), rated(10)], [None, None], [False, False]),  # two: nobody tells which is usual
        ([rated(100), rated(10, size=4), rated(100)], [None] * 3, [False] * 3),
        ([rated(100), rated(10, data=2 << 20), rated(100)], [None] * 3, [False] * 3),
        ([rated(100), rated(10, what="allgather"), rated(100)], [None] * 3, [False] * 3),
        ([rated(100), rated(0), rated(100)], [None] * 3, [False] * 3),  # its size is not recorded
    ],
)
def test_group_is_slow_below_six_tenths_of_three_peers(
    found: list[Rate], beside: list[float | None], slow: list[bool]
) -> None:
    told = _compared(found)
    assert [(one.beside, one.slow) for one in told] == list(zip(beside, slow, strict=True))
    assert [replace(one, beside=None, slow=False) for one in told] == found


@pytest.mark.parametrize(("group", "size"), [("", 2), ("0 [0, 1]", 2), ("0 [0, 1, 2, 3]", 4), ("0 []", 2)])
def test_rate_counts_group_ranks_despite_missing_traces(group: str, size: int) -> None:
    """200 ns a transfer of which rank 0 hides 150 ns and rank 1 nothing; waiting is summed over both."""
    every = [_Collective("allreduce", group) for _ in range(2)]
    for one in every:
        one.add(3, 10, 200, 8_000, 50, None)
        one.add(1, 0, 200, 4_000, 200, "data")
    found = _rate(every, "data")
    assert (found.ranks, found.size, found.count, found.bytes) == ((1, 3), size, 2, 8_000)
    assert (found.transfer_ns, found.exposed_ns, found.waiting_ns) == (200, 250, 20)
    assert found.overlap == pytest.approx(1 - 250 / 400)
    assert found.algbw == 40.0  # bytes a ns: GB/s
    assert found.busbw == pytest.approx(40.0 * 2 * (size - 1) / size)


@pytest.mark.parametrize(
    ("waited_us", "exposed_us"),
    [(0, 70), (10, 70), (30, 60), (-1, 70)],  # from when the last rank came; not known: all of it
)
def test_transfer_is_exposed_without_compute_after_last_rank(waited_us: int, exposed_us: int) -> None:
    """Copies beside it hide nothing."""
    analysis = reduced()
    work, runs = analysis.index(DeviceWork), analysis.index(CollectiveRuns)
    one, known = np.array([1]), waited_us >= 0
    waits = CollectiveWaits(
        runs.entry[: int(known)], one[: int(known)] * waited_us * 1_000, one[: int(known)], one[: int(known)] * 0,
        one[: int(known)] > 0,
    )  # fmt: skip
    moved = Moved.of(analysis.trace, work, runs, waits, analysis.index(Nesting))
    assert moved.exposed_ns.tolist() == [exposed_us * 1_000]
    assert moved.bytes.tolist() == [2_000]


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        ("BFloat16", 2),
        ("c10::Half", 2),
        ("Float", 4),
        ("Double", 8),
        ("Long", 8),
        ("Int", 4),
        ("Char", 1),
        ("Float8_e4m3fn", 1),
        ("Strange", 0),
    ],
)
def test_collective_bytes_follow_the_element_type(kind: str, width: int) -> None:
    analysis = reduced(args={"dtype": kind, "In msg nelems": 1_000, "Out msg nelems": 250})
    moved = data_bytes(analysis.trace, analysis.index(DeviceWork), analysis.index(CollectiveRuns))
    assert moved.tolist() == [1_000 * width]


@pytest.mark.parametrize(
    ("desc", "around", "role"),
    [
        ("mesh_tp", "", "tensor"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "", "pipeline"),
        ("mesh_ep", "", "expert"),
        ("CONTEXT_PARALLEL_GROUP", "", "context"),
        ("mesh_cp", "", "context"),
        ("mesh_dp_shard", "", "data"),
        ("mesh_fsdp", "", "data"),
        ("default_pg", "", None),
        ("http_step", "", None),  # `tp` and `ep` within a word
        ("", "torch::autograd::AccumulateGrad", "data"),
        ("", "FSDP::post_backward_reduce", "data"),
        (
            "mesh_tp",
            "FSDP::post_backward_reduce",
            "tensor",
        ),  # what it is called counts more than who calls it
        ("", "", None),
    ],
)
def test_groups_serve_what_they_are_called_or_who_calls_them(
    desc: str, around: str, role: str | None
) -> None:
    analysis = reduced(desc=desc, around=around)
    work, runs = analysis.index(DeviceWork), analysis.index(CollectiveRuns)
    assert roles(analysis.trace, work, runs, analysis.index(Nesting)).tolist() == [role]


def test_what_the_others_wait_for_the_last_rank_is_their_mean() -> None:
    """Of two collectives: three ranks wait for rank 2 in the first, one for rank 0 in the second."""

    def waits(own: Sequence[int], numbers: Sequence[int], last: Sequence[int]) -> CollectiveWaits:
        number = np.array(numbers)
        return CollectiveWaits(number, np.array(own), np.array(last), number, number >= 0)

    every = {
        0: waits([30, 0], [0, 1], [2, 0]),
        1: waits([60, 8], [0, 1], [2, 0]),
        2: waits([0], [0], [2]),
    }
    view = JobView({}, every, {}, {})
    assert {at: ns.tolist() for at, ns in view.held_up_ns().items()} == {
        0: [0.0, 8.0],
        1: [0.0, 0.0],
        2: [45.0],
    }


def test_loads_compare_with_marked_steps_or_equal_kernels() -> None:
    def loads(*ranks: tuple[int, bool]) -> dict[int, Load]:
        return {
            at: Load(10.0 * (at + 1), 0.0, kernels=own, marked=marked)
            for at, (own, marked) in enumerate(ranks)
        }

    assert comparable(loads((7, True), (9, True)))
    assert comparable(loads((7, False), (7, False)))
    assert not comparable(loads((7, False), (9, False)))
    assert not comparable(loads((7, True), (9, False)))
    seen = RankLoads(1, loads((7, True), (7, True), (7, True)))
    assert ([one.compute_ns for one in seen.others], seen.mean_compute_ns) == ([10.0, 30.0], 20.0)


def test_a_load_s_error_is_that_of_the_mean_of_its_steps() -> None:
    """Of steps of 90, 10 and 30 ns the first is left out: 20 on average, 14.1 apart, in error by 10."""

    class Steps(SimpleNamespace):
        def durations_ns(self, device: int | None) -> np.ndarray:
            return np.array([900, 100, 300])

        def __len__(self) -> int:
            return 3

    number = np.arange(3)
    work: Any = SimpleNamespace(kind=number * 0, start_ns=number * 0, end_ns=np.array([90, 10, 30]))
    own: Any = SimpleNamespace(entry=number, waiting_ns=np.array([50, 4, 8]))
    steps: Any = Steps(marked=True, of_work=number, bounds_ns={})
    load = Load.of(work, steps, own, np.array([70.0, 6.0, 0.0]))
    assert (load.compute_ns, load.error_ns, load.kernels) == (20.0, pytest.approx(10.0), 2)
    assert (load.waiting_ns, load.held_ns, load.step_ns) == (6.0, 3.0, 200.0)


def test_ranks_run_twice_as_often_are_not_compared() -> None:
    before = [-9_000 + 100 * at for at in range(6)]
    for more, told in ((5, {"k"}), (6, set())):
        longer = rank([*before[:more], *EARLY], [*(one + 50 for one in before[:more]), *ENDS])
        assert waiting_together({0: longer, 1: rank(LATE, ENDS)}) == told
