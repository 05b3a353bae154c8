"""A job and its collectives as text."""

from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.job.rates import Rate
from traceanalyzer.model.report import Clock, Iteration, Iterations, JobReport, PartChange, RankReport, Slowdown
from traceanalyzer.render.text.job import (
    put_iterations,
    put_job_notes,
    put_ranks,
    ranges,
    ranks_in_words,
    render_collectives,
    slowdown_lines,
)
from traceanalyzer.render.text.page import Page
from traceanalyzer.report.job_summary import CollectivesReport


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([1, 2], "ranks 1, 2"),
        ([0, 1, 2], "ranks 0 to 2"),
        ([0, 2, 3, 4, 6, 7], "ranks 0, 2 to 4, 6, 7"),
        ([0, 2, 4, 6], "ranks 0, 2, 4, 6"),
        ([0, 2, 4, 6, 8], "ranks 0, 2, 4, 6 and 1 more"),
        ([0, 2, 4, 6, *range(8, 16), 20], "ranks 0, 2, 4, 6 and 9 more"),
        ([*range(4), *range(8, 16), 20, 22, 24, 25], "ranks 0 to 3, 8 to 15, 20, 22 and 2 more"),
    ],
)
def test_ranks_are_named_by_runs_and_the_others_counted(ranks: list[int], words: str) -> None:
    assert ranks_in_words(ranks) == words


def ranked(count: int, **changes: dict[int, int]) -> tuple[RankReport, ...]:
    """So many ranks; of each field that is given, the value of some ranks."""
    each = (RankReport(rank, 0, None, dur_ns=(5 * MS,)) for rank in range(count))
    return tuple(replace(one, **{name: at.get(one.rank, 0) for name, at in changes.items()}) for one in each)


def table(job: JobReport, width: int = 120) -> list[list[str]]:
    """Rows of the table of ranks, without its titles."""
    page = Page(width)
    put_ranks(page, job)
    rows = [line.split() for line in page.lines]
    return [row for row in rows if row and row[0].isdigit()]


def below(job: JobReport) -> str:
    page = Page(120)
    put_ranks(page, job)
    return " ".join(" ".join(page.lines).split())


@pytest.mark.parametrize(("count", "left"), [(16, 0), (18, 2), (40, 24)])
def test_a_job_shows_sixteen_ranks_and_counts_the_others(count: int, left: int) -> None:
    """Half of them hold up, and the others wait."""
    holding, waiting = dict.fromkeys(range(8), 1_000), dict.fromkeys(range(8, count), 1_000)
    job = JobReport(ranked(count, holding_up_ns=holding, waiting_ns=waiting))
    assert [int(row[0]) for row in table(job)] == list(range(16))
    told = f"and {left} ranks between these; `--rank N` shows one rank alone"
    assert (told in below(job)) is bool(left)
    assert ("ranks between these" in below(job)) is bool(left)


def test_of_many_ranks_those_are_shown_that_hold_up_or_wait_most() -> None:
    """Half of the places are of ranks that hold up, those that findings name first."""
    holding = {rank: rank * 1_000 for rank in range(10, 22)}
    waiting = {rank: (100 - rank) * 1_000 for rank in range(24, 40)}
    job = JobReport(ranked(40, holding_up_ns=holding, waiting_ns=waiting), culprits=(2, 23))
    shown = [int(row[0]) for row in table(job)]
    assert shown == [2, *range(16, 22), 23, *range(24, 32)]


def test_empty_columns_are_omitted_and_clocks_have_a_sign() -> None:
    one, two, three = (RankReport(rank, 0, None, dur_ns=(4 * MS, 6 * MS, 7 * MS)) for rank in range(3))
    page = Page(120)
    put_ranks(page, JobReport((one, two)))
    assert page.lines[0].split() == ["rank", "recorded", "waits", "delays"]
    assert page.lines[1].split() == ["0", "6.00", "ms", "0", "ns", "0", "ns"]
    behind = replace(two, clock=Clock(0, -1_500_000, 0.04, 2_000), alone_ns=5 * MS)
    ahead = replace(three, clock=Clock(0, 2_500, 0.0, 3_000))
    page = Page(120)
    put_ranks(page, JobReport((one, behind, ahead)))
    assert page.lines[0].endswith("predicted alone  clock offset     drift        ±")
    clocks = [" ".join(line.split("ns", 2)[2].split()) for line in page.lines[2:4]]
    assert clocks == ["5.00 ms -1.50 ms 0.0 µs/s 2.00 µs", "2.50 µs 3.00 µs"]


def test_rank_has_median_wait_delay_and_unblocked_step() -> None:
    rank = RankReport(4, 0, None, dur_ns=(4 * MS, 6 * MS, 20 * MS), waiting_ns=2_000, holding_up_ns=3_000)
    (row,) = table(JobReport((replace(rank, alone_ns=5 * MS),)))
    assert row == ["4", "6.00", "ms", "2.00", "µs", "3.00", "µs", "5.00", "ms"]
    at_reference = replace(rank, dur_ns=(), clock=Clock(4, 0, 0.0, 0))
    assert table(JobReport((at_reference,))) == [["4", "2.00", "µs", "3.00", "µs", "0", "ns", "0", "ns"]]


def test_why_parts_of_a_job_are_missing_is_said() -> None:
    job = JobReport(ranked(2), unavailable={"step": "rank 1 has no steps"})
    assert below(job).endswith("step: rank 1 has no steps")
    page = Page(120)
    put_job_notes(page, replace(job, missing=(0, 3, 4, 5), world_size=8))
    assert page.lines == ["not given: ranks 0, 3 to 5 of 8 ranks"]


def test_step_with_peers_times_stands_next_to_the_present() -> None:
    job = JobReport(ranked(2), as_peers={"1": samples.estimate(12 * MS)})
    for step, now in ((None, ""), (samples.estimate(), ", now 18.0 ms")):
        page = Page(120)
        put_job_notes(page, replace(job, step=step))
        assert page.lines[-1].strip() == f"with rank 1 as its peers: predicted 12.0 ms a step{now}"


def test_three_largest_uneven_ranks_and_stages_come_first() -> None:
    ranks = {0: 1.0, 1: 1.25, 2: 1.1, 3: 1.1, 4: 1.3}
    assert list(slowdown_lines(Slowdown(1.5, ranks, {}))) == [
        "as recorded the job takes 1.50 times as long as with even ranks (S)",
        "    with one uneven rank alone: rank 4 1.30, rank 1 1.25, rank 2 1.10",
    ]
    assert list(slowdown_lines(Slowdown(1.5, {}, {1: 1.0, 0: 1.2})))[1:] == [
        "    with one uneven stage alone: stage 0 1.20, stage 1 1.00"
    ]


def said(*each: Iteration, step_ns: int | None = 5 * MS, noise_ns: int | None = 40_000) -> list[str]:
    """Lines of these iterations, after the diagnosed one."""
    page = Page(160)
    put_iterations(page, Iterations((Iteration("10", True, 2, 3, 5 * MS), *each), step_ns, noise_ns))
    return page.lines


def test_of_iterations_the_first_four_that_differ_are_said() -> None:
    others = [Iteration(f"{20 + at}", False, 2, 3, 6 * MS, MS) for at in range(6)]
    lines = said(Iteration("11", False, 2, 3, 5 * MS), *others)
    assert lines == [
        "8 iterations, 10 to 25, step 5.00 ms in the median; the findings are of 10",
        *(f"iteration {20 + at}: a step takes 1.00 ms more than the others" for at in range(4)),
    ]


PARTS = (PartChange("idle:python", 1, 700_000), PartChange("compute", None, 300_000))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"more_ns": -MS}, "a step takes 1.00 ms less than the others"),
        (
            {"more_ns": MS, "parts": PARTS},
            "a step takes 1.00 ms more than the others: idle (python) 700 µs on rank 1, compute 300 µs",
        ),
        ({"program_share": 0.89}, "another program: 89% of its ops and kernels have the same names"),
        ({"skipped": ("a: x", "b: y", "c: z")}, "not read: a: x; not read: b: y"),
        ({"program_share": 0.9}, None),
    ],
)
def test_what_is_said_of_an_iteration(changes: dict[str, object], told: str | None) -> None:
    other = replace(Iteration("20", False, 2, 3, 5 * MS), **changes)  # type: ignore[arg-type]
    lines = said(other)[1:]
    of_other = [line for line in lines if line.startswith("iteration 20")]
    assert of_other == [f"iteration 20: {told}"] * bool(told)
    none = "none differs from the others by more than the noise, 40.0 µs"
    assert (none in lines) is ("more_ns" not in changes)


def test_unknown_noise_gives_no_statement_on_differences() -> None:
    lines = said(Iteration("20", False, 2, 1, None), step_ns=None, noise_ns=None)
    assert lines == [
        "2 iterations, 10 to 20; the findings are of 10",
        "whether they differ is unknown: too few steps to know the noise",
    ]


@pytest.mark.parametrize(("diagnosed", "hint"), [(True, True), (False, False)])
def test_slower_iteration_explains_how_to_see_another(diagnosed: bool, hint: bool) -> None:
    slower = Iteration("1", diagnosed, 2, 3, 6 * MS, MS)
    page = Page(160)
    usual = Iteration("2", not diagnosed, 2, 3, 5 * MS)
    put_iterations(page, Iterations((slower, usual), 5 * MS, 40_000))
    assert ("To see what the others say, pass the files of one of these alone." in page.lines) is hint


ONE = Rate("allreduce", "dp", (0, 1, 2, 3), "data", 4, 8 << 20, 12, 250_000, 100_000, 0.4, 3_000_000, 33.55, 50.3)


def lines(*found: Rate, clocks: dict[int, Clock] | None = None, alone: tuple[int, ...] = ()) -> list[str]:
    given = {0: Clock(0)} if clocks is None else clocks
    text = render_collectives(CollectivesReport(found, given, None, alone))
    assert max(map(len, text.splitlines())) <= 80
    return text.splitlines()


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((3,), "3"), ((0, 1), "0-1"), ((0, 1, 2, 3, 6), "0-3,6"), ((0, 2, 4, 5, 6), "0,2,4-6"), ((1, 3), "1,3")],
)
def test_ranks_are_named_by_runs(ranks: tuple[int, ...], words: str) -> None:
    assert ranges(ranks) == words


def test_a_group_has_one_name_and_a_line_for_each_kind_and_size() -> None:
    gathered = replace(ONE, collective="allgather", bytes=0, overlap=None)
    pair = replace(ONE, group="", ranks=(0, 1), size=4, role=None)
    said = lines(ONE, gathered, pair)
    assert said[:3] == ["g1: ranks 0-3, data parallel: dp", "g2: ranks 0-1 of 4", ""]
    titles, first, second, third = said[3:7]
    assert " ".join(titles.split()) == "collective size times transfer algbw busbw overlap waiting"
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
