"""Slow links worked out by hand: lateness per transfer, where it is not decidable, and what each entry loses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.job.links import (
    NO_LINKS,
    RankLinks,
    SlowLink,
    _Ends,
    between_two,
    of_groups,
    without_links,
)
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.rates import Moved, Rate, rates
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.collective_waits import CollectiveWaits

SIZES = np.array([10, 20, 100] * 3) * 10.0  # three of each; the least are of 100 ns, the most of 1,000 ns


def ends(*parts: float, transfer: Any = SIZES, off: Any = 0.0) -> _Ends:
    """Ranks that leave later by these parts of the transfer."""
    transfer = np.asarray(transfer, float)
    late = np.array([part * transfer + off for part in parts])
    return _Ends(late, transfer, np.arange(len(transfer)))


@pytest.mark.parametrize(
    ("parts", "late"),
    [
        ((0.25, 0.0, 0.0, 0.0), {0: 0.25}),
        ((0.0, 0.5, 0.0, 0.25), {1: 0.5, 3: 0.25}),
        ((0.0, 0.0, 0.0, 0.09), {}),
        ((-0.5, 0.0, 0.0, 0.125), {3: 0.125}),  # who leaves first is not late
        ((0.5, 0.5, 0.19, 0.0), {0: 0.5, 1: 0.5, 2: 0.19}),  # late itself
        ((0.2, 0.2, 0.09, 0.0), {}),  # nearly late: another is late by more than 0.4 of it
        ((0.0, 0.0, 0.0, 0.0), {}),
    ],
)
def test_ranks_are_late_by_a_tenth_of_the_transfer(parts: tuple[float, ...], late: dict[int, float]) -> None:
    """Whatever they are late by at all transfers alike."""
    for off in (0.0, 700.0):
        found = ends(*parts, off=off).late()
        assert found == pytest.approx(late)


@pytest.mark.parametrize(
    ("transfer", "decidable"),
    [
        (SIZES, True),
        (SIZES[:8], False),  # of eight there are not three in each third
        ([100, 150, 200] * 3, True),
        ([100, 150, 199] * 3, False),  # of less than twice the least any late end may be a clock
        ([0, 1, 2] * 3, True),
        ([0, 1, 1.9] * 3, False),
        ([0] * 9, False),
    ],
)
def test_few_or_equal_size_collectives_give_no_late_ends(transfer: Any, decidable: bool) -> None:
    assert (ends(0.5, 0.0, 0.0, 0.5, transfer=transfer).late() is not None) is decidable


@pytest.mark.parametrize(
    ("noise", "part", "late"),
    [
        # Off by d at the most, errors are 1.25 * 1.4826 * d * sqrt(2 / 3) / 900 of the transfer: 0.00168 d.
        (10, 0.125, {0: 0.125}),  # five errors: 0.084
        (20, 0.125, {}),  # 0.168
        (20, 0.25, {0: 0.25}),
        (30, 0.5, None),  # 0.252 is more than two tenths
    ],
)
def test_lateness_needs_five_errors_of_the_median(
    noise: int, part: float, late: dict[int, float] | None
) -> None:
    """Medians of the least and of the most transfers are exact; all others are off by as much."""
    off = noise * np.array([-1, 0, 1, 1, 1, 1, -1, 0, 1])
    found = ends(part, 0.0, 0.0, 0.0, transfer=np.sort(SIZES), off=off).late()
    assert found == (None if late is None else pytest.approx(late))


def runs(
    first: int, durations: list[int], what: str = "allreduce", group: str | None = "0 [0, 1]"
) -> CollectiveRuns:
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


def view_of(own: dict[int, CollectiveRuns], waited: dict[int, CollectiveWaits]) -> JobView:
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
    found = of_groups(view_of(own, waited), told)
    assert sorted(found) == [2, 5]
    (two,), (five,) = found[2].slow, found[5].slow
    assert (two.entry.tolist(), five.entry.tolist()) == ([0, 20], [13, 33])
    assert (two.more_ns.tolist(), five.more_ns.tolist()) == ([200, 400], [200, 400])
    assert (two.ranks, two.group, two.collective, two.part) == ((2, 5), "dp [2, 5]", "allreduce", 2.0)


def test_ranks_without_slow_group_or_peers_have_no_slow_link() -> None:
    own = {0: runs(0, [400]), 1: runs(0, [400])}
    waited = {rank: waits(own[rank], [0], [0]) for rank in own}
    view = view_of(own, waited)
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


def test_slow_link_costs_its_part_of_each_transfer() -> None:
    """Of what moved nothing together it costs none."""
    own = {3: runs(4, [900, 5, 700, 60], "alltoall")}
    waited = {3: waits(own[3], [2, 0, 1, 3], [0, 0, 0, 0])}
    one = _Ends(np.zeros((2, 4)), np.array([10.0, 0.0, 45.0, 200.0]), np.array([0, 1, 2, 3]))
    link = one.slow(view_of(own, waited), 3, (1, 3), 0.5)
    assert (link.ranks, link.group, link.collective, link.part) == ((1, 3), None, None, 0.5)
    assert link.entry.tolist() == [14, 4, 34]
    assert link.more_ns.tolist() == [5, 22, 60]  # 22.5 is rounded to the even number


def test_exchanges_compare_among_ranks_that_have_them() -> None:
    """Of three ranks nothing is told, though a fourth has other collectives."""
    own = {rank: runs(0, [400] * 9, "alltoall") for rank in range(4)}
    waited = {rank: waits(own[rank], list(range(9)), [0] * 9) for rank in range(3)}
    waited[3] = waits(own[3], list(range(9, 18)), [0] * 9)
    assert between_two(view_of(own, waited)) == {}


def moved(sizes: list[int], exposed: list[int], roles: list[str | None]) -> Moved:
    return Moved(np.array(sizes), np.array(exposed), np.array(roles, object))


def test_rates_are_of_collectives_of_one_kind_group_and_size() -> None:
    """Sizes of as many bits are one; a rank's first collective no other has, and it is in no rate."""
    own = {
        0: replace(runs(0, [500, 600, 700, 4_000]), what=np.array(["allreduce"] * 3 + ["allgather"], object)),
        3: replace(
            runs(5, [9, 400, 900, 800, 4_100]),
            what=np.array(["odd"] + ["allreduce"] * 3 + ["allgather"], object),
        ),
    }
    own[0].group[3] = own[3].group[4] = None
    waited = {
        0: waits(own[0], [0, 1, 2, 3], [100, 0, 0, 0]),
        3: waits(own[3], [0, 1, 2, 3], [0, 300, 100, 100]),
    }
    each = {
        0: moved([512, 1_000, 1_024, 64], [400, 600, 0, 4_000], [None, None, "data", None]),
        3: moved([7, 1_023, 900, 1_024, 64], [9, 200, 600, 700, 2_000], [None, None, None, "tensor", None]),
    }
    found = rates(own, waited, each)
    assert [
        (one.collective, one.group, one.count, one.bytes, numbers.tolist()) for one, numbers in found
    ] == [
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
