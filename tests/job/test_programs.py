"""What one rank runs that the others do not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job.ranks import GEMM, US, Reductions
from tests.support.cached_reports import reported_pair
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.job.loads import rare_in
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


def test_of_two_ranks_the_other_one_is_spoken_of(tmp_path: Path) -> None:
    """Rank 1 runs two ops of its own, and a kernel."""
    traces = Reductions(dict.fromkeys(range(2), (500, 500, 500, 500))).traces()
    for step in range(4):
        for place, op in enumerate(("aten::topk", "aten::sort")):
            traces[1].op(op, 1_000_000 + 620 * US * step + 40 * US * (place + 1), (place + 1) * 10 * US)
    for rank, trace in traces.items():
        trace.write(tmp_path / f"rank{rank}.json")
    (one,) = [one for one in diagnose(tmp_path).findings if one.rule == "other-program"]
    assert "rank runs 2 ops and kernels that the other rank does not run: aten::sort" in one.message
    assert (one.ranks, one.count) == ((1,), 4 * 2)


def test_a_kernel_of_its_own_is_told_by_its_share_of_the_gpu(tmp_path: Path) -> None:
    """The op that launches it is one that all ranks run."""
    traces = Reductions(EVEN).traces()
    for rank, trace in traces.items():
        for event in trace.events:
            if rank == 2 and event["name"] == GEMM:
                event["name"] = "other_gemm"
        trace.write(tmp_path / f"rank{rank}.json")
    (one,) = [one for one in diagnose(tmp_path).findings if one.rule == "other-program"]
    assert (one.ranks, one.count, one.evidence["cpu_share"]) == ((2,), 4, 0.0)
    assert one.evidence["gpu_share"] == pytest.approx(500 / 600, rel=0.01)


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


def test_separate_ops_are_counted_and_both_sides_named(tmp_path: Path) -> None:
    """Rank 2 runs two ops in each step that no other runs, and another kernel for its product."""
    traces = Reductions(EVEN).traces()
    for rank, trace in traces.items():
        for event in trace.events:
            if rank == 2 and event["name"] == GEMM:
                event["name"] = "other_gemm"
        for place in range(8 if rank == 2 else 0):
            trace.op("aten::topk", 1_000_000 + 310 * US * place + 40 * US, 50 * US)
        trace.write(tmp_path / f"rank{rank}.json")
    (one,) = [one for one in diagnose(tmp_path).findings if one.rule == "other-program"]
    assert (one.ranks, one.count, one.evidence["different"]) == ((2,), 8, 2)
    assert one.evidence["names"] == {"aten::topk": 8 * 50 * US, "other_gemm": 4 * 500 * US}
    assert "runs 2 ops and kernels that few of the 3 others run" in one.message
