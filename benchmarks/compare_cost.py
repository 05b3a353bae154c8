"""What a comparison of two large files costs beside one diagnosis."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import make_large
from benchmarks.compared_traces import Traces

_MEGABYTES, _TURNS = 300, 3


def cost(traces: Traces) -> None:
    """A comparison of two large files beside one diagnosis, in turns, each in a process of its own."""
    with TemporaryDirectory() as folder:
        for source in ("real/gpt2_train.eager", "real/llama_decode.eager"):
            large = [Path(folder, f"{index}.json") for index in range(2)]
            for seed, path in enumerate(large):
                make_large.make(traces.path(source), path, _MEGABYTES, seed=seed)
            asked = {"diagnose": large[:1], "compare": large}
            turns = [{name: _spent(name, files) for name, files in asked.items()} for _ in range(_TURNS)]
            for index, what in enumerate(("wall", "CPU")):
                once, both = (statistics.median(turn[name][index] for turn in turns) for name in asked)
                ratios = sorted(turn["compare"][index] / turn["diagnose"][index] for turn in turns)
                shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(
                    f"{source} {_MEGABYTES} MB, {what}: {once:.1f} s, {both:.1f} s: {both / once:.2f} times ({shown})"
                )
            for path in large:
                path.unlink()


def _spent(command: str, files: Sequence[Path]) -> tuple[float, float]:
    """(seconds by the clock, of CPU) of a command with all its processes."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "traceanalyzer", command, *map(str, files), "--format", "json"],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begun, cpu
