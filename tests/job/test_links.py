"""Slow links: between two ranks of an exchange by their ends, and of a group beside groups that do the same."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.job.ranks import US, job, view_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.job.links import RankLinks, between_two, of_groups, without_links
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.rates import Moved, Rate, data_bytes, rates
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows
from traceanalyzer.timeline.device_work import DeviceWork


def slow_ranks(found: Mapping[int, RankLinks]) -> set[tuple[int, ...]]:
    return {link.ranks for own in found.values() for link in own.slow}


@pytest.mark.parametrize("part", [0.15, 1.0])
def test_ranks_late_by_their_transfers_have_a_slow_link(part: float) -> None:
    view = view_of(job(4, {1: part, 3: part}, ahead_us=(0, 700, -300, 20)))
    found = between_two(view)
    assert sorted(found) == [0, 1, 2, 3]
    assert slow_ranks(found) == {(1, 3)}
    (link,) = found[1].slow
    assert link.part == pytest.approx(part, rel=0.1)
    waits = without_links(view.waits[1], found[1])
    assert waits.waiting_ns.sum() < view.waits[1].waiting_ns.sum()
    assert not found[0].slow


def test_clock_offset_and_late_kernel_are_no_slow_link() -> None:
    view = view_of(job(4, {}, ahead_us=(0, 700, -300, 20), late_us=150))
    assert slow_ranks(between_two(view)) == set()


@pytest.mark.parametrize("ranks", [2, 3])
def test_few_ranks_have_no_peers_to_compare_a_link_with(ranks: int) -> None:
    assert between_two(view_of(job(ranks, {0: 0.5, 1: 0.5}))) == {}


def test_of_one_size_only_a_late_end_may_be_the_clock() -> None:
    assert between_two(view_of(job(4, {0: 0.5, 1: 0.5}, transfers_us=(2_000,) * 24))) == {}


def test_ranks_leave_a_ring_together() -> None:
    assert between_two(view_of(job(4, {0: 0.5, 1: 0.5}, what="allreduce"))) == {}


def test_more_than_two_late_ranks_name_no_link() -> None:
    assert slow_ranks(between_two(view_of(job(8, {0: 0.5, 1: 0.5, 2: 0.5})))) == set()


@pytest.mark.parametrize(("third", "told"), [(0.0, {(1, 3)}), (0.03, {(1, 3)}), (0.08, set())])
def test_third_late_rank_leaves_the_slow_link_unknown(third: float, told: set[tuple[int, ...]]) -> None:
    """Two are late by 0.12 and 0.30 of the transfer: of 0.4 of the 0.12 on, another is as good as late."""
    assert slow_ranks(between_two(view_of(job(8, {1: 0.12, 3: 0.30, 5: third})))) == told


def _groups(slow: int | None, count: int) -> dict[int, RankLinks]:
    runs: dict[int, CollectiveRuns] = {}
    for at in range(count):
        transfers = [us * (3 if at == slow else 1) for us in (1_000,) * 12]
        name = f"dp{at} [{2 * at}, {2 * at + 1}]"
        runs |= job(2, {}, what="allreduce", transfers_us=transfers, group=name, first=2 * at)
    view = view_of(runs)
    return of_groups(view, _rates(view))


def _rates(view: JobView) -> list[tuple[Rate, Rows]]:
    """Of collectives that all move 16 MiB, while nothing computes."""
    moved = {
        rank: Moved(np.full(len(one), 1 << 24), np.zeros(len(one), np.int64), np.full(len(one), None, object))
        for rank, one in view.runs.items()
    }
    return rates(view.runs, view.waits, moved)


def test_the_collectives_that_take_longest_in_all_come_first() -> None:
    """Twelve of 1 ms, one of 5 ms, six of 3 ms."""
    runs: dict[int, CollectiveRuns] = {}
    for at, (us, count) in enumerate(((1_000, 12), (5_000, 1), (3_000, 6))):
        group = f"dp{at} [{2 * at}, {2 * at + 1}]"
        runs |= job(2, {}, what="allreduce", transfers_us=(us,) * count, group=group, first=2 * at)
    found = [rate for rate, _ in _rates(view_of(runs))]
    assert [(one.count, one.transfer_ns) for one in found] == [
        (6, 3_000 * US),
        (12, 1_000 * US),
        (1, 5_000 * US),
    ]


def test_a_group_far_below_those_that_do_the_same_is_slow() -> None:
    found = _groups(1, 3)
    assert slow_ranks(found) == {(2, 3)}
    (link,) = found[2].slow
    assert link.group == "dp1 [2, 3]"
    assert link.part == pytest.approx(2.0)
    assert link.more_ns.sum() == pytest.approx(12 * 2_000 * US, rel=0.01)


@pytest.mark.parametrize(("slow", "count"), [(None, 3), (1, 2)])
def test_groups_alike_or_too_few_accuse_none(slow: int | None, count: int) -> None:
    assert slow_ranks(_groups(slow, count)) == set()


@pytest.mark.parametrize(
    ("what", "sent", "received"), [("_allgather_base", 1_000, 8_000), ("allreduce", 8_000, 8_000)]
)
def test_collective_size_is_what_a_rank_sends_or_receives(what: str, sent: int, received: int) -> None:
    trace = TraceBuilder()
    args = {"Collective name": what, "In msg nelems": sent, "Out msg nelems": received, "dtype": "Float"}
    trace.op("record_param_comms", 2 * US, 9 * US, **args)
    trace.launch("cudaLaunchKernel", 3 * US, 5 * US, 1)
    trace.kernel(
        20 * US, 90 * US, 1, name="ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    )
    analysis = Analysis(trace.load())
    work, runs = analysis.index(DeviceWork), analysis.index(CollectiveRuns)
    assert data_bytes(analysis.trace, work, runs).tolist() == [8_000 * 4]
