"""When one fix does what another needs: segments and pieces of work given one by one, at either side of each limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from traceanalyzer.replay.edit_footprint import Autograd, Footprint

US = 1_000.0


def filled(size: int, values: Mapping[int, float]) -> np.ndarray:
    array = np.zeros(size)
    array[list(values)] = list(values.values())
    return array


def among(size: int, places: Sequence[int]) -> np.ndarray:
    return np.isin(np.arange(size), list(places))


def fix(
    cpu_us: Mapping[int, float] | None = None,
    *,
    dropped: Sequence[int] = (),
    woken: Sequence[int] = (),
    work_us: Mapping[int, float] | None = None,
    dead: Sequence[int] = (),
    emptied: Sequence[int] = (),
    moved_us: Mapping[int, float] | None = None,
    leaves: bool = False,
) -> Footprint:
    """Of ten segments and four pieces of work: what the fix takes of each."""
    cpu, work, moved = (
        US * filled(size, one or {}) for size, one in ((10, cpu_us), (4, work_us), (4, moved_us))
    )
    gone = among(4, dead)
    return Footprint(
        cpu, work, among(10, dropped), gone, gone | among(4, emptied), among(10, woken), moved, leaves
    )


LAUNCH = np.array([0, 3, 6, 9])


@pytest.mark.parametrize(
    ("cpu_us", "leads"),
    [
        ({2: 10}, True),
        ({1: 10}, False),  # the wait itself
        ({3: 10}, False),  # what launches next
        ({2: 10, 4: 10}, True),
        ({2: 10, 4: 11}, False),
        ({}, False),
    ],
)
def test_host_work_belongs_to_the_wait_before_it(cpu_us: dict[int, float], leads: bool) -> None:
    assert fix(woken=[1]).leads_to(fix(cpu_us), LAUNCH) is leads


@pytest.mark.parametrize(
    ("wait_dead", "work_dead", "leads"),
    [((), (), False), ((1,), (), True), ((), (1,), True), ((2,), (2,), False)],
)
def test_a_launch_that_either_fix_drops_is_none_that_comes_next(
    wait_dead: Sequence[int], work_dead: Sequence[int], leads: bool
) -> None:
    """The host works after a wait and after the launch that follows it."""
    wait, work = fix(woken=[1], dead=wait_dead), fix({2: 10, 4: 30}, dead=work_dead)
    assert wait.leads_to(work, LAUNCH) is leads


@pytest.mark.parametrize(
    ("dropped", "moved_us", "dead_us", "leads"),
    [
        ([7], {0: 100, 1: 100}, {}, True),
        ([7], {0: 100, 1: 99}, {}, False),  # values and no data: less than 100 us each
        ([7], {}, {0: 150, 1: 50}, True),  # copies that go
        ([7], {}, {}, False),
        ([], {0: 100, 1: 100}, {}, False),  # a gap: its Python may do anything
    ],
)
def test_ops_after_the_last_wait_use_the_copied_data(
    dropped: list[int], moved_us: dict[int, float], dead_us: dict[int, float], leads: bool
) -> None:
    wait = fix(woken=[1, 4, 7 - 1], moved_us=moved_us, work_us=dead_us, dead=list(dead_us))
    assert wait.leads_to(fix({7: 10}, dropped=dropped), np.array([0, 3, 5, 9])) is leads


def test_work_after_half_of_the_waits_is_no_chance() -> None:
    launch = np.array([0, 2, 5, 8])
    assert fix(woken=[3, 6]).leads_to(fix({4: 10}), launch)
    assert not fix(woken=[1, 3, 6]).leads_to(fix({4: 10}), launch)
    assert fix(woken=[1, 3, 6]).leads_to(fix({4: 10, 7: 1}), launch)


@pytest.mark.parametrize(
    ("moved_us", "cpu_us", "prepares"),
    [
        ({1: 50}, {2: 10}, True),
        ({1: 50}, {1: 10}, True),  # anywhere after the launch before
        ({1: 50}, {4: 10}, False),
        ({1: 50}, {2: 10, 4: 10}, True),
        ({1: 50}, {2: 10, 4: 11}, False),  # most of the host's work is for another launch
        ({1: 50, 3: 50}, {2: 10}, True),
        ({1: 50, 3: 51}, {2: 10}, False),  # most of what is copied comes from elsewhere
        ({}, {2: 10}, False),
        ({1: 50}, {}, False),
    ],
)
def test_data_is_prepared_by_the_host_right_before_its_copy(
    moved_us: dict[int, float], cpu_us: dict[int, float], prepares: bool
) -> None:
    assert fix(cpu_us).prepares(fix(moved_us=moved_us), LAUNCH) is prepares


def test_what_comes_before_two_copies_of_one_call_counts_once() -> None:
    launch = np.array([0, 3, 3, 9])
    copies = fix(moved_us={1: 50, 2: 50})
    assert not fix({2: 40, 5: 60}).prepares(copies, launch)
    assert fix({2: 60, 5: 40}).prepares(copies, launch)


@pytest.mark.parametrize(
    ("mine", "other", "holds"),
    [
        (fix({1: 10}, dropped=[1]), fix({1: 10, 2: 10}, dropped=[1, 2]), True),
        (fix({1: 10}, dropped=[1]), fix({1: 10, 2: 11}, dropped=[1, 2]), False),
        (fix({1: 4}), fix({1: 10}), False),  # a gap that shrinks by less
        (fix({1: 5}), fix({1: 10}), True),
        (fix({1: 99}), fix({1: 10, 2: 11}), False),  # by more: no more than all of it is done
        (fix({1: 10}), fix({1: 10}, dropped=[1]), False),  # shrinks what the other drops
        (fix(work_us={0: 10}, dead=[0]), fix(work_us={0: 10, 1: 10}, dead=[0, 1]), True),
        (fix(work_us={0: 9}, emptied=[0]), fix(work_us={0: 10, 1: 10}, dead=[0, 1]), True),
        (fix(work_us={0: 5}), fix(work_us={0: 10}, dead=[0]), False),  # only quickened
        (fix(work_us={0: 10}, dead=[0]), fix(work_us={0: 5}), False),  # the other quickens it
        (fix(), fix(), False),
    ],
)
def test_fix_covers_another_that_it_halves(mine: Footprint, other: Footprint, holds: bool) -> None:
    assert mine.holds(other) is holds


AUTOGRAD = Autograd(
    number=np.array([5, 5, 6, 6, -1, 7, 7, -1, -1, -1]),
    backward=among(10, [1, 3, 4, 6]),
    launch=np.array([0, 1, 3, 8]),
)


@pytest.mark.parametrize(
    ("mine", "other", "backward"),
    [
        (fix({1: 10}), fix({0: 1}), True),
        (fix({1: 10}), fix({1: 10}), False),
        (fix({1: 10}), fix({2: 1}), False),
        (fix({1: 10, 3: 10}), fix({0: 1}), True),
        (fix({1: 10, 3: 11}), fix({0: 1}), False),
        (fix({1: 10, 2: 10}), fix({0: 1}), False),  # as much of forward
        (fix({1: 11, 2: 10}), fix({0: 1}), True),
        (fix({1: 10, 4: 99, 7: 99}), fix({0: 1}), True),  # of what has no number nothing is known
        (fix({4: 10}), fix({7: 10}), False),
        (
            fix(work_us={1: 10}),
            fix(work_us={0: 1}),
            True,
        ),  # what runs on the device counts where it is launched
        (fix(work_us={2: 10}), fix(work_us={0: 1}), False),
        (fix(), fix(), False),
    ],
)
def test_most_of_a_fix_is_backward_of_ops_of_another(
    mine: Footprint, other: Footprint, backward: bool
) -> None:
    assert mine.is_backward_of(other, AUTOGRAD) is backward
