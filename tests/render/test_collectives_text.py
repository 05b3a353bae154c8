"""Collectives as text: groups, rates, slow links and clocks, none wider than 80 columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from traceanalyzer.job.rates import Rate
from traceanalyzer.model.report import Clock, Slowdown
from traceanalyzer.render.text.job import ranges, render_collectives
from traceanalyzer.report.job_summary import CollectivesReport

ONE = Rate(
    "allreduce", "dp", (0, 1, 2, 3), "data", 4, 8 << 20, 12, 250_000, 100_000, 0.4, 3_000_000, 33.55, 50.3
)


def lines(*found: Rate, clocks: dict[int, Clock] | None = None, alone: tuple[int, ...] = ()) -> list[str]:
    given = {0: Clock(0)} if clocks is None else clocks
    text = render_collectives(CollectivesReport(found, given, None, alone))
    assert max(map(len, text.splitlines())) <= 80
    return text.splitlines()


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((3,), "3"),
        ((0, 1), "0-1"),
        ((0, 1, 2, 3, 6), "0-3,6"),
        ((0, 2, 4, 5, 6), "0,2,4-6"),
        ((1, 3), "1,3"),
    ],
)
def test_ranks_are_named_by_runs(ranks: tuple[int, ...], words: str) -> None:
    assert ranges(ranks) == words


def test_a_group_has_one_name_and_a_line_for_each_kind_and_size() -> None:
    gathered = replace(ONE, collective="allgather", bytes=0, overlap=None)
    pair = replace(ONE, group="", ranks=(0, 1), size=4, role=None)
    said = lines(ONE, gathered, pair)
    assert said[:3] == ["g1: ranks 0-3, data parallel: dp", "g2: ranks 0-1 of 4", ""]
    titles, first, second, third = said[3:7]
    assert titles.split() == [
        "collective",
        "size",
        "times",
        "transfer",
        "algbw",
        "busbw",
        "beside",
        "waiting",
    ]
    sizes = ["8.00", "MiB", "12", "250", "µs", "33.55", "50.30", "40", "%", "3.00", "ms"]
    assert first.split() == ["g1", "allreduce", *sizes]
    assert second.split() == ["g1", "allgather", "unknown", "12", "250", "µs", "3.00", "ms"]
    assert third.split()[:2] == ["g2", "allreduce"]


@pytest.mark.parametrize(("busbw", "words"), [(99.994, "99.99"), (100.0, "100"), (412.6, "413")])
def test_rates_have_about_four_digits(busbw: float, words: str) -> None:
    assert f" {words} " in lines(replace(ONE, busbw=busbw))[3]


def test_a_slow_link_is_said_with_what_others_reach() -> None:
    slow = replace(ONE, slow=True, beside=120.04)
    said = lines(replace(ONE, group="tp"), slow)
    at = next(place for place, line in enumerate(said) if line.startswith("slow link"))
    assert said[at : at + 2] == [
        "slow link: allreduce of g2 moves 50.3 GB/s,",
        "    the median of groups that do the same 120.0",
    ]
    for even in (ONE, replace(ONE, beside=120.04)):
        assert not any(line.startswith("slow link") for line in lines(even))


def test_clocks_have_their_sign_and_the_reference_none() -> None:
    clocks = {
        1: Clock(0, -1_500_000, -0.25, 2_000, pairs=12),
        0: Clock(0, 0, 0.0, 0, pairs=12),
        2: Clock(0, 2_500, 3.0, 400, pairs=11, broken=2),
    }
    rows = [line.split() for line in lines(ONE, clocks=clocks) if line.lstrip().startswith("rank ")]
    assert rows == [
        ["rank", "0", "reference", "0", "ns", "0.0", "µs/s", "12"],
        ["rank", "1", "-1.50", "ms", "2.00", "µs", "-0.2", "µs/s", "12"],
        ["rank", "2", "2.50", "µs", "400", "ns", "3.0", "µs/s", "11", "2"],
    ]


def test_ranks_alone_and_uneven_ones_stand_last() -> None:
    told = CollectivesReport((ONE,), {0: Clock(0)}, Slowdown(1.25, {1: 1.2}, {}), (5, 7))
    assert render_collectives(told).splitlines()[-5:] == [
        "",
        "as recorded the job takes 1.25 times as long as with even ranks (S)",
        "    with one uneven rank alone: rank 1 1.20",
        "rank 5: no collective in common with another rank",
        "rank 7: no collective in common with another rank",
    ]
