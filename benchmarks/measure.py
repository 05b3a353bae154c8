"""Runs subjects in fresh processes and measures time and the memory of the process tree."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """One subject on one file.

    Attributes:
        seconds: wall time of each run.
        cpu_seconds: CPU time of each run, with that of finished children.
        peak_bytes: of the process tree, above the interpreter with its imports; pages shared count once. Sampled,
            and at least what the kernel noted as the first process's own peak.
    """

    name: str
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    events: int
    peak_bytes: int

    @property
    def median(self) -> float:
        """Median wall time."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Largest minus smallest wall time, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


def measure(names: Iterable[str], path: Path, runs: int) -> dict[str, Measured]:
    """Every subject `runs` times, in turns so that a noisy minute hits all alike, and once more for its memory."""
    names = list(names)
    rounds = [[_run(name, path) for name in names] for _ in range(runs)]
    made = {}
    for position, name in enumerate(names):
        results = [results[position] for results in rounds]
        peak = _run(name, path, sampled=True)["peak"]
        seconds, cpu = (tuple(result[key] for result in results) for key in ("seconds", "cpu"))
        made[name] = Measured(name, seconds, cpu, int(results[0]["events"]), int(peak))
    return made


def _run(name: str, path: Path, *, sampled: bool = False) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.subjects", name, str(path)]
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
            raise RuntimeError(f"{name} failed on {path.name}")
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


def table(results: dict[str, Measured], size: int, *, against: str = "orjson") -> list[str]:
    """Rows of a Markdown table."""
    unit = results[against].median if against in results else None
    lines = [
        f"| what | median | spread | MB/s | events/s | peak memory | of the file | ratio to {against} |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in results.values():
        ratio = "" if unit is None else f"{row.median / unit:.2f}"
        rates = f"{size / 1e6 / row.median:,.0f} | {row.events / row.median:,.0f}"
        memory = f"{row.peak_bytes / 1e6:,.0f} MB | {row.peak_bytes / size:.2f}"
        lines.append(f"| {row.name} | {row.median:.2f} s | {row.spread:.0%} | {rates} | {memory} | {ratio} |")
    return lines


def command_line(description: str | None, report: Callable[[int, int], Iterable[str]]) -> None:
    """`--runs` and `--megabytes` for a benchmark's report, which is printed as it comes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=300)
    options = parser.parse_args()
    print(f"{machine()}; medians of {options.runs} runs")
    for line in report(options.runs, options.megabytes):
        print(line, flush=True)
