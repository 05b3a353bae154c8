"""Lost time and reduced work that cannot be raise ValueError."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import IdleTime, LostTime, Work
from traceanalyzer.rule.hits import reduce_to

MS = 1_000_000


PLACES = ((1 * MS, 2 * MS), (30 * MS, 3 * MS), (55 * MS, 2 * MS), (80 * MS, 2 * MS))


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced(*PLACES)


def _ns(*values: int) -> Any:
    return np.array(values, np.int64)


def test_lost_time_without_owner_is_refused(analysis: Analysis) -> None:
    idle = analysis.index(IdleTime)
    owner = np.full(len(idle), -1)
    with pytest.raises(ValueError, match=rf"{len(idle)} of {len(idle)} lost stretches have no owner"):
        LostTime.all_of(idle, owner)
    with pytest.raises(ValueError, match=rf"{len(idle) + 1} owners of {len(idle)} lost stretches"):
        LostTime.all_of(idle, np.zeros(len(idle) + 1, np.int64))


def test_an_excess_below_nothing_is_refused(analysis: Analysis) -> None:
    work = analysis.index(Work)
    excess = np.zeros(len(work), np.int64)
    assert LostTime.excess(work, excess).sums(len(work)).sum() == 0
    excess[0] = -1
    with pytest.raises(ValueError, match=rf"1 of {len(work)} excesses are negative: leave out what loses nothing"):
        LostTime.excess(work, excess)


@pytest.mark.parametrize(
    ("needed", "why"),
    [
        (-1.0, "1 of 3 needed_ns are negative or no number: 0 takes the work away"),
        (np.nan, "1 of 3 needed_ns are negative or no number"),
        (9e9, "1 of 3 needed_ns are more than the work takes: leave it out"),
    ],
)
def test_needed_time_is_between_zero_and_the_duration(analysis: Analysis, needed: float, why: str) -> None:
    work = analysis.index(Work)[0:3]
    wanted = work.dur_ns.astype(np.float64)
    assert reduce_to(work, wanted)["lost"].sums(3).sum() == 0
    spared = reduce_to(work, wanted * np.array([0, 1, 0]) + np.array([0, 0, 1]))
    assert spared["lost"].sums(3).tolist() == [wanted[0], 0, wanted[2] - 1]
    gone, resized = spared["fix"]
    assert (gone.work.tolist(), resized.work.tolist()) == ([0], [1, 2])
    wanted[1] = needed
    with pytest.raises(ValueError, match=why):
        reduce_to(work, wanted)


@pytest.mark.parametrize(
    ("starts", "ends", "why"),
    [
        (_ns(6, 9), _ns(0, 8), "2 of 2 spans end before they start"),
        (_ns(0, 5), _ns(6), "2 starts_ns and 1 ends_ns: each span has both"),
    ],
)
def test_spans_are_parallel_and_end_after_they_start(analysis: Analysis, starts: Any, ends: Any, why: str) -> None:
    idle, work = analysis.index(IdleTime), analysis.index(Work)
    for make, view in (
        (LostTime.idle_within, idle),
        (LostTime.idle_from, idle),
        (LostTime.launched_within, idle),
        (LostTime.spent_within, work),
    ):
        make(view, _ns(5, 0, 9, 9), _ns(9, 5, 9, 12))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=why):
            make(view, starts, ends)  # type: ignore[arg-type]


def test_lost_time_of_spans_keeps_their_number(analysis: Analysis) -> None:
    idle, work = analysis.index(IdleTime), analysis.index(Work)
    spans = work.start_ns[1:], work.end_ns[1:] + MS
    for lost in (
        LostTime.idle_within(idle, *spans),
        LostTime.idle_from(idle, *spans),
        LostTime.launched_within(idle, *spans),
        LostTime.spent_within(work, *spans),
        LostTime.all_of(work[1:]),
        LostTime.excess(work[1:], work[1:].dur_ns // 2),
    ):
        assert (lost.spans, lost[np.arange(len(lost.owner))].spans) == (3, 3)
        assert lost.owned_by(np.arange(1, 4)).spans is None


def test_arrays_of_lost_time_become_read_only(analysis: Analysis) -> None:
    work = analysis.index(Work)
    owner = np.arange(len(work))
    LostTime.all_of(work, owner)
    with pytest.raises(ValueError, match="read-only"):
        owner[:] = 0


def test_lost_time_ends_after_it_starts() -> None:
    columns = {name: np.array([0, 0]) for name in ("owner", "device")}
    LostTime(**columns, start_ns=np.array([0, 5]), end_ns=np.array([5, 9]))
    with pytest.raises(ValueError, match="1 of 2 lost stretches end before they start"):
        LostTime(**columns, start_ns=np.array([9, 9]), end_ns=np.array([5, 9]))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda work: LostTime.all_of(work).sums(1), r"sums\(1\) of owners up to 3: n is the length of"),
        (lambda work: LostTime.all_of(work).owned_by(np.zeros(1, int)), "an owner of 3, and owner has 1"),
        (lambda work: LostTime.all_of(work)[np.ones(3, bool)], "a mask of 3 rows cannot choose of 4"),
    ],
)
def test_owners_and_masks_are_of_the_lost_time(analysis: Analysis, wrong: Callable[[Work], Any], said: str) -> None:
    with pytest.raises((ValueError, IndexError), match=said):
        wrong(analysis.index(Work))


def test_nothing_joined_is_nothing() -> None:
    assert len(LostTime.joined([]).owner) == 0
