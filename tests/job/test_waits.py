"""Waiting in collectives, measured across ranks."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.job.ranks import TRANSFER as PER_TRANSFER
from tests.job.ranks import US, Recording, Reductions, job_of
from tests.support.paths import SHARED
from traceanalyzer import Trace, diagnose, load_job
from traceanalyzer.idle.accounting import TRANSFER, WAITING
from traceanalyzer.job.cross_rank_indexes import measured, told_apart
from traceanalyzer.job.loads import RankLoads
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.read.load import load_file
from traceanalyzer.replay.program import Program
from traceanalyzer.report.diagnosis import analyses_of
from traceanalyzer.timeline.collective_waits import CollectiveWaits

UNEVEN = {0: (500, 300, 900, 400), 1: (500, 700, 200, 401)}
WAITED = {0: [0, 400, 0, 1], 1: [0, 0, 700, 0]}
HOUR = 3_600_000_000_000


def waits_of(made: Reductions, folder: Path) -> dict[int, CollectiveWaits]:
    """What each rank of the built job is given."""
    analysed = analyses_of(job_of(made, folder))
    return {rank: one.index(CollectiveWaits) for rank, one in analysed if rank is not None}


@pytest.mark.parametrize("seq", [False, True])
@pytest.mark.parametrize("ahead_ns", [0, 30 * US, -7 * HOUR])
def test_waiting_is_time_beyond_the_shortest_rank(ahead_ns: int, seq: bool, tmp_path: Path) -> None:
    """Whatever their clocks say."""
    waits = waits_of(Reductions(UNEVEN, recordings={1: Recording(ahead_ns)}, seq=seq), tmp_path)
    assert {rank: (one.waiting_ns // US).tolist() for rank, one in waits.items()} == WAITED
    assert [int(last) for last in waits[1].last[1:]] == [1, 0, 1]


def test_the_last_of_many_ranks_is_named(tmp_path: Path) -> None:
    compute = dict.fromkeys(range(5), (300, 300)) | {3: (800, 400)}
    waits = waits_of(Reductions(compute), tmp_path)
    assert (waits[3].waiting_ns == 0).all()
    for rank in (0, 1, 2, 4):
        assert (waits[rank].waiting_ns // US).tolist() == [500, 100]
        assert waits[rank].last.tolist() == [3, 3]


def test_waiting_and_transfer_are_classes_of_the_accounting(tmp_path: Path) -> None:
    report = diagnose(job_of(Reductions(UNEVEN), tmp_path))
    for trace, waited_us in zip(report.traces, WAITED.values(), strict=True):
        (time,) = trace.accounting
        assert time.parts_ns[WAITING] == sum(waited_us) * US
        assert time.parts_ns[TRANSFER] == len(waited_us) * PER_TRANSFER
        assert "communication" not in time.parts_ns
        assert sum(time.parts_ns.values()) == time.length_ns


def test_a_rank_alone_does_not_tell_waiting_from_transfer(shared: Callable[[str], Path]) -> None:
    files = [shared(f"ranks/hiccup.bad.rank{rank}") for rank in (0, 1)]
    alone, together = (diagnose(load_job(*chosen)).traces[-1] for chosen in (files[1:], files))
    parts, apart = alone.accounting[0].parts_ns, together.accounting[0].parts_ns
    assert not {WAITING, TRANSFER} & parts.keys()
    assert sum(apart[name] for name in (WAITING, TRANSFER, "communication")) == parts["communication"]
    assert apart[WAITING] > 5 * apart[TRANSFER]
    others = parts.keys() - {"communication"}
    assert {name: apart[name] for name in others} == {name: parts[name] for name in others}


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("late", [0, 1])
def test_later_recordings_pair_by_steps_or_from_the_end(late: int, marked: bool, tmp_path: Path) -> None:
    recordings = {late: Recording(17 * HOUR, first=2, marked=marked), 1 - late: Recording(marked=marked)}
    waits = waits_of(Reductions(UNEVEN, recordings=recordings), tmp_path)
    assert {rank: (one.waiting_ns // US).tolist() for rank, one in waits.items()} == {
        0: WAITED[0][2:],
        1: WAITED[1][2:],
    }


def test_collectives_of_other_sizes_are_no_pairs(tmp_path: Path) -> None:
    made = Reductions(UNEVEN, elements=(1, 2, 3, 4)).traces()
    other = Reductions(UNEVEN, elements=(5, 6, 7, 8)).traces()
    made[0].write(tmp_path / "a.json")
    other[1].write(tmp_path / "b.json")
    assert not _given(analyses_of(load_job(tmp_path)))


def test_ranks_of_different_groups_do_not_wait_for_each_other(tmp_path: Path) -> None:
    Reductions(UNEVEN, group="tp0").traces()[0].write(tmp_path / "a.json")
    Reductions(UNEVEN, group="tp1").traces()[1].write(tmp_path / "b.json")
    assert not _given(analyses_of(load_job(tmp_path)))


def test_one_trace_alone_shows_no_waiting(tmp_path: Path) -> None:
    job = job_of(Reductions(UNEVEN), tmp_path)
    for kind in (CollectiveWaits, RankLoads):
        with pytest.raises(Unavailable, match="only one rank's trace"):
            Analysis(job[0]).index(kind)
    assert not _given(analyses_of({0: job[0]}))


def test_loads_are_those_of_the_mean_step(tmp_path: Path) -> None:
    """The first of three or more is left out."""
    analysed = dict(analyses_of(job_of(Reductions(UNEVEN), tmp_path)))
    loads = analysed[1].index(RankLoads)
    assert loads.rank == 1
    assert {rank: round(load.compute_ns / US) for rank, load in loads.of.items()} == {0: 533, 1: 434}
    assert {rank: round(load.waiting_ns / US) for rank, load in loads.of.items()} == {0: 134, 1: 233}
    assert round(loads.mean_compute_ns / US) == 484
    assert len(loads.others) == 1


def test_the_replay_has_collectives_without_their_waiting(tmp_path: Path) -> None:
    for _, analysis in analyses_of(job_of(Reductions(UNEVEN), tmp_path)):
        work = analysis.index(Program).work
        assert set(np.round(work.dur_ns[work.communication] / US)) == {100}


Shared = Callable[[str], Path]


def _job(shared: Shared, name: str) -> dict[int, Trace]:
    return load_job(*(shared(f"{name}.rank{rank}") for rank in (0, 1)))


@pytest.mark.parametrize(
    ("name", "waited_ms"),
    [
        ("ranks/moe_a2a.bad", (0.7, 33.3)),
        ("ranks/tensor_parallel.bad", (8.0, 0.0)),
        ("ranks/imbalance.bad", (12.0, 13.3)),
        ("ddp/straggler_gpu", (45.5, 0.0)),
        ("ddp/straggler_cpu", (35.3, 0.0)),
        ("ranks/pipeline.bad", (8.7, 9.0)),  # a barrier; and what rank 1 receives
    ],
)
def test_recorded_waits_match_raw_durations(name: str, waited_ms: Sequence[float], shared: Shared) -> None:
    """Sums over pairs of own duration less the shorter, taken from the files by hand."""
    waits = {rank: one.index(CollectiveWaits) for rank, one in analyses_of(_job(shared, name))}
    found_ms = [round(waits[rank].waiting_ns.sum() / 1e6, 1) for rank in (0, 1)]
    assert found_ms == pytest.approx(waited_ms, abs=0.06)


def _given(analysed: Sequence[tuple[int | None, Analysis]]) -> list[int | None]:
    """Ranks that know of waiting."""
    known = []
    for rank, analysis in analysed:
        try:
            analysis.index(CollectiveWaits)
        except Unavailable:
            continue
        known.append(rank)
    return known


def _four_ranks(named: bool) -> dict[int, CollectiveRuns]:
    """Pairs (0, 1) and (2, 3) reduce ten times a step, then (0, 2) and (1, 3) once; each with a clock of its own."""
    chance = np.random.default_rng(3)
    now = np.zeros(4, np.int64)
    found: dict[int, list[tuple[int, int, int, str]]] = {rank: [] for rank in range(4)}
    for _ in range(6):
        for elements, pairs in [(64, ((0, 1), (2, 3)))] * 10 + [(4_096, ((0, 2), (1, 3)))]:
            begin = now + chance.integers(100, 3_000, 4) * US
            for pair in pairs:
                end = max(begin[rank] for rank in pair) + 50 * US
                for rank in pair:
                    found[rank].append((int(begin[rank]), int(end), elements, str(list(pair)) if named else ""))
                    now[rank] = end
    runs = {}
    for rank, rows in found.items():
        start, end, elements, group = zip(*rows, strict=True)
        every, ahead = np.arange(len(rows)), rank * HOUR
        names = np.full(len(rows), "allreduce", object), np.array(group, object)
        columns = np.array(elements), np.full(len(rows), -1), np.full(len(rows), -1)
        runs[rank] = CollectiveRuns(every, np.array(start) + ahead, np.array(end) + ahead, *names, *columns)
    return runs


def test_groups_without_names_are_told_apart_by_who_takes_part() -> None:
    named, bare = _four_ranks(named=True), _four_ranks(named=False)
    apart = told_apart(bare)
    assert {*apart} == {*named}
    assert all(one.group.tolist() == named[rank].group.tolist() for rank, one in apart.items())
    expected, together = measured(named), measured(bare)
    for rank, one in measured(apart).items():
        assert one.waiting_ns.tolist() == expected[rank].waiting_ns.tolist()
        assert one.last.tolist() == expected[rank].last.tolist()
        assert one.waiting_ns.sum() != together[rank].waiting_ns.sum()


def test_last_collectives_show_members_of_a_late_recording() -> None:
    """Rank 1 lacks the first step and two collectives of the second."""
    named, bare = _four_ranks(named=True), _four_ranks(named=False)
    for runs in (named, bare):
        runs[1] = CollectiveRuns(*(getattr(runs[1], field.name)[13:] for field in fields(CollectiveRuns)))
    assert {rank: one.group.tolist() for rank, one in told_apart(bare).items()} == {
        rank: one.group.tolist() for rank, one in named.items()
    }


@pytest.mark.parametrize(
    ("groups", "count", "apart", "told"),
    [
        ([[0, 1], [2, 3]], 4, [], True),
        ([[0, 1], [2, 3]], 3, [], False),
        ([[0, 1], [2, 3]], 10, [51], True),
        ([[0, 1], [2, 3]], 10, [51, -51], False),
        ([[0, 1], [2, 3]], 10, [50, -50, 50], True),
        ([[0, 2, 4, 5], [1, 3]], 10, [], True),
        ([[0, 1, 2], [3, 4]], 10, [], False),
        ([[0, 1], [2]], 10, [], False),
        ([[0, 1, 2, 3]], 10, [], False),
    ],
)
def test_ends_and_sizes_tell_ranks(groups: list[list[int]], count: int, apart: list[int], told: bool) -> None:
    """So many collectives, of which the first end so many us later or earlier on rank 1."""
    chance, off, same = np.random.default_rng(5), np.zeros(count, np.int64), np.full(count, -1)
    off[: len(apart)] = np.array(apart, np.int64) * US
    runs = {}
    for members in groups:
        end = np.cumsum(chance.integers(1_000, 9_000, count)) * US
        for rank in members:
            own = end + rank * HOUR + off * (rank == 1)
            names = np.full(count, "allreduce", object), np.full(count, "", object)
            runs[rank] = CollectiveRuns(np.arange(count), own - 50 * US, own, *names, same + 65, same, same)
    expected = {rank: str(members) if told else "" for members in groups for rank in members}
    found = {rank: set(one.group) for rank, one in told_apart(runs).items()}
    assert found == {rank: {group} for rank, group in expected.items()}


@pytest.mark.parametrize("job", ["jobs/lightllm_base/rank*.json.gz", "jobs/torchrec_a2a/rank*.json.gz"])
def test_ranks_that_all_take_part_stay_one_group(job: str) -> None:
    files = sorted(SHARED.glob(job))
    if not files:
        pytest.skip("needs the shared traces")
    runs = {rank: Analysis(load_file(file)).index(CollectiveRuns) for rank, file in enumerate(files)}
    for rank, one in told_apart(runs).items():
        assert one.group.tolist() == runs[rank].group.tolist()
