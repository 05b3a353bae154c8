"""How long the indexes up to the accounting take per million events, each apart from those that it rests on.

    python -m benchmarks.accounting [TRACE...] [--million 1.0]

Repeats every trace (by default the recorded training step in fixtures/healthy) in memory until it has that many
rows on the CPU and GPU lanes, and prints the best of three, in seconds of CPU time (on one core; a busy machine
counts less that way). Then the same with rows that are rare in real traces
made common: overhead rows, loader marks, allocator calls and annotations with a name of their own. If the time
per event grows there, some step looks at every row for every other.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.idle.stalled_calls import StalledCalls
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.timeline.activity import Activity, ProfilerRows
from traceanalyzer.timeline.device_work import Busy, DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

INDEXES: tuple[Any, ...] = (
    Nesting,
    DeviceWork,
    Busy,
    SyncCalls,
    ProfilerRows,
    Activity,
    Steps,
    StalledCalls,
    Idle,
    Accounting,
)
REPEATS = 3
SOURCE = Path(__file__).resolve().parent.parent / "fixtures" / "healthy" / "train.json.gz"
_PAUSE_NS = 100_000
_RARE = 50  # one row in so many is made a rare one


def main() -> None:
    """Time every index on every trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, default=[SOURCE])
    parser.add_argument("--million", type=float, default=1.0, help="millions of rows")
    asked = parser.parse_args()
    for path in asked.traces:
        trace = repeated(load_file(path), round(asked.million * 1e6))
        report(path.name, trace)
        report(f"{path.name}, rare rows made common", with_rare_rows(trace))


def repeated(trace: Trace, rows: int) -> Trace:
    """The trace one after the other, with fresh ids, until it has so many rows."""
    copies = max(1, rows // (len(trace.cpu) + len(trace.gpu)))
    ends = [(frame["start_ns"] + frame["dur_ns"]).max() for frame in (trace.cpu, trace.gpu)]
    starts = [frame["start_ns"].min() for frame in (trace.cpu, trace.gpu)]
    period = int(max(ends) - min(starts)) + _PAUSE_NS
    ids = {key: 1 + int(max(frame[key].max() for frame in (trace.cpu, trace.gpu))) for key in _IDS}
    cpu, gpu = (_repeat(frame, copies, {"start_ns": period, **ids}) for frame in (trace.cpu, trace.gpu))
    return replace(trace.with_frames(cpu=cpu, gpu=gpu), meta=replace(trace.meta, window_ns=None))


_IDS = ("event_id", "external_id", "correlation")


def _repeat(frame: pd.DataFrame, copies: int, step: dict[str, int]) -> pd.DataFrame:
    """The frame one below the other; each copy adds `step` to these columns."""
    found = pd.concat([frame] * copies, ignore_index=True)
    number = np.repeat(np.arange(copies), len(frame))
    return found.assign(**{column: found[column] + number * by for column, by in step.items()})


def with_rare_rows(trace: Trace) -> Trace:
    """Some rows of the CPU lane turned into what real traces have few of."""
    cpu = trace.cpu.copy()
    rows = np.flatnonzero((cpu["category"] == "cpu_op").to_numpy())[::_RARE]
    kinds = [
        ("overhead", "Activity Buffer Request"),
        ("overhead", "Lazy Function Loading"),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        ("cuda_runtime", "cudaMalloc"),
        ("cuda_runtime", "cudaStreamSynchronize"),
    ]
    names, categories = (cpu[column].astype(object) for column in ("name", "category"))
    for position, (category, name) in enumerate(kinds):
        names.iloc[rows[position :: len(kinds) + 1]] = name
        categories.iloc[rows[position :: len(kinds) + 1]] = category
    own = rows[len(kinds) :: len(kinds) + 1]
    names.iloc[own] = [f"batch {i}" for i in range(len(own))]
    categories.iloc[own] = "user_annotation"
    changed = cpu.assign(name=names.astype("category"), category=categories.astype("category"))
    return trace.with_frames(cpu=changed)


def report(title: str, trace: Trace) -> None:
    """Print one line per index, and the sum."""
    events = len(trace.cpu) + len(trace.gpu)
    print(f"{title}: {events:,} rows")
    best = {kind.__name__: float("inf") for kind in INDEXES}
    for _ in range(REPEATS):
        fresh = Analysis(replace(trace))
        for kind in INDEXES:
            begun = time.process_time()
            fresh.index(kind)
            best[kind.__name__] = min(best[kind.__name__], time.process_time() - begun)
    for name, seconds in [*best.items(), ("together", sum(best.values()))]:
        print(f"  {name:<13} {seconds:6.3f} s  {seconds / events * 1e6:6.3f} s per million events")


if __name__ == "__main__":
    main()
