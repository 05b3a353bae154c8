"""What a file of another iteration says of itself, and which rank it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Iterations, PartChange
from traceanalyzer.report.iterations import FileSummary, compared_iterations, file_summary

MS = 1_000_000


def steps(*lengths_ms: int, rank: int | None = None) -> TraceBuilder:
    """Device 0 works for 2 ms from each step's begin, device 1 for 1 ms in its middle; the last launches nothing."""
    header: dict[str, Any] = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 8}}
    made, at = TraceBuilder(**header), 0
    for step, length in enumerate(lengths_ms):
        made.step(step, at, length * MS)
        if step < len(lengths_ms) - 1:
            for device, begin, took in ((0, 0, 2), (1, length // 2, 1)):
                number = 2 * step + device + 1
                made.launch("cudaLaunchKernel", at + 1_000 * device, 500, number)
                made.kernel(at + 1_000 + begin * MS, took * MS, number, device=device)
        at += length * MS
    return made


def test_file_has_steady_step_time_and_its_parts() -> None:
    """Of five steps that work, a cold one of 80 ms and four of 10; time is per step that works, of both devices."""
    found = file_summary(Analysis(steps(80, 10, 10, 10, 10, 10, rank=5).load()), None, None)
    assert found.rank == 5
    assert found.step_ns.tolist()[:4] == [10 * MS] * 4
    assert max(found.step_ns) < 80 * MS
    assert found.parts_ns["compute"] == pytest.approx(3 * MS)
    assert found.program


def test_file_without_device_work_has_only_a_length() -> None:
    made = TraceBuilder()
    made.op("aten::mm", 0, MS)
    found = file_summary(Analysis(made.load()), None, None)
    assert (found.rank, found.step_ns.tolist(), dict(found.parts_ns)) == (None, [MS], {})


def compared(*iterations: tuple[tuple[str, int | None, int], ...], read: str = "0") -> Iterations:
    """Of files with (name, rank, ns a step, all of which is compute)."""
    files = {str(at): [f"{at}/{name}" for name, _, _ in one] for at, one in enumerate(iterations)}
    told = {
        f"{at}/{name}": FileSummary(rank, np.array([ns] * 3, np.int64), {"compute": float(ns)}, (1,))
        for at, one in enumerate(iterations)
        for name, rank, ns in one
    }
    return compared_iterations(files, told, frozenset(files[read]))


@pytest.mark.parametrize(
    "first",
    [
        (("rank1.json", None, 1_000), ("rank0.json", None, 500)),  # by their names
        (("rank0.json", 1, 1_000), ("rank1.json", 0, 500)),  # what they declare counts more
        (("b.json", 1, 1_000), ("a.json", None, 500)),
    ],
)
def test_ranks_of_iterations_are_the_same_ones(first: tuple[tuple[str, int | None, int], ...]) -> None:
    """Rank 1 takes 400 ns more in the last iteration, and rank 0 is as it was."""
    if first[1][0] == "a.json":
        first = first[1], first[0]  # by its place
    slower = (("rank0.json", None, 500), ("rank1.json", None, 1_400))
    found = compared(first, first, slower)
    assert [one.ranks for one in found.each] == [2, 2, 2]
    assert found.each[2].parts == (PartChange("compute", 1, 400),)
    assert [one.step_ns for one in found.each] == [1_000, 1_000, 1_400]


def test_files_that_tell_no_rank_are_as_many_as_they_are() -> None:
    found = compared((("a.json", None, 5), ("b.json", None, 7)), (("a.json", None, 5),), read="1")
    assert [(one.ranks, one.step_ns, one.diagnosed) for one in found.each] == [(2, 7, False), (1, 5, True)]
