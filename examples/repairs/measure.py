"""Times programs of this folder on a GPU, in turns: `python measure.py PROGRAM.py OTHER.py ...`.

All run in one process, so that the clocks and the load of the machine are the same for each. Prints the median step
of six turns of 0.35 s, the shortest and the longest, and the result of the fifth step.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SECONDS, TURNS, WARM = 0.35, 6, 5


def load(path: Path) -> Callable[[], Any]:
    """The step of a program, its model and data made from one seed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = program
    spec.loader.exec_module(program)
    torch.manual_seed(0)
    step: Callable[[], Any] = program.make("cuda", small=False)
    return step


def result_of(value: Any) -> list[str]:
    """Mean magnitudes of what a step returns."""
    values = value.values() if isinstance(value, dict) else value
    if isinstance(values, torch.Tensor):
        return [f"{float(values.double().abs().mean()):.5f}"]
    if isinstance(values, int | float):
        return [f"{values:.5f}"]
    return [text for one in values for text in result_of(one)]


def turn(step: Callable[[], Any]) -> float:
    """Milliseconds a step."""
    step()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        step()
        torch.cuda.synchronize()
        count += 1
    return (time.perf_counter() - begin) / count * 1e3


def main() -> None:
    """The command line."""
    steps = {path.stem: load(path) for path in map(Path, sys.argv[1:])}
    results = {}
    for name, step in steps.items():
        torch.manual_seed(1)
        results[name] = [step() for _ in range(WARM)][-1]
    turns = [{name: turn(step) for name, step in steps.items()} for _ in range(TURNS)]
    for name in steps:
        times = [one[name] for one in turns]
        print(
            f"{name:28} {statistics.median(times):8.3f} ms ({min(times):.2f} to {max(times):.2f})",
            *result_of(results[name])[:6],
        )


if __name__ == "__main__":
    main()
