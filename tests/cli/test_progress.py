"""What a command prints on standard error."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.commands import call, written
from tests.report import report_samples as samples
from traceanalyzer.cli import diagnose as command
from traceanalyzer.cli import loading, report_output
from traceanalyzer.cli.loading import ProgressLine, shown_progress
from traceanalyzer.cli.report_output import warn_of_measured
from traceanalyzer.model.step_times import GIVEN, RECORDING, measured_step
from traceanalyzer.model.trace import Damage


def test_progress_waits_a_second_and_cleans_up() -> None:
    now, stream = [0.0], io.StringIO()
    with ProgressLine(stream, lambda: now[0]) as progress:
        progress(1 << 20, 8 << 20, 100)
        assert stream.getvalue() == ""
        now[0] = 2.0
        progress(4 << 20, 8 << 20, 12_345)
        now[0] = 2.1
        progress(5 << 20, 8 << 20, 20_000)
        now[0] = 2.5
        progress(6 << 20, None, 20_000)
        now[0] = 4.0
        progress(9 << 20, 8 << 20, 30_000)
    written = stream.getvalue().split("\r\x1b[K")
    assert written == [
        "",
        "4.00 MiB of 8.00 MiB, 12,345 events, 2.00 MiB/s",
        "6.00 MiB, 20,000 events, 2.40 MiB/s",
        "8.00 MiB of 8.00 MiB, 30,000 events, 2.00 MiB/s",
        "",
    ]


def test_progress_of_a_job_names_the_end_of_the_file() -> None:
    now, stream = [0.0], io.StringIO()
    with ProgressLine(stream, lambda: now[0]) as progress:
        for second, file in ((0.9, "early"), (1.0, "x" * 9 + "y" * 50), (1.1, "soon"), (1.2, "rank2.json")):
            now[0] = second
            progress.of_rank(file, 3, 8)
    shown = ["", f"3 of 8 ranks, {'y' * 50}", "3 of 8 ranks, rank2.json", ""]
    assert stream.getvalue().split("\r\x1b[K") == shown


@pytest.mark.parametrize(
    ("quiet", "terminal", "term", "told"),
    [
        (False, True, "xterm", True),
        (True, True, "xterm", False),
        (False, False, "xterm", False),
        (False, True, "dumb", False),
    ],
)
def test_progress_needs_a_terminal_that_can_erase_it(
    quiet: bool, terminal: bool, term: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error is what has to be one, not standard output."""
    monkeypatch.setenv("TERM", term)
    for stream, is_one in ((sys.stderr, terminal), (sys.stdout, not terminal)):
        monkeypatch.setattr(stream, "isatty", lambda is_one=is_one: is_one)
    with shown_progress(quiet) as line:
        assert (line is not None) is told


def test_progress_of_a_job_is_erased_after_a_failure() -> None:
    now, stream = [0.0], io.StringIO()
    progress = ProgressLine(stream, lambda: now[0])
    now[0] = 1.0
    progress.of_rank("rank2.json", 3, 8)
    progress.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert stream.getvalue() == "\r\x1b[K3 of 8 ranks, rank2.json\r\x1b[K"


def test_the_time_until_now_counts_for_the_rate() -> None:
    now, stream = [100.0], io.StringIO()
    with ProgressLine(stream, lambda: now[0]) as progress:
        for at, done in ((101.0, 10), (101.1, 11), (101.2, 12), (105.0, 50)):
            now[0] = at
            progress(done << 20, 0, 1_000)
    assert [line.rpartition(", ")[2] for line in stream.getvalue().split("\r\x1b[K")[1:-1]] == ["10.0 MiB/s"] * 3


class Timed:
    """Two ranks that took these times."""

    all = (0, 1)

    def each(self, ask: object, given: object) -> dict[int, dict[str, int]]:
        many = {f"rule{n}": 10 + n for n in range(40)}
        return {0: {"quick": 1_000, "slow": 2_000_000, **many}, 1: {"slow": 3_000_000}}


def test_the_profile_has_the_slowest_parts_of_all_ranks_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_output, "_STARTED_NS", 1_000_000)
    monkeypatch.setattr(report_output, "perf_counter_ns", lambda: 101_000_000)
    report_output.print_profile(samples.report(), cast(Any, Timed()), 6_000_000, 26_000_000)
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert [" ".join(line.split()) for line in lines[:6]] == [
        "100 ms in total",
        "5.00 ms start-up",
        "20.0 ms reading",
        "5.00 ms slow",
        "1.00 µs quick",
        "49 ns rule39",
    ]
    assert len(lines) == 3 + 25


def test_damage_and_missing_gpus_are_reported_per_trace(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_timings_are_doubted_per_trace_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """A time that the user gave instead needs no doubt."""
    apart = measured_step({RECORDING: {"before_ms": [3.2], "after_ms": [3.6], "unit": "optimizer step"}})
    same = measured_step({RECORDING: {"before_ms": [3.2], "after_ms": [3.2], "unit": "optimizer step"}})
    assert apart is not None
    assert same is not None
    longer = replace(same, unused="the GPU alone is busy longer")
    every = (None, replace(apart, unused=GIVEN), same, longer, apart)
    traces = tuple(
        samples.trace(rank, meta=samples.meta(f"rank{rank}.json"), measured=one) for rank, one in enumerate(every)
    )
    warn_of_measured(samples.report(traces=traces))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == ("warning: rank3.json: its measured step of 3.2 ms is not used: the GPU alone is busy longer")
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
    assert alone == call("diagnose", tmp_path / "rank0.json").stdout
    assert "rank17.json" in call("diagnose", tmp_path, "--rank", 17).stdout
    error = call("diagnose", tmp_path, "--rank", 1).exception
    assert str(error).endswith("the traces are of ranks 0, 10, 11, 12, 13, 14, 15, 16")
