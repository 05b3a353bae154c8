"""Slow links: between two ranks by their ends, of a group beside groups that do the same, and by hand."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.job.ranks import US, job, view_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.job.links import NO_LINKS, RankLinks, SlowLink, between_two, of_groups, without_links
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.rates import Moved, Rate, data_bytes, rates
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.collective_waits import CollectiveWaits
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
    assert [(one.count, one.transfer_ns) for one in found] == [(6, 3_000 * US), (12, 1_000 * US), (1, 5_000 * US)]


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


@pytest.mark.parametrize(("what", "sent", "received"), [("_allgather_base", 1_000, 8_000), ("allreduce", 8_000, 8_000)])
def test_collective_size_is_what_a_rank_sends_or_receives(what: str, sent: int, received: int) -> None:
    trace = TraceBuilder()
    args = {"Collective name": what, "In msg nelems": sent, "Out msg nelems": received, "dtype": "Float"}
    trace.op("record_param_comms", 2 * US, 9 * US, **args)
    trace.launch("cudaLaunchKernel", 3 * US, 5 * US, 1)
    trace.kernel(20 * US, 90 * US, 1, name="ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    analysis = Analysis(trace.load())
    work, runs = analysis.index(DeviceWork), analysis.index(CollectiveRuns)
    assert data_bytes(analysis.trace, work, runs).tolist() == [8_000 * 4]


def runs(first: int, durations: list[int], what: str = "allreduce", group: str | None = "0 [0, 1]") -> CollectiveRuns:
    """One after the other; the entries of the device's work are 10 apart."""
    count = len(durations)
    start = np.arange(count) * 10_000
    nothing = np.full(count, -1, np.int64)
    named, of = np.full(count, what, object), np.full(count, group, object)
    entry = first + 10 * np.arange(count)
    return CollectiveRuns(entry, start, start + np.array(durations), named, of, nothing, nothing, nothing)


def waits(of: CollectiveRuns, numbers: list[int], waiting: list[int]) -> CollectiveWaits:
    number = np.array(numbers)
    entry = of.entry[len(of) - len(numbers) :]  # the first ones no other rank has
    return CollectiveWaits(entry, np.array(waiting), number * 0, number, number >= 0)


def rate(beside: float | None, busbw: float, *, slow: bool, group: str = "dp [2, 5]") -> Rate:
    made = Rate("allreduce", group, (2, 5), None, 2, 8, 1, 1, 0, None, 0, busbw, busbw)
    return replace(made, beside=beside, slow=slow)


def views_by_hand(own: dict[int, CollectiveRuns], waited: dict[int, CollectiveWaits]) -> JobView:
    return JobView(own, waited, {}, dict.fromkeys(own, 0))


def test_slow_group_lengthens_collectives_by_transfer_part() -> None:
    """Ranks 2 and 5 do 0 and 2 in a group at a third of the usual: two thirds of each transfer are too much."""
    own = {5: runs(3, [700, 400, 100, 1_000]), 2: runs(0, [400, 100, 700]), 7: runs(1, [50])}
    waited = {
        5: waits(own[5], [0, 1, 2], [100, 0, 400]),
        2: waits(own[2], [0, 1, 2], [100, 0, 100]),
        7: waits(own[7], [3], [0]),
    }
    told = [
        (rate(300.0, 100.0, slow=True), np.array([0, 2])),
        (rate(300.0, 250.0, slow=False), np.array([1])),
        (rate(None, 1.0, slow=False), np.array([3])),
    ]
    found = of_groups(views_by_hand(own, waited), told)
    assert sorted(found) == [2, 5]
    (two,), (five,) = found[2].slow, found[5].slow
    assert (two.entry.tolist(), five.entry.tolist()) == ([0, 20], [13, 33])
    assert (two.more_ns.tolist(), five.more_ns.tolist()) == ([200, 400], [200, 400])
    assert (two.ranks, two.group, two.collective, two.part) == ((2, 5), "dp [2, 5]", "allreduce", 2.0)


def test_ranks_without_slow_group_or_peers_have_no_slow_link() -> None:
    own = {0: runs(0, [400]), 1: runs(0, [400])}
    waited = {rank: waits(own[rank], [0], [0]) for rank in own}
    view = views_by_hand(own, waited)
    assert of_groups(view, [(rate(100.0, 90.0, slow=False), np.array([0]))]) == {0: NO_LINKS, 1: NO_LINKS}
    assert of_groups(view, [(rate(None, 90.0, slow=False), np.array([0]))]) == {}
    assert of_groups(view, []) == {}
    with pytest.raises(Unavailable, match="no links to compare"):
        RankLinks.build()


def test_own_slow_links_reduce_waiting_but_not_below_zero() -> None:
    own = runs(0, [400, 400, 400])
    waited = waits(own, [0, 1, 2], [100, 100, 100])
    one = SlowLink((0, 1), None, None, 0.5, np.array([0, 20]), np.array([30, 170]))
    other = replace(one, entry=np.array([20, 10]), more_ns=np.array([5, 60]))
    less = without_links(waited, RankLinks((one, other)))
    assert less.waiting_ns.tolist() == [70, 40, 0]
    assert waited.waiting_ns.tolist() == [100, 100, 100]
    assert without_links(waited, NO_LINKS).waiting_ns.tolist() == [100, 100, 100]


def test_exchanges_compare_among_ranks_that_have_them() -> None:
    """Of three ranks nothing is told, though a fourth has other collectives."""
    own = {rank: runs(0, [400] * 9, "alltoall") for rank in range(4)}
    waited = {rank: waits(own[rank], list(range(9)), [0] * 9) for rank in range(3)}
    waited[3] = waits(own[3], list(range(9, 18)), [0] * 9)
    assert between_two(views_by_hand(own, waited)) == {}


def moved(sizes: list[int], exposed: list[int], roles: list[str | None]) -> Moved:
    return Moved(np.array(sizes), np.array(exposed), np.array(roles, object))


def test_rates_are_of_collectives_of_one_kind_group_and_size() -> None:
    """Sizes of as many bits are one; a rank's first collective no other has, and it is in no rate."""
    own = {
        0: replace(runs(0, [500, 600, 700, 4_000]), what=np.array(["allreduce"] * 3 + ["allgather"], object)),
        3: replace(
            runs(5, [9, 400, 900, 800, 4_100]), what=np.array(["odd"] + ["allreduce"] * 3 + ["allgather"], object)
        ),
    }
    own[0].group[3] = own[3].group[4] = None
    waited = {0: waits(own[0], [0, 1, 2, 3], [100, 0, 0, 0]), 3: waits(own[3], [0, 1, 2, 3], [0, 300, 100, 100])}
    each = {
        0: moved([512, 1_000, 1_024, 64], [400, 600, 0, 4_000], [None, None, "data", None]),
        3: moved([7, 1_023, 900, 1_024, 64], [9, 200, 600, 700, 2_000], [None, None, None, "tensor", None]),
    }
    found = rates(own, waited, each)
    assert [(one.collective, one.group, one.count, one.bytes, numbers.tolist()) for one, numbers in found] == [
        ("allgather", "", 1, 64, [3]),
        ("allreduce", "0 [0, 1]", 2, round((1_023 + 1_000) / 2), [0, 1]),
        ("allreduce", "0 [0, 1]", 1, 1_024, [2]),
    ]
    gathered, small, large = (one for one, _ in found)
    assert {one.ranks for one, _ in found} == {(0, 3)}
    assert (gathered.transfer_ns, gathered.waiting_ns, gathered.exposed_ns) == (4_000, 100, 3_000)
    assert gathered.overlap == pytest.approx(0.25)
    assert (small.transfer_ns, small.waiting_ns, small.exposed_ns) == (500, 400, 900)
    assert (large.transfer_ns, large.exposed_ns, large.overlap) == (700, 350, 0.5)
    assert [gathered.role, small.role, large.role] == [None, "data", "data"]  # one rank of its group shows it
    assert (gathered.size, gathered.algbw, gathered.busbw) == (2, 64 / 4_000, 64 / 4_000 / 2)


def test_equal_rates_are_ordered_by_collective_and_group() -> None:
    names = [("b", "y"), ("a", "z"), ("a", "y")]
    own = {}
    for rank in (0, 1):
        one = runs(0, [100, 100, 100])
        what, group = (np.array([name[at] for name in names], object) for at in (0, 1))
        own[rank] = replace(one, what=what, group=group)
    waited = {rank: waits(own[rank], [0, 1, 2], [0, 0, 0]) for rank in own}
    each = {rank: moved([8] * 3, [0] * 3, [None] * 3) for rank in own}
    assert [(one.collective, one.group) for one, _ in rates(own, waited, each)] == sorted(names)
