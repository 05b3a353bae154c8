"""What a diagnosis says on standard error: damage, GPUs that were not judged, timings that differ, iterations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.commands import call, written
from tests.report import report_samples as samples
from traceanalyzer.cli import diagnose as command
from traceanalyzer.cli import loading
from traceanalyzer.cli.report_output import warn_of_measured
from traceanalyzer.model.step_times import GIVEN, RECORDING, measured_step
from traceanalyzer.model.trace import Damage


def test_damage_and_missing_gpus_are_reported_per_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = samples.two_ranks().traces
    damage = (Damage("truncated", "cut at byte 7"), Damage("mended", "mended at byte 9"))
    damaged = replace(second, meta=replace(second.meta, damage=damage), busy=())
    third = replace(damaged, meta=replace(damaged.meta, damage=(), source="rank2.json"))
    third = replace(third, unavailable={"busy": "no kernels", "steps": "no marks"})
    command._warn(replace(samples.report(), traces=(first, damaged, third)))
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.splitlines() == [
        "warning: rule broken-rule failed, so its fault may be there: ZeroDivisionError: division by zero",
        "warning: rank1.json: cut at byte 7",
        "warning: rank1.json: mended at byte 9",
        "warning: rank1.json: the GPU was not judged: no event of a GPU",
        "warning: rank2.json: the GPU was not judged: no kernels",
    ]


def test_timings_are_doubted_per_trace_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A time that the user gave instead needs no doubt."""
    apart = measured_step({RECORDING: {"before_ms": [3.2], "after_ms": [3.6], "unit": "optimizer step"}})
    same = measured_step({RECORDING: {"before_ms": [3.2], "after_ms": [3.2], "unit": "optimizer step"}})
    assert apart is not None
    assert same is not None
    every = (
        None,
        replace(apart, unused=GIVEN),
        same,
        replace(same, unused="the GPU alone is busy longer"),
        apart,
    )
    traces = tuple(
        samples.trace(rank, meta=samples.meta(f"rank{rank}.json"), measured=one)
        for rank, one in enumerate(every)
    )
    warn_of_measured(samples.report(traces=traces))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "warning: rank3.json: its measured step of 3.2 ms is not used: the GPU alone is busy longer"
    )
    assert lines[1].startswith(
        "warning: rank4.json: a step took 3.2 ms before the recorded steps and 3.6 ms after them: the profiler's"
    )


@pytest.mark.parametrize(
    ("unranked", "traces", "said"),
    [(0, 2, ""), (1, 1, ""), (1, 2, "1 of the 2 traces declare"), (2, 2, "2 of the 2 traces declare")],
)
def test_unranked_traces_cause_a_warning(
    unranked: int, traces: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    loading.warn_of_unranked(unranked, traces)
    told = capsys.readouterr().err
    assert said in told
    assert bool(told) is bool(said)


def test_only_the_iteration_that_is_read_is_named(tmp_path: Path) -> None:
    """A file that is no trace leaves fewer files in it: it is the same iteration."""
    for iteration in (9, 10, 100):
        for rank in (0, 1, 2):
            (folder := tmp_path / f"iteration_{iteration}").mkdir(exist_ok=True)
            written(folder / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 3})
    (tmp_path / "iteration_100" / "rank2.json").write_text('{"a": 1}')
    for name in ("diagnose", "export"):
        more = [tmp_path / "frames"] if name == "export" else []
        lines = call(name, tmp_path, *more).stderr.splitlines()
        assert [line for line in lines if "iterations of a job" in line] == [
            "3 iterations of a job, 9 to 100: 100 is read"
        ]
    assert "iterations of a job" not in call("diagnose", tmp_path / "iteration_9").stderr


def test_rank_option_selects_one_rank_and_lists_others(tmp_path: Path) -> None:
    ranks = (0, *range(10, 18))
    for rank in ranks:
        written(tmp_path / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 18})
    alone = call("diagnose", tmp_path, "--rank", 0).stdout
    assert "rank0.json" in alone
    assert "rank10.json" not in alone
    assert "rank17.json" in call("diagnose", tmp_path, "--rank", 17).stdout
    error = call("diagnose", tmp_path, "--rank", 1).exception
    assert str(error).endswith("the traces are of ranks 0, 10, 11, 12, 13, 14, 15, 16")
