"""Counts of what a fixture is meant to show, read from the raw events of one small trace.

Deliberately simple and independent of the analyzer, so that one can be checked against the other.
Times are in microseconds, as the exporter writes them.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
BUSY = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
REQUEST = "Activity Buffer Request"


@dataclass(frozen=True, slots=True)
class Shown:
    """What is in a trace. Shares are between 0 and 1, times in us."""

    steps: int
    kernels: int
    idle_share: float
    longest_gap_us: float
    buffer_requests: int
    overheads: dict[str, int]
    seed_copies: int
    syncs_in_steps: int
    first_delay_us: float
    median_delay_us: float
    spread: float


def read_events(path: Path) -> list[Event]:
    """All events of a small trace, plain or compressed."""
    data = path.read_bytes()
    loaded = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    events: list[Event] = loaded["traceEvents"]
    return events


def measure(events: Iterable[Event]) -> Shown:
    """Count everything at once."""
    spans = [event for event in events if event.get("ph") == "X"]
    work = sorted((e for e in spans if e.get("cat") in BUSY), key=lambda e: float(e["ts"]))
    kernels = [event for event in work if event["cat"] == "kernel"]
    steps = [e for e in spans if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
    overheads = Counter(str(e["name"]) for e in spans if e.get("cat") == "overhead")
    gaps, window = _gaps(work)
    delays = _delays(spans, work)
    return Shown(
        steps=len(steps),
        kernels=len(kernels),
        idle_share=sum(gaps) / window if window else 0.0,
        longest_gap_us=max(gaps, default=0.0),
        buffer_requests=overheads[REQUEST],
        overheads=dict(overheads),
        seed_copies=_seed_copies(spans, work),
        syncs_in_steps=_syncs(spans, steps),
        first_delay_us=delays[0] if delays else 0.0,
        median_delay_us=statistics.median(delays) if delays else 0.0,
        spread=_spread(kernels),
    )


def _end(event: Event) -> float:
    return float(event["ts"]) + float(event["dur"])


def _gaps(work: list[Event]) -> tuple[list[float], float]:
    """Idle times of the device between its first and its last work, and that window."""
    if not work:
        return [], 0.0
    gaps = []
    end = _end(work[0])
    for event in work[1:]:
        if float(event["ts"]) > end:
            gaps.append(float(event["ts"]) - end)
        end = max(end, _end(event))
    return gaps, end - float(work[0]["ts"])


def _delays(spans: list[Event], work: list[Event]) -> list[float]:
    """From launch to start, in the order of the work, where the launch is in the trace."""
    calls = {
        event["args"]["correlation"]: float(event["ts"])
        for event in spans
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    known = (e for e in work if e["args"].get("correlation") in calls)
    return [float(e["ts"]) - calls[e["args"]["correlation"]] for e in known]


def _seed_copies(spans: list[Event], work: list[Event]) -> int:
    """Device-to-device copies that belong to an addmm."""
    addmm = {e["args"].get("External id") for e in spans if e["name"] in ("aten::addmm", "aten::addmm_")}
    return sum(e["name"].startswith("Memcpy DtoD") and e["args"].get("External id") in addmm for e in work)


def _syncs(spans: list[Event], steps: list[Event]) -> int:
    """cudaDeviceSynchronize calls inside steps; the profiler's own comes after the last one."""
    starts = [float(e["ts"]) for e in spans if e["name"] == "cudaDeviceSynchronize"]
    return sum(any(float(s["ts"]) <= t < _end(s) for s in steps) for t in starts)


def _spread(kernels: list[Event]) -> float:
    """Longest over median duration of the kernel that took most of the time."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for event in kernels:
        args = event["args"]
        groups[event["name"], str(args.get("grid")), str(args.get("block"))].append(float(event["dur"]))
    longest = max(groups.values(), key=sum, default=[])
    median = statistics.median(longest) if longest else 0.0
    return max(longest) / median if median else 1.0
