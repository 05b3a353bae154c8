"""What the replay costs: `python -m benchmarks.replay TRACE [TRACE ...]`.

Prints how long the program takes to build beside reading and the indexes that diagnose builds anyway, how many events
of the CPU and GPU lanes a second the replay passes, and the share that a report's replays have of all of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.edits import Scale
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

FINDINGS = 15  # savings in a long report


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """What the action gives, and its seconds."""
    begun = time.perf_counter()
    result = action()
    return result, time.perf_counter() - begun


def measure(path: str) -> None:
    """One line per stage."""
    trace, reading = timed(lambda: load(path))
    kinds = (DeviceWork, Nesting, Steps, SyncCalls)
    analysis = Analysis(trace)
    indexes, indexing = timed(lambda: [analysis.index(kind) for kind in kinds])
    program, building = timed(lambda: analysis.index(Program))
    forecast, base = timed(lambda: analysis.index(Forecast))
    every = np.arange(len(indexes[0].row))
    _, saving = timed(lambda: [forecast.saving([Scale(every, 0.5)]) for _ in range(FINDINGS)])
    events = len(program.segments.cpu_ns) + len(program.launch)
    print(f"{path}: {trace.meta.events} events, {program.sample.text} replayed: {events} segments and pieces of work")
    print(f"  reading {reading:.3f} s, indexes {indexing:.3f} s")
    print(f"  program {building:.3f} s, three replays {base:.4f} s, {FINDINGS} savings {saving:.3f} s")
    print(f"  {3 * events / base / 1e6:.1f} M segments and pieces a second")
    print(f"  replay over reading and indexes: {(building + base + saving) / (reading + indexing):.1%}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        measure(argument)
