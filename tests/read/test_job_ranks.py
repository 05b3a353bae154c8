"""Which rank each of several traces is, which are copies, and what is said of two recordings of one rank."""

import zlib
from dataclasses import replace
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from tests.support.trace_files import declared
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read.folders import any_rank
from traceanalyzer.read.job_ranks import Declared, assign_ranks, find_duplicate_traces, shared_part


@pytest.mark.parametrize(
    ("traces", "ranks"),
    [
        ([declared("a"), declared("b", 0), declared("c"), declared("d", 2)], [(1, None), (0, 0), (3, None), (2, 2)]),
        ([declared("rank3.json"), declared("rank1.json")], [(3, 3), (1, 1)]),
        ([declared("rank3.json"), declared("x.json", 1)], [(0, None), (1, 1)]),  # one alone is told by nothing
        ([declared("rank3.json"), declared("b.json")], [(0, None), (1, None)]),
        ([declared("rank3.json"), declared("rank4.json"), declared("x", 3)], [(0, None), (1, None), (3, 3)]),
    ],
)
def test_undeclared_rank_is_that_of_its_name_or_lowest_free(
    traces: list[Declared], ranks: list[tuple[int, int | None]]
) -> None:
    assert assign_ranks(traces) == ranks


@pytest.mark.parametrize(("start", "job"), [(99, True), (100, False)])
def test_what_begins_when_the_other_has_ended_is_no_other_rank(start: int, job: bool) -> None:
    traces = [declared("late.json", start=start, end=200), declared("early.json")]
    if job:
        assert assign_ranks(traces) == [(0, None), (1, None)]
        return
    with pytest.raises(UnreadableTrace, match=r"late\.json and early\.json declare no rank") as error:
        assign_ranks(traces)
    assert str(error.value.remedy).endswith("compare late.json early.json")


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ((1, 2), (1, 2), "one program, recorded twice"),
        ((1, 2, 3, 4), (1, 2), "one program, recorded twice"),  # half of the names are in both
        ((1, 2, 3, 4, 5), (1, 2), "only 40% of the names"),
    ],
)
def test_of_two_jobs_less_than_half_of_the_names_are_in_both(
    mine: tuple[int, ...], theirs: tuple[int, ...], said: str
) -> None:
    with pytest.raises(UnreadableTrace, match=said):
        assign_ranks([declared("a.json", 0, program=mine), declared("b.json", 0, program=theirs)])


@pytest.mark.parametrize(
    ("one", "other", "part"),
    [
        ((), (), 1.0),
        ((1, 2), (), 0.0),
        ((1, 2, 3), (2, 3, 4), 0.5),
        (range(128), range(64, 192), 0.5),  # of the least 128 of both, which are all that both sketches can tell
        (range(0, 256, 2), range(1, 257, 2), 0.0),
    ],
)
def test_how_many_names_two_programs_share(one: Any, other: Any, part: float) -> None:
    assert shared_part(tuple(one), tuple(other)) == part


def test_recordings_of_a_rank_are_named_by_folder_or_pattern() -> None:
    for names, places in (
        (("base/rank0.json", "new/rank0.json"), "compare base new"),
        (("x/ddp.rank0.json", "x/fsdp.rank0.json"), "compare 'x/ddp.rank*.json' 'x/fsdp.rank*.json'"),
        (("x/rank0.a.json", "x/rank00.a.json"), "compare x/rank0.a.json x/rank00.a.json"),
    ):
        with pytest.raises(UnreadableTrace) as error:
            assign_ranks([declared(name, 0) for name in names])
        assert str(error.value.remedy).endswith(places)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("rank0/ddp.rank12.json", "rank0/ddp.rank*.json"),
        ("rank1/rank1_rank2.json", "rank1/rank1_rank*.json"),
        ("rank-3_trace.json.gz", "rank-*_trace.json.gz"),
        ("rank0/trace.json", "rank0/trace.json"),
    ],
)
def test_the_files_of_all_ranks_beside_one(name: str, pattern: str) -> None:
    assert any_rank(name) == pattern


def test_copy_has_equal_rank_times_program_and_event_count() -> None:
    first = declared("x/a.json", 0, world_size=2, program=(1,), events=9)
    others = [
        declared("x/b.json", 0, world_size=2, program=(1,), events=9),
        declared("x/c.json", 1, world_size=2, program=(1,), events=9),
        declared("x/d.json", 0, world_size=2, program=(1,), events=8),
        declared("x/e.json", 0, world_size=2, program=(2,), events=9),
        declared("x/f.json", 0, end=101, world_size=2, program=(1,), events=9),
    ]
    found, skipped = find_duplicate_traces([first, *others])
    assert found == {1}
    assert [(one.path, one.problem) for one in skipped] == [("x/b.json", "the same recording as a.json")]


@pytest.mark.parametrize(
    ("ops", "kernels", "span"),
    [
        ([(5, 3)], [], (5, 8)),
        ([], [(7, 2)], (7, 9)),
        ([(5, 3)], [(7, 9)], (5, 16)),
        ([(5, 30)], [(7, 9)], (5, 35)),
        ([(9, 3), (5, 1)], [(2, 1)], (2, 12)),
        ([(5, 40), (50, 1)], [], (5, 51)),
    ],
)
def test_recording_ends_with_its_last_op_or_kernel(
    ops: list[tuple[int, int]], kernels: list[tuple[int, int]], span: tuple[int, int]
) -> None:
    """On the clock that all ranks have; names are those of ops and kernels alone."""
    made = TraceBuilder(baseTimeNanoseconds=1_000_000, distributedInfo={"rank": 3, "world_size": 8})
    for start, dur in ops:
        made.op("aten::mm", start * 1_000, dur * 1_000)
    for at, (start, dur) in enumerate(kernels):
        made.kernel(start * 1_000, dur * 1_000, at + 1, name="gemm")
    early = min(start for start, _ in [*ops, *kernels])
    if kernels:
        made.memcpy(early * 1_000, 0, 99)
    told = Declared.of(made.load())
    assert (told.start_ns, told.end_ns) == tuple(1_000_000 + one * 1_000 for one in span)
    assert (told.rank, told.world_size, told.events) == (3, 8, len(made.events))
    names = {*(["aten::mm"] if ops else []), *(["gemm"] if kernels else [])}
    assert told.program == tuple(sorted(zlib.crc32(name.encode()) for name in names))


def test_declared_ranks_may_be_recorded_in_sequence() -> None:
    late = declared("b.json", 1, start=500, end=900)
    assert assign_ranks([declared("a.json", 0), late]) == [(0, 0), (1, 1)]
    assert assign_ranks([declared("a.json", 0), replace(late, rank=None)]) == [(0, 0), (1, None)]
