"""Diagnosing, the cache and start-up: `python -m benchmarks.diagnose [--runs 3] [--megabytes 300]`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.files import DATA, large, source
from benchmarks.make_large import minified
from benchmarks.measure import REPOSITORY, cases, command_line, measure, table

_NAMES = ("orjson", "load, 1 process", "diagnose, 1 process", "diagnose, 2 processes")
_HUGE_MB = 1500
_SMALL_BYTES = 100_000


def report(runs: int, megabytes: int, *, huge: bool = False) -> Iterator[str]:
    """Markdown, section by section."""
    for name, title in (("plain", "without stacks"), ("stacks", "with stacks")):
        path = large(name, megabytes)
        yield f"\n### Diagnose, {megabytes} MB {title}\n"
        yield from table(measure(cases(_NAMES, path), runs))
        yield f"\n### A second start from the cache, {megabytes} MB {title}\n"
        yield from _cached(path, runs)
        if huge:
            yield f"\n### Diagnose, {_HUGE_MB} MB {title}\n"
            yield from table(measure(cases(_NAMES[2:], large(name, _HUGE_MB)), 1))
    yield "\n### Start-up, CPU seconds\n"
    yield from _start_up(runs)


def _cached(path: Path, runs: int) -> Iterator[str]:
    os.environ["XDG_CACHE_HOME"] = str(DATA / "cache")
    names = ("load, 1 process", "load, 2 processes", "load, cached")
    measure(cases(names[2:], path), 1)
    yield from table(measure(cases(names, path), runs), *names[:2])


def _start_up(runs: int) -> Iterator[str]:
    small = small_trace()
    commands = {
        "`python -c pass`": ["-c", "pass"],
        "imports of diagnose": [
            "-c",
            "import traceanalyzer.cli.diagnose, traceanalyzer.report.diagnosis, traceanalyzer.render.text.report",
        ],
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
