"""Times programs of this folder on a GPU, and prints their first results: `python measure.py PROGRAM.py ...`.

Each runs in a process of its own: five steps, whose results are printed, then the median of five times of 0.5 s.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

SECONDS, REPEATS = 0.5, 5


def measure(path: Path) -> str:
    """`name, milliseconds a step (least to most), results of the fifth step`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    torch.manual_seed(0)
    step = program.make("cuda", small=False)
    torch.manual_seed(1)
    results = [step() for _ in range(5)]
    last = results[-1] if isinstance(results[-1], tuple | list) else [results[-1]]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    count = max(3, min(40, int(SECONDS / max(time.perf_counter() - begin, 1e-6))))
    each = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        each.append((time.perf_counter() - begin) / count * 1e3)
    values = ", ".join(f"{float(value.double().abs().mean()):.5f}" for value in last)
    return f"{path.stem:28} {statistics.median(each):8.3f} ms ({min(each):.2f} to {max(each):.2f})  {values}"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        for name in sys.argv[1:]:
            subprocess.run([sys.executable, __file__, name], check=False)
    else:
        print(measure(Path(sys.argv[1])), flush=True)
