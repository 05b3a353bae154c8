"""Makes jobs of many ranks out of recorded ones, with a planted straggler, and says what diagnosing them takes.

usage: python benchmarks/job.py FOLDER RANK_FILE... [--ranks 64] [--straggler 5] [--late-ms 3] [--run]

Every rank is a copy of a recorded one with its own rank number and a clock that is off and drifts. The straggler's host
pauses before each step's first op; all ranks wait for it in the collective that comes next, as they would.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_COLLECTIVE = re.compile(r"nccl(Dev)?Kernel", re.IGNORECASE)
_DRIFT_PPM, _OFFSET_US = 20.0, 3_000.0


def made(events: list[dict[str, Any]], late_us: float, *, straggles: bool) -> list[dict[str, Any]]:
    """The events with a pause of the straggler in every step: its own, or the others' waiting for it."""
    marks = [
        e["ts"]
        for e in events
        if str(e.get("name", "")).startswith("ProfilerStep") and e.get("cat") == "user_annotation"
    ]
    talks = sorted(
        (e for e in events if e.get("cat") == "kernel" and _COLLECTIVE.search(e["name"])),
        key=lambda e: e["ts"],
    )
    moved = [(mark + 1.0, late_us) for mark in sorted(marks)]
    if not straggles:
        first = [next((e for e in talks if e["ts"] > mark), None) for mark, _ in moved]
        longer = {id(e): late_us for e in first if e is not None}
        moved = [(e["ts"] + 1e-3, late_us) for e in first if e is not None]
    else:
        longer = {}
    out = []
    for event in events:
        if "ts" not in event:
            out.append(event)
            continue
        begin = sum(by for at, by in moved if event["ts"] >= at)
        end = sum(by for at, by in moved if event["ts"] + event.get("dur", 0) >= at)
        copy = dict(event, ts=event["ts"] + begin)
        if "dur" in event:
            copy["dur"] = event["dur"] + longer.get(id(event), 0.0 if id(event) in longer else end - begin)
        out.append(copy)
    return out


def write(folder: Path, sources: list[Path], ranks: int, straggler: int, late_ms: float) -> None:
    """One file per rank."""
    folder.mkdir(parents=True, exist_ok=True)
    source = json.loads(gzip.decompress(sources[0].read_bytes()))
    parts = {side: made(source["traceEvents"], late_ms * 1e3, straggles=side) for side in (False, True)}
    chance = random.Random(0)
    begin = min(e["ts"] for e in source["traceEvents"] if "ts" in e)
    for rank in range(ranks):
        off, drift = chance.uniform(-_OFFSET_US, _OFFSET_US), chance.uniform(-_DRIFT_PPM, _DRIFT_PPM) * 1e-6
        events = [
            dict(e, ts=e["ts"] + off + drift * (e["ts"] - begin)) if "ts" in e else e
            for e in parts[rank == straggler]
        ]
        head = {name: value for name, value in source.items() if name != "traceEvents"}
        head["distributedInfo"] = {**head.get("distributedInfo", {}), "rank": rank, "world_size": ranks}
        with gzip.open(folder / f"rank{rank}.json.gz", "wt", compresslevel=1) as stream:
            json.dump({**head, "traceEvents": events}, stream)


def main() -> None:
    """Make the job, and diagnose it where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--straggler", type=int, default=5)
    parser.add_argument("--late-ms", type=float, default=3.0)
    parser.add_argument("--run", action="store_true")
    options = parser.parse_args()
    if options.sources:
        write(options.folder, options.sources, options.ranks, options.straggler, options.late_ms)
    if options.run:
        files = sorted(options.folder.glob("*.json.gz"))
        begun = time.perf_counter()
        said = subprocess.run(
            [sys.executable, "-m", "traceanalyzer", "diagnose", str(options.folder), "--format", "json"],
            capture_output=True, check=True,
        )  # fmt: skip
        took = time.perf_counter() - begun
        report = json.loads(said.stdout)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(
            f"{len(files)} files, {took:.1f} s, {len(files) / took:.1f} files/s, {most:.0f} MB at most in one process"
        )
        print(f"{len(said.stdout) / 1e6:.2f} MB of JSON; culprits {report.get('job', {}).get('culprits')}")


if __name__ == "__main__":
    main()
