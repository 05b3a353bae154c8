"""What collectives wait: where it was measured, and what one rank alone expects."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.timeline.collective_waits import CollectiveWaits, at_most

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
