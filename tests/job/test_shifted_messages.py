"""Messages without numbers of calls: which of one rank is which of the other, where several shifts fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from traceanalyzer import diagnose, load_job
from traceanalyzer.job.pairing import partners
from traceanalyzer.job.runs import PAIR, CollectiveRuns

US = 1_000


def messages(
    first: int, count: int, *, ahead_us: int = 0, seq: bool = False, what: str = PAIR
) -> CollectiveRuns:
    """Messages of 50 us every 1.5 ms, from that number on; a clock that is so far ahead, and 3 us of noise."""
    number = np.arange(first, first + count)
    start = number * 1_500 * US + ahead_us * US + (number * 7 % 4) * US
    none = np.full(count, -1, np.int64)
    named, group = (np.full(count, text, object) for text in (what, "pair"))
    return CollectiveRuns(
        np.arange(count),
        start,
        start + 50 * US,
        named,
        group,
        np.full(count, 64),
        number if seq else none,
        none,
    )


@pytest.mark.parametrize("missing", [2, 4, 5])
@pytest.mark.parametrize("ahead_us", [0, -32, 200])
def test_clocks_choose_among_shifts_that_fit(missing: int, ahead_us: int) -> None:
    """The other recording begins some messages later and ends as many later: counts alone pair them off by that."""
    mine, theirs = messages(0, 40), messages(missing, 40, ahead_us=ahead_us)
    own = np.arange(40)
    found = partners(mine, own, theirs, own, apart_ns=0)
    assert found[missing:].tolist() == list(range(40 - missing))
    assert (found[:missing] < 0).all()


def test_without_absolute_times_counts_decide() -> None:
    mine, theirs, own = messages(0, 40), messages(4, 40), np.arange(40)
    assert partners(mine, own, theirs, own).tolist() == own.tolist()


def test_collectives_are_paired_whatever_the_clocks() -> None:
    """No rank is at another collective than its peers: clocks of two hosts may be 6 ms apart."""
    mine, theirs = messages(0, 40, what="allreduce"), messages(4, 40, what="allreduce")
    assert partners(mine, np.arange(40), theirs, np.arange(40), apart_ns=0).tolist() == list(range(40))


def test_numbers_of_calls_outweigh_clocks() -> None:
    """Clocks of two hosts are 3 ms apart: that is the distance of two messages."""
    mine, theirs, own = messages(0, 40, seq=True), messages(0, 40, ahead_us=3_000, seq=True), np.arange(40)
    assert partners(mine, own, theirs, own, apart_ns=0).tolist() == own.tolist()


def test_pipeline_stages_of_one_host_have_one_clock(shared: Callable[[str], Path]) -> None:
    """Paired four messages off, the clocks seemed to be 3.36 ms apart."""
    report = diagnose(load_job(*(shared(f"ranks3/stages.bad.rank{rank}") for rank in (0, 1))))
    assert report.job is not None
    (clock,) = [one.clock for one in report.job.ranks if one.rank == 1]
    assert clock is not None
    assert clock.offset_ns == pytest.approx(-32 * US, abs=15 * US)
    assert clock.uncertainty_ns < 20 * US
