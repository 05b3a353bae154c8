"""How long the profiler's table, the memory view and the ops take, apart from reading the trace.

    python -m benchmarks.table TRACE...

Prints one line per trace and index: milliseconds (the best of three), events, and nanoseconds per event. Make a
large trace with benchmarks.make_large.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from traceanalyzer.errors import Unavailable
from traceanalyzer.indexes.key_averages import key_averages
from traceanalyzer.indexes.memory_view import MemoryView
from traceanalyzer.indexes.op_work import OpWork
from traceanalyzer.read.load import load_file
from traceanalyzer.render.table_text import Layout, render_table
from traceanalyzer.trace import Trace

REPEATS = 3
INDEXES: dict[str, Callable[[Trace], object]] = {
    "table": key_averages,
    "table with text": lambda trace: render_table(key_averages(trace), Layout("device_time_total")),
    "table by shape": lambda trace: key_averages(trace, by_input_shape=True),
    "table with python": lambda trace: key_averages(trace, python_functions=True),
    "table by stack": lambda trace: key_averages(trace, by_stack=3),
    "memory": MemoryView.build,
    "ops": OpWork.build,
}


def main() -> None:
    """Time every index on every trace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path)
    for path in parser.parse_args().traces:
        begun = time.perf_counter()
        trace = load_file(path)
        events = len(trace.cpu) + len(trace.gpu) + len(trace.python) + len(trace.memory)
        print(f"{path.name}: {events:,} rows read in {time.perf_counter() - begun:.2f} s")
        for name, build in INDEXES.items():
            print(f"  {name:<18} {timed(build, trace, events)}")


def timed(build: Callable[[Trace], object], trace: Trace, events: int) -> str:
    """Best of some repeats, or why it cannot be built."""
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.perf_counter()
        try:
            build(trace)
        except Unavailable as reason:
            return f"n/a: {reason}"
        best = min(best, time.perf_counter() - begun)
    return f"{best * 1e3:10,.1f} ms {best * 1e9 / max(events, 1):8.0f} ns per row"


if __name__ == "__main__":
    main()
