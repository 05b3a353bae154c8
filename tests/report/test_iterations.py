"""Iterations of a job: one is diagnosed, the others are described."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.commands import call, diagnosed
from tests.job.ranks import Reductions
from tests.report.test_pool import pooled_report
from tests.rules.programs import Program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import compare, diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Iterations, PartChange
from traceanalyzer.render.data.json import render_json
from traceanalyzer.report.iterations import FileSummary, compared_iterations, file_summary
from traceanalyzer.report.summary import summarise
from traceanalyzer.runtime.processes import Processes

USUAL = (500, 505, 500, 495)


def write(folder: Path, computes: Sequence[Sequence[int]]) -> Path:
    """TorchTitan's folders: in each iteration rank 1 computes so long in each step, in us."""
    for number, compute in enumerate(computes):
        place = folder / f"iteration_{10 * (number + 1)}"
        place.mkdir()
        for rank, trace in Reductions({0: USUAL, 1: compute}).traces().items():
            trace.write(place / f"rank{rank}_trace.json")
    return folder


def said(*steps: Sequence[int], idle: Sequence[int] = ()) -> Iterations:
    """Of iterations with steps of these ns, of which some are idle for data loading."""
    parts = [{"compute": 1e6, "idle:data-loading": float(ns)} for ns in idle or [0] * len(steps)]
    told = {
        f"{at}.json": FileSummary(0, np.array(one, np.int64), part, (1, 2))
        for at, (one, part) in enumerate(zip(steps, parts, strict=True))
    }
    return compared_iterations({str(at): [file] for at, file in enumerate(told)}, told, frozenset(["0.json"]))


@pytest.mark.parametrize(
    ("first", "second", "step_ns"),
    [
        ((1_000, 1_010), (1_300, 1_310), 1_305),
        ((1_000, 1_010, 9_000), (1_300, 1_310, 1_320), 1_310),  # one long step makes no rank the slowest
    ],
)
def test_of_ranks_the_slowest_counts(first: tuple[int, ...], second: tuple[int, ...], step_ns: int) -> None:
    told = {
        f"{at}.{rank}.json": FileSummary(rank, np.array(steps, np.int64), {}, (1, 2))
        for at in (1, 2)
        for rank, steps in enumerate((first, second))
    }
    files = {at: [file for file in told if file.startswith(at)] for at in ("1", "2")}
    assert compared_iterations(files, told, frozenset(files["1"])).step_ns == step_ns


def test_an_iteration_that_takes_longer_is_said_with_the_part() -> None:
    found = said([1000, 1010], [1005, 990], [1400, 1410], idle=[10, 12, 411])
    assert found.step_ns == 1005
    assert [one.more_ns for one in found.each] == [None, None, 400]
    assert found.each[2].parts == (PartChange("idle:data-loading", None, 399),)
    assert [one.diagnosed for one in found.each] == [True, False, False]


@pytest.mark.parametrize(
    "steps",
    [
        ([1000, 1400, 1000], [1300, 1350, 1000], [1000, 1000, 1250]),
        ([1000, 1001], [1050, 1051], [1000, 999]),
        ([1000], [1200], [1300], [900], [1100]),
        ([1000, 1001], [1200, 1201], [900, 901], [1300, 1301]),
    ],
)
def test_noise_is_not_said(steps: Sequence[Sequence[int]]) -> None:
    """Steps that spread as much; a difference that captures of one program have; iterations that all differ."""
    found = said(*steps)
    assert [one.more_ns for one in found.each] == [None] * len(steps)
    assert found.noise_ns is not None


@pytest.mark.parametrize(("ns", "more"), [([1250], None), ([1250] * 30, 200)])
def test_the_more_steps_an_iteration_has_the_less_is_noise(ns: list[int], more: int | None) -> None:
    spread = [1000, 1100] * 15
    assert [one.more_ns for one in said(spread, spread, ns).each] == [None, None, more]


def test_two_single_steps_tell_no_noise() -> None:
    found = said([1000], [3000])
    assert (found.noise_ns, [one.more_ns for one in found.each]) == (None, [None, None])


def changed(parts: dict[str, float], ns: int) -> list[PartChange]:
    """Of three iterations whose steps take 1,000 ns, but the last so many, with these parts."""
    usual = {"compute": 1_000.0, "communication": 300.0, "idle:data-loading": 200.0}
    told = {
        f"{at}.json": FileSummary(0, np.array([took] * 3, np.int64), part, (1, 2))
        for at, (took, part) in enumerate(((1_000, usual), (1_000, usual), (ns, usual | parts)))
    }
    found = compared_iterations({str(at): [file] for at, file in enumerate(told)}, told, frozenset(["0.json"]))
    return list(found.each[2].parts)


@pytest.mark.parametrize(
    ("parts", "ns", "said"),
    [
        ({"compute": 1_600.0, "communication": 200.0}, 1_500, {"compute": 600}),
        ({"compute": 400.0, "communication": 400.0}, 500, {"compute": -600}),
        ({"compute": 1_450.0, "communication": 350.0}, 1_500, {"compute": 450, "communication": 50}),
        ({"compute": 1_450.0, "communication": 349.0}, 1_500, {"compute": 450}),
        ({"compute": 600.0, "communication": 200.0}, 500, {"compute": -400, "communication": -100}),
        ({"idle:compilation": 500.0}, 1_500, {"idle:compilation": 500}),
        (
            {"compute": 1_200.0, "idle:a": 250.0, "idle:b": 250.0, "communication": 400.0},
            1_500,
            {"idle:a": 250, "idle:b": 250, "compute": 200},
        ),
    ],
)
def test_parts_are_those_that_changed_as_the_step_did(parts: dict[str, float], ns: int, said: dict[str, int]) -> None:
    """The largest three of those with a tenth of the change; not what changed the other way."""
    assert [(one.part, one.more_ns) for one in changed(parts, ns)] == list(said.items())


def test_a_part_is_told_of_the_rank_where_it_changed_most() -> None:
    more = {0: 100.0, 1: 400.0, 2: 300.0}
    told = {
        f"{at}.{rank}.json": FileSummary(
            rank, np.array([1_000 + took] * 3, np.int64), {"compute": 1_000.0 + took}, (1, 2)
        )
        for at in range(3)
        for rank, ns in more.items()
        if (took := round(ns) if at == 2 else 0) >= 0
    }
    files = {str(at): [file for file in told if file.startswith(str(at))] for at in range(3)}
    found = compared_iterations(files, told, frozenset(files["0"]))
    assert found.each[2].parts == (PartChange("compute", 1, 400),)


def test_program_share_is_the_least_of_its_ranks() -> None:
    told = {
        f"{at}.{rank}.json": FileSummary(rank, np.array([1_000] * 3, np.int64), {}, program)
        for at, programs in enumerate((((1, 2), (1, 2)), ((1, 2), (3, 4))))
        for rank, program in enumerate(programs)
    }
    files = {str(at): [f"{at}.0.json", f"{at}.1.json"] for at in range(2)}
    found = compared_iterations(files, told, frozenset(files["0"]))
    assert [one.program_share for one in found.each] == [1.0, 0.0]


def test_a_job_of_several_iterations_has_one_report(tmp_path: Path) -> None:
    write(tmp_path, [USUAL, USUAL, (900, 905, 900, 895)])
    report = diagnose(tmp_path)
    assert [trace.rank for trace in report.traces] == [0, 1]
    assert report.iterations is not None
    assert [(one.name, one.more_ns) for one in report.iterations.each[:2]] == [("10", None), ("20", None)]
    assert report.iterations.each[2].more_ns == pytest.approx(400_000, rel=0.05)
    assert report.iterations.each[2].parts[0].rank in (0, 1)
    text = diagnosed(tmp_path)
    assert "3 iterations, 10 to 30, step 620 µs in the median; the findings are of 30" in text
    assert "iteration 30: a step takes 400 µs more" in text
    told = "3 iterations of a job, 10 to 30: 30 is read\n"
    assert call("diagnose", tmp_path).stderr == told
    assert call("collectives", tmp_path).stderr == told
    assert json.loads(diagnosed(tmp_path, "--format", "json"))["iterations"]["each"][2]["diagnosed"]
    assert "iterations" not in json.loads(diagnosed(tmp_path / "iteration_30", "--format", "json"))


@pytest.mark.slow
def test_processes_say_the_same_of_iterations(tmp_path: Path) -> None:
    write(tmp_path, [USUAL, (600, 605, 600, 595)])
    (tmp_path / "iteration_10" / "rank0_trace.json").write_text("[")
    with closing(Processes(2, "traceanalyzer.report.rank_states:States")) as pool:
        assert render_json(pooled_report(pool, tmp_path)) == render_json(diagnose(tmp_path))


def test_an_iteration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, [USUAL, USUAL])
    (tmp_path / "iteration_10" / "rank0_trace.json").write_text("[")
    report = diagnose(tmp_path)
    assert report.iterations is not None
    assert [(one.ranks, len(one.skipped)) for one in report.iterations.each] == [(1, 1), (2, 0)]
    assert "rank0_trace.json" in report.iterations.each[0].skipped[0]


@pytest.mark.slow
def test_iterations_are_captures_to_compare(tmp_path: Path) -> None:
    for side, times in (("base", USUAL), ("new", (900, 905, 900, 895))):
        (tmp_path / side).mkdir()
        write(tmp_path / side, [times, times, times])
    found = compare(tmp_path / "base", tmp_path / "new")
    assert found.verdict.word == "slower"
    assert "iteration" not in call("compare", tmp_path / "base", tmp_path / "new").stderr


def test_steps_without_launches_at_the_ends_do_not_count() -> None:
    """As the report's head counts them: three of 2 ms between two and four that are empty."""
    program = Program()
    for number in range(9):
        program.step(number)
        if 2 <= number < 5:
            program.kernel()
    analysis = Analysis(program.trace.load())
    summary = file_summary(analysis, None, None)
    head = summarise(analysis, None).steps
    assert head is not None
    assert summary.step_ns.tolist() == [head.every.median_ns] * 3
    assert summary.parts_ns["compute"] == 100_000


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
