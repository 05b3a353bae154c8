"""What one rank runs that the others do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builder import TraceBuilder
from tests.job.ranks import US, Reductions
from tests.loaded import reported_pair
from traceanalyzer import Finding, diagnose
from traceanalyzer.job.programs import rare_in
from traceanalyzer.model.finding import Severity

Shared = Callable[[str], Path]
EVEN = dict.fromkeys(range(4), (500, 500, 500, 500))


def test_names_are_rare_that_less_than_half_of_the_others_have() -> None:
    assert rare_in({0: (1, 2, 3), 1: (1, 2), 2: (1, 2), 3: (1, 9)}) == {0: (3,), 1: (), 2: (), 3: (9,)}
    assert rare_in({0: (1, 2), 1: (1,)}) == {0: (2,), 1: ()}
    assert rare_in({0: (1, 2), 1: (1, 2), 2: (1,)}) == {0: (), 1: (), 2: ()}


def other_program(dur: int) -> dict[int, TraceBuilder]:
    """Four ranks, of which rank 0 runs one more op in each step, for so many ns."""
    traces = Reductions(EVEN).traces()
    for rank, trace in traces.items():
        for step in range(4):
            trace.op("aten::topk" if rank == 0 else "aten::add", 1_000_000 + 620 * US * step + 40 * US, dur)
    return traces


def said(folder: Path, dur: int) -> list[Finding]:
    for rank, trace in other_program(dur).items():
        trace.write(folder / f"rank{rank}.json")
    return [one for one in diagnose(folder).findings if one.rule == "other-program"]


def test_a_rank_with_an_op_of_its_own_is_named(tmp_path: Path) -> None:
    (one,) = said(tmp_path, 50 * US)
    assert (one.ranks, one.severity) == ((0,), Severity.INFO)
    assert "1 op or kernel that few of the 3 others run: aten::topk" in one.message


def test_what_takes_next_to_nothing_is_not_said(tmp_path: Path) -> None:
    assert said(tmp_path, 20) == []


def of_recorded(shared: Shared, name: str) -> list[Finding]:
    return [one for one in reported_pair(shared, name).findings if one.rule == "other-program"]


def test_metrics_on_rank_0_are_another_program(shared: Shared) -> None:
    (one,) = of_recorded(shared, "ranks2/rank0_metrics.bad")
    assert one.ranks == (0,)
    assert "aten::topk" in str(one.evidence["names"])


@pytest.mark.parametrize("name", ["ranks2/rank0_metrics.fixed", "ranks2/healthy.bad", "ranks/pipeline.bad"])
def test_ranks_of_one_program_and_stages_are_not(shared: Shared, name: str) -> None:
    assert of_recorded(shared, name) == []
