"""Diagnosing, the cache and start-up: `python -m benchmarks.diagnose [--runs 3] [--megabytes 300]`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.files import DATA, large, source
from benchmarks.make_large import minified
from benchmarks.measure import REPOSITORY, cases, command_line, measure, table
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.replay import saving
from traceanalyzer.report.diagnosis import analyses_of, report_of

_NAMES = ("orjson", "load, 1 process", "load, 2 processes", "diagnose, 1 process", "diagnose, 2 processes")
_HUGE_MB, _USUAL_MB = 1500, 20  # the last at least: a whole trace is not cut
_FILES = (("plain", "without stacks"), ("stacks", "with stacks"))
_SMALL_BYTES = 100_000


def report(runs: int, megabytes: int, *, huge: bool = False) -> Iterator[str]:
    """Markdown, section by section."""
    yield from usual(runs)
    yield from in_turns(runs, megabytes)
    for name, title in _FILES:
        path = large(name, megabytes)
        yield f"\n### A second start from the cache, {megabytes} MB {title}\n"
        yield from _cached(path, runs)
        if huge:
            yield f"\n### Diagnose, {_HUGE_MB} MB {title}\n"
            yield from table(measure(cases(_NAMES[3:], large(name, _HUGE_MB)), 1))
    yield "\n### Start-up, CPU seconds\n"
    yield from _start_up(runs)


def in_turns(runs: int, megabytes: int) -> Iterator[str]:
    """Reading and diagnosing against orjson, with their memory."""
    for name, title in _FILES:
        yield f"\n### Diagnose, {megabytes} MB {title}\n"
        yield from table(measure(cases(_NAMES, large(name, megabytes)), runs))


def usual(runs: int) -> Iterator[str]:
    """The whole command on traces as most people have them, and which part of the analysis the replays are."""
    yield "\n### The whole command, CPU seconds\n"
    yield "| trace | JSON | median | least | replays' share |"
    yield "|---|--:|--:|--:|--:|"
    for name, title in _FILES:
        path = large(name, _USUAL_MB)
        seconds = sorted(_cpu(["-m", "traceanalyzer", "diagnose", str(path)]) for _ in range(max(runs, 3)))
        middle, megabytes = seconds[len(seconds) // 2], path.stat().st_size / 1e6
        share = replay_share(path)
        yield f"| {title} | {megabytes:.0f} MB | {middle:.2f} s | {seconds[0]:.2f} s | {share:.1%} |"


def replay_share(path: Path) -> float:
    """CPU time of all replays, with their edits, over that of reading and analysing in one process and thread."""
    counted = {"replays": 0.0, "depth": 0}

    def timed(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            begun, outermost = time.process_time(), not counted["depth"]
            counted["depth"] += 1
            try:
                return function(*arguments)
            finally:
                counted["depth"] -= 1
                counted["replays"] += (time.process_time() - begun) * outermost

        return run

    kept = saving.Forecast._saving, saving.Replays.steps
    saving.Forecast._saving, saving.Replays.steps = map(timed, kept)  # type: ignore[method-assign,assignment]
    try:
        begun = time.process_time()
        trace: Trace = load_file(path, jobs=1)
        analysed = analyses_of(trace)
        for _, analysis in analysed:
            analysis.threads = 1
        report_of(analysed)
        return counted["replays"] / (time.process_time() - begun)
    finally:
        saving.Forecast._saving, saving.Replays.steps = kept  # type: ignore[method-assign]


def _cached(path: Path, runs: int) -> Iterator[str]:
    os.environ["XDG_CACHE_HOME"] = str(DATA / "cache")
    names = ("load, 1 process", "load, 2 processes", "load, cached")
    measure(cases(names[2:], path), 1)
    yield from table(measure(cases(names, path), runs), *names[:2])


def _start_up(runs: int) -> Iterator[str]:
    small = small_trace()
    commands = {
        "`python -c pass`": ["-c", "pass"],
        "`import numpy`": ["-c", "import numpy"],
        "`from traceanalyzer import diagnose`": ["-c", "from traceanalyzer import diagnose"],
        "`traceanalyzer --help`": ["-m", "traceanalyzer", "--help"],
        "`traceanalyzer diagnose` of 100 kB": ["-m", "traceanalyzer", "diagnose", str(small)],
    }
    yield "| what | median | least |"
    yield "|---|--:|--:|"
    for name, arguments in commands.items():
        seconds = sorted(_cpu(arguments) for _ in range(max(runs, 5)))
        yield f"| {name} | {seconds[len(seconds) // 2]:.2f} s | {seconds[0]:.2f} s |"


def small_trace() -> Path:
    """The first 100 kB of a real trace's events, as a whole file."""

    DATA.mkdir(exist_ok=True)
    path = DATA / "small.json"
    before, events, after = minified(source("plain"))
    cut = events.rindex("},{", 0, _SMALL_BYTES) + 1
    path.write_text(before + events[:cut] + after, encoding="utf-8")
    return path


def _cpu(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """The command line."""
    command_line(__doc__, report)


if __name__ == "__main__":
    main()
