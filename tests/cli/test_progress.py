"""The line that says how far a long reading is."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.commands import written
from traceanalyzer.cli import loading, report_output
from traceanalyzer.cli.loading import ProgressLine, shown_progress, shown_ranks


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
    assert stream.getvalue().split("\r\x1b[K") == [
        "",
        f"3 of 8 ranks, {'y' * 50}",
        "3 of 8 ranks, rank2.json",
        "",
    ]


def test_progress_of_a_short_read_writes_nothing() -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        progress(1, 1, 1)
    assert stream.getvalue() == ""


def test_progress_goes_to_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, terminal = written(tmp_path / "trace.json"), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("traceanalyzer.cli.loading.SILENT_S", 0.0)
    for stream, quiet, expected in (
        (io.StringIO(), False, False),
        (terminal, True, False),
        (terminal, False, True),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        loading.load_all([trace], quiet=quiet)
        assert ("events" in stream.getvalue()) is expected


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
    with shown_progress(quiet) as line, shown_ranks(quiet) as of_ranks:
        assert (line is not None) is told
        assert (of_ranks is not None) is told


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
    assert [line.rpartition(", ")[2] for line in stream.getvalue().split("\r\x1b[K")[1:-1]] == [
        "10.0 MiB/s"
    ] * 3


class Timed:
    """Two ranks that took these times."""

    all = (0, 1)

    def each(self, ask: object, given: object) -> dict[int, dict[str, int]]:
        return {
            0: {"quick": 1_000, "slow": 2_000_000, **{f"rule{n}": 10 + n for n in range(40)}},
            1: {"slow": 3_000_000},
        }


def test_the_profile_has_the_slowest_parts_of_all_ranks_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_output, "_STARTED_NS", 1_000_000)
    monkeypatch.setattr(report_output, "perf_counter_ns", lambda: 101_000_000)
    report_output.print_times(cast(Any, Timed()), 6_000_000, 26_000_000)
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
