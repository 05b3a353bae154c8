"""Runs subjects in fresh processes and measures time and the memory of the process tree."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
_SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: a subject on a file; `size` in bytes is that of the JSON, also where the file is packed.

    `command` runs the subject, maybe in another environment.
    """

    name: str
    subject: str
    path: Path
    size: int
    command: tuple[str, ...] = (sys.executable, "-m", "benchmarks.subjects")


@dataclass(frozen=True, slots=True)
class Measured:
    """One case.

    Attributes:
        seconds: wall time of each run.
        cpu_s: CPU time of each run, of all its processes: what a busy machine leaves comparable.
        peak_bytes: of the process tree, above the interpreter with its imports; pages shared count once. Sampled,
            and at least what the kernel noted as the first process's own peak.
    """

    case: Case
    seconds: tuple[float, ...]
    cpu_s: tuple[float, ...]
    events: int
    peak_bytes: int

    @property
    def median(self) -> float:
        """Median wall time."""
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        """Least wall time."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Largest minus smallest wall time, as a share of the median."""
        return (max(self.seconds) - self.least) / self.median


def cases(subjects: Iterable[str], path: Path, suffix: str = "", size: int | None = None) -> list[Case]:
    """Subjects on one file, named after them."""
    size = size or path.stat().st_size
    return [Case(subject + suffix, subject, path, size) for subject in subjects]


def measure(chosen: Iterable[Case], runs: int) -> list[Measured]:
    """Every case `runs` times, in turns so that a noisy minute hits all alike, and once more for its memory."""
    chosen = list(chosen)
    rounds = [[run(case) for case in chosen] for _ in range(runs)]
    made = []
    for position, case in enumerate(chosen):
        results = [results[position] for results in rounds]
        peak = run(case, sampled=True)["peak"]
        seconds = tuple(result["seconds"] for result in results)
        cpu_s = tuple(result["cpu"] for result in results)
        made.append(Measured(case, seconds, cpu_s, int(results[0]["events"]), int(peak)))
    return made


def run(case: Case, *, sampled: bool = False) -> dict[str, Any]:
    """One run in a fresh process: what it answers, and the peak of its memory if `sampled`."""
    command = [*case.command, case.subject, str(case.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=REPOSITORY) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        sampler = _Sampler(process.pid)
        if sampled:
            sampler.start()
        process.stdin.write("go\n")  # not before the sampler knows what there was at the start
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{case.name} failed on {case.path.name}")
        return {**json.loads(answer), "peak": sampler.stop() if sampled else 0}


class _Sampler(threading.Thread):
    """Watches the memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._base = self._peak = tree_bytes(pid)
        self._own_base = _status_bytes(pid, "VmRSS")
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            self._peak = max(self._peak, tree_bytes(self._pid))

    def stop(self) -> int:
        """Peak above what there was at the start."""
        self._done.set()
        self.join()
        own = _status_bytes(self._pid, "VmHWM") - self._own_base
        return max(self._peak - self._base, own)


def tree_bytes(pid: int) -> int:
    """Proportional set size of a process and its descendants."""
    total = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            total += sum(tree_bytes(int(child)) for child in file.read().split())
    except (OSError, StopIteration):
        return total
    return total


def _status_bytes(pid: int, field: str) -> int:
    """One field of the kernel's account of a process's memory."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{field}:"))


def machine() -> str:
    """Cores and memory, nothing else."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB of memory"


_BASES = ("orjson", "orjson, collector on", "json")


def table(results: list[Measured], *more: str) -> Iterator[str]:
    """Rows of a Markdown table, with the ratio to each of the whole-file parsers that was measured, and to `more`:
    that of the medians, in brackets that of the least times, and that of the medians of CPU time."""
    by_name = {row.case.name: row for row in results}
    bases = [name for name in (*_BASES, *more) if name in by_name]
    heads = ["what", "median", "spread", "CPU", "MB/s", "events/s", "peak memory", "of the file", *bases]
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'--:|' * (len(heads) - 1)}"
    for row in results:
        rates = f"{row.case.size / 1e6 / row.median:,.0f} | {row.events / row.median:,.0f}"
        memory = f"{row.peak_bytes / 1e6:,.0f} MB | {row.peak_bytes / row.case.size:.2f}"
        ratios = "".join(f" {_ratio(row, by_name[base])} |" for base in bases)
        name = row.case.name
        cpu = f"{statistics.median(row.cpu_s):.2f} s"
        yield f"| {name} | {row.median:.2f} s | {row.spread:.0%} | {cpu} | {rates} | {memory} |{ratios}"


def _ratio(row: Measured, base: Measured) -> str:
    cpu = statistics.median(row.cpu_s) / statistics.median(base.cpu_s)
    return f"{row.median / base.median:.2f} ({row.least / base.least:.2f}), CPU {cpu:.2f}"


def command_line(description: str | None, report: Callable[[int, int], Iterable[str]]) -> None:
    """`--runs` and `--megabytes` for a benchmark's report, which is printed as it comes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=300)
    options = parser.parse_args()
    print(f"{machine()}; medians of {options.runs} runs")
    for line in report(options.runs, options.megabytes):
        print(line, flush=True)
