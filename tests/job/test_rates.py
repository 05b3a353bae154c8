"""Rates of collectives, messages without numbers, and planted delays."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.cli.commands import call
from tests.job.ranks import EARLY, ENDS, LATE, TRANSFER, Reductions, job_of, rank, reduced
from traceanalyzer import diagnose, load_job
from traceanalyzer.job.cross_rank_indexes import partners, waiting_together
from traceanalyzer.job.loads import Load, RankLoads, comparable
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.rates import Moved, Rate, compared_rates, data_bytes, roles
from traceanalyzer.job.runs import PAIR, CollectiveRuns
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.data.json import render_json
from traceanalyzer.render.text.report import render_text
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
def test_slow_below_six_tenths(found: list[Rate], beside: list[float | None], slow: list[bool]) -> None:
    told = compared_rates(found)
    assert [(one.beside, one.slow) for one in told] == list(zip(beside, slow, strict=True))
    assert [replace(one, beside=None, slow=False) for one in told] == found


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
        *(("BFloat16", 2), ("c10::Half", 2), ("Float", 4), ("Double", 8), ("Long", 8), ("Int", 4)),
        *(("Char", 1), ("Float8_e4m3fn", 1), ("Strange", 0)),
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
        ("mesh_tp", "FSDP::post_backward_reduce", "tensor"),  # its name counts more than who calls it
        ("", "", None),
    ],
)
def test_groups_serve_their_name_or_their_callers(desc: str, around: str, role: str | None) -> None:
    analysis = reduced(desc=desc, around=around)
    work, runs = analysis.index(DeviceWork), analysis.index(CollectiveRuns)
    assert roles(analysis.trace, work, runs, analysis.index(Nesting)).tolist() == [role]


def test_what_the_others_wait_for_the_last_rank_is_their_mean() -> None:
    """Of two collectives: three ranks wait for rank 2 in the first, one for rank 0 in the second."""

    def waits(own: Sequence[int], numbers: Sequence[int], last: Sequence[int]) -> CollectiveWaits:
        number = np.array(numbers)
        return CollectiveWaits(number, np.array(own), np.array(last), number, number >= 0)

    every = {0: waits([30, 0], [0, 1], [2, 0]), 1: waits([60, 8], [0, 1], [2, 0]), 2: waits([0], [0], [2])}
    view = JobView({}, every, {}, {})
    held = {at: ns.tolist() for at, ns in view.held_up_ns().items()}
    assert held == {0: [0.0, 8.0], 1: [0.0, 0.0], 2: [45.0]}


def test_loads_compare_with_marked_steps_or_equal_kernels() -> None:
    def loads(*ranks: tuple[int, bool]) -> dict[int, Load]:
        each = [Load(10.0 * (at + 1), 0.0, kernels=one[0], marked=one[1]) for at, one in enumerate(ranks)]
        return dict(enumerate(each))

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


US = 1_000


def messages(first: int, count: int, *, ahead_us: int = 0, seq: bool = False, what: str = PAIR) -> CollectiveRuns:
    """Messages of 50 us every 1.5 ms, from that number on; a clock that is so far ahead, and 3 us of noise."""
    number = np.arange(first, first + count)
    start = number * 1_500 * US + ahead_us * US + (number * 7 % 4) * US
    none = np.full(count, -1, np.int64)
    named, group = (np.full(count, text, object) for text in (what, "pair"))
    sizes, calls = np.full(count, 64), number if seq else none
    return CollectiveRuns(np.arange(count), start, start + 50 * US, named, group, sizes, calls, none)


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


STEPS = 6


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("times", [1.15, 1.5, 3.0])
def test_the_rank_that_computes_longer_comes_first(ranks: int, times: float, tmp_path: Path) -> None:
    late = ranks // 2
    compute = {rank: (round(2_000 * (times if rank == late else 1)),) * STEPS for rank in range(ranks)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    first = report.findings[0]
    assert (first.rule, first.rank, first.ranks) == ("load-imbalance", late, (late,))
    assert report.job is not None
    assert report.job.culprits == (late,)
    assert report.job.step is not None
    assert report.job.step.unprofiled_ns == pytest.approx((2_000 * times + 120) * 1_000, rel=0.03)


@pytest.mark.parametrize("ranks", [2, 8])
def test_nobody_is_accused_in_a_balanced_job(ranks: int, tmp_path: Path) -> None:
    compute = {rank: (2_000 + 7 * rank,) * STEPS for rank in range(ranks)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    assert report.job is not None
    assert report.job.culprits == ()
    assert not [one for one in report.findings if one.rank is not None and one.severity is Severity.HIGH]


def test_two_of_eight_ranks_hold_up_the_other_six(tmp_path: Path) -> None:
    compute = {rank: ((4_000 if rank in (3, 6) else 2_000),) * STEPS for rank in range(8)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    assert report.job is not None
    assert set(report.job.culprits) == {3, 6}


def test_culprits_are_named_and_uneven_ranks_have_parts(tmp_path: Path) -> None:
    took_us = {2: 4_000, 3: 4_300, 6: 4_600, 7: 4_900}  # the costliest first is 7
    compute = {rank: (took_us.get(rank, 2_000),) * STEPS for rank in range(9)}
    report = diagnose(job_of(Reductions(compute), tmp_path))
    assert report.job is not None
    assert (report.job.culprits[0], set(report.job.culprits)) == (7, {2, 3, 6, 7})
    assert "for ranks 2, 3, 7 and 1 more" in report.job.verdict
    assert report.job.slowdown is not None
    even_us = sum(took for took, *_ in compute.values()) / len(compute)
    assert report.job.slowdown.s == pytest.approx((4_900 + 100) / (even_us + 100), rel=0.03)
    alone = report.job.slowdown.by_rank
    assert alone[7] > alone[6] > alone[3] > alone[2] > alone[0] == 1.0
    document = json.loads(render_json(report))
    assert document["job"]["slowdown"]["by_rank"]["7"] == alone[7]
    assert "times as long as with even ranks (S)" in render_text(report, verbose=True)


@pytest.mark.parametrize(("named", "peer"), [((4,), 3), ((4, 2), 3), ((0,), 1), ((3, 1), 0)])
def test_ranks_are_replaced_by_others_median(named: tuple[int, ...], peer: int, tmp_path: Path) -> None:
    """By what each takes alone: 300 us, 500, 700, 900 and 2,000, of ranks 2, 0, 3, 1 and 4."""
    took = {0: 500, 1: 900, 2: 300, 3: 700, 4: 2_000}
    for number, trace in Reductions({number: (us,) * 6 for number, us in took.items()}).traces().items():
        trace.write(tmp_path / f"rank{number}.json")
    options = [option for number in named for option in ("--as-peers", number)]
    report = json.loads(call("diagnose", tmp_path, *options, "--format", "json").stdout)
    (step,) = report["job"]["as_peers"].values()
    assert f"with the program of rank {peer} in place of theirs" in step["basis"]
    longest = max(us for rank, us in took.items() if rank not in named)
    assert step["unprofiled_ns"] == pytest.approx(longest * US + TRANSFER, rel=0.05)
